# SPDX-License-Identifier: Apache-2.0
"""The places of attentions in a model: the name, the layer and the kind of each, from the paths of its modules and the
order of their calls."""

from __future__ import annotations

from typing import NamedTuple

import torch

_CROSS = ("cross", "encoder_attn", "encdec", "encoder_attention")


class Place(NamedTuple):
    """The place of an attention in a model."""

    name: str
    layer: int
    kind: str


class ModulePlaces:
    """The places of a model's attentions. A layer is the first number in the path of its module, such as 13 of
    model.layers.13.self_attn, unless an attention with the same path but for the numbers has that layer: a module
    called for several layers (ALBERT), or blocks in numbered stages (Swin). It is then the next layer, and those
    behind it move on. Attentions without a number follow those that were called before."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._paths: dict[int, list[str]] = {}
        for path, module in self._modules.items():
            paths = self._paths.setdefault(id(module), [path])
            # A module that is in the list of layers several times. Other paths are names of the same place.
            if path != paths[0] and _pattern(path) == _pattern(paths[0]):
                paths.append(path)
        decoders = torch.nn.TransformerDecoder, torch.nn.TransformerDecoderLayer
        self._has_decoder = any(isinstance(module, decoders) for module in self._modules.values())
        self._taken: dict[str, set[int]] = {}  # layers, by pattern
        self._moved: dict[str, int] = {}  # by how much, by pattern
        self._ends: dict[str, int] = {}  # behind the last layer, by kind

    def has(self, module: torch.nn.Module | None) -> bool:
        """Returns whether a module is in the model. None, an unknown module, is."""
        return module is None or id(module) in self._paths

    def of(self, module: torch.nn.Module | None, count: int) -> Place:
        """Returns the place of the call of a module that `count` others precede in a forward pass. To be asked once
        for each, in the order of the calls."""
        paths = [""] if module is None else self._paths[id(module)]
        path = paths[count % len(paths)]
        name = path or ("attention" if module is None else type(module).__name__)
        kind = self._kind(path, module)
        layer = self._layer(path, kind)
        again = count // len(paths)
        return Place(f"{name}.{again}" if again else name, layer, kind)

    def _layer(self, path: str, kind: str) -> int:
        number = next((int(part) for part in path.split(".") if part.isdigit()), None)
        if number is None:
            layer = self._ends.get(kind, 0)
        else:
            pattern = _pattern(path)
            taken = self._taken.setdefault(pattern, set())
            layer = number + self._moved.get(pattern, 0)
            while layer in taken:
                layer += 1
            taken.add(layer)
            self._moved[pattern] = layer - number
        self._ends[kind] = max(self._ends.get(kind, 0), layer + 1)
        return layer

    def _kind(self, path: str, module: torch.nn.Module | None) -> str:
        lower = path.lower()
        if any(word in lower for word in _CROSS):
            return "cross"
        parts = path.split(".") if path else []
        above = [self._modules[".".join(parts[:length])] for length in range(len(parts), -1, -1)]
        for one in above:
            if isinstance(one, torch.nn.TransformerDecoderLayer):
                return "cross" if module is one.multihead_attn else "decoder"
            if isinstance(one, torch.nn.TransformerEncoderLayer) and self._has_decoder:
                return "encoder"
        if not any(getattr(getattr(one, "config", None), "is_encoder_decoder", False) for one in above):
            return "self"
        return next((part for part in lower.split(".") if part in ("encoder", "decoder")), "decoder")


def _pattern(path: str) -> str:
    """Returns a module path without its numbers."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
