# SPDX-License-Identifier: Apache-2.0
"""The page of `fovea map`: hovering tells the weight of the cell under the pointer, as NumPy computes it."""

import subprocess

import browser as pages
import numpy
import pytest

QUERIES, KEYS = 7, 9


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """Returns the path of a causal map, and its weights."""
    folder = tmp_path_factory.mktemp("map")
    generator = numpy.random.default_rng(5)
    query, key = (generator.standard_normal((1, 1, n, 4)).astype(numpy.float32) for n in (QUERIES, KEYS))
    numpy.savez(folder / "layer.npz", query=query, key=key)
    path = folder / "map.html"
    options = ["--input", folder / "layer.npz", "--causal", "--output", path]
    subprocess.run([pages.FOVEA.resolve(), "map", *options], check=True, capture_output=True)
    scores = (query[0, 0].astype(float) @ key[0, 0].astype(float).T) / 2
    seen = numpy.tri(QUERIES, KEYS, KEYS - QUERIES, dtype=bool)
    powers = numpy.where(seen, numpy.exp(scores), 0.0)
    return path, powers / powers.sum(axis=1, keepdims=True), seen


def test_hovering_tells_weights(opener, problem):
    path, weights, seen = problem
    page = opener.blank()
    page.goto(path.as_uri())
    box = page.locator("#plot").bounding_box()
    told = page.locator("#told")
    for row, column in [(0, 0), (0, 2), (0, 5), (3, 4), (6, 8), (6, 0)]:
        page.mouse.move(
            box["x"] + (column + 0.5) / KEYS * box["width"], box["y"] + (row + 0.5) / QUERIES * box["height"]
        )
        query, key, last = told.inner_text().split("\n")
        assert (query, key) == (f"query {row}", f"key {column}")
        text = last.removeprefix("weight: ")
        if seen[row, column]:
            assert float(text) == pytest.approx(weights[row, column], rel=2e-3)
        else:
            assert text == "masked"
    page.mouse.move(1, 1)
    assert told.is_hidden()
