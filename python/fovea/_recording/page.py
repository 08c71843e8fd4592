# SPDX-License-Identifier: Apache-2.0
"""A recording in a notebook: a table of layers x heads, with a small map of the weights of each head."""

from __future__ import annotations

import base64
import html
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._map import map as attention_map

if TYPE_CHECKING:
    from .recording import RecordedAttention, Recording

_CELLS = 32  # rows and columns of a map
_SIZE = 44  # pixels of a map on the page
_COLOR = (37, 99, 186)  # readable on white and on black
_MOST_HEADS = 2000
# Multiply-adds that take a few seconds. A page that a notebook shows by itself must not take longer.
_MOST_WORK = 1e11


def _png(shade: NDArray[Any]) -> bytes:
    """Returns a PNG image with one pixel for each number from 0, transparent, to 1."""
    rows, columns = shade.shape
    pixels = np.empty((rows, columns, 4), np.uint8)
    pixels[..., :3] = _COLOR
    pixels[..., 3] = np.round(255 * shade)
    lines = np.hstack([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, 4 * columns)])

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _maps(attention: RecordedAttention) -> list[str]:
    """Returns the maps of the heads of the first batch item as image elements."""
    size = (min(_CELLS, attention.shape[2]), min(_CELLS, attention.shape[3]))
    batch = slice(0, 1)
    cells = attention_map(attention.query, attention.key, size, reduce="max", lse=attention.lse, **attention.options)[
        batch
    ][0]
    images = []
    for head, found in zip(attention.heads, cells, strict=True):
        largest = np.nanmax(found, initial=0.0)
        # Square roots, because most weights are small.
        shade = np.sqrt(np.nan_to_num(found) / largest) if largest > 0 else np.zeros_like(found)
        data = base64.b64encode(_png(shade)).decode()
        told = html.escape(f"{attention.name}, head {head}: largest weight {largest:.2f}")
        images.append(
            f'<img src="data:image/png;base64,{data}" width="{_SIZE}" height="{_SIZE}" alt="{told}" title="{told}" '
            'style="image-rendering: pixelated; border: 1px solid #8888; margin: 0">'
        )
    return images


def overview(recording: Recording) -> str:
    """Returns the HTML of a recording. Maps are of the first batch item; they are left out where they would take more
    than a few seconds."""
    attentions = list(recording)
    heads = sum(len(each.heads) for each in attentions)
    work = sum(float(np.prod(each.shape)) * each.query.shape[-1] for each in attentions)
    title = html.escape(recording.model or "Recording")
    about = [html.escape(text) for text in (recording.source, f"{len(attentions)} attentions, {heads} heads") if text]
    page = [f"<div><p><b>{title}</b><br>{'<br>'.join(about)}</p>"]
    nothing = any(0 in each.shape for each in attentions)
    if heads > _MOST_HEADS or work > _MOST_WORK or nothing or not attentions:
        shown = attentions[:100]
        page += ["<ul>", *(f"<li>{html.escape(repr(each))}</li>" for each in shown), "</ul>"]
        if len(attentions) > len(shown):
            page.append(f"<p>and {len(attentions) - len(shown)} more</p>")
        return "".join([*page, "</div>"])
    page.append('<table style="border-collapse: collapse">')
    for each in attentions:
        images = "".join(f'<td style="padding: 1px">{image}</td>' for image in _maps(each))
        page.append(
            '<tr><th scope="row" style="text-align: left; font-weight: normal">'
            f"{html.escape(each.name)}</th>{images}</tr>"
        )
    return "".join([*page, "</table></div>"])
