# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of pages: the browser, and pages that must stay silent and send no request."""

import functools
import pathlib

import axe_playwright_python
import browser as pages
import pytest

AXE = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
FAILURES = pages.BUILD / "failures"
OPENED = pytest.StashKey[list]()

# Once per run, because the program may have changed since the last one.
rendered = functools.cache(pages.render)


@pytest.fixture(scope="session")
def chromium():
    with pages.chromium() as browser:
        yield browser


class Opener:
    """Opens pages in new contexts, and records what no page may do: print errors, throw, and send requests."""

    def __init__(self, browser):
        self.browser = browser
        self.opened = []
        self.complaints = []

    def blank(self, size="desktop", scheme="light"):
        # Touch only on the phone: the page may offer other controls there.
        context = self.browser.new_context(
            viewport=pages.VIEWPORTS[size],
            color_scheme=scheme,
            offline=True,
            has_touch=size == "phone",
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(5000)
        page = context.new_page()
        page.on(
            "console",
            lambda message: (
                self.complain(f"console {message.type}: {message.text}")
                if message.type in ("error", "warning", "assert")
                else None
            ),
        )
        page.on("pageerror", lambda error: self.complain(f"exception: {error}"))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:", "about:", "blob:"))
                else self.complain(f"request: {request.url}")
            ),
        )
        self.opened.append(page)
        return page

    def complain(self, text):
        self.complaints.append(text)

    @staticmethod
    def address(name, fragment=""):
        return rendered(name).as_uri() + fragment

    def __call__(self, name, size="desktop", scheme="light", fragment=""):
        page = self.blank(size, scheme)
        page.goto(self.address(name, fragment))
        return page


@pytest.fixture
def opener(chromium, request):
    opener = Opener(chromium)
    request.node.stash[OPENED] = opener.opened
    yield opener
    for page in opener.opened:
        page.context.close()
    assert not opener.complaints, "\n".join(opener.complaints)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Stores screenshots of the pages that a failed test had opened."""
    report = yield
    if report.failed and call.when == "call":
        FAILURES.mkdir(parents=True, exist_ok=True)
        for number, page in enumerate(item.stash.get(OPENED, [])):
            path = FAILURES / f"{item.name.replace('/', '_')}-{number}.png"
            try:
                page.screenshot(path=path, full_page=True)
                report.sections.append(("screenshot", str(path)))
            except Exception as error:  # such as a page that no longer answers: the test has failed anyway
                report.sections.append(("no screenshot", str(error)))
    return report


def violations(page, contrast=None):
    """Runs axe on a page and returns one line per violated rule. Contrast, which takes nine tenths of the time, is
    examined only in `contrast`, a context of axe."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE)
        # Frames of a local page have no origin that messages could name.
        page.evaluate("() => axe.configure({allowedOrigins: ['<unsafe_all_origins>']})")
    run = "([context, options]) => axe.run(context, {resultTypes: ['violations'], ...options})"
    found = page.evaluate(run, ["html", {"rules": {"color-contrast": {"enabled": False}}}])["violations"]
    if contrast is not None:
        found += page.evaluate(run, [contrast, {"runOnly": ["color-contrast"]}])["violations"]
    return [
        f"{rule['id']}: {rule['help']}, at " + "; ".join(str(node["target"][0]) for node in rule["nodes"][:5])
        for rule in found
    ]
