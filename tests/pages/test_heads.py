# SPDX-License-Identifier: Apache-2.0
"""The page of `fovea heads`: hovering enlarges the head under the pointer and tells its statistics."""

import subprocess

import browser as pages
import numpy
import pytest

HEADS = 4


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    generator = numpy.random.default_rng(5)
    query, key = (generator.standard_normal((1, n, 40, 8)).astype(numpy.float32) for n in (HEADS, 2))
    numpy.savez(folder / "layer.npz", query=query, key=key)
    result = folder / "heads.html"
    options = ["--input", folder / "layer.npz", "--causal", "--output", result]
    subprocess.run([pages.FOVEA.resolve(), "heads", *options], check=True, capture_output=True)
    return result


def test_hovering_enlarges_heads(opener, path):
    page = opener.blank()
    page.goto(path.as_uri())
    told = page.locator("#told")
    grounds = page.locator(".ground")
    assert grounds.count() == HEADS
    for head in range(HEADS):
        box = grounds.nth(head).bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        lines = page.locator("#facts").inner_text().split("\n")
        assert lines[0].startswith(f"head {head}")
        assert any(line.startswith("entropy ") for line in lines)
        # The lower left part of a causal head has weights, the upper right part has none.
        alphas = page.evaluate(
            """() => {
                const canvas = document.querySelector("canvas");
                const copy = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
                copy.drawImage(canvas, 0, 0, 100, 100);
                return [[30, 80], [80, 30]].map(at => copy.getImageData(...at, 1, 1).data[3]);
            }"""
        )
        assert alphas == [255, 0]
    page.mouse.move(1, 1)
    assert told.is_hidden()
