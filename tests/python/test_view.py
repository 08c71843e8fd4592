# SPDX-License-Identifier: Apache-2.0
"""Tests of fovea.view() without a browser: the child process, its files and its end, and states of the page."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

import fovea
from fovea._viewer import process
from fovea._viewer.address import ViewState, address_of, changed, state_of

ABSENT = subprocess.run([process.PROGRAM, "view", "/absent"], stderr=subprocess.PIPE, text=True).stderr.strip()
if "built without the viewer" in ABSENT:
    pytest.skip(ABSENT, allow_module_level=True)

SCENES = pathlib.Path(__file__).parents[2] / "examples" / "scenes"
LENGTH = 40


def arrays(heads=2, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((heads, LENGTH, 8), dtype=np.float32) for _ in range(2)]


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "run.safetensors"
    layers = [dict(zip(("query", "key"), arrays(heads=3, seed=i), strict=True)) for i in range(3)]
    named = [{"name": f"layers.{i}", "mask": fovea.causal(), **layer} for i, layer in enumerate(layers)]
    fovea.Recording.write(path, named)
    return path


def alive(number):
    """Returns whether a process exists that is no zombie."""
    try:
        status = pathlib.Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def process_of(viewer):
    return viewer._server._process.pid


def wait_for_end(number, seconds=5.0):
    end = time.monotonic() + seconds
    while alive(number):
        assert time.monotonic() < end, "the server still runs"
        time.sleep(0.01)


def folders():
    return {each.name for each in pathlib.Path(tempfile.gettempdir()).glob(f"fovea-view-{os.getpid()}-*")}


# ---- inputs ----------------------------------------------------------------------------------------------------


def test_recordings(recording):
    for source in (str(recording), recording, fovea.Recording(recording)):
        with fovea.view(source) as viewer:
            assert len(viewer.inputs) == 1
            assert viewer.inputs[0].startswith("run")
            assert viewer.url.startswith("http://127.0.0.1:")
            assert viewer.state == ViewState("heads", viewer.inputs[0], 0, 0)
            assert not viewer.closed
        assert viewer.closed


def test_several_files(recording):
    with fovea.view(recording, SCENES / "001_your_journey.json") as viewer:
        assert len(viewer.inputs) == 2
        assert viewer.state == ViewState()
        viewer.state = {"page": "scene"}
        assert viewer.state == ViewState("scene", viewer.inputs[1])


def test_examples():
    with fovea.view() as viewer:
        assert viewer.inputs
        assert viewer.state == ViewState()


def test_arrays_and_their_options():
    query, key = arrays()
    texts = [f"token\n{i}" for i in range(LENGTH)]
    with fovea.view(query, key, causal=True, mask=fovea.window(5, 0), scale=0.5, tokens=texts) as viewer:
        entry = viewer._entries[0]
        (layer,) = entry["layers"]
        assert (layer["queries"], layer["keys"], layer["heads"]) == (LENGTH, LENGTH, [0, 1])
        place = f"/api/v1/inputs/{entry['id']}/{layer['label']}.1"
        got = viewer._server.request("GET", f"{place}/cell?query=20&key=17")
        wanted = fovea.Weights(query, key, head=1, mask=fovea.causal() & fovea.window(5, 0), scale=0.5)
        # The lse has another rounding than that of Weights.
        assert got["weight"] == pytest.approx(float(wanted[20, 17]), rel=1e-6)
        assert got["query_token"] == texts[20]
        hidden = viewer._server.request("GET", f"{place}/cell?query=20&key=14")
        assert hidden["hidden"]


def test_a_single_head_opens_as_a_map():
    query, key = arrays(heads=1)
    with fovea.view(query[0], key[0], query_tokens=["a"] * LENGTH) as viewer:
        assert viewer.state == ViewState("map", viewer.inputs[0], 0, 0)


def test_batches():
    query, key = (np.stack([each, each + 1]) for each in arrays())
    with fovea.view(query, key, tokens=["a"] * LENGTH) as viewer:
        assert [layer["batch"] for layer in viewer._entries[0]["layers"]] == [0, 1]
        assert all(layer["key_tokens"] for layer in viewer._entries[0]["layers"])
        viewer.state = {"layer": viewer._entries[0]["layers"][1]["label"]}
        assert viewer.state.layer == viewer._entries[0]["layers"][1]["label"]


@pytest.mark.parametrize(
    ("inputs", "options", "error", "message"),
    [
        ([np.ones((3, 4), np.float32)], {}, TypeError, "inputs: expected files and recordings, or two arrays"),
        ([np.ones((3, 4), np.float32), "x"], {}, TypeError, "or two arrays, query and key, got ndarray, str"),
        ([], {"mask": fovea.causal()}, TypeError, "mask: expected with arrays only"),
        ([], {"tokens": ["a"]}, TypeError, "tokens: expected with arrays only"),
        ([], {"tokens": ["a"], "key_tokens": ["a"]}, TypeError, "tokens: expected None beside"),
        (arrays(), {"tokens": ["a"]}, ValueError, f"tokens: expected {LENGTH}, one per query, got 1"),
        (
            arrays(),
            {"causal": True, "mask": np.ones((LENGTH, LENGTH), bool)},
            TypeError,
            "mask: expected a Mask beside",
        ),
        (arrays(), {"scale": float("nan")}, ValueError, "scale"),
        (["/nowhere.safetensors"], {}, FileNotFoundError, "nowhere"),
        ([__file__], {}, ValueError, "test_view.py"),
        ([], {"origins": "ftp://somewhere"}, ValueError, "embed"),
        ([], {"origins": []}, ValueError, "origins: expected at least one, such as"),
        (arrays(), {"origins": ()}, ValueError, "origins: expected at least one, such as"),
        ([], {"port": 99999}, ValueError, "port"),
        ([], {"memory": 1}, ValueError, "memory"),
    ],
)
def test_mistakes(inputs, options, error, message):
    before = folders()
    with pytest.raises(error) as caught:
        fovea.view(*inputs, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert folders() == before
    assert process._running == []


def test_a_server_that_does_not_answer_is_ended(monkeypatch):
    before = folders()

    def request(*_):
        raise OSError("no answer")

    monkeypatch.setattr(process.Server, "request", request)
    with pytest.raises(OSError, match="no answer"):
        fovea.view(*arrays())
    assert process._running == []
    assert folders() == before


def test_a_recording_without_weights(tmp_path):
    query, key = (np.zeros((1, 2, length, 8), np.float32) for length in (0, 5))
    fovea.Recording.write(tmp_path / "run.safetensors", [{"name": "empty", "query": query, "key": key}])
    with fovea.view(tmp_path / "run.safetensors") as viewer:
        with pytest.raises(
            ValueError, match=r"input: expected one with weights, got 'run-.*', whose attentions are all"
        ):
            viewer.state = {"page": "heads"}
        assert viewer.state.page == "start"


def test_the_notebook_of_the_documentation(recording, monkeypatch, capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "view.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(recording.parent)
    names = {}
    for program, printed in blocks:
        exec(compile(program, "docs/view.md", "exec"), names)
        assert capsys.readouterr().out == printed
    assert len(blocks) == 2
    assert names["viewer"].closed


# ---- the end ---------------------------------------------------------------------------------------------------


def test_close_removes_files_and_ends_the_process_within_a_second():
    before = folders()
    viewer = fovea.view(*arrays())
    (folder,) = folders() - before
    assert alive(process_of(viewer))
    start = time.monotonic()
    viewer.close()
    assert time.monotonic() - start < 1
    assert not alive(process_of(viewer))
    assert folders() == before, folder
    assert "closed" in repr(viewer)
    assert "closed" in viewer._repr_html_()
    viewer.close()
    with pytest.raises(OSError, match="expected an open viewer"):
        viewer.state  # noqa: B018


PROGRAM = """
import os, sys, time
import numpy as np
import fovea
words = np.eye(4, dtype=np.float32)
viewer = fovea.view(words, words)
print(viewer._server._process.pid, viewer._server._folder, flush=True)
{}
"""


def child(rest):
    """Starts a Python with a viewer; returns it, the server's process and its folder."""
    command = [sys.executable, "-B", "-c", PROGRAM.format(rest)]
    # In a group of its own, which it may interrupt.
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    number, folder = started.stdout.readline().split()
    return started, int(number), pathlib.Path(folder)


def finish(started):
    started.stdout.close()
    return started.wait(timeout=20)


def test_the_end_of_python_ends_the_server():
    started, number, folder = child("")
    assert finish(started) == 0
    wait_for_end(number)
    assert not folder.exists()


def test_a_killed_python_ends_the_server_and_the_next_viewer_removes_its_files():
    started, number, folder = child("time.sleep(60)")
    assert alive(number)
    started.kill()
    finish(started)
    wait_for_end(number)
    assert folder.exists()
    with fovea.view(*arrays()):
        assert not folder.exists()


def test_a_forked_process_does_not_keep_the_server():
    # The fork outlives its parent, as workers may that wait for work.
    started, number, _ = child("if os.fork() == 0:\n    time.sleep(3)\n    os._exit(0)\nos.kill(os.getpid(), 9)")
    started.wait(timeout=20)
    wait_for_end(number, seconds=2)
    finish(started)


def test_an_interrupt_of_a_cell_does_not_end_the_server():
    started, number, _ = child(
        "import signal\nsignal.signal(signal.SIGINT, lambda *_: None)\nos.killpg(0, signal.SIGINT)\n"
        "time.sleep(0.3)\nassert not viewer.closed and viewer.state.page == 'map'\n"
    )
    assert os.getpgid(number) == number
    assert finish(started) == 0
    wait_for_end(number)


def test_a_server_that_ended_by_itself():
    viewer = fovea.view(*arrays())
    os.kill(process_of(viewer), signal.SIGINT)
    wait_for_end(process_of(viewer))
    assert viewer.closed
    with pytest.raises(OSError, match="has ended"):
        viewer.state = {"head": 1}
    viewer.close()


# ---- the page --------------------------------------------------------------------------------------------------


def test_html():
    with fovea.view(*arrays(), height=321) as viewer:
        page = viewer._repr_html_()
        assert page.startswith('<iframe src="http://127.0.0.1:')
        assert "height: 321px" in page
        assert f"token={viewer._server.token}" in viewer.url
        assert repr(viewer) == f"<View {viewer.url}>"


def test_states(recording):
    with fovea.view(recording) as viewer:
        (name,) = viewer.inputs
        viewer.state = {"layer": 1, "head": 1, "centre": (10, 20.5), "scale": 0.25, "locked": (7, 3)}
        wanted = ViewState("map", name, 1, 1, (10, 20.5), 0.25, (7, 3))
        assert viewer.state == wanted
        viewer.state = {"head": 0}
        assert viewer.state == dataclasses.replace(wanted, head=0)
        viewer.state = {"page": "text", "locked": None}
        assert viewer.state == dataclasses.replace(wanted, page="text", head=0, locked=None)
        viewer.state = wanted
        assert viewer.state == wanted
        assert f"/map/{name}/1.1#token={viewer._server.token}&at=10,20.5&scale=0.25&query=7&key=3" in viewer.url
        viewer.state = {"page": "start"}
        assert viewer.state == ViewState()


def entry(name="run-1", kind="recording", labels=("0", "1", "cross-1"), heads=(2, 5)):
    layers = [{"label": label, "heads": list(heads), "queries": 100, "keys": 200} for label in labels]
    return {"id": name, "kind": kind, "layers": layers}


INPUTS = [entry(), entry("other-2", labels=("0",)), entry("scene-3", "scene", ())]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"head": 5}, ViewState("map", "run-1", 0, 5)),
        ({"layer": "cross-1"}, ViewState("map", "run-1", "cross-1", 2)),
        ({"layer": 1, "page": "text"}, ViewState("text", "run-1", 1, 2)),
        ({"input": "other-2"}, ViewState("map", "other-2", 0, 2)),
        ({"page": "scene"}, ViewState("scene", "scene-3")),
        (
            {"centre": (np.float32(1), 200), "locked": (np.int64(99), 0)},
            ViewState("map", "run-1", 0, 2, (1, 200), None, (99, 0)),
        ),
    ],
)
def test_changes(changes, wanted):
    found = changed(ViewState(), changes, INPUTS)
    assert found == wanted
    assert state_of(address_of(found)) == wanted


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"zoom": 1}, TypeError, "state: expected some of page, input, layer"),
        ({"page": "pages"}, ValueError, "page: expected one of map"),
        ({"page": "compare"}, ValueError, "page: expected a page of one head"),
        ({"input": "no"}, ValueError, "input: expected one of run-1, other-2, got 'no'"),
        ({"input": "scene-3"}, ValueError, "input: expected one of run-1, other-2, got 'scene-3'"),
        ({"layer": 2}, ValueError, "layer: expected one of 0, 1, cross-1, got 2"),
        ({"head": 3}, ValueError, "head: expected one of 2, 5, got 3"),
        ({"centre": (1,)}, TypeError, "centre: expected two numbers, of a query and a key, got (1,)"),
        ({"centre": (1, 201)}, ValueError, "centre: expected from 0 to 200, got 201"),
        ({"centre": (float("nan"), 1)}, ValueError, "centre: expected from 0 to 100, got nan"),
        ({"locked": (1.5, 2)}, TypeError, "locked: expected two indices, of a query and a key, got (1.5, 2)"),
        ({"locked": (100, 2)}, ValueError, "locked: expected a query from 0 to 99, got 100"),
        ({"scale": 0}, ValueError, "scale: expected tokens per pixel, above 0, got 0"),
        ({"scale": "1"}, ValueError, "scale: expected tokens per pixel, above 0, got '1'"),
    ],
)
def test_wrong_changes(changes, error, message):
    with pytest.raises(error) as caught:
        changed(ViewState(), changes, INPUTS)
    assert message in str(caught.value)


def test_the_look_of_a_map_is_kept():
    before = "/map/run-1/0.2#at=1,2&tone=log&colormap=magma&query=3&key=4"
    state = state_of(before)
    assert state == ViewState("map", "run-1", 0, 2, (1, 2), None, (3, 4))
    assert (
        address_of(dataclasses.replace(state, head=5, locked=None), before)
        == "/map/run-1/0.5#at=1,2&tone=log&colormap=magma"
    )


def test_pages_of_two_heads():
    before = "/compare/run-1/0.2/other-2/0.5#at=1,2"
    state = state_of(before)
    assert state == ViewState("compare", "run-1", 0, 2, (1, 2))
    assert address_of(changed(state, {"page": "compare", "scale": 2}, INPUTS), before) == (
        "/compare/run-1/0.2/other-2/0.5#at=1,2&scale=2"
    )
    assert changed(state, {"head": 5}, INPUTS).page == "map"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/",
        "/map",
        "/map/run-1/nonsense",
        "/map/run-1/0.99999#at=1&scale=x&query=a&key=",
        "/heads/a#layer",
        "//#&&=&",
    ],
)
def test_strange_addresses(address):
    state = state_of(address)
    assert state.centre is None
    assert state.locked is None
    assert isinstance(address_of(state, address), str)


def test_large_numbers_survive():
    state = ViewState("map", "run-1", 0, 2, (1048575.5, 777777.25), 1024.5, (1048575, 0))
    assert state_of(address_of(state)) == state
