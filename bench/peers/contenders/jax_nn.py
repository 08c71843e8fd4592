# SPDX-License-Identifier: Apache-2.0
"""jax.nn.dot_product_attention, compiled. It writes out the N x N scores whatever the mask."""

import numpy as np

from . import Cannot, Prepared


class Jax:
    def __init__(self, threads):
        import jax

        self.jax = jax

    def versions(self):
        import jaxlib

        return {"jax": self.jax.__version__, "jaxlib": jaxlib.__version__}

    def prepare(self, problem):
        jax, cell = self.jax, problem.cell
        if cell.score == "softcap":
            raise Cannot("no softcap")
        if cell.key_dim != cell.value_dim:
            raise Cannot("key and value dimensions have to be the same")
        options, how, tensors = {}, "native", {}
        if cell.mask == "causal":
            options["is_causal"] = True
        elif cell.mask == "window":
            options["local_window_size"] = (cell.window, 0)
        elif cell.mask == "padding":
            tensors["key_value_seq_lengths"] = np.array([cell.keys], np.int32)
        elif cell.mask == "documents":
            tensors["mask"], how = problem.mask_tensor(), "mask tensor"
        if problem.bias_tensor() is not None:
            tensors["bias"] = problem.bias_tensor()
            how = "native" if cell.score == "bias" else "mask tensor"

        def length_before_heads(array):
            return jax.device_put(np.ascontiguousarray(array.transpose(0, 2, 1, 3))).astype(cell.dtype)

        inputs = [length_before_heads(array) for array in (problem.query, problem.key, problem.value)]
        tensors = {name: jax.device_put(tensor) for name, tensor in tensors.items()}
        attention = jax.jit(lambda q, k, v, rest: jax.nn.dot_product_attention(q, k, v, **rest, **options))
        last = []

        def run(repeats):
            for _ in range(repeats):
                context = attention(*inputs, tensors).block_until_ready()
            last[:] = [context]

        return Prepared(run, lambda: np.asarray(last[0]).astype(np.float32).transpose(0, 2, 1, 3), how)
