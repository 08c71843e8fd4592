# SPDX-License-Identifier: Apache-2.0
"""Trainable layers: explicit forward and backward passes on NumPy arrays.

    Linear, LayerNorm, Embedding, Positions, Dropout, FeedForward
    MultiHeadAttention, TransformerEncoderLayer, TransformerDecoderLayer, Transformer
    AdditiveAttention, GeneralAttention, Gru, GruDecoder
    Model                           state shared by the layers of one model; a single Layer is also a Model
    CrossEntropy                    the loss for predicting tokens
    Adam, clip_gradients, Schedule  the optimizer, gradient clipping, learning rates
    gradient_norm, sinusoidal_positions
    save, load                      parameters in files, with the names of PyTorch's modules
    set_threads                     the number of threads

Imported separately, because it needs oneDNN.
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
