# SPDX-License-Identifier: Apache-2.0
"""Prints where the heads of a language model attend, with lenses on every layer of a transformers model.

    PYTHONPATH=build/release/python build/peers/venv/bin/python examples/python/heads.py

The model is a small Llama with random weights, so that nothing is downloaded. The same code works for any other model
that supports attention implementations by name. Needs torch and transformers.
"""

from typing import Any

import torch
import transformers
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

import fovea

LENSES = fovea.Lenses(statistics=True)


class Recorder:
    """An attention implementation that keeps the lens results of each layer, by layer number."""

    def __init__(self, lenses: fovea.Lenses) -> None:
        self.lenses = lenses
        self.seen: dict[int, fovea.Seen] = {}

    def __call__(
        self,
        module: Any,  # noqa: ANN401, a module of transformers
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        **_: object,
    ) -> tuple[torch.Tensor, None]:
        mask = fovea.causal() if attention_mask is None else attention_mask
        context, self.seen[module.layer_idx] = fovea.attention(
            query, key, value, mask=mask, scale=scaling, lenses=self.lenses
        )
        return context.transpose(1, 2).contiguous(), None


def watch(model: Any, recorder: Recorder) -> None:  # noqa: ANN401
    """Makes the model use the recorder as its attention implementation."""
    transformers.AttentionInterface.register("fovea_lenses", recorder)
    AttentionMaskInterface.register("fovea_lenses", sdpa_mask)
    model.set_attn_implementation("fovea_lenses")


def main() -> None:
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,  # with the smaller default all heads would attend uniformly
    )
    model = transformers.LlamaForCausalLM(config).eval()
    recorder = Recorder(LENSES)
    watch(model, recorder)
    with torch.no_grad():
        model(torch.randint(1, 97, (1, 256)))
    print("layer  head  entropy  distance  first key")
    for layer, seen in sorted(recorder.seen.items()):
        for head in range(seen.entropy.shape[1]):
            entropy, distance, first = (
                float(each[0, head].mean()) for each in (seen.entropy, seen.mean_distance, seen.first_key)
            )
            print(f"{layer:5}  {head:4}  {entropy:7.3f}  {distance:8.1f}  {first:9.4f}")


if __name__ == "__main__":
    main()
