# SPDX-License-Identifier: Apache-2.0
"""The pages under test and the browser that opens them: shared by the tests and by shots.py."""

import contextlib
import os
import pathlib
import shutil
import subprocess

import suite
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "pages"
FOVEA = ROOT / "build" / "release" / "fovea"
SCENES = ROOT / "examples" / "scenes"

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
VIEWPORTS = {"desktop": DESKTOP, "phone": PHONE}
SCHEMES = ("light", "dark")

LONG = " ".join(f"word{i}" if i % 7 else "again" for i in range(60))
# Pages of sentences, in addition to the example scenes: one word, repeated words, other scripts, and more words than
# fit a table, which the page draws as pictures.
SENTENCES = {
    "text_one_word": ["--text", "Hello"],
    "text_causal_heads": [
        "--text",
        "the cat and the dog and the bird",
        "--causal",
        "--heads",
        "2",
        "--dim",
        "8",
        "--projections",
        "random",
    ],
    "text_scripts": ["--text", "猫 坐 在 垫子 上 שלום עולם 👩‍👩‍👧 é ß"],
    "text_long": ["--text", LONG],
    "text_markup": ["--text", '<img src=x onerror=alert(1)> </script> &amp; ]]> "quoted"'],
}


def scene_names():
    return sorted(path.stem for path in SCENES.glob("*.json"))


def page_names():
    return [*scene_names(), *SENTENCES]


def explain(*arguments, text=None):
    """Runs `fovea explain` and returns its output."""
    result = subprocess.run(
        [FOVEA, "explain", *map(str, arguments)],
        input=text,
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def source(name):
    """Returns the arguments of `fovea explain` for an example scene, the path of another one, or a sentence."""
    return SENTENCES.get(name) or [name if name.endswith(".json") else SCENES / f"{name}.json"]


def render(name, folder=None):
    """Writes the page of a scene (a name in examples/scenes or a path) or of a sentence, and returns its path."""
    folder = folder or BUILD / "html"
    path = folder / f"{pathlib.Path(name).stem}.html"
    folder.mkdir(parents=True, exist_ok=True)
    explain(*source(name), "--format", "html", "--output", path)
    return path


@contextlib.contextmanager
def chromium():
    """Starts the system's Chromium, headless. Its sandbox needs a user other than root."""
    program = shutil.which(suite.browser())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.getuid() != 0)
        try:
            yield browser
        finally:
            browser.close()


def settle(page):
    """Waits until the layout that follows a change is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
