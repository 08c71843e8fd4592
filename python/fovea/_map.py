# SPDX-License-Identifier: Apache-2.0
"""Maps of all heads, or of some of their weights: arguments are checked here, all else is the module's."""

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
