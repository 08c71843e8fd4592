# SPDX-License-Identifier: Apache-2.0
"""Pages in the browser that must stay silent, screenshots of failures, and axe: shared with tests/view, whose
conftest.py imports the fixture and the hook as well."""

import pathlib

import axe_playwright_python
import browser as pages
import pytest

AXE = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
OPENED = pytest.StashKey[list]()
LOCAL = ("file:", "data:", "about:", "blob:")
# Hides mouse events that no finger causes: after a tap, the headless shell reports a mouse in the corner of the page.
NO_MOUSE = """addEventListener("mouseover", (event) => {
  if (!event.sourceCapabilities?.firesTouchEvents) event.stopImmediatePropagation();
}, true)"""


class Watch:
    """Opens empty pages in new contexts, and records what no page may do: print errors, throw, and send requests
    elsewhere.

    origins  the beginnings of addresses that pages may request
    context  more options of the browser's contexts
    """

    def __init__(self, browser, origins=LOCAL, **context):
        self.browser = browser
        self.origins = list(origins)
        self.options = context
        self.opened = []
        self.complaints = []

    def blank(self, viewport=pages.DESKTOP, scheme="light", has_touch=False, **context):
        context = self.browser.new_context(
            viewport=viewport,
            color_scheme=scheme,
            # During smooth scrolling, the press and the release of a click may hit different elements.
            reduced_motion="reduce",
            has_touch=has_touch,
            permissions=["clipboard-read", "clipboard-write"],
            **(self.options | context),
        )
        context.set_default_timeout(5000)
        if has_touch:
            context.add_init_script(NO_MOUSE)
        return self.watch(context.new_page())

    def watch(self, page):
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
                None if request.url.startswith(tuple(self.origins)) else self.complain(f"request: {request.url}")
            ),
        )
        self.opened.append(page)
        return page

    def complain(self, text):
        self.complaints.append(text)

    def close(self):
        """Closes all pages, and fails if one of them did something that it may not do."""
        for page in self.opened:
            page.context.close()
        assert not self.complaints, "\n".join(self.complaints)


@pytest.fixture(scope="session")
def chromium():
    with pages.chromium() as browser:
        yield browser


def watched(watch, request):
    """Yields a Watch to a test, and closes it afterwards."""
    request.node.stash[OPENED] = watch.opened
    yield watch
    watch.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and call.when == "call":
        save_screenshots(item, report)
    return report


def save_screenshots(item, report):
    """Stores screenshots of the pages that a failed test had opened, in build/SUITE/failures."""
    folder = pages.ROOT / "build" / item.path.parent.name / "failures"
    folder.mkdir(parents=True, exist_ok=True)
    for number, page in enumerate(item.stash.get(OPENED, [])):
        path = folder / f"{item.name.replace('/', '_')}-{number}.png"
        try:
            page.screenshot(path=path, full_page=True)
            report.sections.append(("screenshot", str(path)))
        except Exception as error:  # such as a page that no longer answers: the test has failed anyway
            report.sections.append(("no screenshot", str(error)))


def violations(page, contrast=None, structure=True):
    """Runs axe on a page and returns one line per violated rule. Contrast, which takes nine tenths of the time, is
    examined only in `contrast`, a context of axe; the other rules, which colours do not affect, with `structure`."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE)
        # Frames of a local page have no origin that messages could name.
        page.evaluate("() => axe.configure({allowedOrigins: ['<unsafe_all_origins>']})")
    run = "([context, options]) => axe.run(context, {resultTypes: ['violations'], ...options})"
    found = []
    if structure:
        found += page.evaluate(run, ["html", {"rules": {"color-contrast": {"enabled": False}}}])["violations"]
    if contrast is not None:
        found += page.evaluate(run, [contrast, {"runOnly": ["color-contrast"]}])["violations"]
    return [
        f"{rule['id']}: {rule['help']}, at " + "; ".join(str(node["target"][0]) for node in rule["nodes"][:5])
        for rule in found
    ]
