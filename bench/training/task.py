# SPDX-License-Identifier: Apache-2.0
"""What bench/training trains: the model's sizes, its work, and batches to learn from.

The task is to say a sequence backwards. Its symbols are drawn as words of a language are, the n-th as often as
1 / n, so that there is something to be learned at once (which are frequent), and something that takes a
while (where to look).
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Task:
    """A transformer with embeddings, sines and cosines for places, and a linear map to the vocabulary."""

    width: int = 256
    heads: int = 4
    layers: int = 3  # of the encoder, and as many of the decoder
    inner: int = 1024
    vocabulary: int = 1000
    batch: int = 64
    length: int = 40  # of source and target
    batches: int = 200
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    clip: float = 1.0

    def parameters_of_products(self):
        """Numbers in the matrices by which rows of the encoder's side, and of the decoder's, are multiplied."""
        square, wide = self.width**2, self.width * self.inner
        # Queries, keys, values and the context, then the two of the feed-forward block.
        encoder = self.layers * (4 * square + 2 * wide) + self.layers * 2 * square  # keys, values of the memory
        decoder = self.layers * (4 * square + 2 * square + 2 * wide) + self.width * self.vocabulary
        return encoder, decoder

    def flop(self):
        """Of a step's products: each is done once forward and twice backward; attention 2 (2 head_dim) forward
        and 2 (5 head_dim) backward for each pair of a query and a key that it sees."""
        rows = self.batch * self.length
        products = 3 * 2 * rows * sum(self.parameters_of_products())
        causal = self.length * (self.length + 1) // 2
        pairs = self.batch * self.heads * self.layers * (2 * self.length**2 + causal)
        return products + pairs * 2 * 7 * (self.width // self.heads)


# Symbol 0 begins a target; it is never part of a sequence.
BEGIN = 0


def batches(task, seed):
    """{"source", "target", "wanted"}: int64 [batches, batch, length]; wanted is source from its end, and
    target the same, one place later."""
    import numpy

    random = numpy.random.default_rng(seed)
    often = 1.0 / numpy.arange(1, task.vocabulary)
    source = random.choice(numpy.arange(1, task.vocabulary), p=often / often.sum(),
                           size=(task.batches, task.batch, task.length))  # fmt: skip
    wanted = source[:, :, ::-1]
    target = numpy.concatenate([numpy.full_like(wanted[:, :, :1], BEGIN), wanted[:, :, :-1]], axis=2)
    return {name: numpy.ascontiguousarray(array, dtype=numpy.int64)
            for name, array in (("source", source), ("target", target), ("wanted", wanted))}  # fmt: skip
