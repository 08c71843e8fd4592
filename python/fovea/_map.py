# SPDX-License-Identifier: Apache-2.0
"""map(): pooled weights of all heads or of parts. Checks the arguments; the extension module computes."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from ._fovea import Mask, RelativeTable
from ._weights import _engine, _part_of, _Reduce

if TYPE_CHECKING:
    from ._fovea import _Alignment, _Array, _Input, _Numbers


def map(  # noqa: A001
    query: _Input,
    key: _Input,
    size: tuple[int, int],
    *,
    reduce: _Reduce = "sum",
    head: int | None = None,
    heads: Literal["mean", "max"] | None = None,
    queries: slice | None = None,
    keys: slice | None = None,
    lse: _Input | None = None,
    mask: Mask | _Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    bias: _Array | None = None,
    alibi: bool | _Numbers | None = None,
    relative: RelativeTable | None = None,
    sinks: _Numbers | None = None,
    alignment: _Alignment | None = "bottom-right",
    threads: int | None = None,
) -> NDArray[Any]:
    """Pools the weights of every head to a map of rows x columns cells. The weights are never stored.

    query   [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
    key     [batch, kv_heads, kv_len, head_dim]   same rank; the dtypes of attention()
    size    (rows, columns), from 1 to the numbers of queries and keys; row r of R has the queries from
            floor(r queries / R) to before floor((r + 1) queries / R), columns in the same way
    reduce  reduction of the weights in a cell: "sum", "mean" (over the visible pairs of a query and a
            key, NaN if there are none) or "max"
    head    computes only this query head
    heads   reduces over all heads: the "mean" or "max" of each cell; if reduce="mean", only heads with a
            visible pair in the cell count
    queries, keys  restrict the map to a part: slices without a step; None: all
    lse     [batch, q_heads, q_len], from attention(..., return_lse=True) with the same options
    mask, scale, softcap, bias, alibi, relative, sinks, alignment, threads  as in attention()

    Returns [batch, q_heads, rows, columns], a NumPy array of float32 (float64 for float64 inputs), without
    the batch and head dimensions that query lacks, and without heads if head or heads is given.

    Cost    one fused pass over all heads. If head, queries, keys or lse is given: the cost of the selected
            part, plus the fused pass if lse is None.
    Raises  TypeError and ValueError; the message has the argument, the expected and the actual value.
            Ctrl-C interrupts long calls.

        >>> words = np.eye(4, dtype=np.float32)
        >>> fovea.map(words, words, (2, 2), mask=fovea.causal(), scale=1.0).round(2)
        array([[2.  , 0.  ],
               [0.77, 1.23]], dtype=float32)
    """
    if heads is not None and not (isinstance(heads, str) and heads in ("mean", "max")):
        raise ValueError(f'heads: expected "mean", "max" or None, got {heads!r}')
    if head is not None and heads is not None:
        raise ValueError(f"heads: expected None beside head={head}, got {heads!r}")
    options: dict[str, Any] = {
        "mask": mask,
        "scale": scale,
        "softcap": softcap,
        "bias": bias,
        "alibi": alibi,
        "relative": relative,
        "sinks": sinks,
        "alignment": alignment,
        "threads": threads,
    }
    q_len, kv_len = _engine._weights_shape(query, key, **options)[3:]
    size = _size(size, (q_len, kv_len), queries, keys)
    own = (lse, *size, reduce, queries, keys, head, heads)
    found: NDArray[Any] = _engine._map(query, key, *own, **options)
    return found


def _size(size: tuple[int, int], of: tuple[int, int], queries: slice | None, keys: slice | None) -> tuple[int, int]:
    most = (len(_part_of("queries", queries, of[0])), len(_part_of("keys", keys, of[1])))
    try:
        rows, columns = (operator.index(each) for each in size)
    except (TypeError, ValueError):
        raise TypeError(f"size: expected (rows, columns), two integers, got {size!r}") from None
    if not (1 <= rows <= most[0] and 1 <= columns <= most[1]):
        raise ValueError(f"size: expected (1, 1) to {most}, as many as there are queries and keys, got {size!r}")
    return rows, columns
