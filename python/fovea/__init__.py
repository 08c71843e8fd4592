# SPDX-License-Identifier: Apache-2.0
"""Fovea: exact attention on CPUs that one can look inside.

    attention, decode               fast, for arrays of NumPy, torch, JAX and others
    attention_backward              gradients of attention
    scaled_dot_product_attention    the same by PyTorch's signature
    fovea.torch                     attention in PyTorch's autograd, to be imported by itself
    fovea.nn                        layers that learn, to be imported by itself
    causal, window, prefix, ...     masks as rules, joined by & and |
    Lenses, weights, Weights        what is to be seen of the weights, which are never stored
    map, received, heads            pooled to a picture; summed up for each key, and for each head
    explain, Scene, Trace           every step of a small example, as arrays, text or a page
    reference                       the same in plain float64, which says what is right
    KvCache, Rotary, apply_rotary   for generating text
    Dropout, manual_seed            which weights are left out in training
    random, info                    NumPy's legacy stream; what this build is

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
    "RelativeTable",
    "Rotary",
    "Scene",
    "Seen",
    "Trace",
    "Weights",
    "apply_rotary",
    "attention",
    "attention_backward",
    "causal",
    "decode",
    "default_alibi_slopes",
    "dense",
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
    "reference",
    "scaled_dot_product_attention",
    "weights",
    "window",
]
