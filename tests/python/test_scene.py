# SPDX-License-Identifier: Apache-2.0
"""Compares explain, Scene and Trace with the command line."""

import html
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from problems import raises

import fovea

SCENES = pathlib.Path(__file__).parents[2] / "examples" / "scenes"
JOURNEY = SCENES / "001_your_journey.json"
SENTENCE = "Your journey starts with one step"
PROGRAM = pathlib.Path(fovea.__file__).parent / "bin" / "fovea"


def command_line(*arguments):
    result = subprocess.run(
        [PROGRAM, "explain", *arguments],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
    )
    return result.stdout


@pytest.mark.parametrize("path", sorted(SCENES.glob("*.json")), ids=lambda path: path.stem)
def test_text_equals_the_command_lines(path):
    trace = fovea.explain(path)
    assert str(trace) == command_line(str(path))
    assert trace.to_json() == command_line(str(path), "--format", "json")
    assert trace.to_html() == command_line(str(path), "--format", "html")
    assert trace.to_markdown() == command_line(str(path), "--format", "markdown")
    assert trace.to_latex() == command_line(str(path), "--format", "latex")
    assert trace.to_slides() == command_line(str(path), "--format", "slides")


@pytest.mark.parametrize("path", sorted(SCENES.glob("*.json")), ids=lambda path: path.stem)
def test_arrays_equal_those_of_the_json(path):
    trace = fovea.explain(path)
    told = json.loads(trace.to_json())
    assert [step["name"] for step in told["steps"]] == trace.names() == list(trace) == [s.name for s in trace.steps]
    special = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}
    for step in told["steps"]:
        found = trace[step["name"]]
        if isinstance(found, list):
            continue
        flat = [special.get(x, x) for x in np.array(step["values"], object).ravel()]
        np.testing.assert_array_equal(found, np.array(flat, found.dtype).reshape(found.shape))
    assert trace.passed
    assert len(trace.checks) == len(told["checks"])
    assert all(check.passed for check in trace.checks)


def test_sentence():
    trace = fovea.explain(SENTENCE, dim=3, seed=1, causal=True, query="journey")
    arguments = ["--text", SENTENCE, "--dim", "3", "--seed", "1", "--causal", "--query", "journey"]
    assert str(trace) == command_line(*arguments)
    assert trace["tokens"] == SENTENCE.split()
    weights = trace["weights"]
    assert weights.shape == (6, 6)
    assert np.array_equal(weights, np.tril(weights))
    np.testing.assert_allclose(weights.sum(-1), np.ones(6), rtol=1e-12)
    heads = fovea.explain(SENTENCE, heads=2, random_projections=True)
    assert heads["weights"].shape == (2, 6, 6)


def test_arrays_are_read_only_and_outlive_the_trace():
    weights = fovea.explain(SENTENCE)["weights"]
    assert not weights.flags.writeable
    assert np.array_equal(weights, fovea.explain(SENTENCE)["weights"])


def test_mapping():
    trace = fovea.explain(SENTENCE)
    assert "weights" in trace
    assert "nothing" not in trace
    assert 3 not in trace
    assert "\ud800" not in trace
    assert len(trace) == len(trace.names()) > 3
    with raises(KeyError, "nothing", "weights"):
        trace["nothing"]
    step = next(step for step in trace.steps if step.name == "weights")
    assert np.array_equal(step.values, trace["weights"])
    assert step.title
    assert step.formula
    assert repr(step) == 'Step("weights", [6, 6])'
    assert repr(trace).startswith("Trace of ")


def test_notebook_page():
    trace = fovea.explain('<b> & "quotes"')
    frame = trace._repr_html_()
    assert frame.startswith("<iframe title=")
    page = frame.split('srcdoc="', 1)[1].split('"', 1)[0]
    assert html.unescape(page) == trace.to_html()
    assert frame.endswith("></iframe>")


def test_page_of_two_scenes():
    paths = sorted(SCENES.glob("*.json"))[:2]
    first, second = map(fovea.explain, paths)
    assert first.to_html(compare=second) == command_line(*map(str, paths), "--format", "html")
    assert first.to_html(compare=None) == first.to_html()
    with pytest.raises(TypeError):
        first.to_html(compare="other.json")


def test_text():
    trace = fovea.explain(JOURNEY)
    assert max(map(len, trace.to_text(width=60).splitlines())) <= 60
    assert "\x1b[" in trace.to_text(color="true")
    assert "\x1b[" not in trace.to_text()
    with raises(ValueError, "color", "blue"):
        trace.to_text(color="blue")


def test_scene():
    scene = fovea.Scene.load(JOURNEY)
    assert scene.tokens == SENTENCE.split()
    assert scene.title
    assert (scene.heads, scene.kv_heads) == (1, 1)
    assert repr(scene).startswith("Scene(")
    text = JOURNEY.read_text(encoding="utf-8")
    same = [fovea.Scene.load(str(JOURNEY)), fovea.Scene.parse(text), json.loads(text), JOURNEY, scene]
    assert len({fovea.explain(one).to_json() for one in same}) == 1
    assert fovea.explain(scene, query="step")["focus.scores"].shape == (6,)
    assert "step" in str(fovea.explain(scene.with_focus("step")))
    batch = fovea.Scene.load(SCENES / "padded_batch.json")
    assert all(isinstance(words, list) for words in batch.tokens)


REFUSED = {
    "nothing": (ValueError, lambda: fovea.explain(""), ["word"]),
    "None": (TypeError, lambda: fovea.explain(None), ["scene", "None"]),
    "a list": (TypeError, lambda: fovea.explain(["a"]), ["scene", "list"]),
    "a name of a file": (ValueError, lambda: fovea.explain("lesson.json"), ["scene", "pathlib.Path"]),
    "a number": (TypeError, lambda: fovea.explain(JOURNEY, dim=3), ["dim", "sentence"]),
    "dim": (ValueError, lambda: fovea.explain(SENTENCE, dim=-1), ["dim", "-1"]),
    "heads": (ValueError, lambda: fovea.explain(SENTENCE, dim=4, heads=3), ["heads"]),
    "a word": (ValueError, lambda: fovea.explain(SENTENCE, query="cat"), ["cat", "journey"]),
    "no file": (OSError, lambda: fovea.explain(pathlib.Path("no/such.json")), ["no/such.json"]),
    "a folder": (OSError, lambda: fovea.Scene.load(SCENES), [str(SCENES)]),
    "a path": (TypeError, lambda: fovea.Scene.load(3), ["path", "int"]),
    "a text": (TypeError, lambda: fovea.Scene.parse(3), ["json: expected a str, got int"]),
    "dim's kind": (TypeError, lambda: fovea.Scene.from_sentence("a", dim="x"), ["dim: expected an integer, got str"]),
    "no text": (TypeError, lambda: fovea.Scene.from_sentence(3), ["text: expected a str, got int"]),
    "an unknown argument": (
        TypeError,
        lambda: fovea.Scene.from_sentence("a", dimension=3),
        ["unexpected keyword argument 'dimension'; there are text, dim"],
    ),
    "focus": (TypeError, lambda: fovea.explain("a").scene.with_focus(1.5), ["focus: expected a word, a position"]),
    "no name": (TypeError, lambda: fovea.explain("a")[1], ["name: expected a str, got int"]),
    "width": (TypeError, lambda: fovea.explain("a").to_text(width="a"), ["width: expected an integer, got str"]),
    "color": (TypeError, lambda: fovea.explain("a").to_text(color=1), ['"256" or "true", got int']),
    "an argument of explain": (TypeError, lambda: fovea.explain("a", dims=3), ["explain()", "'dims'"]),
    "no JSON": (ValueError, lambda: fovea.Scene.parse("{"), ["JSON"]),
    "a scene": (ValueError, lambda: fovea.explain({"tokens": 3}), ["tokens"]),
}


@pytest.mark.parametrize(("kind", "call", "parts"), REFUSED.values(), ids=REFUSED)
def test_refused(kind, call, parts):
    with pytest.raises(kind) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)
