# SPDX-License-Identifier: Apache-2.0
"""Exports of a map equal the files that `fovea map` writes for the same part."""

import base64
import re
import subprocess

import inputs
import maps
import numpy as np
import pytest
from server import FOVEA

LENGTH = 700
STEP = 3  # levels of a colour channel between two of 254 colours, at most


@pytest.fixture(scope="module")
def path(module_viewer):
    path = module_viewer.folder / "run.safetensors"
    inputs.recording(path, inputs.random_layers(1, 2, LENGTH, 32), inputs.words(LENGTH))
    return path


@pytest.fixture(scope="module")
def server(module_viewer, path):
    return module_viewer(path)


@pytest.fixture
def page(server, opener):
    page = opener(server, f"/map/{server.id()}/0.1", "at=400,380&scale=0.05&tone=sqrt&colormap=magma")
    maps.ready(page)
    return page


def export(page, to, kind, part="view"):
    """Saves an export by the page's dialog; returns the file and the options of `fovea map` for it."""
    page.get_by_role("button", name="Export").click()
    page.get_by_role("combobox", name="Format").select_option(kind)
    page.get_by_role("combobox", name="Part").select_option(part)
    told = page.locator("dialog [role=status]").text_content()
    q0, q1, k0, k1, rows, columns = (int(number) for number in re.findall(r"\d+", told.replace(",", "")))
    with page.expect_download() as download:
        page.get_by_role("button", name="Save").click()
    assert download.value.suggested_filename.endswith("." + kind)
    path = to / f"page.{kind}"
    download.value.save_as(path)
    page.keyboard.press("Escape")
    options = ["--rows", f"{q0}:{q1 + 1}", "--cols", f"{k0}:{k1 + 1}", "--size", f"{columns}x{rows}", "--reduce", "max"]
    return path, options


def by_map(path, to, kind, options):
    output = to / f"map.{kind}"
    look = ["--tone", "sqrt", "--colormap", "magma"] if kind in ("png", "svg") else []
    subprocess.run(
        [FOVEA, "map", path, "--layer", "0", "--head", "1", *options, *look, "--output", output],
        check=True,
        capture_output=True,
    )
    return output


def pixels(page, path):
    """Returns the pixels of a PNG, [height, width, 4]."""
    width, height, data = page.evaluate(
        """async (text) => {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      const image = await createImageBitmap(new Blob([bytes], {type: 'image/png'}));
      const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext('2d');
      pen.drawImage(image, 0, 0);
      return [image.width, image.height, [...pen.getImageData(0, 0, image.width, image.height).data]];
    }""",
        base64.b64encode(path.read_bytes()).decode(),
    )
    return np.array(data).reshape(height, width, 4)


@pytest.mark.parametrize("part", ["view", "whole"])
def test_png(page, path, tmp_path, part):
    saved, options = export(page, tmp_path, "png", part)
    shown, expected = pixels(page, saved), pixels(page, by_map(path, tmp_path, "png", options))
    assert shown.shape == expected.shape
    assert np.abs(shown - expected).max() <= STEP


def test_svg(page, path, tmp_path):
    saved, options = export(page, tmp_path, "svg")
    files = saved, by_map(path, tmp_path, "svg", options)
    texts = [re.findall(r"<text[^>]*>([^<]*)<", file.read_text()) for file in files]
    labels = [[text for text in found if text.strip() in inputs.WORDS] for found in texts]
    assert labels[0] == labels[1]
    assert len(labels[0]) > 20


def test_npy(page, path, tmp_path):
    saved, options = export(page, tmp_path, "npy")
    cells = np.load(saved)
    assert cells.shape == tuple(int(n) for n in reversed(options[5].split("x")))
    np.testing.assert_array_equal(cells, np.load(by_map(path, tmp_path, "npy", options)))


def test_csv(page, path, tmp_path):
    saved, options = export(page, tmp_path, "csv")
    expected = np.load(by_map(path, tmp_path, "npy", options))
    text = saved.read_text()
    assert len(text.splitlines()) >= expected.shape[0]
    assert f"{expected.max():.3g}"[:4] in text


def test_the_limits_of_exports_are_told(page, opener):
    error = {"code": "too_large", "message": "size: expected at most 64 MiB, got more", "argument": "size"}
    page.route("**/export?*", lambda route: route.fulfill(status=413, json={"error": error}))
    opener.expected.append("413")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="Save").click()
    page.locator("dialog").get_by_text("expected at most 64 MiB").wait_for()
