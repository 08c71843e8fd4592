# SPDX-License-Identifier: Apache-2.0
"""explain(): builds scenes from Python arguments; the extension module does the rest."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from . import _fovea
from ._fovea import Scene, Trace


def _scene_of(scene: object, sentence: dict[str, Any]) -> Scene:
    if isinstance(scene, str):
        words = scene.split()
        if len(words) == 1 and words[0].endswith(".json"):
            raise ValueError(
                f'scene: expected a sentence, got "{scene}", which looks like a file: '
                "pathlib.Path() of it, or Scene.load(), is one"
            )
        return Scene.from_sentence(scene, **sentence)
    if sentence:
        raise TypeError(f"{next(iter(sentence))}: expected with a sentence only; a scene says it itself")
    if isinstance(scene, Scene):
        return scene
    if isinstance(scene, Mapping):
        return Scene.parse(json.dumps(scene))
    if isinstance(scene, os.PathLike):
        return Scene.load(scene)
    raise TypeError(
        f"scene: expected a sentence, a Scene, a dict of one or the path of a file, got {type(scene).__name__}"
    )


def explain(
    scene: str | Scene | Mapping[str, Any] | os.PathLike[str],
    *,
    query: str | None = None,
    dim: int | None = None,
    seed: int | None = None,
    causal: bool | None = None,
    heads: int | None = None,
    random_projections: bool | None = None,
) -> Trace:
    """Computes every step of attention on a small example, from embeddings to scores, weights and context.

    scene    a sentence, whose words get random embeddings; or a Scene, a dict in the format of
             docs/scene.md, or the path of a JSON file in this format (a pathlib.Path)
    query    the word to explain in detail; "@INDEX", counted from 0, if it occurs twice
             ("@ITEM:INDEX" in a batch)
    dim, seed, causal, heads, random_projections  arguments of Scene.from_sentence(), for a sentence

    Returns a Trace: trace["weights"] is an array, print(trace) prints the story, and a notebook shows an
    interactive page. Raises ValueError; the message has the location in the scene, the expected and the
    actual value. Raises OSError if a file can't be read.

        >>> fovea.explain("Your journey starts")["weights"].shape
        (3, 3)
    """
    given = {
        "dim": dim,
        "seed": seed,
        "causal": causal,
        "heads": heads,
        "random_projections": random_projections,
    }
    made = _scene_of(scene, {name: value for name, value in given.items() if value is not None})
    return _fovea.trace_scene(made if query is None else made.with_focus(query))
