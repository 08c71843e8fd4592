# SPDX-License-Identifier: Apache-2.0
"""Criterion 28 of the viewer: fovea.view() in a notebook. A page of another origin that frames the viewer, as a cell's
output does, stands for the notebook."""

import functools
import http.server
import threading
import time

import inputs
import numpy as np
import pytest

fovea = pytest.importorskip("fovea", reason="the Python package is not built", exc_type=ImportError)

# The page looks for changes four times a second.
SHOWN_S = 5


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def notebook(tmp_path):
    """A server of pages at another port; returns write(html) -> address."""
    folder = tmp_path / "notebook"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def write(html):
        (folder / "page.html").write_text(f'<!doctype html><link rel="icon" href="data:,"><body>{html}', "utf-8")
        return f"http://localhost:{server.server_port}/page.html"

    yield write
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "run.safetensors"
    inputs.recording(path, inputs.random_layers(3, 4, 300, 16), inputs.words(300))
    return path


def framed(opener, notebook, viewer, html=None):
    """Opens a notebook with the viewer; returns its page and its frame."""
    # The viewer is closed before the page; a page that reports its address may be told of a newer one.
    opener.expected += ["net::ERR", "409"]
    page = opener.blank()
    address = notebook(html or viewer._repr_html_())
    opener.origins += [address.rpartition("/")[0] + "/", f"{viewer._server.origin}/"]
    page.goto(address)
    return page, page.query_selector("iframe").content_frame()


def shown(frame):
    return frame.evaluate("location.href")


def wait_until(holds, what):
    end = time.monotonic() + SHOWN_S
    while not holds():
        assert time.monotonic() < end, what()
        time.sleep(0.05)


def test_the_state_set_from_python_is_what_the_page_shows(opener, notebook, recording):
    with fovea.view(recording) as viewer:
        (name,) = viewer.inputs
        _, frame = framed(opener, notebook, viewer)
        frame.wait_for_selector("main")
        wait_until(lambda: f"/heads/{name}" in shown(frame), lambda: shown(frame))
        viewer.state = {"layer": 1, "head": 2, "centre": (120, 100), "scale": 0.25, "locked": (130, 90)}
        wait_until(lambda: f"/map/{name}/1.2" in shown(frame) and "query=130" in shown(frame), lambda: shown(frame))
        frame.wait_for_selector("canvas")
        weights = fovea.Recording(recording)[1][2]
        # The panel shows the locked cell: its weight, to the digits that it has.
        found = frame.locator("body")
        digits = f"{float(weights[130, 90]):.3g}"[:4]
        wait_until(lambda: digits in found.inner_text(), lambda: f"{digits} is not in {found.inner_text()[:2000]}")
        # The state remains as it was set, also after the page has reported it.
        time.sleep(1)
        state = viewer.state
        assert (state.page, state.layer, state.head, state.locked) == ("map", 1, 2, (130, 90))
        assert state.centre == pytest.approx((120, 100), abs=1)
        assert state.scale == pytest.approx(0.25)


def test_what_the_reader_does_is_read_from_python(opener, notebook, recording):
    with fovea.view(recording) as viewer:
        (name,) = viewer.inputs
        viewer.state = {"page": "map", "layer": 0, "head": 1, "centre": (150, 150), "scale": 0.25}
        page, frame = framed(opener, notebook, viewer)
        canvas = frame.wait_for_selector("canvas")
        wait_until(lambda: viewer.state.scale == 0.25, lambda: viewer.state)
        box = canvas.bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        wait_until(lambda: viewer.state.locked is not None, lambda: viewer.state)
        query, key = viewer.state.locked
        # The canvas has axes beside the map.
        assert abs(query - 150) <= 30
        assert abs(key - 150) <= 30
        page.mouse.wheel(0, 300)
        wait_until(lambda: viewer.state.scale != 0.25, lambda: viewer.state)
        assert viewer.state.input == name
        # From what the reader did, Python goes on.
        viewer.state = {"head": 3}
        wait_until(lambda: f"/map/{name}/0.3" in shown(frame), lambda: shown(frame))
        assert viewer.state.locked == (query, key)


def test_two_outputs_follow_each_other_and_come_to_rest(opener, notebook, recording):
    with fovea.view(recording) as viewer:
        (name,) = viewer.inputs
        html = viewer._repr_html_() + viewer._repr_html_().replace("width: 100%", "width: 50%")
        page, _ = framed(opener, notebook, viewer, html)
        frames = [each.content_frame() for each in page.query_selector_all("iframe")]
        viewer.state = {"layer": 2, "head": 1, "centre": (100, 100), "scale": 0.5}
        for frame in frames:
            wait_until(lambda frame=frame: f"/map/{name}/2.1" in shown(frame), lambda frame=frame: shown(frame))
        time.sleep(3)
        versions = [viewer._server.request("GET", "/api/v1/state")["version"]]
        time.sleep(2)
        versions.append(viewer._server.request("GET", "/api/v1/state")["version"])
        assert versions[0] == versions[1], "two pages change the address in turns"


def test_closing_ends_the_process_and_the_page_says_so(opener, notebook, recording):
    viewer = fovea.view(recording)
    _, frame = framed(opener, notebook, viewer)
    frame.wait_for_selector("main")
    start = time.monotonic()
    viewer.close()
    assert time.monotonic() - start < 1
    assert viewer.closed
    frame.get_by_text("does not respond").first.wait_for()


def test_arrays_in_a_frame(opener, notebook):
    rng = np.random.default_rng(3)
    query, key = (rng.standard_normal((50, 8), dtype=np.float32) for _ in range(2))
    with fovea.view(query, key, causal=True, tokens=[f"word{i}" for i in range(50)]) as viewer:
        viewer.state = {"locked": (20, 7)}
        _, frame = framed(opener, notebook, viewer)
        frame.get_by_text("word20").first.wait_for()
        frame.get_by_text("word7").first.wait_for()


def test_other_origins_may_not_frame_it(opener, notebook, recording):
    opener.expected += ["frame-ancestors", "Framing", "chrome-error:"]
    with fovea.view(recording, origins="http://localhost:1") as viewer:
        page = opener.blank()
        address = notebook(viewer._repr_html_())
        opener.origins += [address.rpartition("/")[0] + "/", f"{viewer._server.origin}/"]
        page.goto(address)
        page.wait_for_timeout(500)
        frame = page.query_selector("iframe").content_frame()
        assert frame.locator("main").count() == 0


def test_the_server_answers_no_state_without_embed(viewer, recording):
    server = viewer(recording)
    status, _, _ = server.request("/api/v1/state")
    assert status == 404
    status, _, _ = server.request("/api/v1/state", method="PUT", body={"address": "/"})
    assert status in (404, 405)


def test_versions(recording):
    with fovea.view(recording) as viewer:
        server = viewer._server
        before = server.request("GET", "/api/v1/state")
        assert before["program"]
        after = server.request("PUT", "/api/v1/state", {"address": "/#a=1", "after": before["version"]})["version"]
        assert after > before["version"]
        found = server.request("GET", "/api/v1/state")
        assert found == {"version": after, "address": "/#a=1", "program": False}
        with pytest.raises(ValueError, match="address"):
            server.request("PUT", "/api/v1/state", {"address": "/#a=2", "after": before["version"]})
        for wrong in ("", "http://elsewhere/", "//elsewhere/", "/" + "a" * 2048, f"/#token={server.token}", "/\n", 7):
            with pytest.raises(ValueError, match="address"):
                server.request("PUT", "/api/v1/state", {"address": wrong, "program": True})
        assert server.request("GET", "/api/v1/state")["address"] == "/#a=1"
