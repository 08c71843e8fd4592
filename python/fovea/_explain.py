# SPDX-License-Identifier: Apache-2.0
"""Scenes and traces: what the module has, with what is easier said in Python."""

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
    """Every step of attention on a small example, from embeddings over scores and weights to context.

    scene    a sentence, whose words get random embeddings; or a Scene, a dict as docs/scene.md
             describes it, or the path of such a JSON file (a pathlib.Path)
    query    the word that is told in detail; as "@INDEX", counted from 0, where it occurs twice
             ("@ITEM:INDEX" in a batch)
    dim, seed, causal, heads, random_projections  of a sentence: Scene.from_sentence()

    Returns a Trace: trace["weights"] is an array, print(trace) tells the story, and a notebook shows the
    page to click through. Raises ValueError naming the place in the scene, what was expected and what
    came; OSError for a file that can't be read.

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
