# SPDX-License-Identifier: Apache-2.0
"""The training task of bench/training: the model's sizes, its work, and the batches.

The task is to reverse a sequence. Symbols follow Zipf's law, as words of a language do: the n-th has a frequency
proportional to 1 / n. The model thus learns something quickly (which symbols are frequent) and something slowly
(which position to attend to).
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Task:
    """A transformer with embeddings, sinusoidal positions and a linear projection to the vocabulary."""

    width: int = 256
    heads: int = 4
    layers: int = 3  # of the encoder and of the decoder, each
    inner: int = 1024
    vocabulary: int = 1000
    batch: int = 64
    length: int = 40  # of source and target
    batches: int = 200
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    clip: float = 1.0

    def parameters_of_products(self):
        """Returns the number of matrix elements that multiply each source position and each target position."""
        square, wide = self.width**2, self.width * self.inner
        # Projections of queries, keys, values and context, and the two matrices of the feed-forward block.
        encoder = self.layers * (4 * square + 2 * wide) + self.layers * 2 * square  # cross-attention keys and values
        decoder = self.layers * (4 * square + 2 * square + 2 * wide) + self.width * self.vocabulary
        return encoder, decoder

    def flop(self):
        """Returns the flop of the matrix products of a step. Each product is computed once in the forward pass, twice
        in the backward pass. Attention takes 2 (2 head_dim) flop in the forward pass and 2 (5 head_dim) in the
        backward pass for each pair of a query and a visible key."""
        rows = self.batch * self.length
        products = 3 * 2 * rows * sum(self.parameters_of_products())
        causal = self.length * (self.length + 1) // 2
        pairs = self.batch * self.heads * self.layers * (2 * self.length**2 + causal)
        return products + pairs * 2 * 7 * (self.width // self.heads)


# Symbol 0 starts a target and never occurs in a sequence.
BEGIN = 0


def batches(task, seed):
    """Returns {"source", "target", "wanted"}, int64 [batches, batch, length]: `wanted` is `source` reversed, and
    `target` is `wanted` shifted by one position."""
    import numpy

    random = numpy.random.default_rng(seed)
    often = 1.0 / numpy.arange(1, task.vocabulary)
    source = random.choice(numpy.arange(1, task.vocabulary), p=often / often.sum(),
                           size=(task.batches, task.batch, task.length))  # fmt: skip
    wanted = source[:, :, ::-1]
    target = numpy.concatenate([numpy.full_like(wanted[:, :, :1], BEGIN), wanted[:, :, :-1]], axis=2)
    return {name: numpy.ascontiguousarray(array, dtype=numpy.int64)
            for name, array in (("source", source), ("target", target), ("wanted", wanted))}  # fmt: skip
