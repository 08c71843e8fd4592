# SPDX-License-Identifier: Apache-2.0
"""Fovea's engine and reference on NumPy arrays, through engine_call.cc."""

import ctypes
import dataclasses
from typing import List, Optional

import numpy as np


class Tensor(ctypes.Structure):
    """struct peer_tensor of engine_call.cc."""

    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int64), ("rank", ctypes.c_int64),
                ("extents", ctypes.c_int64 * 6), ("strides", ctypes.c_int64 * 6)]

    @classmethod
    def of(cls, array):
        if array is None:
            return cls()
        return cls(array.ctypes.data, ord(array.dtype.char), array.ndim, array.shape,
                   tuple(stride // array.itemsize for stride in array.strides))


class Call(ctypes.Structure):
    """struct peer_problem of engine_call.cc."""

    _fields_ = [
        *[(name, Tensor) for name in ("query", "key", "value", "bias", "visible")],
        ("causal", ctypes.c_int64),
        ("offsets", ctypes.POINTER(ctypes.c_int64)),
        ("offset_count", ctypes.c_int64),
        ("key_lengths", ctypes.POINTER(ctypes.c_int64)),
        ("key_length_count", ctypes.c_int64),
        ("scale", ctypes.c_double),
        ("softcap", ctypes.c_double),
    ]


@dataclasses.dataclass
class Problem:
    """Arrays are [batch, heads, length, dim], float32 or float64, of any strides."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    bias: Optional[np.ndarray] = None  # added to the scores; broadcast
    visible: Optional[np.ndarray] = None  # bool; broadcast
    causal: bool = False
    offsets: List[int] = dataclasses.field(default_factory=lambda: [0])  # one, or one per batch item
    key_lengths: Optional[List[int]] = None
    scale: Optional[float] = None
    softcap: float = 0.0

    def context_shape(self):
        return (*self.query.shape[:3], self.value.shape[3])

    def scores_shape(self):
        return (*self.query.shape[:3], self.key.shape[2])


def integers(values):
    """A pointer, or null, and how many there are."""
    if values is None:
        return None, 0
    return (ctypes.c_int64 * len(values))(*map(int, values)), len(values)


class Engine:
    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        self.run_forward = library.peer_attention_forward
        self.run_forward.argtypes = [ctypes.POINTER(Call), ctypes.POINTER(Tensor), ctypes.POINTER(Tensor)]
        self.run_step = library.peer_attention_step
        self.run_step.argtypes = [ctypes.POINTER(Call), ctypes.c_char_p, ctypes.POINTER(Tensor)]
        for function in (self.run_forward, self.run_step):
            function.restype = ctypes.c_char_p

    def forward(self, problem, context):
        """attention_forward into `context`, of any strides. A ValueError is what Fovea refuses."""
        context.fill(np.nan)
        lse = np.full(problem.query.shape[:3], np.nan, context.dtype)
        self._check(self.run_forward(self._call(problem), Tensor.of(context), Tensor.of(lse)))
        return lse

    def step(self, problem, name):
        """An array of the reference's steps, float64; of scores, also the last step before it that
        the problem has."""
        shapes = {"context": problem.context_shape(), "lse": problem.query.shape[:3]}
        output = np.full(shapes.get(name, problem.scores_shape()), np.nan)
        self._check(self.run_step(self._call(problem), name.encode(), Tensor.of(output)))
        return output

    @staticmethod
    def _call(problem):
        arrays = {name: Tensor.of(getattr(problem, name)) for name in ("query", "key", "value", "bias", "visible")}
        offsets, offset_count = integers(problem.offsets)
        key_lengths, key_length_count = integers(problem.key_lengths)
        return Call(
            **arrays,
            causal=problem.causal,
            offsets=offsets,
            offset_count=offset_count,
            key_lengths=key_lengths,
            key_length_count=key_length_count,
            scale=np.nan if problem.scale is None else problem.scale,
            softcap=problem.softcap,
        )

    @staticmethod
    def _check(message):
        if message is not None:
            raise ValueError(message.decode())
