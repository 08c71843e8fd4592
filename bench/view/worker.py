# SPDX-License-Identifier: Apache-2.0
"""Measures the server and the pages of `fovea view`; bench/view/run starts this with the Python of tests/view. Prints
one line of JSON: a row for each figure, with times in milliseconds."""

import argparse
import contextlib
import http.client
import json
import pathlib
import re
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "pages"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "view"))

import browser as pages
import inputs
import server as servers

SCREEN = {"width": 1600, "height": 900}
LARGE = {"width": 1920, "height": 1080}


class Rows:
    def __init__(self, only):
        self.only = only
        self.rows = []

    def wanted(self, name):
        return self.only is None or self.only in name

    def add(self, part, name, values, p50=None, p95=None, unit="ms"):
        """Adds a figure: some times, and their limits."""
        row = {
            "part": part,
            "name": name,
            "unit": unit,
            "count": len(values),
            "p50": float(np.percentile(values, 50)),
            "p95": float(np.percentile(values, 95)) if len(values) >= 20 else None,
        }
        if p50 is not None:
            row["p50_limit"] = p50
        if p95 is not None:
            row["p95_limit"] = p95
        self.rows.append(row)
        print(f"{name}: median {row['p50']:.2f} {unit}, {len(values)} times", file=sys.stderr, flush=True)


class Connection:
    """Requests one after another, as a page sends them over a connection that stays open."""

    def __init__(self, viewer):
        self.viewer = viewer
        self.connection = http.client.HTTPConnection("127.0.0.1", viewer.port, timeout=120)
        self.connection.connect()

    def get(self, path):
        """Returns (milliseconds, body)."""
        start = time.perf_counter()
        self.connection.request("GET", path, headers={"X-Fovea-Token": self.viewer.token})
        answer = self.connection.getresponse()
        body = answer.read()
        took = 1000 * (time.perf_counter() - start)
        if answer.status != 200:
            raise SystemExit(f"bench/view: {path}: {answer.status} {body[:200]!r}")
        return took, body


@contextlib.contextmanager
def running(*arguments):
    viewer = servers.Viewer(*arguments)
    try:
        yield viewer
    finally:
        viewer.stop()


def shuffled(places, count, seed=3):
    places = list(places)
    order = np.random.default_rng(seed).permutation(len(places))[:count]
    return [places[i] for i in order]


# ---- the server alone ------------------------------------------------------------------------------------------


def measure_tiles(rows, folder, quick):
    """Assets, and tiles of a head whose lse is known: D 64, every query sees every key."""
    length = 8192 if quick else 65_536
    path = folder / "tiles.safetensors"
    inputs.tensors(path, q_len=length, head_dim=64)
    with running(path) as viewer:
        idle = viewer.resident()
        head = f"/api/v1/inputs/{viewer.id()}/0.0"
        connection = Connection(viewer)
        _, shell = connection.get("/")
        # The script is named twice, to load early and to run.
        names = list(dict.fromkeys(re.findall(r'(?:src|href)="(/assets/[^"]+)"', shell.decode())))
        script = next(name for name in names if name.endswith(".js"))
        assets = [connection.get(name)[1] for name in names]
        rows.add("server", "an asset (the script)", [connection.get(script)[0] for _ in range(500)], 0.3, 2)
        connection.get(head)
        viewer.wait_for_pass(seconds=600)
        connection.get(f"{head}/tile/max/0/1/1")
        cached = [connection.get(f"{head}/tile/max/0/1/1")[0] for _ in range(500)]
        rows.add("server", "a tile in the cache", cached, 0.3, 2)
        for level in range(5):
            side = max(1, length >> (8 + level))
            grid = [(x, y) for x in range(side) for y in range(side) if (x, y) != (1, 1)]
            chosen = shuffled(grid, 40 if quick else 200 if level < 4 else 60)
            times = [connection.get(f"{head}/tile/max/{level}/{x}/{y}")[0] for x, y in chosen]
            limits = (8, 20) if level < 4 else (None, 60)
            rows.add("server", f"a tile of level {level}, D 64", times, *limits)
        size = len(shell) + sum(map(len, assets))
        rows.add("server", "size of the shell and its assets", [size / 1024], 250, unit="KiB")
        rows.add("server", "memory after the start", [idle / 2**20], 60, unit="MiB")


def measure_long(rows, folder, quick):
    """Rows and searches of 1,048,576 tokens."""
    length = 1 << 16 if quick else 1 << 20
    path, tokens = folder / "wide.safetensors", folder / "tokens.txt"
    inputs.wide(path, length=length, head_dim=64)
    inputs.token_file(tokens, inputs.words(length))
    with running(path, "--causal", "--tokens", tokens) as viewer:
        head = f"/api/v1/inputs/{viewer.id()}/0.0"
        connection = Connection(viewer)
        connection.get(head)
        connection.get(f"{head}/row?query={length - 1}&top=8")
        viewer.api(f"/inputs/{viewer.id()}/0.0/pass", method="DELETE")
        queries = [length - 1 - 7 * i for i in range(30 if quick else 100)]
        # The first request of a query computes its lse.
        times = [connection.get(f"{head}/row?query={query}&top=8")[0] for query in queries]
        rows.add("server", f"a row of {length:,} keys, D 64", times, None, 40)
        find = f"/api/v1/inputs/{viewer.id()}/find?layer=0&side=query&fold=1&text="
        texts = ["old", "dog", "came by", "nothing", "the"] * 12
        times = [connection.get(find + text.replace(" ", "%20"))[0] for text in texts]
        rows.add("server", f"a search of {length:,} tokens", times, None, 30)


# ---- pages -----------------------------------------------------------------------------------------------------

PAINTED = """() => new Promise((done) => {
  new PerformanceObserver((list) => {
    const entry = list.getEntriesByName("first-contentful-paint")[0];
    if (entry) done(entry.startTime);
  }).observe({type: "paint", buffered: true});
})"""
# When the canvas shows all exact tiles, from the navigation on; then the next frame.
EXACT = """(state) => new Promise((done) => {
  const look = () => {
    const canvas = document.querySelector("[data-tiles]");
    if (canvas?.dataset.tiles === state) requestAnimationFrame(() => done(performance.now()));
    else requestAnimationFrame(look);
  };
  look();
})"""
# When the canvas has so many pixels in colours of weights. Paper, hatching, dots and labels are nearly grey; the colour
# map (viridis) is not.
CONTENT = """(least) => new Promise((done) => {
  const look = () => {
    const canvas = document.querySelector("canvas[data-tiles]");
    if (canvas?.width) {
      const {width, height} = canvas, copy = new OffscreenCanvas(width, height);
      const pen = copy.getContext("2d", {willReadFrequently: true});
      pen.drawImage(canvas, 0, 0);
      const data = pen.getImageData(0, 0, width, height).data;
      let found = 0;
      for (let i = 0; i < data.length; i += 4) {
        const [red, green, blue] = [data[i], data[i + 1], data[i + 2]];
        if (Math.max(red, green, blue) - Math.min(red, green, blue) > 60) ++found;
      }
      if (found >= least) return done(performance.now());
    }
    requestAnimationFrame(look);
  };
  look();
})"""
WEIGHTS = 1000  # pixels
THUMBS = """() => new Promise((done) => {
  const look = () => {
    const grid = document.querySelector("[data-thumbs]");
    if (grid?.dataset.thumbs === "done") requestAnimationFrame(() => done(performance.now()));
    else requestAnimationFrame(look);
  };
  look();
})"""
FRAMES = """(duration) => new Promise((done) => {
  const times = [];
  let last = performance.now();
  const end = last + duration;
  const next = (now) => {
    times.push(now - last);
    last = now;
    if (now < end) requestAnimationFrame(next);
    else done(times.slice(1));
  };
  requestAnimationFrame(next);
})"""


class Browser:
    def __init__(self, browser):
        self.browser = browser

    @contextlib.contextmanager
    def page(self, viewport):
        context = self.browser.new_context(viewport=viewport)
        context.set_default_timeout(60_000)
        try:
            yield context.new_page()
        finally:
            context.close()

    def times(self, rounds, viewport, address, script, argument=None):
        """Opens an address again and again, without the browser's cache; returns when the script was done."""
        found = []
        for _ in range(rounds + 1):
            with self.page(viewport) as page:
                page.goto(address, wait_until="commit")
                found.append(page.evaluate(script, argument))
        return found[1:]  # without the first, which starts processes of the browser


def drag(page, box, distance, seconds):
    """Drags the map by `distance` pixels, evenly."""
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    start = time.monotonic()
    while (passed := time.monotonic() - start) < seconds:
        shift = distance * passed / seconds
        # Within the canvas, back and forth.
        fold = abs((shift / 300) % 2 - 1) * 300 - 150
        page.mouse.move(x + fold, y + fold / 2)
    page.mouse.up()


def measure_map(rows, browser, folder, quick, rounds):
    length = 8192 if quick else 16_384
    path = folder / "map.safetensors"
    inputs.tensors(path, q_len=length, head_dim=64, scale=1.5)
    with running(path, "--causal") as viewer:
        name = viewer.id()
        viewer.api(f"/inputs/{name}/0.0")
        viewer.wait_for_pass(seconds=600)
        rows.add("page", "first paint of the start page", browser.times(rounds, SCREEN, viewer.address(), PAINTED), 300)
        rows.add(
            "page",
            "first paint of a map",
            browser.times(rounds, SCREEN, viewer.address(f"/map/{name}/0.0", "at=6000,4000&scale=1"), PAINTED),
            300,
        )
        for level, limit in ((0, 300), (1, 300), (2, 300), (3, 300), (4, 700)):
            # A new place each time: nothing is in the server's cache.
            times = []
            for number in range(rounds + 1):
                centre = length / 2 + 37 * number
                address = viewer.address(f"/map/{name}/0.0", f"at={centre + length / 5:g},{centre:g}&scale={2**level}")
                with browser.page(SCREEN) as page:
                    page.goto(address, wait_until="commit")
                    times.append(page.evaluate(EXACT, "exact"))
            rows.add("page", f"whole view of exact tiles, level {level}, 1600 x 900", times[1:], limit)
        measure_panning(rows, browser, viewer, name)
        measure_colours(rows, browser, viewer, name, rounds)
        measure_cancelling(rows, browser, viewer, name, rounds)


def measure_panning(rows, browser, viewer, name):
    with browser.page(LARGE) as page:
        page.goto(viewer.address(f"/map/{name}/0.0", "at=6000,3000&scale=1"))
        page.evaluate(EXACT, "exact")
        box = page.locator("canvas[data-tiles]").bounding_box()
        page.evaluate(f"() => {{ window.frames_ = ({FRAMES})(3000); }}")
        drag(page, box, 3000, 3)
        times = page.evaluate("() => window.frames_")
        rows.add("page", "a frame while panning, 1920 x 1080", times, None, 25)


def measure_colours(rows, browser, viewer, name, rounds):
    with browser.page(LARGE) as page:
        page.goto(viewer.address(f"/map/{name}/0.0", "at=6000,3000&scale=1"))
        page.evaluate(EXACT, "exact")
        page.locator("canvas[data-tiles]").focus()
        times = []
        for _ in range(rounds):
            # From the key to the frame that follows.
            times.append(
                page.evaluate(
                    """() => new Promise((done) => {
                      const canvas = document.querySelector("canvas[data-tiles]"), start = performance.now();
                      canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "c", bubbles: true}));
                      requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
                    })"""
                )
            )
        rows.add("page", "a change of colours", times, 50)


def measure_cancelling(rows, browser, viewer, name, rounds):
    """From the end of a request of the page to the end of its computation."""
    times = []
    for number in range(rounds):
        with browser.page(SCREEN) as page:
            centre = 5000 + 211 * number
            page.goto(
                viewer.address(f"/map/{name}/0.0", f"at={centre + 3000},{centre}&scale=16&reduce=mean"),
                wait_until="commit",
            )
            end = time.monotonic() + 10
            while viewer.counters()["waiting"] == 0 and time.monotonic() < end:
                time.sleep(0.002)
            start = time.monotonic()
            page.goto("about:blank")
            while viewer.counters()["waiting"] > 0:
                time.sleep(0.002)
            times.append(1000 * (time.monotonic() - start))
    rows.add("page", "tiles that are no longer wanted end", times, 150)


def measure_wide(rows, browser, folder, quick, rounds):
    length = 1 << 16 if quick else 1 << 20
    path = folder / "wide.safetensors"
    if not path.exists():
        inputs.wide(path, length=length, head_dim=64)
    middle = f"at={length // 2},{length // 2}&scale=4"
    for name, options, fragment in (
        (f"a window of {inputs.WINDOW:,}", inputs.WIDE, middle),
        ("causal, the whole matrix", ["--causal"], ""),
    ):
        times = []
        for _ in range(min(rounds, 5)):
            with running(path, *options) as viewer, browser.page(SCREEN) as page:
                page.goto(viewer.address(f"/map/{viewer.id()}/0.0", fragment), wait_until="commit")
                times.append(page.evaluate(CONTENT, WEIGHTS))
        rows.add("page", f"first weights of {length:,} tokens, {name}, of a server that has just started", times, 1000)


def measure_heads(rows, browser, folder, quick, rounds):
    layers, length = (6, 512) if quick else (30, 2048)
    path = folder / "heads.safetensors"
    inputs.recording(path, inputs.random_layers(layers, 9, length, 64, kv_heads=3), inputs.words(length))
    times = []
    for _ in range(min(rounds, 5)):
        with running(path) as viewer, browser.page({"width": 1600, "height": 2800}) as page:
            page.goto(viewer.address(f"/heads/{viewer.id()}"), wait_until="commit")
            times.append(page.evaluate(THUMBS))
    rows.add("page", f"every thumbnail in view, of {layers} x 9 heads, {length:,} tokens", times, 1500)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["tiles", "long", "map", "wide", "heads"])
    arguments = parser.parse_args()
    quick, rounds = arguments.quick, arguments.rounds
    rows = Rows(arguments.only)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if rows.wanted("tiles"):
            measure_tiles(rows, folder, quick)
        if rows.wanted("long"):
            measure_long(rows, folder, quick)
        with pages.chromium() as chromium:
            browser = Browser(chromium)
            if rows.wanted("map"):
                measure_map(rows, browser, folder, quick, rounds)
            if rows.wanted("wide"):
                measure_wide(rows, browser, folder, quick, rounds)
            if rows.wanted("heads"):
                measure_heads(rows, browser, folder, quick, rounds)
    print(json.dumps(rows.rows))


if __name__ == "__main__":
    main()
