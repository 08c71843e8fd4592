# SPDX-License-Identifier: Apache-2.0
"""explain(): builds scenes from Python arguments; the extension module does the rest."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, TypeAlias

from . import _fovea
from ._fovea import Mask, Scene, Trace
from ._scene import name_of_type, plain, scene_of_keywords, scene_of_mapping

# Anything with tolist(), __array__() or __dlpack__(), nested lists, a drawing.
_Values: TypeAlias = Any

# All that Scene.from_sentence() takes.
_OF_SENTENCES = {"dim", "seed", "causal", "heads", "random_projections"}


def _scene_of(scene: object, given: dict[str, Any]) -> Scene:
    focus = given.pop("focus", None)
    if isinstance(scene, str):
        words = scene.split()
        if len(words) == 1 and words[0].endswith(".json"):
            raise ValueError(
                f'scene: expected a sentence, got "{scene}", which looks like a file: '
                "pathlib.Path() of it, or Scene.load(), is one"
            )
        if "tokens" in given or "text" in given:
            raise TypeError("scene: expected None beside tokens or text, got a sentence")
        if given.keys() - _OF_SENTENCES:
            scene, given["text"] = None, scene
    if scene is None and given:
        if focus is not None and not (isinstance(focus, str) and focus.startswith("@")):
            return scene_of_keywords({**given, "focus": focus})
        made = scene_of_keywords(given)
    elif isinstance(scene, str):
        made = Scene.from_sentence(scene, **given)
    elif given:
        raise TypeError(f"{next(iter(given))}: expected with a sentence or arrays only; a scene says it itself")
    elif isinstance(scene, Scene):
        made = scene
    elif isinstance(scene, Mapping):
        made = scene_of_mapping(scene)
    elif isinstance(scene, os.PathLike):
        made = Scene.load(scene)
    else:
        raise TypeError(
            "scene: expected a sentence, a Scene, a dict of one, the path of a file, or arrays by name, "
            f"got {'None' if scene is None else type(scene).__name__}"
        )
    return made if focus is None else made.with_focus(plain(focus, "focus", set()))


def explain(
    scene: str | Scene | Mapping[str, Any] | os.PathLike[str] | None = None,
    *,
    tokens: _Values = None,
    text: str | None = None,
    embeddings: _Values = None,
    w_query: _Values = None,
    w_key: _Values = None,
    w_value: _Values = None,
    query: _Values = None,
    key: _Values = None,
    value: _Values = None,
    source: _Values = None,
    scale: float | str | None = None,
    mask: Mask | _Values = None,
    focus: str | SupportsIndex | Sequence[SupportsIndex] | None = None,
    projections: str | Mapping[str, Any] | None = None,
    normalizations: str | Sequence[str] | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    causal: bool | None = None,
    dim: int | None = None,
    seed: int | None = None,
    order: Sequence[str] | None = None,
    random_projections: bool | None = None,
    dtype: object = None,
    precision: int | None = None,
    title: str | None = None,
) -> Trace:
    """Computes every step of attention on a small example, from embeddings to scores, weights and context.

    The example is a sentence, whose words get random embeddings, or arrays:

        >>> fovea.explain("Your journey starts")["weights"].shape
        (3, 3)
        >>> words = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
        >>> fovea.explain(embeddings=words, scale=1, focus=2)["focus.scores"]
        array([1., 1., 2., 0.])

    scene           a sentence, with the other arguments; or a complete Scene, a dict in the format of
                    docs/scene.md (with arrays in place of lists), or the path of a JSON file in this format
                    (a pathlib.Path), with focus only
    tokens          the words, or integers, one per row of the arrays; by default word_1, word_2, ...;
                    or a drawing, {"draw": "randint", "high": 100, "count": 4}
    text            the words as one text, as the sentence in scene
    embeddings      [tokens, dim] or [batch, tokens, dim]; by default random, with `dim` columns
    w_query, w_key, w_value  weights that project the embeddings, [dim, columns]; all or none
    query, key, value  queries, keys and values in place of embeddings, [tokens, columns],
                    [batch, tokens, columns] or [batch, heads, tokens, columns]; query may be one row
    source          the words of the keys and values, if the queries have others (cross-attention): a list, a
                    text, or a dict with tokens and embeddings; by default key_1, key_2, ...
    scale           factor on the scores; None: 1 / sqrt(head_dim)
    mask            "causal"; rules such as fovea.causal() & fovea.window(3, 0); an array of bools, True where
                    visible; or a dict in the scene format
    focus           the word to explain in detail: the word, its position (-1 is the last), or
                    [item, position] in a batch. A word or a number as `query` has the same meaning
    projections     "random": projects the embeddings with random weights; or a dict in the scene format
    normalizations  "softmax", "naive" (without subtracting the maximum), "sum", or a list of them
    heads, kv_heads  numbers of heads, which divide the columns
    causal          True: words do not attend to later words
    dim, seed       columns of random arrays; seed of NumPy's legacy random stream, 42 by default
    order           order of the draws, for example ["W_K", "W_Q", "W_V"]
    random_projections  True: the same as projections="random"
    dtype           "float64" or "float32": the arithmetic. By default that of the arrays, float32 if none of
                    their types is wider
    precision       number of decimals to show
    title           heading

    Arrays are anything with tolist(), __array__() or __dlpack__() (NumPy, PyTorch, JAX, TensorFlow), and
    nested lists of numbers. Their numbers are copied exactly.

    Returns a Trace: trace["weights"] is a NumPy array with the dimensions of the arguments, print(trace)
    prints the story, and a notebook shows an interactive page. Raises TypeError and ValueError; the message
    has the argument or the location in the scene, the expected and the actual value. Raises OSError if
    a file can't be read.
    """
    given = {name: argument for name, argument in locals().items() if name != "scene" and argument is not None}
    if isinstance(query, (str, int, float)) or getattr(query, "shape", None) == ():
        if focus is not None:
            raise TypeError(f"query: expected an array beside focus, got {type(query).__name__}")
        given["focus"] = given.pop("query")
    if dtype is not None:
        given["dtype"] = name_of_type(dtype)
    return _fovea.trace_scene(_scene_of(scene, given))
