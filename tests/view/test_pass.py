# SPDX-License-Identifier: Apache-2.0
"""Criterion 12 of the viewer: the pass over all rows only moves forward, stops, resumes where it was, and what is
exact stays exact."""

import time

import inputs
import maps
import numpy as np
import pytest

STOP_S = 0.5
LENGTH = 32_768


@pytest.fixture
def server(viewer, tmp_path):
    inputs.tensors(tmp_path / "layer.safetensors", q_len=LENGTH, head_dim=64)
    return viewer(tmp_path / "layer.safetensors", "--causal", "--threads", "1")


def wait_for(server, blocks):
    """Waits until some row blocks are done; returns all progress that was seen."""
    seen = [server.pass_of()]
    end = time.monotonic() + 60
    while seen[-1]["done"] < blocks:
        assert time.monotonic() < end, seen[-1]
        time.sleep(0.01)
        seen.append(server.pass_of())
    return seen


def test_progress_stop_and_resume(server):
    head = f"/inputs/{server.id()}/0.0"
    seen = wait_for(server, 3)
    assert seen[0]["total"] == LENGTH // 1024
    tile = server.bytes(f"{head}/tile/max/2/0/0")
    server.api(f"{head}/pass", method="DELETE")
    time.sleep(STOP_S)
    stopped = server.pass_of()
    assert stopped["state"] == "paused"
    time.sleep(STOP_S)
    assert server.pass_of() == stopped
    server.api(f"{head}/pass", method="POST", body={"rows": f"0:{LENGTH}"})
    seen += [stopped, *wait_for(server, stopped["total"])]
    done = [each["done"] for each in seen]
    assert done == sorted(done)
    assert seen[-1]["state"] == "done"
    assert server.counters()["blocks"] == seen[-1]["total"], "no block is computed twice"
    assert server.bytes(f"{head}/tile/max/2/0/0") == tile


def test_exact_tiles_do_not_change(server):
    head = f"/inputs/{server.id()}/0.0"
    status, fields, early = server.request(f"/api/v1{head}/tile/max/1/3/3")
    assert status == 200
    assert "immutable" in fields["Cache-Control"]
    server.wait_for_pass()
    again = server.request(f"/api/v1{head}/tile/max/1/3/3")
    assert (again[1]["ETag"], again[2]) == (fields["ETag"], early)
    unchanged = server.request(f"/api/v1{head}/tile/max/1/3/3", headers={"If-None-Match": fields["ETag"]})
    assert unchanged[0] == 304
    beyond = f"/api/v1{head}/tile/max/1/99/99"
    assert server.request(beyond, headers={"If-None-Match": "*"})[0] == 400
    # Every level of the finished pass is the maximum of the finer one.
    base = server.api(head)["base_level"]
    levels = [base, base + 1] if server.api(head)["levels"] > base + 1 else [base - 1, base]
    fine, coarse = (inputs.frame(server.bytes(f"{head}/tile/max/{z}/0/0"))[0]["values"] for z in levels)
    side = len(fine) // 2
    pooled = fine[: 2 * side, : 2 * side].reshape(side, 2, side, 2).max(axis=(1, 3))
    assert np.array_equal(pooled, coarse[:side, :side])


def test_a_tile_of_an_unfinished_pass_says_what_is_final(server):
    head = f"/inputs/{server.id()}/0.0"
    server.api(head)
    wait_for(server, 1)
    server.api(f"{head}/pass", method="DELETE")
    level = server.api(head)["base_level"] + 1
    rows, columns = np.indices((256, 256))
    early = {}
    for y in range(4):
        status, fields, body = server.request(f"/api/v1{head}/tile/max/{level}/{y}/{y}")
        assert status == 200
        early[y] = inputs.frame(body)[0]
        unfinished = early[y]["states"] is not None
        assert ("ETag" in fields) != unfinished
        assert fields["Cache-Control"] == ("no-store" if unfinished else "private, max-age=31536000, immutable")
        # Cells of blocks are hidden outside the keys that any of their queries sees.
        assert not early[y]["codes"][columns - rows > 1024 // 2**level].any()
    assert any(frame["states"] is not None and (frame["states"] < 2).any() for frame in early.values())
    server.api(f"{head}/pass", method="POST", body={"rows": f"0:{LENGTH}"})
    server.wait_for_pass()
    for y, before in early.items():
        after = inputs.frame(server.bytes(f"{head}/tile/max/{level}/{y}/{y}"))[0]
        assert after["states"] is None
        codes = before["codes"]
        final = (codes == 0) | ((before["states"] == 2)[:, None] if before["states"] is not None else True)
        assert np.array_equal(codes[final], after["codes"][final])
        assert not (codes[final] == inputs.UNKNOWN).any()
        # A preview is one query of its block: its weights are at most the largest ones of the block.
        largest = after["codes"].reshape(-1, 1024 >> level, 256).max(axis=1).repeat(1024 >> level, axis=0)
        preview = ~final & (codes != inputs.UNKNOWN)
        assert (codes[preview] <= largest[preview].astype(int) + 1).all()


def test_rows_that_a_tile_needs_come_first(server):
    head = f"/inputs/{server.id()}/0.0"
    server.api(head)
    start = time.monotonic()
    server.bytes(f"{head}/tile/max/0/100/{LENGTH // 256 - 1}")
    progress = server.pass_of()
    assert progress["done"] < progress["total"], "the tile did not wait for the whole pass"
    assert time.monotonic() - start < 10


def test_the_page_marks_cells_that_are_not_computed_yet(viewer, opener, tmp_path):
    length = 65_536
    inputs.tensors(tmp_path / "long.safetensors", q_len=length, head_dim=64)
    server = viewer(tmp_path / "long.safetensors", "--causal", "--threads", "1")
    head = f"/inputs/{server.id()}/0.0"
    server.api(head)
    server.api(f"{head}/pass", method="DELETE")
    known = server.api(head)["blocks"]
    unknown = next(block for block in range(40, 64) if known[block] == "0")
    page = opener(server, f"/map/{server.id()}/0.0")
    maps.ready(page)
    canvas = page.locator(maps.CANVAS)
    assert canvas.get_attribute("data-tiles") == "loading"
    page.get_by_text("exact pass: stopped after").wait_for()
    legend = page.locator(".legend").get_by_text("not computed yet")
    legend.wait_for()
    page.locator(".legend").get_by_text("exact rows").wait_for()
    query = 1024 * unknown + 512
    assert maps.hover(page, query, 1000)["largest"] == "not computed yet"
    assert maps.hover(page, query - 30_000, query)["largest"] == "hidden by the mask"
    # The view stays where it is while previews and cells arrive, and can be moved.
    page.keyboard.press("+")
    before = maps.state(page)
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Stop").wait_for()
    bar = page.locator(".pass")
    maps.wait_until(lambda: "1" in server.api(head)["blocks"] or server.pass_of()["done"] > unknown, 30)
    maps.wait_until(lambda: "preview of" in bar.text_content() or server.pass_of()["done"] > unknown, 30)
    assert [maps.state(page)[name] for name in ("at", "scale")] == [before[name] for name in ("at", "scale")]
    canvas.focus()
    page.keyboard.press("Shift+ArrowDown")
    moved = maps.state(page)["at"]
    maps.wait_until(lambda: canvas.get_attribute("data-tiles") == "exact", 120)
    assert maps.state(page)["at"] == moved != before["at"]
    legend.wait_for(state="hidden")
    page.keyboard.press("0")
    maps.ready(page)
    assert maps.number(maps.hover(page, query, 1000)["largest"]) > 0
    assert maps.hover(page, query - 30_000, query)["largest"] == "hidden by the mask"


def test_the_page_shows_progress_and_stops_it(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0")
    page.get_by_text("exact pass").first.wait_for()
    server.wait_for_pass()
    page.get_by_text("exact pass").first.wait_for(state="hidden")
