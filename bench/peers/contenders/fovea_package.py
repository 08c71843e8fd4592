# SPDX-License-Identifier: Apache-2.0
"""Fovea's Python package, for bench/python/run: fovea.attention and fovea.decode of build/release/python on NumPy
arrays, with a new array for each result. Timed alternately: the same calls into an existing array, and the
same calls from C++, which also write to an existing array."""

import numpy as np

from . import Cannot, Prepared
from .fovea_library import Fovea


class FoveaPackage:
    def __init__(self, threads):
        import fovea

        self.fovea, self.threads = fovea, threads

    def versions(self):
        return {"fovea": self.fovea.__version__, "numpy": np.__version__}

    def prepare(self, problem):
        cell = problem.cell
        if cell.backward or cell.lenses or cell.score != "plain" or cell.mask not in ("full", "causal"):
            raise Cannot("is here for the problems of bench/python alone")
        dtype = np.float32
        if cell.dtype == "bfloat16":
            import ml_dtypes

            dtype = ml_dtypes.bfloat16
        arrays = [array.astype(dtype, copy=False) for array in (problem.query, problem.key, problem.value)]
        if cell.tiny:
            arrays = [array[0, 0] for array in arrays]
        attention = self.fovea.decode if cell.queries else self.fovea.attention
        options = {"mask": self.fovea.causal()} if cell.mask == "causal" else {}
        last = []

        # A separate loop without options: passing **{} would add a tenth to the time of the smallest call.
        def run(repeats):
            query, key, value = arrays
            for _ in range(repeats):
                context = attention(query, key, value)
            last[:] = [context]

        def run_with_options(repeats):
            query, key, value = arrays
            for _ in range(repeats):
                context = attention(query, key, value, **options)
            last[:] = [context]

        out = np.empty((*arrays[0].shape[:-1], cell.value_dim), dtype)

        def run_into(repeats):
            query, key, value = arrays
            for _ in range(repeats):
                attention(query, key, value, out=out, **options)

        def results(array):
            return [array.astype(np.float32).reshape(1, cell.q_heads, cell.q_len, cell.value_dim)]

        beside = {"into": Prepared(run_into, lambda: results(out)), "cpp": Fovea(self.threads).prepare(problem)}
        return Prepared(run_with_options if options else run, lambda: results(last[0]), beside=beside)
