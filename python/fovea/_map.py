# SPDX-License-Identifier: Apache-2.0
"""Maps of all heads, or of some of their weights: passes of the module, put together."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._fovea import Lenses, Mask, RelativeTable
from ._weights import Weights, _engine, _part_of, _Reduce

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
    """The weights of every head pooled to a map of rows x columns cells; they are never stored.

    query   [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
    key     [batch, kv_heads, kv_len, head_dim]   both alike, of the types that attention() takes
    size    (rows, columns), 1 to as many as there are queries and keys; row r of R has the queries from
            floor(r queries / R) to before floor((r + 1) queries / R), columns likewise
    reduce  what the weights in a cell become: their "sum", "mean" (over the pairs of a query and a key
            that the mask lets be seen, nan where there are none) or "max"
    head    one of the query heads alone
    heads   all of them together: the "mean" or the "max" of each cell over them; with reduce="mean"
            over those that see a pair of the cell
    queries, keys  of a part: slices without a step; None: all
    lse     [batch, q_heads, q_len], what attention(..., return_lse=True) gave with the same options
    mask, scale, softcap, bias, alibi, relative, sinks, alignment, threads  those of attention()

    Returns [batch, q_heads, rows, columns], a NumPy array of float32 (float64 where query is), without
    batch and heads where query has none, and without heads where head or heads is given.

    Cost    one fused pass over all heads; with head, queries, keys or lse what the part costs, and that
            pass before it where lse is not given.
    Raises  TypeError and ValueError, naming the argument, what was expected and what came. Ctrl-C ends
            what takes long.

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
    rank, items, q_heads, q_len, kv_len = _engine._weights_shape(query, key, **options)
    rows, columns = size = _size(size, (q_len, kv_len), queries, keys)
    # How many pairs of each cell are seen matters where means are taken over the heads that see one.
    counted = heads is not None and reduce == "mean"
    pairs = None
    if all(each is None for each in (head, queries, keys, lse)) or (head is None and items * q_heads == 0):
        seen = _engine._observe(query, key, Lenses(map=size, reduce=reduce, pairs=counted), **options)
        cells, pairs = seen.map, seen.pairs
    else:
        weights = Weights(query, key, head=0 if head is None else head, lse=lse, **options)
        of_heads = range(q_heads) if head is None else (weights._head,)
        _ = weights.lse  # found once, for all of them
        both = [weights._of(b, h)._pool(size, reduce, queries, keys, counted) for b in range(items) for h in of_heads]
        cells = np.stack([each[0] for each in both])
        pairs = np.stack([each[1] for each in both if each[1] is not None]) if counted else None
    if heads is not None:
        shape = (items, q_heads, rows, columns)
        cells = _over_heads(cells.reshape(shape), True if pairs is None else pairs.reshape(shape) > 0, heads)
    kept = (items, q_heads)[4 - rank :] if head is None and heads is None else (items,) * (rank == 4)
    result: NDArray[Any] = cells.reshape(*kept, rows, columns)
    return result


def _size(size: tuple[int, int], of: tuple[int, int], queries: slice | None, keys: slice | None) -> tuple[int, int]:
    most = (len(_part_of("queries", queries, of[0])), len(_part_of("keys", keys, of[1])))
    try:
        rows, columns = (operator.index(each) for each in size)
    except (TypeError, ValueError):
        raise TypeError(f"size: expected (rows, columns), two integers, got {size!r}") from None
    if not (1 <= rows <= most[0] and 1 <= columns <= most[1]):
        raise ValueError(f"size: expected (1, 1) to {most}, as many as there are queries and keys, got {size!r}")
    return rows, columns


def _over_heads(cells: NDArray[Any], seen: NDArray[np.bool_] | bool, heads: Literal["mean", "max"]) -> NDArray[Any]:
    """[batch, q_heads, rows, columns] over the heads, of the cells that are seen; nan where none is."""
    seen = np.broadcast_to(seen, cells.shape)
    count = seen.sum(1)
    if heads == "mean":
        together = cells.sum(1, dtype=np.float64, where=seen) / np.maximum(count, 1)
    else:
        together = cells.max(1, where=seen, initial=-np.inf)
    return np.where(count > 0, together, np.nan).astype(cells.dtype)
