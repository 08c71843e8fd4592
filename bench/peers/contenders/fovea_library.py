# SPDX-License-Identifier: Apache-2.0
"""Fovea's C++ library: attention_forward, attention_decode and attention_backward of the shared library in
build/release, called through fovea_call.cc.

Repeated calls are made by a loop in C++.
"""

import ctypes
import os

import numpy as np

import cells

from . import Prepared


EXTENTS = ("q_heads", "kv_heads", "q_len", "kv_len", "key_dim", "value_dim")
ARRAYS = ("query", "key", "value", "context", "bias", "document_ids",
          "lse", "grad_context", "grad_query", "grad_key", "grad_value", *cells.LENSES)  # fmt: skip
REST = ("causal", "window_left", "window_right", "key_length", "alibi", "threads", "bfloat16", "decode", "backward",
        "lenses", "top", "map_cells")


class Call(ctypes.Structure):
    """struct fovea_call in fovea_call.cc."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in EXTENTS],
        *[(name, ctypes.c_void_p) for name in ARRAYS],
        *[(name, ctypes.c_int64) for name in REST],
        ("softcap", ctypes.c_double),
    ]


class Fovea:
    def __init__(self, threads):
        self.threads = threads
        self.shim = ctypes.CDLL(os.environ["FOVEA_CALL_LIBRARY"])
        self.shim.fovea_call_run.argtypes = [ctypes.POINTER(Call), ctypes.c_int64]
        self.shim.fovea_call_run.restype = ctypes.c_char_p
        self.shim.fovea_call_version.restype = ctypes.c_char_p

    def versions(self):
        return {"fovea": self.shim.fovea_call_version().decode()}

    def prepare(self, problem):
        cell = problem.cell
        bfloat16 = cell.dtype == "bfloat16"
        context_shape = (1, cell.q_heads, cell.q_len, cell.value_dim)

        def output(shape):
            return in_type(np.full(shape, np.nan, np.float32), bfloat16)

        arrays = {
            "query": in_type(problem.query, bfloat16),
            "key": in_type(problem.key, bfloat16),
            "value": in_type(problem.value, bfloat16),
            "context": output(context_shape),
            "bias": problem.dense_bias,
            "document_ids": problem.document_ids,
        }
        names = ["context"]
        if cell.backward:
            names = ["grad_query", "grad_key", "grad_value"]
            arrays |= {"grad_" + name: output(getattr(problem, name).shape) for name in ("query", "key", "value")}
            arrays["grad_context"] = in_type(problem.grad_context, bfloat16)
            arrays["lse"] = np.empty(context_shape[:3], np.float32)
        if cell.lenses:
            names += cells.LENSES
            arrays |= watched(cell)
            arrays["lse"] = np.empty(context_shape[:3], np.float32)
        addresses = {name: None if array is None else array.ctypes.data for name, array in arrays.items()}
        window = cell.mask == "window"
        call = Call(
            q_heads=cell.q_heads,
            kv_heads=cell.kv_heads,
            q_len=cell.q_len,
            kv_len=cell.length,
            key_dim=cell.key_dim,
            value_dim=cell.value_dim,
            causal=cell.mask == "causal",
            window_left=cell.window if window else -1,
            window_right=0 if window else -1,
            key_length=cell.keys if cell.mask == "padding" else -1,
            alibi=cell.score == "alibi",
            threads=self.threads,
            bfloat16=bfloat16,
            decode=cell.queries > 0,
            lenses=cell.lenses,
            top=cells.TOP,
            map_cells=cells.MAP,
            softcap=cell.softcap,
            **addresses,
        )

        def run(repeats):
            message = self.shim.fovea_call_run(ctypes.byref(call), repeats)
            if message:
                raise RuntimeError(message.decode())

        if cell.backward:
            run(1)
            call.backward = True
        return Prepared(run, lambda: [as_float32(arrays[name]) for name in names])


def watched(cell):
    """Returns output arrays for the lenses."""
    rows = (1, cell.q_heads, cell.length)
    arrays = {name: np.full(rows, np.nan, np.float32) for name in cells.LENSES}
    arrays["maximum_key"] = np.zeros(rows, np.int64)
    arrays["top_keys"] = np.zeros((*rows, cells.TOP), np.int64)
    arrays["top_weights"] = np.full((*rows, cells.TOP), np.nan, np.float32)
    arrays["map"] = np.full((*rows[:2], cells.MAP, cells.MAP), np.nan, np.float32)
    return arrays


def in_type(array, bfloat16):
    """Returns a float32 array in its storage type. If `bfloat16`, all values must be exact in bfloat16, and the result
    holds the upper 16 bits of each element."""
    return (array.view(np.uint32) >> 16).astype(np.uint16) if bfloat16 else array


def as_float32(array):
    return array if array.dtype != np.uint16 else (array.astype(np.uint32) << 16).view(np.float32)
