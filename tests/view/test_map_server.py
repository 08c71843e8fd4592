# SPDX-License-Identifier: Apache-2.0
"""What a map says about its server: the pass over all rows, a server that ends and comes back, a file that changes."""

import os
import re

import inputs
import maps
import numpy as np
import pytest

GONE = ["net::ERR", "401", "409", "Failed to load resource"]


@pytest.fixture
def path(tmp_path):
    inputs.recording(tmp_path / "run.safetensors", inputs.random_layers(2, 2, 300, 16), inputs.words(300))
    return tmp_path / "run.safetensors"


def test_the_pass_can_be_stopped_and_resumed(viewer, opener, tmp_path):
    inputs.tensors(tmp_path / "layer.safetensors", q_len=40_960, head_dim=64)
    server = viewer(tmp_path / "layer.safetensors", "--causal", "--threads", "1")
    page = opener(server, f"/map/{server.id()}/0.0", "at=1000,500&scale=1")
    words = page.locator(".pass span")
    words.wait_for()
    maps.wait_until(lambda: re.search(r"exact pass: \d+ of 40 blocks, .* left", words.text_content()), 20)
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert words.text_content().startswith("exact pass: stopped after")
    done = server.pass_of()["done"]
    assert done < 40
    # Tiles are still computed.
    page.keyboard.press("Shift+ArrowDown")
    maps.ready(page)
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Stop").wait_for()
    seen = []

    def all_done():
        seen.append(server.pass_of()["done"])
        return not page.locator(".pass").is_visible()

    maps.wait_until(all_done, 60)
    assert seen == sorted(seen)
    assert seen[0] >= done


def test_a_server_that_comes_back(viewer, opener, path):
    opener.expected += GONE
    server = viewer(path)
    page = opener(server, f"/map/{server.id()}/1.1", "at=100,100&scale=0.25")
    maps.ready(page)
    before = maps.hash_of(page)
    server.stop()
    page.get_by_text("does not respond").wait_for(timeout=2000)
    command = page.locator(".notice code").text_content()
    assert command == f"fovea view {path} --port {server.port}"
    assert maps.hash_of(page) == before

    again = viewer(path, port=server.port)
    page.get_by_text("The server was started again").wait_for(timeout=3000)
    # The address that it printed goes on where the page was.
    page.get_by_label("Address that the server printed").fill(again.url)
    page.locator(".notice").wait_for(state="detached", timeout=3000)
    assert maps.ready(page)["health"] == "well"
    page.keyboard.press("0")
    maps.ready(page)
    assert maps.state(page)["missing"] == 0


def test_a_file_that_changes_while_it_is_shown(viewer, opener, path):
    opener.expected += GONE
    server = viewer(path)
    page = opener(server, f"/map/{server.id()}/1.1", "colormap=magma")
    maps.ready(page)
    copy = path.with_suffix(".new")
    inputs.recording(copy, inputs.random_layers(2, 2, 310, 16, seed=7), inputs.words(310))
    copy.rename(path)
    page.get_by_text("has changed").wait_for(timeout=3000)
    page.get_by_role("button", name="Read again").click()
    page.locator(".notice").wait_for(state="detached")
    state = maps.ready(page)
    assert state["visible"]["queries"] == [0, 310]
    assert state["input"] == server.id()
    assert state["colormap"] == "magma"
    assert f"/map/{server.id()}/1.1" in maps.address(page)


def test_a_changed_file_beside_the_first_is_named(viewer, opener, tmp_path):
    opener.expected += GONE
    for name in ("query", "key"):
        np.save(tmp_path / f"{name}.npy", np.eye(40, 8, dtype=np.float32))
    server = viewer("--query", tmp_path / "query.npy", "--key", tmp_path / "key.npy")
    page = opener(server, f"/map/{server.id()}/0.0")
    maps.ready(page)
    os.utime(tmp_path / "key.npy", ns=(1, 1))
    page.get_by_text(f"{tmp_path / 'key.npy'} has changed since it was opened").wait_for(timeout=3000)
    page.get_by_role("button", name="Read again").click()
    page.locator(".notice").wait_for(state="detached")
    assert maps.ready(page)["input"] == server.id()
