# SPDX-License-Identifier: Apache-2.0
"""Scenes from Python's values. Arrays of any library, masks and keyword arguments become values of the scene format
(docs/scene.md), which the parser of scene files reads, so that there is one place for all errors."""

from __future__ import annotations

import ast
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Set
from itertools import chain
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias

import numpy as np

from ._arguments import is_utf8
from ._fovea import Mask, Scene, causal, trace_scene

_Json: TypeAlias = Any
_MOST_LEVELS = 32  # as the parser
_MOST_TITLE = 60  # characters
# Floating-point types that are wider than float32.
_WIDE = {"float64", np.dtype(np.longdouble).name}
# Arguments of explain() with another path in a scene.
_ARGUMENTS = {
    **{f"projections.{name}": f"w_{name}" for name in ("query", "key", "value")},
    "score.scale": "scale",
    "mask.dense": "mask",
}
_PATHS = re.compile("|".join(rf"\b{re.escape(path)}\b" for path in _ARGUMENTS))
# Rules of masks that refer to an array, which their repr does not contain.
_OF_ARRAYS = ("dense", "documents")
# The keys of a scene whose arrays determine its dtype.
_NUMBERS = ("embeddings", "source", "projections", "query", "key", "value", "w_query", "w_key", "w_value")


def name_of_type(dtype: object) -> str:
    """Returns the name of a dtype of any library: "float32" for "float32", np.float32, torch.float32."""
    for attribute in ("name", "__name__"):
        if isinstance(name := getattr(dtype, attribute, None), str):
            return name
    return str(dtype).rpartition(".")[2]


def plain(value: object, place: str, dtypes: set[str], level: int = 0) -> _Json:
    """Returns the value as json.dumps() takes it: arrays as nested lists of the exact numbers, masks as rules, numbers
    that JSON lacks as the strings of the scene format. `dtypes` receives the names of the arrays' floating-point types.
    `place` is the argument, for errors."""
    if level > _MOST_LEVELS:
        raise ValueError(f"{place.partition('[')[0]}: expected at most {_MOST_LEVELS} levels, got more")
    if isinstance(value, (np.ndarray, np.generic)):
        return _numpy(np.asanyarray(value), place, dtypes, level)
    if isinstance(value, str) and not is_utf8(value):
        raise ValueError(f"{place}: expected text that UTF-8 can encode, got {value!a:.60}")
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{place}: expected keys of type str, got {type(key).__name__}")
        return {key: plain(item, f"{place}.{key}", dtypes, level + 1) for key, item in value.items()}
    if isinstance(value, Mask):
        return _rules(value)
    read = _reader(value)
    if read is not None:
        try:
            items = read()
        except Exception as error:
            raise TypeError(f"{place}: expected an array to read, got {type(value).__name__}: {error}") from error
        own: set[str] = set()
        found = plain(items, place, own, level + 1)
        # Lists of Python's numbers do not have the array's type.
        name = name_of_type(getattr(value, "dtype", ""))
        dtypes |= {name} if "float" in name else own
        return found
    if not isinstance(value, (Set, bytes, bytearray, type)):
        if isinstance(value, Iterable):
            return [plain(item, f"{place}[{i}]", dtypes, level + 1) for i, item in enumerate(value)]
        if isinstance(value, SupportsIndex):
            return value.__index__()
        if isinstance(value, SupportsFloat):
            return plain(float(value), place, dtypes)
    got = f"the type {value.__name__}" if isinstance(value, type) else type(value).__name__
    raise TypeError(f"{place}: expected numbers, text, lists, arrays or dicts, got {got}")


def _reader(value: object) -> Callable[[], object] | None:
    """Returns a function that reads an array as nested lists or as a NumPy array, or None if it is not an array."""
    kind = type(value)
    # First tolist(): torch's takes tensors that require gradients, bfloat16 and other devices.
    if hasattr(kind, "tolist"):
        return value.tolist  # type: ignore[attr-defined, no-any-return]
    if hasattr(kind, "__array__"):
        return lambda: np.asarray(value)
    if hasattr(kind, "__dlpack__"):
        return lambda: np.from_dlpack(value)  # type: ignore[arg-type]
    return None


def _numpy(array: np.ndarray[Any, Any], place: str, dtypes: set[str], level: int) -> _Json:
    kind = array.dtype.kind
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{place}: expected an array without masked elements, got MaskedArray")
    if kind in "biuU":
        return array.tolist()
    if kind == "O":
        return plain(array.tolist(), place, dtypes, level + 1)
    try:
        wide = array.astype(np.float64) if kind in "fV" else None  # V: the types of ml_dtypes, or structures
    except (TypeError, ValueError):
        wide = None
    if wide is None:
        raise TypeError(f"{place}: expected numbers, words or bools, got an array of {array.dtype}")
    dtypes.add(array.dtype.name)
    # A list of numbers without an array's type, if some are not finite.
    return wide.tolist() if np.isfinite(wide).all() else plain(wide.tolist(), place, set(), level)


def _rules(mask: Mask) -> _Json:
    """Returns the mask in the scene format. A mask's repr is an expression of its rules. Raises ValueError if a rule
    refers to an array."""

    def rule(node: ast.expr) -> _Json:
        if isinstance(node, ast.BinOp):
            return {"all" if isinstance(node.op, ast.BitAnd) else "any": [rule(node.left), rule(node.right)]}
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id in _OF_ARRAYS:
            raise ValueError(f"mask: expected rules without arrays inside other rules, got {mask}")
        numbers = [ast.literal_eval(argument) for argument in node.args]
        values = {"Mask": {}, "causal": {"causal": True}, "prefix": {"prefix": numbers[0] if numbers else 0}}
        return values.get(node.func.id, {node.func.id: numbers})

    return rule(ast.parse(repr(mask), mode="eval").body)


def _matrix(mask: Mask, scene: Mapping[str, _Json]) -> _Json:
    """Returns the mask as bools, for the scene without it."""
    made = _parse(scene)
    shape = trace_scene(made)["scores"].shape
    items = math.prod(shape) // math.prod(shape[-2:]) // made.heads
    extents = {"alignment": scene.get("alignment", "bottom-right"), "batch": items, "q_heads": made.heads}

    def of(item: int, head: int) -> _Json:
        return mask.matrix(*shape[-2:], item=item, head=head, **extents).tolist()

    return {"dense": [[of(item, head) for head in range(made.heads)] for item in range(items)]}


def _parse(scene: Mapping[str, _Json]) -> Scene:
    return Scene.parse(json.dumps(scene, ensure_ascii=False))


def _plain_parts(given: Mapping[str, object], dtypes: set[str]) -> dict[str, _Json]:
    """Returns the values as plain() does, but a mask of the engine unchanged if it refers to an array."""
    parts = {}
    for key, value in given.items():
        if not (key == "mask" and isinstance(value, Mask) and any(name in repr(value) for name in _OF_ARRAYS)):
            value = plain(value, key, dtypes if key in _NUMBERS else set())
        parts[key] = value
    return parts


def _made(scene: dict[str, _Json], dtypes: set[str]) -> Scene:
    # The arithmetic of the arrays' library, so that the numbers are the same. Scenes do not compute in 16 bits.
    if dtypes and not dtypes & _WIDE:
        scene.setdefault("dtype", "float32")
    mask = scene.get("mask")
    if isinstance(mask, list):
        scene["mask"] = {"dense": mask}
    elif isinstance(mask, Mask):
        del scene["mask"]
        scene["mask"] = _matrix(mask, scene)
    return _parse(scene)


def scene_of_mapping(given: Mapping[str, object]) -> Scene:
    """Returns the scene of a dict in the scene format, with arrays of any library in place of lists."""
    dtypes: set[str] = set()
    return _made(_plain_parts(given, dtypes), dtypes)


def scene_of_keywords(given: Mapping[str, object]) -> Scene:
    """Returns the scene of the keyword arguments of explain()."""
    dtypes: set[str] = set()
    scene = _plain_parts(given, dtypes)
    _join_projections(scene)
    _join_heads(scene)
    _name_words(scene)
    _draw(scene)
    if "scale" in scene:
        scene["score"] = {"scale": scene.pop("scale")}
    if isinstance(scene.get("normalizations"), str):
        scene["normalizations"] = [scene["normalizations"]]
    if scene.pop("causal", False):
        mask = scene.get("mask", "none")
        if isinstance(mask, Mask):
            scene["mask"] = mask & causal()
        elif isinstance(mask, list):
            scene["mask"] = {"causal": True, "dense": mask}
        else:
            scene["mask"] = "causal" if mask in ("none", "causal") else {"all": ["causal", mask]}
    try:
        return _made(scene, dtypes)
    except ValueError as error:
        raise ValueError(_PATHS.sub(lambda path: _ARGUMENTS[path[0]], str(error))) from None


def _join_projections(scene: dict[str, _Json]) -> None:
    """Replaces w_query, w_key, w_value and random_projections by projections."""
    if scene.pop("random_projections", False):
        scene.setdefault("projections", "random")
    names = ("query", "key", "value")
    weights = {name: scene.pop(f"w_{name}", None) for name in names}
    given = [name for name in names if weights[name] is not None]
    if not given:
        return
    for name in names:
        if weights[name] is None:
            raise TypeError(f"w_{name}: expected weights, as w_{given[0]} is given, got None")
    if "projections" in scene:
        raise TypeError(
            f"projections: expected None beside w_query, w_key and w_value, got {scene['projections']!r:.60}"
        )
    scene["projections"] = weights


def _shape(value: _Json) -> tuple[int, ...]:
    """Returns the shape of nested lists, () for anything else or lists of different lengths."""
    try:
        return np.shape(value) if isinstance(value, list) else ()
    except ValueError:
        return ()


def _join_heads(scene: dict[str, _Json]) -> None:
    """Changes queries, keys and values of [batch, heads, length, columns] to the scene format's [batch, length, heads *
    columns], and a single query to a matrix."""
    names = ("query", "key", "value")
    if all(len(_shape(scene.get(name))) == 4 for name in names):
        for name, heads in zip(names, ("heads", "kv_heads", "kv_heads"), strict=True):
            shape = _shape(scene[name])
            if scene.setdefault(heads, shape[1]) != shape[1]:
                raise ValueError(f"{name}: expected {heads} = {scene[heads]} heads, got {list(shape)}")
            scene[name] = [[list(chain(*rows)) for rows in zip(*item, strict=True)] for item in scene[name]]
    elif len(_shape(scene.get("query"))) == 1:
        scene["query"] = [scene["query"]]


def _name_words(scene: dict[str, _Json]) -> None:
    """Names words, or keys of another number, that have no names: word_1, word_2; key_1, key_2."""

    def named(kind: str, shape: tuple[int, ...]) -> _Json:
        names = [f"{kind}_{i + 1}" for i in range(shape[-2])]
        return names if len(shape) == 2 or shape[0] == 1 else [names] * shape[0]

    arrays = next((scene[name] for name in ("query", "key", "value", "embeddings") if name in scene), None)
    queries, keys = _shape(arrays), _shape(scene.get("key"))
    if "tokens" not in scene and "text" not in scene and isinstance(arrays, list):
        # One word for arrays of other dimensions, so that the parser's error is about the array.
        queries = queries if len(queries) in (2, 3) else (1, 1)
        scene["tokens"] = named("word", queries)
        scene.setdefault("title", f"Attention of {queries[-2]} word{'' if queries[-2] == 1 else 's'}")
    if "source" in scene:
        if not isinstance(scene["source"], dict):
            scene["source"] = {"text" if isinstance(scene["source"], str) else "tokens": scene["source"]}
    elif len(keys) in (2, 3) and len(queries) in (2, 3) and keys[-2] != queries[-2]:
        scene["source"] = {"tokens": named("key", keys)}
    if "title" not in scene:
        tokens = scene.get("tokens", scene.get("text"))
        words = " ".join(map(str, np.ravel(tokens))) if isinstance(tokens, list) else str(tokens)
        scene["title"] = textwrap.shorten(words, _MOST_TITLE, placeholder=" ...")


def _draws(value: _Json) -> bool:
    return isinstance(value, dict) and ("draw" in value or any(map(_draws, value.values())))


def _draw(scene: dict[str, _Json]) -> None:
    """Adds the drawings that the arguments name, and the seed, with the defaults of a sentence."""
    arguments = {name: scene[name] for name in ("dim", "seed") if name in scene}
    defaults = json.loads(Scene.from_sentence("word", **arguments).json)
    dim = scene.pop("dim", None)
    random = scene.get("projections") == "random"
    if random:
        scene["projections"] = {"draw": "randn"} if dim is None else {"draw": "randn", "dim": dim}
    if not any(name in scene for name in ("embeddings", "query", "key", "value")):
        scene["embeddings"] = defaults["embeddings"]
        scene["notes"] = defaults["notes"]
    elif dim is not None and not random:
        raise TypeError("dim: expected with random embeddings or projections, got arrays")
    if _draws(scene):
        scene["seed"] = defaults["seed"]
