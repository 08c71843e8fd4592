# SPDX-License-Identifier: Apache-2.0
"""Random problems of everyday kinds, and named problems, for which the project has targets. The same seed always gives
the same problems, whatever the type, the number of threads and the speed of the machine."""

import dataclasses
import itertools
import random

# Head dimensions, as often as models have them.
DIMS = (64, 64, 64, 128, 128, 128, 80, 96, 32, 256)
HEADS = ((1, 1), (2, 2), (4, 4), (8, 8), (12, 12), (16, 16), (32, 32), (8, 2), (32, 8), (16, 4), (14, 2))


@dataclasses.dataclass(frozen=True)
class Shape:
    kind: str
    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    dim: int
    causal: bool  # aligned at the last query and key
    mask: str = ""  # one of MASKS, given as a tensor
    form: str = ""  # of the mask: "boolean", or "bias" of 0 and -inf

    def title(self):
        heads = f"{self.q_heads}" if self.q_heads == self.kv_heads else f"{self.q_heads}/{self.kv_heads}"
        lengths = f"{self.q_len}" if self.q_len == self.kv_len else f"{self.q_len} on {self.kv_len}"
        causal = ", causal" if self.causal else ""
        mask = f", {self.mask} as a {self.form}" if self.mask else ""
        return f"batch {self.batch}, {heads} heads, N {lengths}, D {self.dim}{causal}{mask}"


def between(rng, least, most):
    """Returns a whole number; small ones are as likely as large ones, on a logarithmic scale. Half of them are multiples
    of 8."""
    number = round(least * (most / least) ** rng.random())
    return max(number // 8 * 8, least) if rng.random() < 0.5 else number


def square(kind, causal):
    def draw(rng):
        length = between(rng, 256, 2048)
        # Few heads for long inputs, so that a call takes milliseconds.
        heads = rng.choice([pair for pair in HEADS if pair[0] * length <= 8192])
        return Shape(kind, 1, *heads, length, length, rng.choice(DIMS), causal)

    return draw


def cached(kind, least, most, least_keys, causal):
    def draw(rng):
        queries, heads = between(rng, least, most), rng.choice(HEADS)
        keys = max(between(rng, least_keys, 16384 if heads[1] <= 8 else 4096), queries)
        return Shape(kind, 1, *heads, queries, keys, rng.choice(DIMS), causal and queries > 1)

    return draw


def short(rng):
    length = between(rng, 16, 200)
    batch, heads = between(rng, 1, 32), rng.choice(HEADS)
    return Shape("short batches", batch, *heads, length, length, rng.choice(DIMS), rng.random() < 0.5)


MASKS = ("causal mask", "padding", "causal mask with padding", "window")


def masked(rng):
    batch, heads, mask = between(rng, 1, 16), rng.choice(HEADS), rng.choice(MASKS)
    keys = between(rng, 16, min(2048, 16384 // (batch * heads[0])))
    # With one query on a cache, only padding hides something.
    queries = 1 if mask == "padding" and rng.random() < 0.5 else keys
    return Shape("mask tensors", batch, *heads, queries, keys, rng.choice(DIMS), False, mask,
                 rng.choice(("boolean", "bias")))


DRAW = {
    "full": square("full", False),
    "causal": square("causal", True),
    "one query": cached("one query", 1, 1, 64, False),
    "few queries": cached("few queries", 2, 64, 64, False),
    "chunk": cached("chunk", 64, 512, 512, True),
    "short batches": short,
    "mask tensors": masked,
}
MEANING = {
    "full": "256 to 2,048 queries and keys",
    "causal": "the same, causal",
    "one query": "1 query on a cache of 64 to 16,384 keys",
    "few queries": "2 to 64 queries on a cache",
    "chunk": "64 to 512 queries at the end of a cache, causal",
    "short batches": "16 to 200 tokens, 1 to 32 items, 1 to 32 heads",
    "mask tensors": "16 to 2,048 tokens, or 1 query; causal, padded or a window, boolean or added",
}


def shapes(seed):
    """Yields problems without end, one of each kind in turn."""
    rng = random.Random(seed)
    while True:
        for draw in DRAW.values():
            yield draw(rng)


SHORT, FEW, FEW_GROUPED, ONE = "16 to 64 tokens", "8 to 32 queries", "8 to 32 queries, 32/8 heads", "1 query"
NAMED_MEANING = {
    SHORT: "8 items of 8 heads, D 64 and 128, full and causal",
    FEW: "8 heads, 256 to 4,096 keys, D 64 and 128",
    FEW_GROUPED: "256 to 4,096 keys, D 64 and 128",
    ONE: "8 and 32/8 heads, 16 to 16,384 keys, D 128",
}


def named():
    """Yields the named problems: the same on every machine."""
    for length, dim, causal in itertools.product((16, 32, 64), (64, 128), (False, True)):
        yield Shape(SHORT, 8, 8, 8, length, length, dim, causal)
    for kind, heads in ((FEW, (8, 8)), (FEW_GROUPED, (32, 8))):
        for queries, keys, dim in itertools.product((8, 16, 32), (256, 1024, 4096), (64, 128)):
            yield Shape(kind, 1, *heads, queries, keys, dim, False)
    for heads, keys in itertools.product(((8, 8), (32, 8)), (16, 256, 4096, 16384)):
        yield Shape(ONE, 1, *heads, 1, keys, 128, False)
