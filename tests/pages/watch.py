# SPDX-License-Identifier: Apache-2.0
"""Pages in the browser that must stay silent, screenshots of failures, and axe: shared with tests/view."""

import pathlib

import axe_playwright_python
import browser as pages
import pytest

AXE = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
OPENED = pytest.StashKey[list]()
LOCAL = ("file:", "data:", "about:", "blob:")


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

    def blank(self, viewport=pages.DESKTOP, scheme="light", **context):
        context = self.browser.new_context(
            viewport=viewport,
            color_scheme=scheme,
            permissions=["clipboard-read", "clipboard-write"],
            **(self.options | context),
        )
        context.set_default_timeout(5000)
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


def save_screenshots(item, report, folder):
    """Stores screenshots of the pages that a failed test had opened."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, page in enumerate(item.stash.get(OPENED, [])):
        path = folder / f"{item.name.replace('/', '_')}-{number}.png"
        try:
            page.screenshot(path=path, full_page=True)
            report.sections.append(("screenshot", str(path)))
        except Exception as error:  # such as a page that no longer answers: the test has failed anyway
            report.sections.append(("no screenshot", str(error)))


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
