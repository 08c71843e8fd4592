# SPDX-License-Identifier: Apache-2.0
"""record(): the attention of a PyTorch model, written while the model runs. What it sees are the AttentionCalls of
_observe/calls.py; what it writes is described in docs/recordings.md."""

from __future__ import annotations

import contextlib
import operator
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .. import _fovea
from .._observe.calls import AttentionCall, observe
from .._observe.rules import Region, Rule
from .joined_rule import Part, joined_mask, lone_rule, moved_rule
from .places import ModulePlaces, Place
from .tokens import ModelTokens, check_tokenizer

_engine: Any = _fovea  # includes the private functions that the stubs omit
_OF_KEYS = ("key", "value")
_SECONDS_BETWEEN_LINES = 2.0
# Parts of an attention, such as the steps of generation, that are written together.
_MOST_PARTS = 64
_MOST_QUERIES = 512


class _Attention:
    """One attention that is being recorded, in one or more parts."""

    def __init__(self, name: str, call: AttentionCall, described: dict[str, Any]) -> None:
        self.name = name
        self.described = described
        self.first_query, self.first_key = call.query_start, call.key_start
        self.batch = call.query.shape[0]
        self.query_end = call.query_start + call.query.shape[2]
        self.key_end = call.key_start + call.key.shape[2]
        self.parts: list[Part] = []
        self.last_rule: Rule = call.rule  # of all heads of the model
        self.options = call.options
        self.some_keys: Tensor | None = None  # of cross-attention, to tell whether later parts have the same
        self.pending: list[dict[str, Tensor]] = []
        self.pending_queries = 0

    @property
    def queries(self) -> int:
        number: int = self.query_end - self.first_query
        return number

    @property
    def keys(self) -> int:
        number: int = self.key_end - self.first_key
        return number

    def add_part(self, call: AttentionCall, begin: int, keys: int, lone: Callable[[Rule, Region], Rule]) -> None:
        """Adds the part of a call whose first query is at position `begin`, with the keys that it used. `lone` is
        lone_rule(), or gives its results."""
        region = Region(begin, call.query.shape[2], call.key_start, keys)
        self.last_rule = call.rule
        rule = call.rule.of_heads(self.described["heads"]) if self.described["heads"] else call.rule
        if self.described["kind"] != "cross" and region.q_len == 1 and region.key_end == region.query_end:
            rule = lone(rule, region)
        self.parts.append(Part(rule, region))


class Recorder:
    """The value of a block of record().

    path   the file that will be written
    bytes  the size of the tensors so far
    """

    def __init__(
        self,
        model: torch.nn.Module,
        path: str | os.PathLike[str],
        *,
        tokens: ModelTokens,
        layers: Iterable[int] | None,
        heads: Iterable[int] | None,
        values: bool,
        store: str | None,
        source: str,
        compute: Literal["fovea", "original"],
        progress: bool,
    ) -> None:
        # The current folder may change inside the block.
        self.path = os.path.abspath(path)
        self._model = model
        self._places = ModulePlaces(model)
        self._tokens = tokens
        self._layers = _chosen("layers", layers)
        self._heads = _chosen("heads", heads)
        self._values = values
        self._original = compute == "original"
        self._progress = _Progress(self.path) if progress else None
        self._attentions: dict[str, _Attention] = {}
        self._seen_layers: set[int] = set()
        self._compared: dict[Any, bool] = {}  # of joined_mask()
        self._moved: tuple[Rule, Rule | None, tuple[int, Region, Region], Rule] | None = None  # the last of _numbered()
        self._lone: tuple[Rule, Region, Rule] | None = None  # the last of _lone_rule()
        self._batch = 1
        self._bytes, self._finished = 0, False
        # Models of transformers may have static caches, whose last slots are empty.
        self._has_caches = any(hasattr(module, "config") for module in model.modules())
        self._calls: dict[int, int] = {}  # of each module, in this forward pass
        self._known: dict[tuple[int, int], Place | None] = {}  # by module and its call in a forward pass
        self.called: list[torch.nn.Module] = []
        self._writer = _engine._RecordingWriter(self.path, model=_model_name(model), source=source, store=store or "")

    @property
    def bytes(self) -> int:
        if not self._finished:
            self._bytes = int(self._writer.bytes)
        return self._bytes

    def begin_pass(self) -> None:
        """Tells that the model is called: modules that were called before are called again."""
        self._calls.clear()

    def __call__(self, call: AttentionCall) -> None:
        module = call.module
        if not self._places.has(module):
            return  # of another model
        count = self._calls.get(id(module), 0)
        self._calls[id(module)] = count + 1
        key = (id(module), count)
        if key not in self._known:
            self._known[key] = self._place(module, count)
        place = self._known[key]
        if place is None:
            return
        own = self._attentions.get(place.name)
        if place.kind == "cross":
            call = self._numbered(own, call)
        if own is None:
            self._add(place, call)
        else:
            self._append(own, place.kind, call)
        if self._progress is not None and self._progress.is_due():
            self._progress.tell(self.bytes, len(self._attentions))

    def _place(self, module: torch.nn.Module | None, count: int) -> Place | None:
        """Returns where a call is in the model; None if its layer is not recorded."""
        if module is not None:
            self.called.append(module)
        place = self._places.of(module, count)
        self._seen_layers.add(place.layer)
        return place if self._layers is None or place.layer in self._layers else None

    def _numbered(self, own: _Attention | None, call: AttentionCall) -> AttentionCall:
        """Returns a call of cross-attention with its queries numbered behind those of earlier parts, and keys from
        0."""
        if call.options.get("relative") is not None:  # a table of distances, for the positions that the call has
            return call
        begin, before = (0, None) if own is None else (own.query_end, own.last_rule)
        (batch, _, q_len, _), kv_len = call.query.shape, call.key.shape[2]
        source, target = Region(call.query_start, q_len, call.key_start, kv_len), Region(begin, q_len, 0, kv_len)
        # Layers often share a mask.
        given = batch, source, target
        known = self._moved
        if known is None or known[0] is not call.rule or known[1] is not before or known[2] != given:
            known = self._moved = call.rule, before, given, moved_rule(call.rule, *given, before)
        return call._replace(rule=known[3], query_start=begin, key_start=0)

    def _add(self, place: Place, call: AttentionCall) -> None:
        self._batch = max(self._batch, call.query.shape[0])
        heads = self._chosen_heads(place.name, call.query.shape[1])
        described = {"name": place.name, "layer": place.layer, "kind": place.kind, "heads": heads or []}
        own = _Attention(place.name, call, described)
        own.key_end = own.first_key + self._used_keys(place.kind, call)
        own.add_part(call, call.query_start, own.keys, self._lone_rule)
        if place.kind == "cross":
            own.some_keys = _some_keys(call, own.keys).clone()
        options = self._options(own)
        if self._progress is not None and not self._attentions:
            self._progress.announce(self._model, own, call, self._values)
        self._attentions[place.name] = own
        self._writer.add(**self._tensors(call, heads, 0, own.keys), **described, options=options)

    def _append(self, own: _Attention, kind: str, call: AttentionCall) -> None:
        length = call.query.shape[2]
        begin = call.query_start
        # Without a mask, the position of the queries is that of the last keys.
        grown = type(call.rule) is Rule and call.key.shape[2] == own.key_end - call.key_start + length
        if kind != "cross" and begin == 0 and grown:
            begin = own.query_end
        if begin != own.query_end or kind == "encoder":
            cached = self._original and self._has_caches and kind != "encoder"
            raise ValueError(
                f"record: expected one text in a recording, and the queries from position {own.query_end} of "
                f"{own.name}, got them from position {begin}; record each text in a file of its own"
                + (', and a text with a static cache or a sliding window with compute="fovea"' if cached else "")
            )
        if own.some_keys is not None and not torch.equal(own.some_keys, _some_keys(call, own.keys)):
            raise ValueError(
                f"record: expected the keys of {own.name} to stay the same in all parts of a text, got others; record "
                "each text in a file of its own"
            )
        if call.options.get("bias") is not None:
            raise ValueError(
                f"record: expected a bias of {own.name} that follows from a table, as the text comes in parts, got a "
                "tensor of biases"
            )
        end = begin + length
        first = own.key_end - call.key_start
        last = max(first, self._used_keys(kind, call))
        if first < 0:
            raise ValueError(
                f"record: expected the keys of {own.name} from position {own.key_end}, got them from position "
                f"{call.key_start}"
            )
        heads = own.described["heads"] or None
        part = self._tensors(call, heads, first, last)
        for name in _OF_KEYS:
            if name in part:
                part[name] = part[name].clone()  # would keep a whole cache alive
        own.query_end, own.key_end = end, own.key_end + last - first
        own.options = call.options
        own.add_part(call, begin, last, self._lone_rule)
        own.pending.append(part)
        own.pending_queries += length
        if len(own.pending) == _MOST_PARTS or own.pending_queries > _MOST_QUERIES:
            self._write_pending(own)

    def _lone_rule(self, rule: Rule, region: Region) -> Rule:
        """lone_rule(), with the same result for all layers, which pass the same rule."""
        if self._lone is None or self._lone[0] is not rule or self._lone[1] != region:
            self._lone = rule, region, lone_rule(rule, region)
        return self._lone[2]

    def _used_keys(self, kind: str, call: AttentionCall) -> int:
        """Returns the number of keys, without empty slots of a static cache: behind the last query, seen by none."""
        kv_len: int = call.key.shape[2]
        end = call.query_start + call.query.shape[2]
        behind: int = call.key_start + kv_len - end
        if kind == "cross" or not self._has_caches or not 0 < behind < kv_len:
            return kv_len
        seen = call.rule.on(Region(call.query_start, call.query.shape[2], end, behind))
        return kv_len - behind if seen is False else kv_len

    def _write_pending(self, own: _Attention) -> None:
        parts, own.pending, own.pending_queries = own.pending, [], 0
        if parts:
            whole = {name: torch.cat([part[name] for part in parts], dim=2) for name in parts[0]}
            self._writer.append(**whole, name=own.name)

    def _chosen_heads(self, name: str, q_heads: int) -> list[int] | None:
        if self._heads is None:
            return None
        if self._heads and not 0 <= self._heads[0] <= self._heads[-1] < q_heads:
            raise ValueError(f"heads: expected numbers from 0 to {q_heads - 1}, the heads of {name}, got {self._heads}")
        return self._heads

    def _tensors(self, call: AttentionCall, heads: list[int] | None, first: int, last: int) -> dict[str, Tensor]:
        """Returns the tensors of a call, with the keys from `first` to before `last`."""
        query, lse = call.query, call.lse
        key = call.key.narrow(2, first, last - first)
        value = call.value.narrow(2, first, last - first) if call.value is not None and self._values else None
        if heads is not None:
            query, lse = query[:, heads], lse[:, heads]
            of_keys = _key_heads(heads, call.query.shape[1] // max(call.key.shape[1], 1))
            key = key[:, of_keys]
            value = None if value is None else value[:, of_keys]
        found = {"query": query, "key": key, "lse": lse}
        return found if value is None else found | {"value": value}

    def _options(self, own: _Attention) -> dict[str, Any]:
        """Returns the options of all parts together."""
        options = dict(own.options)
        mask, alignment = joined_mask(own.parts, self._batch, self._compared)
        options["mask"] = mask
        if alignment != own.keys - own.queries:
            options["alignment"] = alignment
        else:
            options.pop("alignment", None)
        heads = own.described["heads"]
        if heads:
            if options.get("sinks") is not None:
                options["sinks"] = [options["sinks"][head] for head in heads]
            if options.get("relative") is not None:
                options["relative"] = options["relative"]._of_heads(heads)
            bias = options.get("bias")
            if bias is not None and bias.ndim >= 3 and bias.shape[-3] > 1:
                options["bias"] = bias.narrow(0, 0, bias.shape[0]).index_select(-3, torch.tensor(heads))
        return options

    def finish(self) -> None:
        """Completes the file."""
        if not self._attentions and self._layers is not None and self._seen_layers:
            raise ValueError(
                f"layers: expected some of {sorted(self._seen_layers)}, which the model has, got {self._layers}"
            )
        if not self._attentions:
            raise ValueError(
                "record: expected the model to compute attention in the block, got no call; is the model called inside "
                "the block, and in the same thread?"
            )
        missing = sorted(set(self._layers or ()) - self._seen_layers)
        if missing:
            raise ValueError(
                f"layers: expected some of {sorted(self._seen_layers)}, which the model has, got {missing}"
            )
        lists: set[str] = set()
        for own in self._attentions.values():
            self._write_pending(own)
            described = own.described
            place = (own.name, described["kind"], own.batch)
            for which, found in (
                ("query_tokens", self._tokens.of_queries(*place, own.first_query, own.queries)),
                ("key_tokens", self._tokens.of_keys(*place, own.first_key, own.keys)),
            ):
                described[which] = [one.name for one in found]
                for one in found:
                    if one.name not in lists:
                        lists.add(one.name)
                        self._writer.add_tokens(one.name, one.texts, one.ids, one.grid)
            self._writer.describe(**described, options=self._options(own))
        self._bytes, self._finished = self.bytes, True
        self._writer.finish()
        if self._progress is not None:
            self._progress.finish()

    def close(self) -> None:
        """Removes what was written, unless finish() has completed it."""
        self._writer.close()


def _chosen(name: str, numbers: Iterable[int] | None) -> list[int] | None:
    """Returns the layers or heads to record, ascending; None: all."""
    if numbers is None:
        return None
    try:
        chosen = sorted({operator.index(number) for number in numbers})
    except TypeError:
        raise TypeError(f"{name}: expected a list of integers or None, got {numbers!r}") from None
    if not chosen:
        raise ValueError(f"{name}: expected at least one, or None for all, got none")
    return chosen


def _some_keys(call: AttentionCall, keys: int) -> Tensor:
    """Returns a few of the first `keys` keys of a call."""
    return call.key[:, :, : keys : max(1, keys // 4)]


def _key_heads(heads: list[int], group: int) -> list[int]:
    """Returns the key heads to record with some query heads: each once if they can be grouped again, otherwise one for
    each query head."""
    own = [head // group for head in heads]
    once = sorted(set(own))
    each = len(own) // len(once) if once else 0
    return once if own == [head for head in once for _ in range(each)] else own


def _model_name(model: torch.nn.Module) -> str:
    config = getattr(model, "config", None)
    name = getattr(config, "_name_or_path", "") or getattr(config, "name_or_path", "")
    return os.path.basename(str(name).rstrip("/")) or type(model).__name__


class _Progress:
    """Lines on standard error: the size before anything is written, and what there is every few seconds."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
        self._told = False

    def announce(self, model: torch.nn.Module, own: _Attention, call: AttentionCall, values: bool) -> None:
        from ..transformers import attention_modules

        count = max(len(attention_modules(model)), 1)
        query, key = call.query, call.key
        size = query.numel() + key[:, :, : own.keys].numel() * (2 if values else 1)
        total = count * (size * query.element_size() + call.lse.numel() * 4)
        print(
            f"fovea: recording about {count} attentions x {query.shape[0] * query.shape[2]:,} tokens x "
            f"({query.shape[1]} + {key.shape[1]}) heads x {query.shape[3]} = {total / 1e6:,.0f} MB to {self._path}",
            file=sys.stderr,
        )

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def tell(self, written: int, attentions: int) -> None:
        self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
        self._told = True
        print(f"\rfovea: {attentions} attentions, {written / 1e6:,.0f} MB", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        if self._told:
            print(file=sys.stderr)


@contextlib.contextmanager
def record_block(
    model: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    tokenizer: Any,
    text: str | Sequence[str] | None,
    compute: Literal["fovea", "original"],
    progress: bool | None,
    **options: Any,
) -> Iterator[Recorder]:
    """record(), whose arguments it has."""
    from .models import observed_model

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if compute not in ("fovea", "original"):
        raise ValueError(f'compute: expected "fovea" or "original", got {compute!r}')
    check_tokenizer(tokenizer)
    tokens = ModelTokens(model, tokenizer)
    recorder = Recorder(
        model,
        path,
        tokens=tokens,
        source=_source(text),
        compute=compute,
        progress=sys.stderr.isatty() if progress is None else progress,
        **options,
    )
    try:
        with tokens.collect(), observe(recorder), observed_model(model, recorder, compute):
            yield recorder
        recorder.finish()
    finally:
        recorder.close()


def _source(text: str | Sequence[str] | None) -> str:
    if text is None:
        return ""
    if isinstance(text, str):
        first = text
    elif isinstance(text, Sequence) and all(isinstance(one, str) for one in text):
        first = f"{len(text)} texts: {text[0] if text else ''}"
    else:
        raise TypeError(f"text: expected a text, a list of texts or None, got {type(text).__name__}")
    line = " ".join(first.split())
    return line if len(line) <= 200 else f"{line[:199]}\u2026"
