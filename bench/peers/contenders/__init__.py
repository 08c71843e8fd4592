# SPDX-License-Identifier: Apache-2.0
"""One module per library, one class per contender; NAMES maps contenders to modules and classes.

A contender is constructed with its number of threads, in a process whose affinity and environment are already
set accordingly. Its methods:

    versions()         returns the versions that its results depend on, such as {"torch": "2.13.0"}
    prepare(problem)   returns a Prepared, or raises Cannot with the reason if the problem is not supported

A contender imports its library in the constructor, so that every worker loads only one library.
"""

import dataclasses
import importlib
from collections.abc import Callable


class Cannot(Exception):
    """The contender does not support this problem."""


@dataclasses.dataclass
class Prepared:
    run: Callable  # run(repeats) makes this many calls in sequence and returns when all have finished
    # Returns the last call's context, or its gradients of query, key and value: float32 NumPy arrays
    # [1, heads, length, dim].
    results: Callable
    how: str = "native"  # native, or "mask tensor": the mask or bias is passed as a tensor
    note: str = ""  # a remark on the measurement
    # Other ways to make the same calls, by name: further Prepared, timed alternately with run in the same
    # process. Differences in memory placement between two processes exceed the cost of a thin layer.
    beside: dict = dataclasses.field(default_factory=dict)


NAMES = {
    "fovea": ("fovea_library", "Fovea"),
    "torch_sdpa": ("pytorch", "TorchSdpa"),
    "torch_flex": ("pytorch", "TorchFlex"),
    "ort_mha": ("onnx_runtime", "OrtMultiHeadAttention"),
    "ort_gqa": ("onnx_runtime", "OrtGroupQueryAttention"),
    "ort_attention": ("onnx_runtime", "OrtAttention"),
    "jax": ("jax_nn", "Jax"),
    "numpy": ("numpy_calls", "NumPy"),
    # Only for bench/python/run; bench/peers/run omits it.
    "fovea_package": ("fovea_package", "FoveaPackage"),
}


def make(name, threads):
    module, kind = NAMES[name]
    return getattr(importlib.import_module(f"contenders.{module}"), kind)(threads)
