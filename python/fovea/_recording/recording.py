# SPDX-License-Identifier: Apache-2.0
"""Recordings: opened for reading, and written from arrays or, by record(), from a model that runs. The extension module
reads and writes the files."""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from .. import _fovea
from .._map import _size
from .._weights import Weights, _part_of, _Reduce

if TYPE_CHECKING:
    import torch

    from .._fovea import _Array
    from .record import Recorder

_engine: Any = _fovea  # includes the private functions that the stubs omit
_Kind = Literal["self", "encoder", "decoder", "cross"]
_Store = Literal["float32", "bfloat16", "float16"]
# The columns that name an attention and a head in the tables.
_NAMED: list[tuple[str, type]] = [("name", object), ("layer", int), ("kind", object), ("batch", int), ("head", int)]


@dataclasses.dataclass(frozen=True)
class Tokens(Sequence[str]):
    """The tokens along the queries or keys of an attention."""

    name: str
    texts: list[str]
    ids: list[int] = dataclasses.field(default_factory=list, repr=False)
    """One per token, or empty."""
    grid: tuple[int, int] = (0, 0)
    """Rows and columns of the patches of an image; (0, 0) for text."""

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.texts[index]

    def __repr__(self) -> str:
        shown = ", ".join(repr(text) for text in self.texts[:8])
        return f"Tokens({self.name!r}, {len(self)}: {shown}{', ...' if len(self) > 8 else ''})"


class RecordedAttention:
    """One attention of a model, from a recording. `attention[8]` is query head 8 as a Weights, `attention[1, 8]` that
    of batch item 1.

    name, layer, kind  where it is in the model; kind is "self", "encoder", "decoder" or "cross"
    query    [batch, q_heads,  q_len,  head_dim]   after rotary embedding and norms; arrays on the file, read only:
    key      [batch, kv_heads, kv_len, head_dim]   NumPy's, or with DLPack for bfloat16
    value    [batch, kv_heads, kv_len, value_dim]  or None
    lse      [batch, q_heads,  q_len]
    options  the options of fovea.attention(): mask, scale, softcap, bias, alibi, relative, sinks, alignment
    heads    the indices in the model of the query heads
    """

    def __init__(self, found: dict[str, Any], tokens: Mapping[str, Tokens], file: Any) -> None:
        self._file = file
        self.name: str = found["name"]
        self.layer: int = found["layer"]
        self.kind: _Kind = found["kind"]
        self.query, self.key = found["query"], found["key"]
        self.lse, self.value = found["lse"], found["value"]
        self.options: dict[str, Any] = found["options"]
        items, q_heads, q_len, kv_len = _engine._weights_shape(self.query, self.key, **self.options)[1:]
        self.shape: tuple[int, int, int, int] = (items, q_heads, q_len, kv_len)
        """(batch, q_heads, q_len, kv_len)."""
        self.heads: list[int] = found["heads"] or list(range(q_heads))
        self._tokens = tokens
        self._names = (found["query_tokens"], found["key_tokens"])

    def query_tokens(self, batch: int = 0) -> Tokens | None:
        """Returns the tokens of the queries of a batch item, if they were recorded."""
        return self._tokens_of(self._names[0], batch)

    def key_tokens(self, batch: int = 0) -> Tokens | None:
        """Returns the tokens of the keys of a batch item, if they were recorded."""
        return self._tokens_of(self._names[1], batch)

    def _tokens_of(self, names: Sequence[str], batch: int) -> Tokens | None:
        return self._tokens[names[batch if len(names) > 1 else 0]] if names else None

    def __getitem__(self, index: SupportsIndex | tuple[SupportsIndex, SupportsIndex]) -> Weights:
        both = index if isinstance(index, tuple) else (0, index)
        if len(both) != 2:
            raise IndexError(f"index: expected a head, or a batch item and a head, got {len(both)} numbers")
        batch, place = self._place(*both)
        return Weights(
            self.query,
            self.key,
            lse=self.lse,
            batch=batch,
            head=place,
            query_tokens=self.query_tokens(batch),
            key_tokens=self.key_tokens(batch),
            **self.options,
        )

    def _item(self, batch: SupportsIndex) -> int:
        number = operator.index(batch)
        if not 0 <= number < self.shape[0]:
            raise IndexError(f"batch: expected 0 or more and less than {self.shape[0]}, got {number}")
        return number

    def _place(self, batch: SupportsIndex, head: SupportsIndex) -> tuple[int, int]:
        """Returns the indices of a batch item and of a head of the model in the arrays."""
        item, number = self._item(batch), operator.index(head)
        if number not in self.heads:
            raise IndexError(f"head: expected one of {_ranges(self.heads)}, which were recorded, got {number}")
        return item, self.heads.index(number)

    def value_norms(self, projection: _Array | None = None) -> NDArray[np.float32]:
        """Computes the Euclidean norm of every value, for the query heads that share it.

        projection  [q_heads, value_dim, model_dim], the part of the layer's output projection that belongs to each
                    head: returns the norms of value @ projection[head] instead; any floating-point type

        Returns [batch, q_heads, kv_len]. Raises ValueError if the attention was recorded without values.
        """
        found: NDArray[np.float32] = self._file.value_norms(self.name, projection)
        return found

    def value_weighted(
        self,
        head: SupportsIndex,
        size: tuple[int, int] | None = None,
        *,
        batch: SupportsIndex = 0,
        reduce: _Reduce = "sum",
        queries: slice | None = None,
        keys: slice | None = None,
        norms: NDArray[np.float32] | None = None,
        threads: int | None = None,
    ) -> NDArray[np.float32]:
        """Computes the value-weighted attention of a head: each weight times the norm of its value (Kobayashi et al.
        2020, "Attention is not only a weight"), as a map.

        head     the index in the model of a query head
        size     (rows, columns) of the map, as in fovea.map(); None: one for each query and key
        reduce   reduction of the products in a cell: "sum", "mean" (over visible pairs, NaN if there are none), "max"
        queries, keys  restrict to a part: slices without a step; `queries=slice(7, 8)` is one row
        norms    [batch, q_heads, kv_len] of value_norms(), for example with a projection; None: value_norms()

        Returns [rows, columns]. Raises ValueError if the attention was recorded without values, TypeError, and
        IndexError for a head or batch item that was not recorded. Ctrl-C interrupts long calls.

            >>> layer.value_weighted(8, queries=slice(7, 8))[0].argmax()  # where token 7 gets most from, in head 8
            3
        """
        place = self._place(batch, head)
        q_len, kv_len = self.shape[2:]
        rows, columns = _part_of("queries", queries, q_len), _part_of("keys", keys, kv_len)
        cells = (len(rows), len(columns)) if size is None else _size(size, (q_len, kv_len), queries, keys)
        found: NDArray[np.float32] = self._file.value_weighted(
            self.name,
            self.value_norms() if norms is None else norms,
            place,
            cells,
            reduce,
            (rows.start, rows.stop),
            (columns.start, columns.stop),
            threads,
        )
        return found

    def __repr__(self) -> str:
        batch, _, q_len, kv_len = self.shape
        mask = f", {self.options['mask']!r}" if "mask" in self.options else ""
        return (
            f"<{self.name}: layer {self.layer}, {self.kind}, batch {batch}, heads {_ranges(self.heads)}, "
            f"{q_len} x {kv_len}{mask}>"
        )


class Recording:
    """The attention of a model on a text, from a file that fovea.record() or Recording.write() has written. Weights are
    recomputed exactly from query, key and lse when they are read, and never stored.

        >>> recording = fovea.Recording("run.safetensors")
        >>> recording["layers.13"][8][-1].argmax()  # the key that the last token attends to most, in head 8
        17

    path        the file
    model, source, written_by  texts from the file
    attentions  the attentions by name, in the order in which the model called them
    tokens      the token lists by name

    `recording[13]` is the attention of layer 13, if that layer has one; `recording["layers.13"]` the attention whose
    name contains these parts.

    Raises OSError if the file can't be read, ValueError if it is malformed or no recording; the message has the file,
    the expected and the actual value.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        found = _engine._read_recording(path)
        self._file = found["file"]
        self.path: str = found["path"]
        self.model: str = found["model"]
        self.source: str = found["source"]
        self.written_by: str = found["written_by"]
        self.tokens: dict[str, Tokens] = {each["name"]: Tokens(**each) for each in found["tokens"]}
        self.attentions: dict[str, RecordedAttention] = {
            each["name"]: RecordedAttention(each, self.tokens, self._file) for each in found["attentions"]
        }

    def __getitem__(self, which: str | SupportsIndex) -> RecordedAttention:
        if isinstance(which, str):
            if which in self.attentions:
                return self.attentions[which]
            parts = f".{which}."
            matching = [name for name in self.attentions if parts in f".{name}."]
            return self._only(matching, "the name of an attention, or parts of one", repr(which))
        return self.layer(which)

    def layer(self, layer: SupportsIndex, kind: _Kind | None = None) -> RecordedAttention:
        """Returns the attention of a layer; `kind` selects one if the layer has several. Raises KeyError that lists
        what was recorded."""
        number = operator.index(layer)
        matching = [
            name for name, each in self.attentions.items() if each.layer == number and kind in (None, each.kind)
        ]
        layers = sorted({each.layer for each in self.attentions.values() if kind in (None, each.kind)})
        return self._only(matching, f"one of the layers {_ranges(layers)}", str(number))

    def _only(self, names: list[str], expected: str, got: str) -> RecordedAttention:
        if len(names) == 1:
            return self.attentions[names[0]]
        if names:
            raise KeyError(f"{self.path}: expected {expected}, got {got}, which has {', '.join(names)}")
        recorded = list(self.attentions)
        more = f" and {len(recorded) - 12} more" if len(recorded) > 12 else ""
        raise KeyError(f"{self.path}: expected {expected}, got {got}; recorded: {', '.join(recorded[:12])}{more}")

    def __len__(self) -> int:
        return len(self.attentions)

    def __iter__(self) -> Iterator[RecordedAttention]:
        return iter(self.attentions.values())

    def heads(self, *, blocks: int = 16, threads: int | None = None) -> NDArray[Any]:
        """Computes the statistics of fovea.heads() for every head, its token scores and its pattern, as the command
        `fovea heads` does.

        Returns a structured array with one element per attention, batch item and head: name, layer, kind, batch, head,
        the fields of fovea.HeadSummary, and

        induction  the weight of the keys after earlier occurrences of the query's token, a mean over the queries that
                   have any (Olsson et al. 2022, "In-context learning and induction heads")
        duplicate  the weight of the earlier occurrences themselves
        pattern    "uniform", "own token", "previous token", "next token", "sink", "local blocks",
                   "induction", "duplicate token", "one key", or "" if none fits (`fovea heads --help`)

        Scores compare ids, or texts without ids. They are nan without tokens, if no token is repeated, and for
        cross-attention and float64. `pandas.DataFrame(recording.heads())` is a table.
        """
        fields = list(_engine.HeadSummary.__match_args__)
        rows = []
        for each in self:
            found = _fovea.heads(each.query, each.key, blocks=blocks, threads=threads, **each.options)
            unknown = np.full(each.shape[:2], np.nan)
            none = (unknown, unknown, np.zeros(each.shape[0], int))
            duplicate, induction, repeated = self._file.token_scores(each.name, threads) or none
            for batch in range(each.shape[0]):
                for place, head in enumerate(each.heads):
                    numbers = [float(getattr(found, field)[batch, place]) for field in fields]
                    scores = float(duplicate[batch, place]), float(induction[batch, place])
                    pattern = _engine._head_pattern(numbers, *scores, int(repeated[batch]))
                    rows.append((each.name, each.layer, each.kind, batch, head, *numbers, *reversed(scores), pattern))
        numeric = [(field, float) for field in (*fields, "induction", "duplicate")]
        return np.array(rows, dtype=[*_NAMED, *numeric, ("pattern", object)])

    def rollout(
        self,
        token: SupportsIndex,
        batch: SupportsIndex = 0,
        *,
        kind: Literal["self", "encoder", "decoder"] | None = None,
        residual: float = 0.5,
        each_layer: bool = False,
        threads: int | None = None,
    ) -> NDArray[np.float64]:
        """Computes the attention rollout of a token (Abnar and Zuidema 2020, "Quantifying attention flow in
        transformers", section 3): the share of its representation after the last layer that comes from each token of
        the text. With the weights W of a layer, averaged over its heads, it is a row of the product of
        residual * I + (1 - residual) * W over all layers. Layers and heads that were not recorded do not count.

        token       an index, negative from the end
        kind        the stack of layers, if the recording has several
        residual    the share of a token that each layer passes on unchanged, 0 to 1; the paper uses 1/2
        each_layer  returns the shares of the tokens as inputs of every layer, not only of the first

        Returns [tokens], or [layers, tokens] with the first layer first. Rows add up to 1, minus what sinks and queries
        that see no key (padding) take away. Raises IndexError for a token or batch item out of range, ValueError for
        layers that differ in their tokens and for two attentions of one layer. Ctrl-C interrupts long calls. One
        product of queries and keys per layer and head; no N x N matrix is stored.
        """
        layers = self._stack(kind)
        number, length = operator.index(token), layers[0].shape[2]
        if not -length <= number < length:
            raise IndexError(f"token: expected from {-length} to before {length}, got {number}")
        place = (layers[0]._item(batch), number % length)
        names = [layer.name for layer in layers]
        found: NDArray[np.float64] = self._file.rollout(names, place, residual, threads)
        return found if each_layer else found[0]

    def _stack(self, kind: _Kind | None) -> list[RecordedAttention]:
        """Returns the self-attentions of one stack, first layer first."""
        kinds = list(dict.fromkeys(each.kind for each in self if each.kind != "cross"))
        recorded = ", ".join(map(repr, kinds)) or "no self-attention"
        if kind is None and len(kinds) == 1:
            kind = kinds[0]
        if kind not in kinds:
            raise ValueError(f"kind: expected the stack of layers, recorded are {recorded}, got {kind!r}")
        return sorted((each for each in self if each.kind == kind), key=lambda each: each.layer)

    @staticmethod
    def write(
        path: str | os.PathLike[str],
        attentions: Sequence[Mapping[str, Any]],
        tokens: Mapping[str, Sequence[str]] | Sequence[Tokens] = (),
        *,
        model: str = "",
        source: str = "",
        store: _Store | None = None,
    ) -> None:
        """Writes a recording from arrays.

        attentions  one mapping each, with `name`, `query` and `key` as in RecordedAttention, and, if they are not the
                    defaults: `lse` (computed if missing), `value`, `layer` (default: the place in the list), `kind`,
                    `heads`, `query_tokens` and `key_tokens` (a name, or one per batch item) and the options of
                    fovea.attention(). Arrays may lack batch and heads.
        tokens      texts by the name of the list, or Tokens
        store       the type in which query, key and value are stored; None: their own

        The file is replaced when it is complete. Raises ValueError and TypeError for what does not fit, OSError if the
        file can't be written.

            >>> fovea.Recording.write("run.safetensors", [{"name": "layers.0", "query": query, "key": key,
            ...                                            "mask": fovea.causal()}])
        """
        if isinstance(attentions, (Mapping, str)) or not isinstance(attentions, Iterable):
            raise TypeError(f"attentions: expected a sequence of mappings, got {type(attentions).__name__}")
        writer = _engine._RecordingWriter(path, model=model, source=source, store=store or "")
        try:
            for layer, each in enumerate(attentions):
                writer.add(**_arguments(each, layer))
            lists = tokens if not isinstance(tokens, Mapping) else [Tokens(k, list(v)) for k, v in tokens.items()]
            for one in lists:
                writer.add_tokens(one.name, list(one.texts), list(one.ids), one.grid)
            writer.finish()
        finally:
            writer.close()

    def __repr__(self) -> str:
        sizes = sorted({each.shape[2:] for each in self})
        shape = f", {sizes[0][0]} x {sizes[0][1]}" if len(sizes) == 1 else ""
        model = f", {self.model}" if self.model else ""
        return f"<Recording {self.path}{model}: {len(self)} attentions{shape}>"

    def _repr_html_(self) -> str:
        from .page import overview

        return overview(self)


def diff(
    first: Recording | str | os.PathLike[str],
    second: Recording | str | os.PathLike[str],
    *,
    threads: int | None = None,
) -> NDArray[Any]:
    """Compares the heads of two recordings of the same tokens: of two models, two checkpoints, or a run with a change.

    first, second  recordings or their files

    Returns a structured array with one element per attention, batch item and head of the first recording: name, layer,
    kind, batch, head, and

    mean     the mean over the queries of the Jensen-Shannon divergence of both rows of weights (Lin 1991), in nats, 0
             to ln 2; nan if the head sees no key
    largest  the largest divergence of a query
    query    that query, -1 if there is none
    token    its text, "" if there are no tokens

    Raises ValueError if the second recording lacks an attention, or has other shapes or tokens: with the first place
    where they differ. Ctrl-C interrupts long calls. Cost: two products of queries and keys per head; no weights are
    stored.

        >>> found = fovea.diff("before.safetensors", "after.safetensors")
        >>> found["name"][found["mean"].argmax()]  # where the head is that differs most
        'layers.13'
    """
    one, other = (each if isinstance(each, Recording) else Recording(each) for each in (first, second))
    one._file.require_counterparts(other._file)
    rows = []
    for each in one:
        mean, largest, queries = one._file.divergence(each.name, other._file, threads)
        for batch in range(each.shape[0]):
            tokens = each.query_tokens(batch)
            for place, head in enumerate(each.heads):
                at = (batch, place)
                query = int(queries[at])
                token = tokens[query] if tokens is not None and query >= 0 else ""
                rows.append((each.name, each.layer, each.kind, batch, head, mean[at], largest[at], query, token))
    found = [("mean", float), ("largest", float), ("query", int), ("token", object)]
    return np.array(rows, dtype=[*_NAMED, *found])


def record(
    model: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    tokenizer: Any = None,
    text: str | Sequence[str] | None = None,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    values: bool = False,
    store: _Store | None = None,
    compute: Literal["fovea", "original"] = "fovea",
    progress: bool | None = None,
) -> AbstractContextManager[Recorder]:
    """Records the attention of a model while it runs in the block: one forward pass, a prompt in chunks, or generate().

        with fovea.record(model, "run.safetensors", tokenizer=tokenizer, text=text):
            model(**tokenizer(text, return_tensors="pt"))
        recording = fovea.Recording("run.safetensors")

    model      of transformers, or any PyTorch module whose attention is scaled_dot_product_attention(),
               flex_attention() or nn.MultiheadAttention
    path       a .safetensors file (docs/recordings.md), replaced when the block ends; unchanged if it raises
    tokenizer  makes texts of the ids that the model receives; None: the ids are the texts
    text       what is recorded, for the file's description
    layers, heads  the layers and query heads to record; None: all
    values     records the values too, for contexts and value-weighted attention
    store      the type in which query and key are stored; None: the model's
    compute    "fovea": attention is computed by Fovea in the block; "original": by the model's own implementation, and
               Fovea computes lse alongside
    progress   prints the size, and progress every two seconds, to standard error; None: if that is a terminal

    Memory grows by at most one layer's query, key and lse. Masks are recorded as rules, without an N x N tensor.

    Raises ValueError, and writes nothing, for a model on another device, a compiled one, beam search, modules that
    compute attention in another way (their names are listed), a second text in the same block, and a block in which
    nothing was recorded; OSError if the file can't be written. The model's implementation of attention is restored.
    """
    try:
        from .record import record_block
    except ImportError as error:
        raise ImportError("record: expected torch, whose models it records, got none; pip install torch") from error
    return record_block(
        model,
        path,
        tokenizer=tokenizer,
        text=text,
        layers=layers,
        heads=heads,
        values=values,
        store=store,
        compute=compute,
        progress=progress,
    )


_OPTIONS = (
    *("mask", "scale", "softcap", "bias", "alibi", "relative", "sinks"),
    *("alignment", "query_starts", "key_starts", "threads"),
)


def _arguments(entry: Mapping[str, Any], layer: int) -> dict[str, Any]:
    """Returns the arguments of the writer."""
    if not isinstance(entry, Mapping):
        raise TypeError(f"attentions: expected mappings, got {type(entry).__name__}")
    given = dict(entry)
    own: dict[str, Any] = {"layer": layer}
    for name in ("query", "key", "name"):
        if name not in given:
            raise TypeError(f"attentions: expected a mapping with name, query and key, got one without {name}")
    for name in ("name", "query", "key", "value", "lse", "layer", "kind", "heads"):
        if given.get(name) is not None:
            own[name] = given[name]
        given.pop(name, None)
    for name in ("query_tokens", "key_tokens"):
        names = given.pop(name, None) or []
        own[name] = [names] if isinstance(names, str) else list(names)
    for name in given:
        if name not in _OPTIONS:
            raise TypeError(f"attentions: expected tensors, names and the options of attention(), got {name!r}")
    if "heads" in own:
        own["heads"] = list(own["heads"])
    if "lse" not in own:
        own["lse"] = _engine._observe(own["query"], own["key"], **given)
    own["options"] = given
    return own


def _ranges(numbers: Sequence[int]) -> str:
    """Returns "0 to 8", or "0, 3, 8"."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"
