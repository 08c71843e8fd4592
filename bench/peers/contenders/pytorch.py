# SPDX-License-Identifier: Apache-2.0
"""PyTorch: F.scaled_dot_product_attention, and FlexAttention through torch.compile."""

import cells

from . import Cannot, Prepared


class Torch:
    def __init__(self, threads):
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch = torch

    def versions(self):
        return {"torch": self.torch.__version__}

    def in_type(self, problem, *arrays):
        dtype = getattr(self.torch, problem.cell.dtype)
        return [self.torch.from_numpy(array).to(dtype) for array in arrays]

    def inputs(self, problem):
        tensors = self.in_type(problem, problem.query, problem.key, problem.value)
        return [tensor.requires_grad_(problem.cell.backward) for tensor in tensors]

    def prepared(self, call, how, note=""):
        last = []

        def run(repeats):
            for _ in range(repeats):
                results = call()
            last[:] = results

        def results():
            return [(result.float() if result.is_floating_point() else result).numpy() for result in last]

        return Prepared(run, results, how, note)


class TorchSdpa(Torch):
    def prepare(self, problem):
        torch, cell = self.torch, problem.cell
        if cell.score == "softcap":
            raise Cannot("no softcap, and a mask cannot replace it")
        query, key, value = self.inputs(problem)
        if cell.lenses:
            return self.stored(problem, query, key, value)
        options, how = {}, "native"
        if cell.mask == "causal" and cell.score == "plain":
            options["is_causal"] = True
        elif (mask := problem.additive_mask()) is not None:
            # A float mask, because PyTorch converts a boolean mask to float at every call.
            options["attn_mask"] = torch.from_numpy(mask)
            how = "native" if cell.score == "bias" and cell.mask == "full" else "mask tensor"
        if cell.q_heads != cell.kv_heads:
            options["enable_gqa"] = True
        attention = torch.nn.functional.scaled_dot_product_attention
        with torch.set_grad_enabled(cell.backward):
            fused = torch._fused_sdp_choice(query, key, value, **options) != 0
            note = "" if fused else "not fused: PyTorch falls back to its plain path"
            if not cell.backward:
                return self.prepared(lambda: [attention(query, key, value, **options)], how, note)
            context = attention(query, key, value, **options)
        (grad_context,) = self.in_type(problem, problem.grad_context)
        inputs = (query, key, value)
        gradients = torch.autograd.grad
        return self.prepared(lambda: gradients(context, inputs, grad_context, retain_graph=True), how, note)


    def stored(self, problem, query, key, value):
        """Prepares a call that stores the weights, because fused calls do not return them."""
        torch, n = self.torch, problem.cell.length
        places = torch.arange(n, dtype=torch.float32) - (n - 1) / 2  # centred, to reduce rounding errors
        moments = torch.stack([places, places**2], dim=1)
        side = n // cells.MAP

        def watch():
            weights = torch.softmax(query @ key.transpose(-2, -1) * problem.scale, dim=-1)
            maximum, maximum_key = weights.max(dim=-1)
            mean, square = (weights @ moments).unbind(dim=-1)
            top_weights, top_keys = weights.topk(cells.TOP, dim=-1)
            return [weights @ value, torch.special.entr(weights).sum(dim=-1), maximum, maximum_key,
                    places - mean, square - mean**2, weights[..., 0], top_weights, top_keys,
                    weights.unflatten(-1, (-1, side)).sum(dim=-1).unflatten(-2, (-1, side)).sum(dim=-2),
                    weights.sum(dim=-2)]  # fmt: skip

        return self.prepared(watch, "native", "not fused: the weights are stored")


class TorchFlex(Torch):
    def prepare(self, problem):
        from torch.nn.attention import flex_attention as flex

        torch, cell = self.torch, problem.cell
        if cell.backward:
            raise Cannot("no backward pass on CPUs")
        if cell.lenses:
            raise Cannot("does not return weights")
        torch._dynamo.reset()
        query, key, value = self.inputs(problem)
        options = {}
        if cell.q_heads != cell.kv_heads:
            options["enable_gqa"] = True
        if (rule := self.mask_rule(problem)) is not None:
            n = cell.length
            options["block_mask"] = flex.create_block_mask(rule, None, None, n, n, device="cpu")
        options["score_mod"] = self.score_rule(problem)
        attention = torch.compile(flex.flex_attention, dynamic=False)
        how = "native"
        return self.prepared(lambda: [attention(query, key, value, **options)], how)

    def mask_rule(self, problem):
        cell = problem.cell
        if cell.mask == "causal":
            return lambda b, h, i, j: i >= j
        if cell.mask == "window":
            window = cell.window
            return lambda b, h, i, j: (i >= j) & (i - j <= window)
        if cell.mask == "padding":
            keys = cell.keys
            return lambda b, h, i, j: j < keys
        if cell.mask == "documents":
            ids = self.torch.from_numpy(problem.document_ids)
            return lambda b, h, i, j: ids[i] == ids[j]
        return None

    def score_rule(self, problem):
        torch, cell = self.torch, problem.cell
        if cell.score == "softcap":
            cap = cell.softcap
            return lambda score, b, h, i, j: cap * torch.tanh(score / cap)
        if cell.score == "alibi":
            slopes = torch.from_numpy(problem.slopes()).float()
            return lambda score, b, h, i, j: score - slopes[h] * (i - j).abs()
        if cell.score == "bias":
            bias = torch.from_numpy(problem.dense_bias[0])
            return lambda score, b, h, i, j: score + bias[h, i, j]
        return None
