# SPDX-License-Identifier: Apache-2.0
"""The weights of a head as a matrix that is computed where one looks: indexing and pictures are said in
Python, all arithmetic is the module's."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _fovea
from ._fovea import Lenses, Mask, RelativeTable, Seen

if TYPE_CHECKING:
    from ._fovea import _Alignment, _Array, _Input, _Numbers

_Place: TypeAlias = SupportsIndex | slice
_Reduce: TypeAlias = Literal["sum", "mean", "max"]
_Axes: TypeAlias = Any  # matplotlib's, which need not be there
_engine: Any = _fovea  # with what its stubs leave out


def _check_slice(name: str, index: slice) -> slice:
    if index.step is not None and operator.index(index.step) != 1:
        raise ValueError(f"{name}: expected neighbours, a slice without a step, got {index}; what comes can be sliced")
    return index


def _range(name: str, index: _Place, length: int) -> tuple[slice, bool]:
    """What an index means: its range, and whether it is a single place."""
    if isinstance(index, slice):
        return _check_slice(name, index), False
    try:
        place = operator.index(index)
    except TypeError:
        raise TypeError(f"{name}: expected an integer or a slice, got {type(index).__name__}") from None
    if not -length <= place < length:
        raise IndexError(f"{name}: expected from {-length} to before {length}, got {place}")
    place %= length
    return slice(place, place + 1), True


class Weights:
    """The weights of one head, [q_len, kv_len], computed where one looks: no matrix is ever stored.

    query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
    key        [batch, kv_heads, kv_len, head_dim]   both alike, of the types that attention() takes
    mask, scale, softcap, bias, alibi, relative, sinks, alignment, threads  those of attention()
    batch, head  which item and which of the query heads
    lse        [batch, q_heads, q_len], what attention(..., return_lse=True) gave with the same
               options; None: computed at the first look, by a pass over all heads, and kept

    W[i], W[i, j], W[a:b], W[:, j] and W[a:b, c:d] are what they are of a NumPy array, negative numbers
    included; slices have no step. A part of a larger rectangle has the same bits. numpy.asarray(W) is the
    whole matrix, stored after all. Arrays are looked into, not copied: they should not change meanwhile.

    All results are NumPy arrays of float32 (float64 where query is), keys int64. Raises TypeError,
    ValueError and, where an integer is out of range, IndexError, naming the argument, what was expected
    and what came. Ctrl-C ends what takes long.

        >>> words = np.eye(3, dtype=np.float32)
        >>> w = fovea.Weights(words, words, mask=fovea.causal(), scale=1.0)
        >>> w
        Weights(3 x 3, mask=causal())
        >>> w[1:, :2].round(2)
        array([[0.27, 0.73],
               [0.21, 0.21]], dtype=float32)
    """

    def __init__(
        self,
        query: _Input,
        key: _Input,
        *,
        mask: Mask | _Array | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        bias: _Array | None = None,
        alibi: bool | _Numbers | None = None,
        relative: RelativeTable | None = None,
        sinks: _Numbers | None = None,
        alignment: _Alignment | None = "bottom-right",
        threads: int | None = None,
        batch: int = 0,
        head: int = 0,
        lse: _Input | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
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
        self._query, self._key, self._lse = query, key, lse
        rank, items, heads, q_len, kv_len = _engine._weights_shape(query, key, **self._options)
        self._shape: tuple[int, int] = (q_len, kv_len)
        for name, place, most_name, most in (("batch", batch, "batch", items), ("head", head, "q_heads", heads)):
            try:
                inside = 0 <= operator.index(place) < most
            except TypeError:
                raise TypeError(f"{name}: expected an integer, got {type(place).__name__}") from None
            if not inside:
                raise ValueError(f"{name}: expected 0 or more and less than {most_name} = {most}, got {place}")
        self._batch, self._head = operator.index(batch), operator.index(head)
        # Where this head is in what there is of all heads.
        self._at = (self._batch, self._head)[4 - rank :]

    @property
    def shape(self) -> tuple[int, int]:
        """(q_len, kv_len)."""
        return self._shape

    @property
    def lse(self) -> _Input:
        """[batch, q_heads, q_len], of all heads, with fewer dimensions where query has: what was given, or
        found once. Weights of another head take it."""
        if self._lse is None:
            found: NDArray[Any] = _engine._observe(self._query, self._key, **self._options)
            self._lse = found
        return self._lse

    def __len__(self) -> int:
        return self._shape[0]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    @overload
    def __getitem__(self, index: tuple[SupportsIndex, SupportsIndex]) -> np.floating[Any]: ...

    @overload
    def __getitem__(self, index: _Place | tuple[slice, _Place] | tuple[SupportsIndex, slice]) -> NDArray[Any]: ...

    def __getitem__(self, index: _Place | tuple[_Place, _Place]) -> NDArray[Any] | np.floating[Any]:
        both = index if isinstance(index, tuple) else (index,)
        if len(both) > 2:
            raise IndexError(f"index: expected at most 2, of a query and a key, got {len(both)}")
        rows, one_row = _range("query", both[0] if both else slice(None), self._shape[0])
        cols, one_col = _range("key", both[1] if len(both) > 1 else slice(None), self._shape[1])
        tile: NDArray[Any] = _fovea.weights(
            self._query,
            self._key,
            rows=rows,
            cols=cols,
            batch=self._batch,
            head=self._head,
            lse=self.lse,
            **self._options,
        )
        found: NDArray[Any] | np.floating[Any] = tile[0 if one_row else slice(None), 0 if one_col else slice(None)]
        return found

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("copy: expected True or None, as the matrix is not stored anywhere, got False")
        whole: NDArray[Any] = self[:, :]
        return whole if dtype is None else whole.astype(dtype)

    def pool(self, rows: int, columns: int, reduce: _Reduce = "sum") -> NDArray[Any]:
        """The whole matrix in rows x columns cells, in one pass.

        rows, columns  1 to q_len and to kv_len; row r has the queries from floor(r q_len / rows) to before
                       floor((r + 1) q_len / rows), columns likewise
        reduce         what the weights in a cell become; the mean is over those that the mask lets be seen,
                       nan where there are none

        Returns [rows, columns].
        """
        cells: NDArray[Any] = _engine._pooled_weights(
            self._query, self._key, self.lse, rows, columns, reduce, self._batch, self._head, **self._options
        )
        return cells

    def _observe(self, lenses: Lenses) -> Seen:
        seen = _engine._observe(self._query, self._key, lenses, **self._options)
        return Seen([None if each is None else each[self._at] for each in seen])

    def top(self, k: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The k largest weights of each row, in descending order, the lower key first where they are equal.

        k  1 to 64, and at most kv_len

        Returns (keys, weights), both [q_len, k]; where a row sees fewer keys, what is left over is key -1,
        weight 0. One pass over all heads.
        """
        seen = self._observe(Lenses(top=k))
        return seen.top_keys, seen.top_weights

    def statistics(self) -> Seen:
        """Entropy, maximum, maximum_key, mean_distance, distance_variance and first_key of each row, [q_len],
        as Lenses(statistics=True) has them. One pass over all heads."""
        return self._observe(Lenses(statistics=True))

    def received(self, *, recent: int | None = None) -> NDArray[Any]:
        """What each key received: the sum of its weights over all queries, [kv_len].

        recent  1 to q_len: over so many last queries alone, as methods that drop keys from a cache have it
                (Li et al. 2024, SnapKV)

        One pass over all heads.
        """
        received: NDArray[Any] = _engine._received(self._query, self._key, self.lse, recent, **self._options)
        own: NDArray[Any] = received[self._at]
        return own

    def plot(
        self,
        *,
        rows: int = 256,
        columns: int = 256,
        reduce: _Reduce = "max",
        ax: _Axes = None,
    ) -> _Axes:
        """The matrix as an image by matplotlib, pooled to at most rows x columns cells.

        ax  matplotlib's Axes to draw into; None: a new one

        Returns the Axes. Raises ImportError without matplotlib.
        """
        if ax is None:
            try:
                pyplot = importlib.import_module("matplotlib.pyplot")
            except ImportError as error:
                raise ImportError(
                    "plot: expected matplotlib, which draws the picture, got none; "
                    "pip install matplotlib, or take pool(rows, columns)"
                ) from error
            ax = pyplot.subplots()[1]
        q_len, kv_len = self._shape
        cells = self.pool(min(rows, q_len), min(columns, kv_len), reduce)
        ax.imshow(cells, extent=(-0.5, kv_len - 0.5, q_len - 0.5, -0.5), aspect="auto", interpolation="nearest")
        ax.set(xlabel="key", ylabel="query", title=repr(self))
        return ax

    def __repr__(self) -> str:
        text = f"{self._shape[0]} x {self._shape[1]}"
        if self._batch or self._head:
            text += f", batch={self._batch}, head={self._head}"
        mask = self._options["mask"]
        if mask is not None:
            text += f", mask={mask!r}" if isinstance(mask, Mask) else ", mask=an array"
        return f"Weights({text})"
