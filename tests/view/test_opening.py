# SPDX-License-Identifier: Apache-2.0
"""Criterion 1 of the viewer: the printed address shows the start page at once, and nothing leaves its origin (which
the fixture `opener` checks everywhere)."""

import statistics
import subprocess
import time

import inputs
from server import FOVEA, Viewer

# Far above the 300 ms of an idle machine, which bench/view measures: tests share processors.
PAINT_S = 1.5

PAINTED = """() => new Promise((done) => {
  const first = performance.getEntriesByName("first-contentful-paint")[0];
  if (first) return done(first.startTime);
  new PerformanceObserver((list) => {
    const entry = list.getEntriesByName("first-contentful-paint")[0];
    if (entry) done(entry.startTime);
  }).observe({type: "paint", buffered: true});
})"""


def test_the_start_page(viewer, opener, tmp_path):
    inputs.recording(tmp_path / "run.safetensors", inputs.random_layers(2, 3, 40, 8), inputs.words(40))
    inputs.tensors(tmp_path / "layer.safetensors", q_len=100, heads=2)
    server = viewer(tmp_path / "run.safetensors", tmp_path / "layer.safetensors", "--causal")
    assert server.url.startswith("http://127.0.0.1:")
    assert len(server.token) == 32
    page = opener.blank()
    opener.origins.append(f"{server.origin}/")
    page.goto(server.url)
    assert page.evaluate(PAINTED) < 1000 * PAINT_S
    for name in ("run.safetensors", "layer.safetensors"):
        page.get_by_text(name).first.wait_for()
    assert page.evaluate("location.hash") == "", "the token stays in no address"
    assert page.evaluate("document.title")


def test_the_examples_without_a_file(viewer, opener):
    server = viewer()
    kinds = {entry["kind"] for entry in server.api("/inputs")["inputs"]}
    assert "scene" in kinds
    page = opener(server)
    page.get_by_text(server.input()["name"]).first.wait_for()


def test_paints_of_new_tabs(viewer, opener):
    server = viewer()
    times = []
    for _ in range(5):
        page = opener(server)
        times.append(page.evaluate(PAINTED))
        page.context.close()
        opener.opened.remove(page)
    assert statistics.median(times) < 1000 * PAINT_S, times


def test_the_end_by_ctrl_c(tmp_path):
    inputs.tensors(tmp_path / "long.safetensors", q_len=20_000, head_dim=64)
    server = Viewer(tmp_path / "long.safetensors", "--causal")
    # A pass runs.
    server.api(f"/inputs/{server.id()}/0.0")
    time.sleep(0.1)
    code, errors, seconds = server.stop()
    assert (code, errors) == (0, "")
    assert seconds < 1


def test_one_line_on_standard_output(viewer):
    server = viewer()
    line = server.url
    server.stop()
    assert server.process.returncode == 0
    found = subprocess.run([FOVEA, "view", "--help"], capture_output=True, encoding="utf-8")
    assert "--no-open" in found.stdout
    assert "\n" not in line
