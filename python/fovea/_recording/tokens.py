# SPDX-License-Identifier: Apache-2.0
"""The tokens of a recording: the ids that the stacks of a model receive while it runs, as texts."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .hooks import Hook
from .recording import Tokens


def _byte_of_letter() -> dict[str, int]:
    """Returns the bytes that the letters of a byte-level vocabulary stand for (Radford et al. 2019, GPT-2)."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {chr(byte): byte for byte in shown}
    hidden = (byte for byte in range(256) if byte not in shown)
    return letters | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_BYTES = _byte_of_letter()


def check_tokenizer(tokenizer: Any) -> None:
    """Raises TypeError for what token_texts() does not understand."""
    if tokenizer is not None and not any(hasattr(tokenizer, name) for name in ("convert_ids_to_tokens", "decode")):
        raise TypeError(f"tokenizer: expected a tokenizer of transformers or None, got {type(tokenizer).__name__}")


def token_texts(tokenizer: Any, ids: list[int]) -> list[str]:
    """Returns the text of each token: with its spaces, as far as the vocabulary tells, and with bytes that are not a
    whole character as \\xNN. An id that the tokenizer does not know is its own text; without a tokenizer, each is."""
    special: set[str] = set()
    byte_level = False
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        special = {*getattr(tokenizer, "all_special_tokens", ()), *getattr(tokenizer, "get_added_vocab", dict)()}
        byte_level = _is_byte_level(tokenizer)

    def text(number: int) -> str:
        if tokenizer is None:
            return str(number)
        try:
            if not hasattr(tokenizer, "convert_ids_to_tokens"):
                return str(tokenizer.decode([number]))
            (token,) = tokenizer.convert_ids_to_tokens([number])
        except (IndexError, KeyError, OverflowError, TypeError, ValueError):
            return str(number)
        if token is None:
            return str(number)
        return str(token) if token in special else _plain(str(token), byte_level)

    texts = {number: text(number) for number in set(ids)}
    # Lone surrogates have no UTF-8.
    return [texts[number].encode("utf-8", "backslashreplace").decode() for number in ids]


def _is_byte_level(tokenizer: Any) -> bool:
    """Returns whether a space is written as the letter that stands for its byte."""
    space = next(token for token, byte in _BYTES.items() if byte == ord(" "))
    try:
        return any(space in token for token in tokenizer.convert_ids_to_tokens(list(range(min(len(tokenizer), 2000)))))
    except (TypeError, ValueError, IndexError, AttributeError):
        return False


def _plain(token: str, byte_level: bool) -> str:
    if byte_level and all(letter in _BYTES for letter in token):
        return bytes(_BYTES[letter] for letter in token).decode("utf-8", "backslashreplace")
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):  # a byte of SentencePiece
        with contextlib.suppress(ValueError):
            return bytes([int(token[3:5], 16)]).decode("utf-8", "backslashreplace")
    return token.replace("\u2581", " ")


class ModelTokens:
    """Collects ids while a model runs, and gives the tokens of an attention by the module's path."""

    def __init__(self, model: torch.nn.Module, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._ids: dict[str, list[Tensor]] = {}  # by the path of the module that received them
        self._patches: tuple[int, int] | None = None
        self._made: dict[tuple[str, int, int], list[Tokens]] = {}  # layers share their lists
        self._names: set[str] = set()
        self._pixels: set[str] = set()  # the paths of modules that received images

    @contextlib.contextmanager
    def collect(self) -> Iterator[None]:
        """Reads the ids that modules of the model receive in the block."""
        hooks = []
        parameters: dict[type[torch.nn.Module], list[str]] = {}  # a model has many modules of few types
        for path, module in self._model.named_modules():
            kind = type(module)
            if kind not in parameters:
                parameters[kind] = list(inspect.signature(module.forward).parameters)
            names = parameters[kind]
            wanted = [name for name in names if name in ("input_ids", "pixel_values")]
            if wanted:
                hook = Hook(self._hook(path, names, wanted))
                hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _hook(self, path: str, names: list[str], wanted: list[str]) -> Any:
        def read(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = dict(zip(names, args, strict=False)) | kwargs
            for name in wanted:
                found = given.get(name)
                if not isinstance(found, Tensor):
                    continue
                if name == "pixel_values":
                    self._pixels.add(path)
                    self._patches = self._patches or _patch_grid(module, found)
                elif found.ndim == 2 and not found.is_floating_point():
                    self._ids.setdefault(path, []).append(found.detach().cpu())

        return read

    def of_queries(self, path: str, kind: str, batch: int, first: int, count: int) -> list[Tokens]:
        """Returns the token lists of an attention's queries, one per batch item; none if they are not known."""
        return self._of(path, "decoder" if kind == "cross" else kind, batch, first, count)

    def of_keys(self, path: str, kind: str, batch: int, first: int, count: int) -> list[Tokens]:
        """Returns the token lists of an attention's keys."""
        if kind != "cross":
            return self._of(path, kind, batch, first, count)
        stacks = [stack for stack in self._ids if _side(stack) == "encoder" and not _is_above(stack, path)]
        return self._lists(stacks, "encoder", batch, first, count)

    def _of(self, path: str, kind: str, batch: int, first: int, count: int) -> list[Tokens]:
        stacks = sorted((stack for stack in self._ids if _is_above(stack, path)), key=len, reverse=True)
        if kind == "decoder":
            stacks = [stack for stack in stacks if _side(stack) == "decoder"]
        pixels = max((len(stack) for stack in self._pixels if _is_above(stack, path)), default=-1)
        if pixels > max(map(len, stacks), default=-1):  # a tower for images
            return self._patch_tokens(count)
        return self._lists(stacks, "text" if kind == "self" else kind, batch, first, count)

    def _lists(self, stacks: list[str], name: str, batch: int, first: int, count: int) -> list[Tokens]:
        for stack in stacks:
            parts = self._ids[stack]
            rows = {part.shape[0] for part in parts}
            # MusicGen has several rows of ids for each text, one per codebook.
            if len(rows) != 1 or not rows <= {1, batch}:
                continue
            key = (stack, first, count)
            if key in self._made:
                return self._made[key]
            ids = torch.cat(parts, dim=1)
            # The ids must be those of all positions, or of all queries if a cache was filled before the block. Images
            # and prefixes take positions without ids.
            if ids.shape[1] == first + count:
                ids = ids[:, first:]
            elif ids.shape[1] != count:
                continue
            own = name if name not in self._names else f"{name} of {stack}"
            self._names.add(name)
            names = [own] if ids.shape[0] == 1 else [f"{own}.{item}" for item in range(ids.shape[0])]
            found = [
                Tokens(one, token_texts(self._tokenizer, row), row)
                for one, row in zip(names, ids.tolist(), strict=True)
            ]
            self._made[key] = found
            return found
        return []

    def _patch_tokens(self, count: int) -> list[Tokens]:
        """Returns a token for each patch of an image, after those that a model puts in front."""
        if self._patches is None:
            return []
        rows, columns = self._patches
        extra = count - rows * columns
        if not 0 <= extra <= 16:
            return []
        front = ["[CLS]", *(f"[register {number}]" for number in range(1, extra))][:extra]
        patches = [f"row {row}, column {column}" for row in range(rows) for column in range(columns)]
        return [Tokens("patches", front + patches, grid=(rows, columns))]


def _is_above(stack: str, path: str) -> bool:
    """Returns whether a module path is that of a module around another one, or the same."""
    return not stack or path == stack or path.startswith(f"{stack}.")


def _side(path: str) -> str:
    """Returns "encoder" or "decoder", whichever is first in a module path, or ""."""
    return next((part for part in path.split(".") if part in ("encoder", "decoder")), "")


def _patch_grid(module: torch.nn.Module, pixels: Tensor) -> tuple[int, int] | None:
    config = getattr(module, "config", None)
    config = getattr(config, "vision_config", config)
    size = getattr(config, "patch_size", None)
    if size is None or pixels.ndim != 4:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    return pixels.shape[2] // height, pixels.shape[3] // width
