# SPDX-License-Identifier: Apache-2.0
"""The oracle: attention in plain scalar float64, with every intermediate step, and its gradients."""

from ._fovea import Steps
from ._fovea import reference_attention as attention
from ._fovea import reference_attention_gradients as attention_gradients
from ._fovea import reference_attention_steps as attention_steps

__all__ = ["Steps", "attention", "attention_gradients", "attention_steps"]
