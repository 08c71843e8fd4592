# SPDX-License-Identifier: Apache-2.0
"""Fovea itself: attention_forward of build/release's shared library, through fovea_call.cc.

The batch of calls loops in C++, as a C++ program would make them.
"""

import ctypes
import os

import numpy as np

from . import Prepared


EXTENTS = ("q_heads", "kv_heads", "q_len", "kv_len", "key_dim", "value_dim")
ARRAYS = ("query", "key", "value", "context", "bias", "document_ids")
REST = ("causal", "window_left", "window_right", "key_length", "alibi", "threads")


class Call(ctypes.Structure):
    """struct fovea_call of fovea_call.cc."""

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
        context = np.full((1, cell.q_heads, cell.length, cell.value_dim), np.nan, np.float32)
        arrays = {
            "query": problem.query,
            "key": problem.key,
            "value": problem.value,
            "context": context,
            "bias": problem.dense_bias,
            "document_ids": problem.document_ids,
        }
        addresses = {name: None if array is None else array.ctypes.data for name, array in arrays.items()}
        window = cell.mask == "window"
        call = Call(
            q_heads=cell.q_heads,
            kv_heads=cell.kv_heads,
            q_len=cell.length,
            kv_len=cell.length,
            key_dim=cell.key_dim,
            value_dim=cell.value_dim,
            causal=cell.mask == "causal",
            window_left=cell.window if window else -1,
            window_right=0 if window else -1,
            key_length=cell.keys if cell.mask == "padding" else -1,
            alibi=cell.score == "alibi",
            threads=self.threads,
            softcap=cell.softcap,
            **addresses,
        )

        def run(repeats):
            message = self.shim.fovea_call_run(ctypes.byref(call), repeats)
            if message:
                raise RuntimeError(message.decode())

        return Prepared(run, lambda: arrays["context"])
