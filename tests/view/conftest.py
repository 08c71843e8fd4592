# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of `fovea view`: servers that must end cleanly, and pages that must stay silent and send
requests only to them.

    def test_something(viewer, opener, tmp_path):
        inputs.tensors(tmp_path / "layer.safetensors", q_len=4096)
        server = viewer(tmp_path / "layer.safetensors", "--causal")
        page = opener(server, f"/map/{server.id()}/0.0", "scale=4")
"""

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "pages"))

import browser as pages
from server import Viewer
from watch import Watch, watched
from watch import chromium as chromium  # the tests find these here
from watch import pytest_runtest_makereport as pytest_runtest_makereport
from watch import violations as violations

VIEWPORTS = {"desktop": pages.DESKTOP, "large": {"width": 1920, "height": 1080}, "phone": pages.PHONE}


def end(servers):
    """Ends servers; each must end by itself, with exit code 0 and without messages."""
    problems = []
    for server in servers:
        code, errors, _ = server.stop()
        if code != 0 or errors:
            problems.append(f"{' '.join(server.process.args)}: exit code {code}; {errors}")
    assert not problems, "\n".join(problems)


def starting():
    """Yields a function that starts servers, and ends them afterwards."""
    started = []

    def start(*arguments, **options):
        started.append(Viewer(*arguments, **options))
        return started[-1]

    yield start
    end([server for server in started if server.process.returncode is None])


@pytest.fixture
def viewer():
    """Starts `fovea view ARGUMENTS`, which ends with the test."""
    yield from starting()


@pytest.fixture(scope="module")
def module_viewer(tmp_path_factory):
    """Like viewer, for servers that several tests of a module share."""
    for start in starting():
        start.folder = tmp_path_factory.mktemp("inputs")
        yield start


class Opener(Watch):
    """Opens pages of servers. Errors and warnings in the console, exceptions, and requests to other origins than those
    of the servers fail the test at its end, except messages that contain a text of `expected`."""

    def __init__(self, browser):
        super().__init__(browser)
        self.expected = []

    def complain(self, text):
        if not any(part in text for part in self.expected):
            super().complain(text)

    def blank(self, size="desktop", scheme="light", **context):
        return super().blank(VIEWPORTS[size], scheme, **context)

    def __call__(self, server, path="/", fragment="", size="desktop", scheme="light", token=True, **context):
        """Opens a page in a context of its own, as another user of the browser would."""
        page = self.blank(size, scheme, **context)
        return self.go(page, server, path, fragment, token)

    def tab(self, page, server, path="/", fragment="", token=True):
        """Opens a page beside another, in its context."""
        return self.go(self.watch(page.context.new_page()), server, path, fragment, token)

    def go(self, page, server, path="/", fragment="", token=True):
        self.origins.append(f"{server.origin}/")
        page.goto(server.address(path, fragment) if token else f"{server.origin}{path}#{fragment}")
        return page

    def close(self):
        # Also of what is expected since it was said.
        self.complaints = [one for one in self.complaints if not any(part in one for part in self.expected)]
        super().close()


@pytest.fixture
def opener(chromium, request):
    yield from watched(Opener(chromium), request)
