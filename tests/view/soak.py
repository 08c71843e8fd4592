# SPDX-License-Identifier: Apache-2.0
"""Opens many tabs that wander over a long input for some minutes, and measures the server.

tests/view/run soak                  eight tabs, five minutes
  --minutes N, --tabs N, --tokens N, --memory SIZE, --pause SECONDS between two rounds of movements

Fails if the server ends, if its memory grows beyond --memory and 60 MiB for itself, if a tile is answered with an
error, or if requests remain when all tabs are closed.
"""

import argparse
import pathlib
import random
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "pages"))

import browser as pages
import inputs
from server import Viewer

OWN = 60 << 20


def options():
    parser = argparse.ArgumentParser(prog="tests/view/run soak")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--tabs", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--memory", default="256M")
    parser.add_argument("--pause", type=float, default=0)
    return parser.parse_args()


class Tab:
    """A tab that goes to another place now and then."""

    def __init__(self, browser, server, name, tokens, seed):
        self.page = browser.new_context(viewport={"width": 1600, "height": 900}).new_page()
        self.random = random.Random(seed)
        self.server, self.name, self.tokens = server, name, tokens
        self.tiles = self.ended = 0
        self.problems = []
        self.page.on("response", self.note)
        self.page.on("requestfailed", self.count_failed)
        self.page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))

    def note(self, response):
        if "/tile/" in response.url:
            self.tiles += 1
            if response.status not in (200, 304):
                self.problems.append(f"{response.status}: {response.url}")

    def count_failed(self, request):
        if "/tile/" not in request.url:
            return
        # Ended by the page itself, when the view moved on.
        if "ERR_ABORTED" in (request.failure or ""):
            self.ended += 1
        else:
            self.problems.append(f"{request.failure}: {request.url}")

    def wander(self):
        act = self.random.random()
        if act < 0.3:
            query, key = (self.random.randrange(self.tokens) for _ in range(2))
            scale = 2.0 ** self.random.randrange(-3, 9)
            fragment = f"at={query},{key}&scale={scale:g}"
            self.page.goto(self.server.address(f"/map/{self.name}/0.0", fragment), wait_until="commit")
        else:
            self.page.mouse.move(self.random.randrange(300, 1000), self.random.randrange(200, 700))
            if act < 0.6:
                self.page.mouse.wheel(0, self.random.choice([-400, -200, 200, 400]))
            else:
                self.page.mouse.down()
                self.page.mouse.move(self.random.randrange(300, 1000), self.random.randrange(200, 700), steps=5)
                self.page.mouse.up()


def main():
    chosen = options()
    problems = []
    budget = int(chosen.memory.rstrip("MG")) << (30 if chosen.memory.endswith("G") else 20)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "long.safetensors"
        inputs.tensors(path, q_len=chosen.tokens, head_dim=64)
        server = Viewer(path, "--causal", "--memory", chosen.memory)
        name = server.id()
        most = server.resident()
        with pages.chromium() as browser:
            tabs = [Tab(browser, server, name, chosen.tokens, seed) for seed in range(chosen.tabs)]
            start = told = time.monotonic()
            while time.monotonic() - start < 60 * chosen.minutes:
                for tab in tabs:
                    tab.wander()
                time.sleep(chosen.pause)
                if server.process.poll() is not None:
                    raise SystemExit(f"the server ended: {server.errors()}")
                most = max(most, server.resident())
                if time.monotonic() - told > 30:
                    told = time.monotonic()
                    print(f"{told - start:.0f} s: {server.resident() >> 20} MiB, {server.counters()}", flush=True)
            for tab in tabs:
                problems += tab.problems
                tab.page.context.close()
        time.sleep(1)
        counters = server.counters()
        if counters["connections"] != 1:
            problems.append(f"{counters['connections']} connections remain")
        if most > budget + OWN:
            problems.append(f"memory {most >> 20} MiB, expected at most {(budget + OWN) >> 20} MiB")
        code, errors, _ = server.stop()
        if code != 0 or errors:
            problems.append(f"exit code {code}; {errors}")
        tiles, ended = sum(tab.tiles for tab in tabs), sum(tab.ended for tab in tabs)
        print(f"{tiles:,} tiles, {ended:,} ended by pages; memory at most {most >> 20} MiB; {counters}")
    if problems:
        sys.exit("\n".join([*problems[:20], f"{len(problems)} problems"]))


if __name__ == "__main__":
    main()
