# SPDX-License-Identifier: Apache-2.0
"""Addresses of the viewer's pages (docs/view.md) as states, and back. The path selects the content; the fragment
selects the view of it."""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

_HEAD = re.compile(r"([\w-]+)\.(\d+)")


@dataclasses.dataclass(frozen=True)
class ViewState:
    """The state of a viewer's page.

    page    "map", "text", "heads", "compare", "scene", or "start" for the list of inputs
    input   the id of the input, "" on the start page; View.inputs lists them
    layer   the number of the layer, or its label if the recording has several attentions or batch items of that layer
            ("cross-13", "13-b1"); None if the page shows no single head
    head    the head's index in the model
    centre  (query, key) in the middle of the map; None: the whole matrix
    scale   tokens per CSS pixel; None: the whole matrix
    locked  (query, key) of the locked cell, or None
    """

    page: str = "start"
    input: str = ""
    layer: int | str | None = None
    head: int | None = None
    centre: tuple[float, float] | None = None
    scale: float | None = None
    locked: tuple[int, int] | None = None


def _fields(fragment: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in fragment.split("&") if part)
    return {name: value for name, _, value in pairs}


def _numbers(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in unquote(text or "").split(",") if text)
    except ValueError:
        return ()


def _layer(label: str) -> int | str:
    return int(label) if label.isdecimal() else label


def state_of(address: str) -> ViewState:
    """Reads the address of a page: path and fragment."""
    path, _, fragment = address.partition("#")
    parts = [unquote(part) for part in path.split("/") if part]
    fields = _fields(fragment)
    if not parts:
        return ViewState()
    page, name = parts[0], parts[1] if len(parts) > 1 else ""
    head = _HEAD.fullmatch(parts[2]) if len(parts) > 2 else None
    label, number = (head[1], head[2]) if head else (fields.get("layer"), fields.get("head"))
    centre, scale = _numbers(fields.get("at")), _numbers(fields.get("scale"))
    locked = [_numbers(fields.get(side)) for side in ("query", "key")]
    return ViewState(
        page,
        name,
        None if label is None else _layer(unquote(label)),
        int(number) if number is not None and number.isdecimal() else None,
        (centre[0], centre[1]) if len(centre) == 2 else None,
        scale[0] if len(scale) == 1 else None,
        (int(locked[0][0]), int(locked[1][0])) if all(len(each) == 1 for each in locked) else None,
    )


def address_of(state: ViewState, before: str = "") -> str:
    """Returns the address of a state. Colours, tone and the like are taken from the address `before`."""
    kept = _fields(before.partition("#")[2])
    for name in ("at", "scale", "query", "key", "layer", "head", "token"):
        kept.pop(name, None)
    if state.page == "start":
        return "/"
    path = f"/{state.page}/{quote(state.input, safe='')}"
    fields: dict[str, str] = {}
    if state.page == "heads":
        fields |= {} if state.layer is None else {"layer": str(state.layer)}
        fields |= {} if state.head is None else {"head": str(state.head)}
    elif state.page == "compare":
        path = before.partition("#")[0]
    elif state.layer is not None and state.head is not None:
        path += f"/{state.layer}.{state.head}"
    if state.centre is not None:
        fields["at"] = ",".join(f"{place:.9g}" for place in state.centre)
    if state.scale is not None:
        fields["scale"] = f"{state.scale:.6g}"
    if state.locked is not None:
        fields |= {"query": str(state.locked[0]), "key": str(state.locked[1])}
    fragment = "&".join(f"{name}={value}" for name, value in (fields | kept).items())
    return f"{path}#{fragment}" if fragment else path


def _pair(name: str, value: Any, kind: type) -> tuple[Any, Any] | None:  # noqa: ANN401  (checked here)
    """Returns two numbers, of a query and a key."""
    if value is None:
        return None
    try:
        query, key = value
        return (operator.index(query), operator.index(key)) if kind is int else (float(query), float(key))
    except (TypeError, ValueError):
        what = "indices" if kind is int else "numbers"
        raise TypeError(f"{name}: expected two {what}, of a query and a key, got {value!r}") from None


def changed(state: ViewState, changes: Mapping[str, Any], inputs: list[dict[str, Any]]) -> ViewState:
    """Returns a state with some fields changed, which are checked against the entries of the inputs.

    Raises TypeError and ValueError with the field, the expected and the actual value."""
    names = [field.name for field in dataclasses.fields(ViewState)]
    for name in changes:
        if name not in names:
            raise TypeError(f"state: expected some of {', '.join(names)}, got {name!r}")
    new = dataclasses.replace(state, **changes)
    of_cells = any(changes.get(name) is not None for name in ("centre", "scale", "locked"))
    if "page" not in changes and (
        new.page in ("start", "scene", "compare") or (new.page == "heads" and (of_cells or "head" in changes))
    ):
        new = dataclasses.replace(new, page="map")
    pages = ("map", "text", "heads", "compare", "scene", "start")
    if new.page not in pages:
        raise ValueError(f"page: expected one of {', '.join(pages)}, got {new.page!r}")
    if new.page == "start":
        return ViewState()
    if new.page == "compare":
        if "page" in changes and state.page != "compare":
            raise ValueError('page: expected a page of one head, got "compare", which is opened in the viewer')
        return dataclasses.replace(
            new, centre=_pair("centre", new.centre, float), locked=_pair("locked", new.locked, int)
        )
    known = {entry["id"]: entry for entry in inputs}
    scene = new.page == "scene"
    usable = [name for name, entry in known.items() if (entry["kind"] == "scene") == scene]
    chosen = new.input
    if "input" not in changes and chosen not in usable:
        chosen = usable[0] if usable else ""
    if chosen not in usable:
        raise ValueError(f"input: expected one of {', '.join(usable) or 'none'}, got {chosen!r}")
    if scene:
        return ViewState("scene", chosen)
    return _checked(
        dataclasses.replace(new, input=chosen), known[chosen], chosen != state.input and "layer" not in changes
    )


def _checked(new: ViewState, entry: dict[str, Any], other: bool) -> ViewState:
    layers = {str(layer["label"]): layer for layer in entry["layers"]}
    if not layers:
        raise ValueError(f"input: expected one with weights, got {new.input!r}, whose attentions are all empty")
    if new.layer is None or (other and str(new.layer) not in layers):
        new = dataclasses.replace(new, layer=_layer(next(iter(layers))))
    layer = layers.get(str(new.layer))
    if layer is None:
        labels = list(layers)
        listed = ", ".join(labels[:12]) + (f" and {len(labels) - 12} more" if len(labels) > 12 else "")
        raise ValueError(f"layer: expected one of {listed}, got {new.layer!r}")
    heads = layer["heads"]
    if new.head is None:
        new = dataclasses.replace(new, head=heads[0])
    elif new.head not in heads:
        raise ValueError(f"head: expected one of {', '.join(map(str, heads))}, got {new.head!r}")
    lengths = (layer["queries"], layer["keys"])
    centre, locked = _pair("centre", new.centre, float), _pair("locked", new.locked, int)
    for place, length, side in zip(locked or (), lengths, ("query", "key"), strict=False):
        if not 0 <= place < length:
            raise ValueError(f"locked: expected a {side} from 0 to {length - 1}, got {place}")
    for place, length in zip(centre or (), lengths, strict=False):
        if not 0 <= place <= length:
            raise ValueError(f"centre: expected from 0 to {length}, got {place:g}")
    scale = new.scale
    if scale is not None and not (isinstance(scale, numbers.Real) and math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale: expected tokens per pixel, above 0, got {scale!r}")
    return dataclasses.replace(new, centre=centre, locked=locked)
