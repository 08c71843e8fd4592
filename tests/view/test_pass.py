# SPDX-License-Identifier: Apache-2.0
"""Criterion 12 of the viewer: the pass over all rows only moves forward, stops, resumes where it was, and what is
exact stays exact."""

import time

import inputs
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
    # Every level of the finished pass is the maximum of the finer one.
    base = server.api(head)["base_level"]
    levels = [base, base + 1] if server.api(head)["levels"] > base + 1 else [base - 1, base]
    fine, coarse = (inputs.frame(server.bytes(f"{head}/tile/max/{z}/0/0"))[0]["values"] for z in levels)
    side = len(fine) // 2
    pooled = fine[: 2 * side, : 2 * side].reshape(side, 2, side, 2).max(axis=(1, 3))
    assert np.array_equal(pooled, coarse[:side, :side])


def test_rows_that_a_tile_needs_come_first(server):
    head = f"/inputs/{server.id()}/0.0"
    server.api(head)
    start = time.monotonic()
    server.bytes(f"{head}/tile/max/0/100/{LENGTH // 256 - 1}")
    progress = server.pass_of()
    assert progress["done"] < progress["total"], "the tile did not wait for the whole pass"
    assert time.monotonic() - start < 10


def test_the_page_shows_progress_and_stops_it(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0")
    page.get_by_text("exact pass").first.wait_for()
    server.wait_for_pass()
    page.get_by_text("exact pass").first.wait_for(state="hidden")
