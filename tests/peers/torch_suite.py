# SPDX-License-Identifier: Apache-2.0
"""PyTorch's F.scaled_dot_product_attention as the judge: the shapes, masks and tolerances of its own
test/test_transformers.py, where its fused attention for CPUs is compared with its plain one; here
the engine takes the place of the fused one. A second grid has other lengths, widths and shared
heads. Inputs are drawn anew from a seed for each case.

tests/peers/run runs it in bench/peers' virtual environment, with the path of engine_call.cc's
library.
"""

import itertools
import sys
import zlib

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import engine
import suite

ATOL, RTOL = 1e-5, 5e-6  # test_transformers.py's for float32 and float64
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def plain(query, key, value, **options):
    """PyTorch's plain attention."""
    with sdpa_kernel(backends=[SDPBackend.MATH]):
        return F.scaled_dot_product_attention(query, key, value, **options)


class Judge:
    def __init__(self, fovea):
        self.fovea = fovea

    def check(self, query, key, value, mask=None, causal=False, scale=None, expected=None):
        """The largest error of the engine on PyTorch's tensors, without copies of them."""
        shared = query.shape[1] != key.shape[1]
        if expected is None:
            expected = plain(query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=shared)
        is_bool = mask is not None and mask.dtype == torch.bool
        problem = engine.Problem(
            query=query.numpy(), key=key.numpy(), value=value.numpy(),
            visible=mask.numpy() if is_bool else None,
            bias=mask.numpy() if mask is not None and not is_bool else None,
            causal=causal, scale=scale)  # top-left, as PyTorch has it
        context = torch.empty(problem.context_shape(), dtype=query.dtype).numpy()
        self.fovea.forward(problem, context)
        return suite.compare("context", context, expected.numpy(), RTOL, ATOL)


def seed(*case):
    torch.manual_seed(zlib.crc32(repr(case).encode()))


def heads(packed, count):
    """[batch, length, heads * dim] as [batch, heads, length, dim]."""
    batch, length, width = packed.shape
    return packed.view(batch, length, count, width // count).transpose(1, 2)


def random_mask(kind, shape, dtype):
    if kind == "bool":
        return torch.randint(0, 2, size=shape, dtype=torch.bool)
    return torch.randn(shape, dtype=dtype)


def fused_vs_math(judge, dtype):
    """test_scaled_dot_product_fused_attention_vs_math_cpu: query, key and value in one tensor."""
    # Fovea computes float64 in its reference, which takes its time.
    batches, lengths = ((2, 12), (267, 1030)) if dtype == "float32" else ((2,), (267,))

    def case(batch, length, n_head, head_dim, causal):
        seed("packed", batch, length, n_head, head_dim, causal)
        x = torch.randn(batch, length, 3 * n_head * head_dim, dtype=DTYPES[dtype])
        return judge.check(*(heads(part, n_head) for part in x.split(n_head * head_dim, dim=2)), causal=causal)

    return {f"batch {b} length {n} heads {h} dim {d} causal {c}": lambda a=(b, n, h, d, c): case(*a)
            for b, n, h, d, c in itertools.product(batches, lengths, (1, 3), (8, 16), (True, False))}


def mask_vs_math(judge, dtype):
    """test_scaled_dot_product_fused_attention_mask_vs_math_cpu: every way of broadcasting."""
    batch, q_len, kv_len, n_head, head_dim = 2, 267, 514, 3, 8
    shapes = [*itertools.product((q_len, 1), (kv_len, 1)),
              *itertools.product((batch, 1), (n_head, 1), (q_len, 1), (kv_len, 1))]

    def case(kind, shape):
        seed("mask", kind, shape)
        query, key, value = (heads(torch.randn(batch, length, n_head * head_dim, dtype=DTYPES[dtype]), n_head)
                             for length in (q_len, kv_len, kv_len))
        return judge.check(query, key, value, mask=random_mask(kind, shape, query.dtype))

    return {f"{kind} {list(shape)}": lambda kind=kind, shape=shape: case(kind, shape)
            for kind, shape in itertools.product(("bool", "float"), shapes)}


def single_cases(judge):
    def banded():
        """test_scaled_dot_product_fused_attention_with_inf: a band of ten, said by -inf."""
        seed("banded")
        full = torch.full((600, 600), float("-inf"))
        mask = torch.triu(full, diagonal=1) + torch.tril(full, diagonal=-10)
        return judge.check(*(heads(torch.randn(1, 600, 16), 2) for _ in range(3)), mask=mask)

    def negative_scale():
        """test_scaled_dot_product_attention_math_with_negative_scale: scores of 10^5."""
        seed("negative scale")
        x = torch.randn(1, 3, 64, 64)
        expected = (torch.matmul(x, x.transpose(-1, -2)) / -0.0001).softmax(dim=-1) @ x
        return judge.check(x, x, x, scale=-1 / 0.0001, expected=expected)

    return {"a band of -inf": banded, "a negative scale": negative_scale}


def shapes_and_heads(judge):
    """Lengths off the vectors' width, more queries than keys, widths, shared heads."""
    lengths = ((64, 64), (77, 128), (128, 77), (1, 128), (33, 1))

    def case(q_len, kv_len, head_dim, value_dim, n_heads, mask):
        seed(q_len, kv_len, head_dim, value_dim, n_heads, mask)
        q_heads, kv_heads = n_heads
        query = torch.randn(2, q_heads, q_len, head_dim)
        key = torch.randn(2, kv_heads, kv_len, head_dim)
        value = torch.randn(2, kv_heads, kv_len, value_dim)
        tensor = random_mask(mask, (q_len, kv_len), query.dtype) if mask in ("bool", "float") else None
        return judge.check(query, key, value, mask=tensor, causal=mask == "causal")

    return {f"lengths {q} and {k}, dims {d} and {v}, heads {h}, mask {m}":
            lambda a=(q, k, d, v, h, m): case(*a)
            for (q, k), (d, v), h, m in itertools.product(
                lengths, ((16, 16), (40, 40), (64, 80), (128, 128)), ((4, 4), (6, 2), (4, 1)),
                ("none", "causal", "bool", "float"))}


def not_there(reason):
    raise suite.NotRun(reason)


def main():
    judge, tally = Judge(engine.Engine(sys.argv[1])), suite.Tally()
    print(f"PyTorch {torch.__version__}, scaled_dot_product_attention on the grid of test_transformers.py:")
    for dtype in DTYPES:
        tally.run_group(f"fused vs math, {dtype}", fused_vs_math(judge, dtype))
        tally.run_group(f"fused vs math with a mask, {dtype}", mask_vs_math(judge, dtype))
    tally.run_group("single cases, float32", single_cases(judge))
    tally.run_group("other shapes and shared heads, float32", shapes_and_heads(judge))
    for name in ("bfloat16", "float16"):
        tally.run(f"fused vs math, {name}", lambda: not_there("Fovea has no 16-bit types yet"))
    tally.run("fused vs math, train", lambda: not_there("Fovea has no backward pass yet"))
    return tally.close(f"PyTorch {torch.__version__}")


if __name__ == "__main__":
    sys.exit(main())
