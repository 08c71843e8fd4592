# SPDX-License-Identifier: Apache-2.0
"""Layers that learn: explicit forward and backward passes, with arrays of NumPy.

    Linear, LayerNorm, Embedding, Positions, Dropout, FeedForward
    MultiHeadAttention, TransformerEncoderLayer, TransformerDecoderLayer, Transformer
    AdditiveAttention, GeneralAttention, Gru, GruDecoder
    Model                           what the layers of one model share; a Layer alone is one by itself
    CrossEntropy                    the loss of guessing tokens
    Adam, clip_gradients, Schedule  how parameters move
    gradient_norm, sinusoidal_positions
    save, load                      parameters in files, by the names that PyTorch's modules give them
    set_threads                     on how many threads

Imported by itself, as it needs oneDNN.
"""

from ._nn import (
    Adam,
    AdditiveAttention,
    CrossEntropy,
    Dropout,
    Embedding,
    FeedForward,
    GeneralAttention,
    Gru,
    GruDecoder,
    Layer,
    LayerNorm,
    Linear,
    Model,
    MultiHeadAttention,
    Positions,
    Schedule,
    Transformer,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    clip_gradients,
    gradient_norm,
    load,
    save,
    set_threads,
    sinusoidal_positions,
)

__all__ = [
    "Adam",
    "AdditiveAttention",
    "CrossEntropy",
    "Dropout",
    "Embedding",
    "FeedForward",
    "GeneralAttention",
    "Gru",
    "GruDecoder",
    "Layer",
    "LayerNorm",
    "Linear",
    "Model",
    "MultiHeadAttention",
    "Positions",
    "Schedule",
    "Transformer",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
    "clip_gradients",
    "gradient_norm",
    "load",
    "save",
    "set_threads",
    "sinusoidal_positions",
]
