# SPDX-License-Identifier: Apache-2.0
"""Criterion 11 of the viewer: with --memory 64M, a tour of 2,000 tiles stays within the budget, and what is seen a
second time is the same."""

import http.client
import subprocess

import inputs
import maps
import pytest
from server import FOVEA

LENGTH = 16_384
BUDGET = 64 << 20
# Of the server itself: code, connections, the engine's workspace.
OWN = 60 << 20


@pytest.fixture(scope="module")
def server(module_viewer):
    path = module_viewer.folder / "layer.safetensors"
    inputs.tensors(path, q_len=LENGTH)
    return module_viewer(path, "--memory", "64M")


def test_a_tour(server):
    name = server.id()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def tile(place):
        z, x, y = place
        connection.request(
            "GET", f"/api/v1/inputs/{name}/0.0/tile/max/{z}/{x}/{y}", headers={"X-Fovea-Token": server.token}
        )
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return body

    side = LENGTH // 256
    places = [(0, x, y) for x in range(side) for y in range(28)] + [(1, x, y) for x in range(16) for y in range(13)]
    assert len(places) == 2000
    first = {}
    most = 0
    for number, place in enumerate(places):
        body = tile(place)
        if number % 40 == 0:
            first[place] = body
            most = max(most, server.resident())
    assert most < BUDGET + OWN, f"{most >> 20} MiB"
    assert server.counters()["bytes"] <= BUDGET
    for place, body in first.items():
        assert tile(place) == body, place
    connection.close()


def test_a_budget_that_is_too_small(tmp_path):
    inputs.tensors(tmp_path / "long.safetensors", q_len=65_536, head_dim=8)
    found = subprocess.run(
        [FOVEA, "view", "--no-open", "--memory", "64K", tmp_path / "long.safetensors"],
        capture_output=True,
        encoding="utf-8",
        timeout=20,
    )
    assert found.returncode == 2
    assert "memory" in found.stderr
    assert found.stderr.count("\n") == 1


def test_pixels_of_a_second_visit(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0", "at=3000,3000&scale=1")
    maps.ready(page)
    before = maps.hash_of(page)
    other = opener.tab(page, server, f"/map/{server.id()}/0.0", "at=12000,12000&scale=4")
    maps.ready(other)
    again = opener(server, f"/map/{server.id()}/0.0", "at=3000,3000&scale=1")
    maps.ready(again)
    assert maps.hash_of(again) == before
