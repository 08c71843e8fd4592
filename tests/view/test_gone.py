# SPDX-License-Identifier: Apache-2.0
"""Criterion 25 of the viewer: pages of a server that has ended say so, keep what they show, and find it again."""

import re

import inputs
import maps
import playwright.sync_api
import pytest

# A request to a server that has ended is an error in the console.
GONE = ["net::ERR", "401", "Failed to load resource"]


@pytest.fixture
def path(tmp_path):
    inputs.recording(tmp_path / "run.safetensors", inputs.random_layers(2, 2, 300, 16), inputs.words(300))
    return tmp_path / "run.safetensors"


def test_the_page_says_so_and_keeps_what_it_shows(viewer, opener, path):
    opener.expected += GONE
    server = viewer(path)
    page = opener(server, f"/map/{server.id()}/1.1", "at=100,100&scale=0.25")
    canvas = page.locator("canvas").first
    canvas.wait_for()
    page.wait_for_load_state("networkidle")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(300)
    before = maps.hash_of(page)
    assert server.stop()[0] == 0
    page.get_by_text("does not respond").first.wait_for(timeout=2000)
    page.get_by_text(re.compile("fovea view")).first.wait_for(timeout=500)
    assert maps.hash_of(page) == before

    again = viewer(path, port=server.port)
    assert again.token != server.token
    page.get_by_text(re.compile("address that it printed|printed")).first.wait_for(timeout=5000)
    # The new address in the same tab.
    opener.go(page, again, f"/map/{again.id()}/1.1", "at=100,100&scale=0.25")
    page.wait_for_load_state("networkidle")
    assert page.get_by_text("does not respond").count() == 0


def test_every_page_says_so(viewer, opener, path):
    opener.expected += GONE
    server = viewer(path)
    name = server.id()
    pages = [
        opener(server, each)
        for each in ("/", f"/heads/{name}", f"/map/{name}/0.0", f"/text/{name}/0.0", f"/compare/{name}/0.0/{name}/0.1")
    ]
    for page in pages:
        page.wait_for_load_state("networkidle")
    server.stop()
    silent = []
    for page in pages:
        try:
            page.get_by_text("does not respond").first.wait_for(timeout=3000)
        except playwright.sync_api.TimeoutError:
            silent.append(page.url)
    assert silent == []


def test_a_file_that_changes(viewer, opener, path):
    opener.expected += ["409", "Failed to load resource"]
    server = viewer(path)
    page = opener(server, f"/map/{server.id()}/0.0")
    page.wait_for_load_state("networkidle")
    other = inputs.random_layers(2, 2, 310, 16, seed=7)
    copy = path.with_suffix(".new")
    inputs.recording(copy, other, inputs.words(310))
    copy.rename(path)
    assert server.input()["changed"]
    page.reload()
    page.get_by_text("has changed").first.wait_for()
    page.get_by_role("button", name=re.compile("read again", re.IGNORECASE)).first.click()
    page.get_by_text("has changed").first.wait_for(state="hidden")
    assert server.input()["layers"][0]["queries"] == 310
