# SPDX-License-Identifier: Apache-2.0
"""Fovea through its Python package: fovea.attention and fovea.decode of build/release/python, on NumPy
arrays, each call with a new array for its result, as bench/python/run measures it."""

import numpy as np

from . import Cannot, Prepared


class FoveaPackage:
    def __init__(self, threads):
        import fovea

        self.fovea, self.threads = fovea, threads

    def versions(self):
        return {"fovea": self.fovea.__version__, "numpy": np.__version__}

    def prepare(self, problem):
        cell = problem.cell
        if cell.backward or cell.score != "plain" or cell.mask not in ("full", "causal"):
            raise Cannot("is here for the problems of bench/python alone")
        dtype = np.float32
        if cell.dtype == "bfloat16":
            import ml_dtypes

            dtype = ml_dtypes.bfloat16
        arrays = [array.astype(dtype) for array in (problem.query, problem.key, problem.value)]
        if cell.tiny:
            arrays = [array[0, 0] for array in arrays]
        attention = self.fovea.decode if cell.queries else self.fovea.attention
        last = []

        # As a caller would write them: **{} would cost a tenth of the smallest call.
        def run(repeats):
            query, key, value = arrays
            for _ in range(repeats):
                context = attention(query, key, value)
            last[:] = [context]

        def run_causal(repeats):
            query, key, value = arrays
            mask = self.fovea.causal()
            for _ in range(repeats):
                context = attention(query, key, value, mask=mask)
            last[:] = [context]

        shape = (1, cell.q_heads, cell.q_len, cell.value_dim)
        run_cell = run_causal if cell.mask == "causal" else run
        return Prepared(run_cell, lambda: [last[0].astype(np.float32).reshape(shape)])
