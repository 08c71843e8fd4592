# SPDX-License-Identifier: Apache-2.0
"""One module per library, one class per contender; NAMES says which is where.

A contender is made with its number of threads, inside a process whose affinity and environment
already say so, and has

    versions()         {"torch": "2.13.0"}: what its figures depend on
    prepare(problem)   a Prepared, or raises Cannot with the reason why it does not apply

It imports its library when it is made, not when its module is: every worker has one library only.
"""

import dataclasses
import importlib
from collections.abc import Callable


class Cannot(Exception):
    """The contender has no way to say this problem."""


@dataclasses.dataclass
class Prepared:
    run: Callable  # run(repeats): as many calls, one after the other, finished when it returns
    # The last call's context, or its gradients of query, key and value: float32 NumPy arrays
    # [1, heads, length, dim].
    results: Callable
    how: str = "native"  # native, or "mask tensor": what the problem needs was written out N x N
    note: str = ""  # what else a reader of the figure should know
    # By name, other ways to compute the same, measured in alternation with run in this very process: two
    # processes differ by more, in where their memory lies, than a thin layer costs.
    beside: dict = dataclasses.field(default_factory=dict)  # of further Prepared


NAMES = {
    "fovea": ("fovea_library", "Fovea"),
    "torch_sdpa": ("pytorch", "TorchSdpa"),
    "torch_flex": ("pytorch", "TorchFlex"),
    "ort_mha": ("onnx_runtime", "OrtMultiHeadAttention"),
    "ort_gqa": ("onnx_runtime", "OrtGroupQueryAttention"),
    "ort_attention": ("onnx_runtime", "OrtAttention"),
    "jax": ("jax_nn", "Jax"),
    "numpy": ("numpy_calls", "NumPy"),
    # bench/python/run's own; bench/peers/run leaves it out.
    "fovea_package": ("fovea_package", "FoveaPackage"),
}


def make(name, threads):
    module, kind = NAMES[name]
    return getattr(importlib.import_module(f"contenders.{module}"), kind)(threads)
