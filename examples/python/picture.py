# SPDX-License-Identifier: Apache-2.0
"""Pictures of weights and masks for the notebooks: SVG, which also works in viewers that omit iframes.

Needs only NumPy. Larger numbers have a greener cell; in a mask, visible cells are green.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

PAPER, GREEN = np.array([252, 251, 248]), np.array([4, 98, 80])
INK, SOFT, LIGHT, LINE = "#1d2126", "#5b626b", "#ffffff", "#dedbd2"
FONT = "system-ui, 'Noto Sans', 'Liberation Sans', sans-serif"
MARGIN, TITLE, LETTER = 8, 20, 8


class Picture:
    """An SVG image that a notebook displays."""

    def __init__(self, width: int, height: int, body: str, said: str) -> None:
        self.width, self.height, self.body, self.said = width, height, body, said

    def _repr_svg_(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{html.escape(self.said)}" '
            f'font-family="{FONT}" font-size="13">\n'
            f'<rect width="100%" height="100%" rx="6" fill="rgb({",".join(map(str, PAPER))})"/>\n{self.body}</svg>\n'
        )

    def __repr__(self) -> str:
        return f"Picture of {self.said}"


def text(x: float, y: float, words: str, anchor: str, color: str = INK) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}">{html.escape(words)}</text>\n'


def heat(values: ArrayLike, rows: Sequence[object] = (), columns: Sequence[object] = (), title: str = "") -> Picture:
    """Draws a matrix as coloured cells.

    values         [rows, columns]: numbers of 0 or more, printed in their cells (integers without decimals, so that 0
                   means exactly 0), or bools
    rows, columns  optional labels, words or numbers, to the left and above
    """
    matrix = np.asarray(values)
    left_names, top_names = list(map(str, rows)), list(map(str, columns))
    width, height = (20, 20) if matrix.dtype == bool else (52, 26)
    if top_names:
        width = max(width, LETTER * max(map(len, top_names)) + 8)
    left = MARGIN + (LETTER * max(map(len, left_names)) + 8 if left_names else 0)
    top = MARGIN + (TITLE if title else 0) + (TITLE if top_names else 0)
    parts = [text(left, MARGIN + 12, title, "start")] if title else []
    parts += [text(left + (j + 0.5) * width, top - 7, word, "middle") for j, word in enumerate(top_names)]
    parts += [text(left - 8, top + (i + 0.5) * height + 5, word, "end") for i, word in enumerate(left_names)]
    largest = float(matrix.max()) or 1.0
    for (i, j), value in np.ndenumerate(matrix):
        share = float(value) / largest
        color = ",".join(str(round(one)) for one in PAPER + share * (GREEN - PAPER))
        x, y = left + j * width, top + i * height
        parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="rgb({color})" stroke="{LINE}"/>\n')
        if matrix.dtype != bool:
            number = f"{value:.0f}" if value == round(value) else f"{value:.2f}"
            # At a share of 0.74, light and dark text contrast equally with the green.
            ink = SOFT if value == 0 else LIGHT if share > 0.74 else INK
            parts.append(text(x + width / 2, y + height / 2 + 5, number, "middle", ink))
    # The title may be wider than its matrix.
    right = max(left + matrix.shape[1] * width, left + LETTER * len(title))
    said = f"{title or 'a matrix'}, {matrix.shape[0]} x {matrix.shape[1]}"
    return Picture(right + MARGIN, top + matrix.shape[0] * height + MARGIN, "".join(parts), said)


def beside(*pictures: Picture) -> Picture:
    """Places pictures in one row."""
    body, x = "", 0
    for one in pictures:
        body += f'<g transform="translate({x} 0)">\n{one.body}</g>\n'
        x += one.width + MARGIN
    return Picture(x - MARGIN, max(one.height for one in pictures), body, "; ".join(one.said for one in pictures))
