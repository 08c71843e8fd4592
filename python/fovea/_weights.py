# SPDX-License-Identifier: Apache-2.0
"""The weights of a head as a matrix computed on access. Indexing and plotting are in Python; the extension
module does all arithmetic."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _fovea
from ._fovea import Lenses, Mask, Received, RelativeTable, Seen

if TYPE_CHECKING:
    from ._fovea import _Alignment, _Array, _Input, _Numbers

_Place: TypeAlias = SupportsIndex | slice
_Reduce: TypeAlias = Literal["sum", "mean", "max"]
_Axes: TypeAlias = Any  # matplotlib's Axes; matplotlib is optional
_engine: Any = _fovea  # includes the private functions that the stubs omit


def _check_slice(name: str, index: slice) -> slice:
    if index.step is not None and operator.index(index.step) != 1:
        raise ValueError(f"{name}: expected neighbours, a slice without a step, got {index}; what comes can be sliced")
    return index


def _range(name: str, index: _Place, length: int) -> tuple[slice, bool]:
    """Returns the range of an index, and whether it is a single position."""
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


def _count(name: str, number: SupportsIndex) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {type(number).__name__}") from None


def _part_of(name: str, part: slice | None, length: int) -> range:
    """Returns the queries or keys of a part. Raises ValueError if the part is empty."""
    if part is None:
        return range(length)
    if not isinstance(part, slice):
        raise TypeError(f"{name}: expected a slice or None, got {type(part).__name__}")
    try:
        places = range(length)[_check_slice(name, part)]
    except TypeError:
        raise TypeError(f"{name}: expected a slice of integers, got {part}") from None
    if length > 0 and not places:
        raise ValueError(f"{name}: expected at least one of {length}, got none in {part}")
    return places


_MOST_LABELS = 64  # tokens on an axis of a plot


def _label(token: str) -> str:
    """Returns a token for an axis: on one line, without matplotlib's markup."""
    shown = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in token)
    return shown.replace("$", r"\$")


class _Matrix:
    """Base class with NumPy's indexing; derived classes compute the parts."""

    _shape: tuple[int, int]

    def _part(self, rows: slice, cols: slice) -> NDArray[Any]:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, int]:
        """(q_len, kv_len)."""
        return self._shape

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
        part = self._part(rows, cols)
        found: NDArray[Any] | np.floating[Any] = part[0 if one_row else slice(None), 0 if one_col else slice(None)]
        return found

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("copy: expected True or None, as the matrix is not stored anywhere, got False")
        whole: NDArray[Any] = self[:, :]
        return whole if dtype is None else whole.astype(dtype)


class Scores(_Matrix):
    """The scores of one head, [q_len, kv_len], computed on access. They are the input of the softmax, after
    scale, softcap and biases, and -inf for masked keys. Indexed like Weights; needs no lse."""

    def __init__(self, weights: Weights) -> None:
        self._weights, self._shape = weights, weights.shape

    def _part(self, rows: slice, cols: slice) -> NDArray[Any]:
        of = self._weights
        part: NDArray[Any] = _engine._scores(of._query, of._key, **of._tile(rows, cols))
        return part

    def __repr__(self) -> str:
        return f"{self._weights!r}.scores"


class Weights(_Matrix):
    """The weights of one head, [q_len, kv_len], computed on access. The matrix is never stored.

    query      [batch, q_heads,  q_len,  head_dim]   or without batch, or without batch and heads;
    key        [batch, kv_heads, kv_len, head_dim]   same rank; the dtypes of attention()
    mask, scale, softcap, bias, alibi, relative, sinks, alignment, threads  as in attention()
    batch, head  the batch item and the query head
    lse        [batch, q_heads, q_len], from attention(..., return_lse=True) with the same options;
               None: computed by a pass over all heads on first access, and cached

    query_tokens, key_tokens  a text for each query and key, which plot() shows; W.query_tokens, W.key_tokens

    W[i], W[i, j], W[a:b], W[:, j] and W[a:b, c:d] index like a NumPy array, including negative indices;
    slices must not have a step. Overlapping rectangles are bit-identical where they overlap.
    numpy.asarray(W) computes and stores the whole matrix. Query and key are not copied and must not
    change while W is in use.

    All results are NumPy arrays of float32 (float64 for float64 inputs), except that key indices are int64.
    Raises TypeError, ValueError, and IndexError for an integer out of range; the message has the argument,
    the expected and the actual value. Ctrl-C interrupts long calls.

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
        query_tokens: Sequence[str] | None = None,
        key_tokens: Sequence[str] | None = None,
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
        self.query_tokens, self.key_tokens = query_tokens, key_tokens
        self._rank, items, heads, q_len, kv_len = _engine._weights_shape(query, key, **self._options)
        self._shape = (q_len, kv_len)
        for name, place, most_name, most in (("batch", batch, "batch", items), ("head", head, "q_heads", heads)):
            try:
                inside = 0 <= operator.index(place) < most
            except TypeError:
                raise TypeError(f"{name}: expected an integer, got {type(place).__name__}") from None
            if not inside:
                raise ValueError(f"{name}: expected 0 or more and less than {most_name} = {most}, got {place}")
        self._batch, self._head = operator.index(batch), operator.index(head)
        # Index of this head in arrays of all heads.
        self._at = (self._batch, self._head)[4 - self._rank :]
        for name, tokens, length in (("query_tokens", query_tokens, q_len), ("key_tokens", key_tokens, kv_len)):
            if tokens is not None and len(tokens) != length:
                raise ValueError(f"{name}: expected {length}, one per {name[:-7]}, got {len(tokens)}")

    @property
    def lse(self) -> _Input:
        """The lse of all heads, [batch, q_heads, q_len] without the dimensions that query lacks. It is the
        argument lse if given, and otherwise computed once. Can be passed to the Weights of another head."""
        if self._lse is None:
            found: NDArray[Any] = _engine._observe(self._query, self._key, **self._options)
            self._lse = found
        return self._lse

    @property
    def scores(self) -> Scores:
        """The scores of these weights, with the same indexing: W.scores[i, j], W.scores[a:b, c:d]."""
        return Scores(self)

    def _part(self, rows: slice, cols: slice) -> NDArray[Any]:
        if self._lse is None:  # computing it takes long, so first check that the result fits in memory
            sizes = [len(range(*rows.indices(self._shape[0]))), len(range(*cols.indices(self._shape[1])))]
            np.empty(sizes, np.float32)  # half of it, if the inputs are float64
        return _fovea.weights(self._query, self._key, lse=self.lse, **self._tile(rows, cols))

    def _tile(self, rows: slice, cols: slice) -> dict[str, Any]:
        return {"rows": rows, "cols": cols, "batch": self._batch, "head": self._head, **self._options}

    def pool(
        self,
        rows: int,
        columns: int,
        reduce: _Reduce = "sum",
        *,
        queries: slice | None = None,
        keys: slice | None = None,
    ) -> NDArray[Any]:
        """Pools the matrix, or a part of it, to rows x columns cells, in one pass over the part.

        rows, columns  from 1 to the numbers of queries and keys; row r of R has queries floor(r queries / R)
                       up to but not including floor((r + 1) queries / R); columns divide the keys alike
        reduce         reduction of the weights in a cell; the mean is over visible pairs, NaN if there are
                       none
        queries, keys  restrict to a part: slices without a step; None: all

        Returns [rows, columns].
        """
        _part_of("queries", queries, self._shape[0])
        _part_of("keys", keys, self._shape[1])
        return self._pool((rows, columns), reduce, queries, keys)[0]

    def _pool(
        self, size: tuple[int, int], reduce: _Reduce, queries: slice | None, keys: slice | None, pairs: bool = False
    ) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        """Returns the cells and, with `pairs`, the number of visible pairs in each."""
        own = (*size, reduce, queries, keys, pairs, self._batch, self._head)
        found = _engine._pooled_weights(self._query, self._key, self.lse, *own, **self._options)
        return found if pairs else (found, None)

    def _observe(self, lenses: Lenses) -> Seen:
        return Seen(self._own(_engine._observe(self._query, self._key, lenses, **self._options)))

    def _own(self, of_all: Iterable[Any]) -> list[Any]:
        return [None if each is None else each[self._at] for each in of_all]

    def top(self, k: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Computes the k largest weights of each row, in descending order of scores; on ties, the lower key first.

        k  1 to 64, and at most kv_len

        Returns (keys, weights), both [q_len, k]; if a row has fewer visible keys, the remaining entries have
        key -1 and weight 0. One pass over all heads.
        """
        seen = self._observe(Lenses(top=k))
        return seen.top_keys, seen.top_weights

    def statistics(self) -> Seen:
        """Returns entropy, maximum, maximum_key, mean_distance, distance_variance and first_key of each row,
        [q_len], as with Lenses(statistics=True). One pass over all heads."""
        return self._observe(Lenses(statistics=True))

    def received(self, *, recent: int | None = None, bins: int | None = None) -> Received:
        """Computes the weight that each key receives from all queries, as fovea.received() does: the sum and
        the maximum of the key's weights, [kv_len].

        recent  1 to q_len: also the sum over the last `recent` queries, [kv_len]
        bins    1 to 4096: also a histogram of the visible weights, [bins]

        One pass over all heads.
        """
        return Received(
            self._own(_fovea.received(self._query, self._key, lse=self.lse, recent=recent, bins=bins, **self._options))
        )

    def plot(
        self,
        *,
        rows: int = 256,
        columns: int = 256,
        reduce: _Reduce = "max",
        queries: slice | None = None,
        keys: slice | None = None,
        ax: _Axes = None,
        **image: object,
    ) -> _Axes:
        """Draws the matrix, or a part of it, with matplotlib, pooled to at most rows x columns cells.

        queries, keys  restrict to a part: slices without a step; None: all
        ax             matplotlib Axes to draw into; None: a new one
        image          further arguments of imshow(), for example norm="log" or cmap="magma"

        Fully masked cells are masked in the image: blank, unless the colormap sets a color for them.

        Returns the Axes. Raises ImportError if matplotlib is not installed.
        """
        down, across = _part_of("queries", queries, self._shape[0]), _part_of("keys", keys, self._shape[1])
        if ax is None:
            try:
                pyplot = importlib.import_module("matplotlib.pyplot")
            except ImportError as error:
                raise ImportError(
                    "plot: expected matplotlib, which draws the picture, got none; "
                    "pip install matplotlib, or take pool(rows, columns)"
                ) from error
            ax = pyplot.subplots()[1]
        most = [_count(*each) for each in (("rows", rows), ("columns", columns))]
        size = min(most[0], len(down)), min(most[1], len(across))
        cells, pairs = self._pool(size, reduce, queries, keys, pairs=self._options["mask"] is not None)
        if pairs is not None:
            cells = np.ma.masked_where(pairs == 0, cells)
        extent = (across.start - 0.5, across.stop - 0.5, down.stop - 0.5, down.start - 0.5)
        ax.imshow(cells, **{"extent": extent, "aspect": "auto", "interpolation": "nearest", **image})
        ax.set(xlabel="key", ylabel="query", title=repr(self))
        if self.key_tokens is not None and size[1] == len(across) <= _MOST_LABELS:
            ax.set_xticks(across, [_label(self.key_tokens[key]) for key in across], rotation=90)
        if self.query_tokens is not None and size[0] == len(down) <= _MOST_LABELS:
            ax.set_yticks(down, [_label(self.query_tokens[query]) for query in down])
        return ax

    def __repr__(self) -> str:
        text = f"{self._shape[0]} x {self._shape[1]}"
        if self._batch or self._head:
            text += f", batch={self._batch}, head={self._head}"
        mask = self._options["mask"]
        if mask is not None:
            text += f", mask={mask!r}" if isinstance(mask, Mask) else ", mask=an array"
        return f"Weights({text})"
