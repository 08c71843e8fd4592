# SPDX-License-Identifier: Apache-2.0
"""Tests that docstrings exist, match the signatures and have correct examples."""

import doctest
import inspect
import pathlib
import pickle
import pydoc
import re

import numpy as np
import pytest

import fovea

EXPORTED = [name for name in fovea.__all__ if name not in ("random", "reference")]


@pytest.mark.parametrize("name", EXPORTED)
def test_everything_is_documented(name):
    thing = getattr(fovea, name)
    assert thing.__doc__
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            if callable(value) and not member.startswith("_"):
                assert value.__doc__, f"{name}.{member}"


def test_all():
    assert fovea.__all__ == sorted(fovea.__all__)
    public = {name for name in vars(fovea) if not name.startswith("_")} - {"nn", "torch"}  # imported by other tests
    assert public == set(fovea.__all__)
    for module in (fovea.random, fovea.reference):
        assert module.__doc__
        assert all(getattr(module, name).__doc__ for name in module.__all__)


PROBLEM = [
    *("mask", "scale", "softcap", "bias", "alibi", "relative", "sinks", "alignment", "query_starts", "key_starts"),
    "dropout",
]
SIGNATURES = {
    "attention": [*PROBLEM, "threads", "return_lse", "out", "lenses"],
    "attention_backward": ["grad_lse", *PROBLEM, "threads", "wanted"],
    "decode": [*PROBLEM, "threads", "return_lse", "out", "lenses"],
    "reference.attention": [*PROBLEM, "threads", "return_lse"],
    "reference.attention_gradients": ["grad_context", "grad_lse", "grad_weights", *PROBLEM, "arithmetic"],
    "reference.attention_steps": [*PROBLEM, "normalization", "arithmetic"],
}
RESULTS = ["context", "lse", "grad_context"]


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    function = fovea
    for part in name.split("."):
        function = getattr(function, part)
    signature = inspect.signature(function)
    positional = [p.name for p in signature.parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    assert positional == ["query", "key", "value"] + (RESULTS if name == "attention_backward" else [])
    named = [p for p in signature.parameters.values() if p.kind == p.KEYWORD_ONLY]
    assert [p.name for p in named] == SIGNATURES[name]
    # Passing the defaults explicitly changes nothing.
    query = np.ones((2, 3), np.float32)
    given = {p.name: p.default for p in named}
    if name == "attention_backward":
        found = function(query, query, query, query, query[:, 0], query, **given)
        assert all(map(np.array_equal, found, function(query, query, query, query, query[:, 0], query)))
    elif name == "reference.attention_gradients":
        assert not any(g.any() for g in function(query, query, query, **given))
    elif name == "reference.attention_steps":
        assert np.array_equal(function(query, query, query, **given).context[0, 0], query)
    else:
        assert np.array_equal(function(query, query, query, **given), query)
    # Each parameter has a line in the docstring.
    text = fovea.attention.__doc__ + function.__doc__
    for parameter in signature.parameters:
        assert re.search(rf"^(\w+, )*{parameter}\b", text, re.MULTILINE), parameter


def test_functions_can_be_pickled():
    for function in (
        fovea.attention,
        fovea.attention_backward,
        fovea.received,
        fovea.scaled_dot_product_attention,
        fovea.heads,
        fovea.weights,
        fovea.reference.attention_gradients,
        fovea.reference.attention_steps,
    ):
        assert pickle.loads(pickle.dumps(function)) is function
    assert fovea.attention.__module__ == "fovea"
    assert fovea.reference.attention.__module__ == "fovea.reference"


def test_signature_of_scaled_dot_product_attention():
    signature = inspect.signature(fovea.scaled_dot_product_attention)
    assert str(signature) == (
        "(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)"
    )


def test_help():
    text = pydoc.plain(pydoc.render_doc(fovea.attention))
    for word in ("softmax", "[batch, q_heads,  q_len,  head_dim]", "Raises", "Source", "flop"):
        assert word in text
    for function in (
        fovea.attention,
        fovea.attention_backward,
        fovea.received,
        fovea.heads,
        fovea.weights,
        fovea.Dropout,
        fovea.Lenses,
        fovea.reference.attention_gradients,
    ):
        assert max(map(len, function.__doc__.splitlines())) <= 100


@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "attention_backward",
        "Dropout",
        "explain",
        "heads",
        "Lenses",
        "map",
        "Mask",
        "random.RandomState",
        "received",
        "weights",
        "Weights",
    ],
)
def test_examples_in_docstrings(name):
    thing = fovea
    for part in name.split("."):
        thing = getattr(thing, part)
    test = doctest.DocTestParser().get_doctest(thing.__doc__, {"fovea": fovea, "np": np}, name, None, 0)
    assert test.examples
    results = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert results.failed == 0


def test_info():
    info = fovea.info()
    version = re.search(r"project\(fovea VERSION ([0-9.]+)", _source("CMakeLists.txt")).group(1)
    assert info.version == fovea.__version__ == version
    assert info.target in info.targets
    assert info.threads >= 1
    assert info.compiler
    assert info.build_type
    assert repr(info).startswith(f"fovea {version}, ")


def _source(name):
    return (pathlib.Path(__file__).parents[2] / name).read_text(encoding="utf-8")
