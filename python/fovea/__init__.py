# SPDX-License-Identifier: Apache-2.0
"""Fovea: fast exact attention on CPUs, with inspection of the weights.

    attention, decode               fast attention for NumPy, torch, JAX and other arrays
    attention_backward              gradients of attention
    scaled_dot_product_attention    attention with PyTorch's signature
    fovea.torch                     attention in PyTorch's autograd; imported separately
    fovea.transformers              attention of models of transformers; imported separately
    fovea.distributed               attention of sequences cut over several processes; imported separately
    fovea.nn                        trainable layers; imported separately
    causal, window, prefix, ...     masks as rules, combined with & and |
    Lenses, weights, Weights        statistics of the weights, and parts of the unstored matrix
    map, received, heads            weights pooled to a picture, or summarised per key and per head
    record, Recording               the attention of a PyTorch model on a text, in a file
    diff                            heads that differ between two recordings
    view                            all of this as pages in a notebook or browser
    explain, Scene, Trace           every step of a small example, as arrays, text or a page
    reference                       attention in plain float64, the oracle
    KvCache, Rotary, apply_rotary   text generation
    Dropout, manual_seed            dropout of weights in training
    random, info                    NumPy's legacy random stream; build information

`python -m fovea` is the command line.
"""

from . import random, reference
from ._explain import explain
from ._fovea import (
    BuildInfo,
    CacheFull,
    Dropout,
    Gradients,
    HeadSummary,
    KvCache,
    Lenses,
    Mask,
    Received,
    RelativeTable,
    Rotary,
    Scene,
    Seen,
    Trace,
    apply_rotary,
    attention,
    attention_backward,
    causal,
    decode,
    default_alibi_slopes,
    dense,
    documents,
    heads,
    info,
    key_lengths,
    manual_seed,
    prefix,
    received,
    scaled_dot_product_attention,
    weights,
    window,
)
from ._map import map  # noqa: A004
from ._recording.recording import RecordedAttention, Recording, Tokens, diff, record
from ._viewer.address import ViewState
from ._viewer.view import View, view
from ._weights import Weights

__version__ = info().version

__all__ = [
    "BuildInfo",
    "CacheFull",
    "Dropout",
    "Gradients",
    "HeadSummary",
    "KvCache",
    "Lenses",
    "Mask",
    "Received",
    "RecordedAttention",
    "Recording",
    "RelativeTable",
    "Rotary",
    "Scene",
    "Seen",
    "Tokens",
    "Trace",
    "View",
    "ViewState",
    "Weights",
    "apply_rotary",
    "attention",
    "attention_backward",
    "causal",
    "decode",
    "default_alibi_slopes",
    "dense",
    "diff",
    "documents",
    "explain",
    "heads",
    "info",
    "key_lengths",
    "manual_seed",
    "map",
    "prefix",
    "random",
    "received",
    "record",
    "reference",
    "scaled_dot_product_attention",
    "view",
    "weights",
    "window",
]
