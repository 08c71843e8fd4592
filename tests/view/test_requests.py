# SPDX-License-Identifier: Apache-2.0
"""Criteria 8 and 9 of the viewer: closed tabs end their requests, and tabs share computations."""

import concurrent.futures
import time

import inputs
import pytest
from maps import wait_until
from server import RequestError

END_S = 0.5


@pytest.fixture(scope="module")
def slow(module_viewer):
    """A head whose tiles take long: 65,536 tokens, every query sees every key."""
    path = module_viewer.folder / "slow.safetensors"
    inputs.tensors(path, q_len=65_536, head_dim=128, scale=0.5)
    return module_viewer(path)


def stop_pass(server, head="0.0"):
    server.api(f"/inputs/{server.id()}/{head}/pass", method="DELETE")


def test_closing_a_tab_ends_its_requests(slow, opener):
    head = f"/inputs/{slow.id()}/0.0"
    slow.api(head)
    page = opener(slow, f"/map/{slow.id()}/0.0", "at=40000,40000&scale=8")
    end = time.monotonic() + 20
    while slow.counters()["waiting"] < 2:
        assert time.monotonic() < end, slow.counters()
        time.sleep(0.02)
    page.context.close()
    opener.opened.remove(page)
    time.sleep(END_S)
    stop_pass(slow)
    before = slow.counters()
    assert before["waiting"] == 0, before
    time.sleep(END_S)
    after = slow.counters()
    assert after["tiles"] == before["tiles"]
    # The connection of this request alone.
    assert after["connections"] == 1
    assert slow.request("/healthz", token=False)[2].strip() == b"ok"


def test_closing_connections_stops_computations(slow):
    stop_pass(slow)
    before = slow.counters()["tiles"]
    path = f"/inputs/{slow.id()}/0.0/tile/max/3/20/25"
    with pytest.raises(TimeoutError):
        slow.bytes(path, timeout=0.05)
    time.sleep(END_S)
    after = slow.counters()
    assert after["waiting"] == 0
    assert after["tiles"]["cancelled"] == before["cancelled"] + 1
    assert after["tiles"]["computed"] == before["computed"]
    # Nothing of the stopped computation remains: the tile can still be computed.
    assert inputs.frame(slow.bytes(path))[0]["rows"] == 256


def test_two_clients_share_a_computation(viewer, tmp_path):
    inputs.tensors(tmp_path / "layer.safetensors", q_len=8192)
    server = viewer(tmp_path / "layer.safetensors")
    server.api(f"/inputs/{server.id()}/0.0")
    server.wait_for_pass()
    before = server.counters()["tiles"]
    paths = [f"/inputs/{server.id()}/0.0/tile/max/3/{x}/{y}" for x in range(4) for y in range(4)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(server.bytes, [path for path in paths for _ in range(2)]))
    assert all(first == second for first, second in zip(found[::2], found[1::2], strict=True))
    after = server.counters()["tiles"]
    assert after["computed"] - before["computed"] == len(paths)
    assert after["reused"] - before["reused"] == len(paths)


def test_two_tabs_share_tiles(viewer, opener, tmp_path):
    inputs.tensors(tmp_path / "layer.safetensors", q_len=8192)
    server = viewer(tmp_path / "layer.safetensors")
    server.api(f"/inputs/{server.id()}/0.0")
    server.wait_for_pass()
    before = server.counters()["tiles"]["computed"]
    asked, answered = set(), set()

    def note(request, urls):
        if "/tile/" in request.url:
            urls.add(request.url)

    tabs = [opener.blank() for _ in range(2)]
    opener.origins.append(f"{server.origin}/")
    for tab in tabs:
        tab.on("request", lambda request: note(request, asked))
        tab.on("requestfinished", lambda request: note(request, answered))
    address = server.address(f"/map/{server.id()}/0.0", "at=4000,4000&scale=2")
    for tab in tabs:
        # Both load at once: the second does not wait for the first.
        tab.goto(address, wait_until="commit")
    for tab in tabs:
        tab.wait_for_load_state("networkidle")

    def events_arrive():
        for tab in tabs:
            tab.evaluate("0")
        return True

    # A busy machine can be idle in this sense before the first tile.
    wait_until(lambda: events_arrive() and answered, 30)
    finished = len(answered)
    computed = server.counters()["tiles"]["computed"] - before
    events_arrive()
    # A page may have ended a request that was being answered.
    assert finished <= computed <= len(asked)


def test_no_request_outside_the_matrix(slow):
    head = f"/inputs/{slow.id()}/0.0"
    for path, status in (
        (f"{head}/tile/max/0/256/0", 404),
        (f"{head}/tile/max/99/0/0", 404),
        (f"{head}/tile/least/0/0/0", 404),
        (f"{head}/cell?query=65536&key=0", 400),
        (f"{head}/cell?query=0", 400),
        (f"{head}/row?query=0&top=65", 400),
        (f"/inputs/{slow.id()}/0.7", 404),
        (f"/inputs/{slow.id()}/9.0", 404),
        ("/inputs/no", 404),
    ):
        with pytest.raises(RequestError) as caught:
            slow.api(path)
        assert caught.value.status in (status, 400 if status == 404 else 404), path
        assert caught.value.error["message"], path
