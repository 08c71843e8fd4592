# SPDX-License-Identifier: Apache-2.0
"""The problems measured for every contender, and their useful work.

A cell is one problem of batch 1. It has equal numbers of queries and keys, or for decoding a few queries
against a long cache; tensors in float32 or bfloat16; and it computes attention, or the gradients of query,
key and value. Both the driver and the workers import this module, so it uses only the standard library.
"""

import dataclasses


# For lenses: the number of top weights per row, and the number of map cells per side.
TOP = 8
MAP = 256
LENSES = ("entropy", "maximum", "maximum_key", "mean_distance", "distance_variance", "first_key", "top_weights",
          "top_keys", "map", "received")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cell:
    name: str
    length: int
    key_dim: int
    value_dim: int
    q_heads: int
    kv_heads: int
    mask: str = "full"  # full, causal, window, padding or documents
    score: str = "plain"  # plain, softcap, alibi or bias
    window: int = 0  # window: a query sees itself and this many keys before it
    keys: int = 0  # padding: number of real (not padding) keys
    documents: int = 0  # documents: count, all of equal length
    softcap: float = 0.0
    queries: int = 0  # decoding: number of queries against `length` keys; 0: as many as keys
    backward: bool = False  # gradients; the forward pass is computed before timing
    lenses: bool = False  # also the lens results of Problem.lenses()
    dtype: str = "float32"  # or bfloat16: type of query, key, value and context
    two_threads: bool = False  # measured with two threads as well
    quick: bool = False  # part of --quick
    tiny: bool = False  # reported in microseconds per call

    @property
    def q_len(self):
        return self.queries or self.length

    def visible_pairs(self):
        """Returns the number of visible (query, key) pairs of one head."""
        n = self.length
        if self.mask == "causal":
            return n * (n + 1) // 2
        if self.mask == "window":
            full = min(self.window + 1, n)
            return full * (full + 1) // 2 + (n - full) * full
        if self.mask == "padding":
            return n * self.keys
        if self.mask == "documents":
            return n * (n // self.documents)
        return self.q_len * n

    def key_value_bytes(self):
        """Returns the size of all keys and values, which decoding has to read at least once."""
        return self.length * self.kv_heads * (self.key_dim + self.value_dim) * (2 if self.dtype == "bfloat16" else 4)

    def useful_flop(self):
        """Returns the flop of the products Q K' and P V, or for gradients of Q K', dO V', P' dO, dS K and dS' Q."""
        dims = 3 * self.key_dim + 2 * self.value_dim if self.backward else self.key_dim + self.value_dim
        return 2 * self.visible_pairs() * self.q_heads * dims

    def title(self):
        def both(a, b):
            return f"{a}" if a == b else f"{a}/{b}"

        dims, heads = both(self.key_dim, self.value_dim), both(self.q_heads, self.kv_heads)
        masks = {
            "full": "full",
            "causal": "causal",
            "window": f"window({self.window}, 0)",
            "padding": f"{self.keys} real keys",
            "documents": f"{self.documents} documents",
        }
        scores = {
            "plain": "",
            "softcap": f", softcap {self.softcap:g}",
            "alibi": ", ALiBi",
            "bias": ", dense bias",
        }
        stored = "" if self.dtype == "float32" else f", {self.dtype}"
        if self.queries:
            query = "1 query" if self.queries == 1 else f"{self.queries} queries"
            return f"{query}, {self.length} keys D={dims} H={heads}{stored}"
        what = "gradients, " if self.backward else "with all lenses, " if self.lenses else ""
        return f"{what}{masks[self.mask]}{scores[self.score]}, N={self.length} D={dims} H={heads}{stored}"


def cell(name, length, dim, heads, *, value_dim=None, kv_heads=None, **rest):
    return Cell(name, length, dim, value_dim or dim, heads, kv_heads or heads, **rest)


def every_cell():
    cells = [cell("tiny", 4, 3, 1, tiny=True, quick=True)]
    for dim in (64, 128):
        cells += [
            cell(f"full_4096_{dim}", 4096, dim, 2, two_threads=True),
            cell(f"full_1024_{dim}", 1024, dim, 8, two_threads=dim == 64),
            cell(f"full_512_{dim}", 512, dim, 8, two_threads=True, quick=dim == 64),
            cell(f"causal_4096_{dim}", 4096, dim, 2, mask="causal", two_threads=True),
            cell(f"causal_512_{dim}", 512, dim, 8, mask="causal", two_threads=dim == 64, quick=dim == 64),
        ]
    cells += [cell(f"full_2048_{dim}", 2048, dim, 2, quick=dim == 59) for dim in (40, 59, 80, 96, 256)]
    cells += [
        cell("full_2048_128_64", 2048, 128, 2, value_dim=64, quick=True),
        cell("full_2048_64_128", 2048, 64, 2, value_dim=128),
        cell("grouped_1024_64", 1024, 64, 8, kv_heads=2, two_threads=True, quick=True),
        cell("padding_2048_64", 2048, 64, 2, mask="padding", keys=1536, quick=True),
        cell("documents_4096_64", 4096, 64, 2, mask="documents", documents=8, two_threads=True),
        cell("softcap_4096_64", 4096, 64, 2, score="softcap", softcap=30.0),
        cell("alibi_4096_64", 4096, 64, 2, score="alibi", two_threads=True),
        cell("bias_4096_64", 4096, 64, 2, score="bias"),
        cell("window_16384_64", 16384, 64, 1, mask="window", window=1023, two_threads=True),
    ]
    for name, length, dim, heads, mask in (("4096_64", 4096, 64, 2, "full"), ("4096_128", 4096, 128, 2, "full"),
                                           ("512_64", 512, 64, 8, "full"), ("causal_4096_128", 4096, 128, 2, "causal")):
        cells.append(cell(f"bf16_{name}", length, dim, heads, mask=mask, dtype="bfloat16",
                          two_threads=name == "4096_128", quick=length == 512))
    for dtype, short in (("float32", "f32"), ("bfloat16", "bf16")):
        for dim in (64, 128):
            cells += [
                cell(f"backward_{short}_2048_{dim}", 2048, dim, 2, backward=True, dtype=dtype, two_threads=True),
                cell(f"backward_{short}_causal_2048_{dim}", 2048, dim, 2, mask="causal", backward=True, dtype=dtype),
                cell(f"backward_{short}_512_{dim}", 512, dim, 8, backward=True, dtype=dtype, quick=dim == 64),
            ]
    cells += [
        cell("lenses_4096_64", 4096, 64, 2, lenses=True),
        cell("lenses_512_64", 512, 64, 8, lenses=True, quick=True),
        cell("backward_f32_2048_128_64", 2048, 128, 2, value_dim=64, backward=True),
        cell("backward_f32_grouped_1024_64", 1024, 64, 8, kv_heads=2, backward=True),
    ]
    for dtype, short in (("float32", "f32"), ("bfloat16", "bf16")):
        for heads in (8, 32):
            cells.append(cell(f"decode_{short}_{heads}", 16384, 128, heads, kv_heads=8, queries=1, dtype=dtype,
                              two_threads=True, quick=heads == 32))
    return cells
