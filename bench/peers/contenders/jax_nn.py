# SPDX-License-Identifier: Apache-2.0
"""jax.nn.dot_product_attention, compiled. It stores the N x N scores regardless of the mask, and keeps the weights
for the gradients."""

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
        if cell.lenses:
            raise Cannot("does not return weights")
        if cell.score == "softcap":
            raise Cannot("no softcap")
        if cell.key_dim != cell.value_dim:
            raise Cannot("key and value dimensions must be equal")
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
        if cell.backward:
            # The residuals of the forward pass are computed here and passed to the timed function.
            left = jax.jit(lambda q, k, v: jax.vjp(lambda *qkv: attention(*qkv, tensors), q, k, v)[1])(*inputs)
            backward, grad_context = jax.jit(lambda left, grad: left(grad)), length_before_heads(problem.grad_context)
        last = []

        def run(repeats):
            for _ in range(repeats):
                results = backward(left, grad_context) if cell.backward else [attention(*inputs, tensors)]
                jax.block_until_ready(results)
            last[:] = results

        return Prepared(run, lambda: [np.asarray(result).astype(np.float32).transpose(0, 2, 1, 3) for result in last],
                        how)
