# SPDX-License-Identifier: Apache-2.0
"""Tries the installed package with NumPy and the standard library alone, in the environment that runs this file:

    try_installed.py README.md SCENE.json

tests/python/try_wheel.py runs this file in a new environment, tests/python/try_wheel_debian.py on a bare Debian. It
imports nothing from the repository, which the bare Debian does not have.
"""

import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import numpy as np

import fovea
from fovea import nn


def fail(what):
    sys.exit(f"try_installed.py: {what}")


def check_place():
    """Fails unless this environment's own copy is imported."""
    place = pathlib.Path(fovea.__file__).resolve()
    if not place.is_relative_to(pathlib.Path(sys.prefix).resolve()):
        fail(f"expected fovea in {sys.prefix}, got {place}")


def check_attention():
    rng = np.random.default_rng(1)
    query, key, value = (rng.standard_normal((2, 59, 16), dtype=np.float32) for _ in range(3))
    scores = query.astype(np.float64) @ key.astype(np.float64).transpose(0, 2, 1) / np.sqrt(16)
    scores[:, np.triu(np.ones((59, 59), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    expected = weights @ value
    found = fovea.attention(query, key, value, mask=fovea.causal())
    if not (found.dtype == np.float32 and np.allclose(found, expected, rtol=1e-5, atol=1e-6)):
        fail(f"attention differs from NumPy's by {np.abs(found - expected).max()}")


def run(*command):
    result = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8")
    if result.returncode != 0:
        fail(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def check_command_line(scene):
    """Checks that `fovea` and `python -m fovea` print the same, and that the exit status is the program's."""
    script = pathlib.Path(sysconfig.get_path("scripts")) / "fovea"
    said = run(script, "explain", "--text", "one two three")
    if "three" not in said or said != run(sys.executable, "-m", "fovea", "explain", "--text", "one two three"):
        fail(f"fovea explain printed\n{said}")
    if fovea.__version__ not in run(script, "--version"):
        fail(f"expected {fovea.__version__} of fovea --version, got {run(script, '--version')}")
    if subprocess.run([script, "explain", "no such file"], capture_output=True).returncode != 2:
        fail("expected exit status 2 of fovea explain with a missing file")
    run(script, "train", "scene", scene)


class Words(html.parser.HTMLParser):
    """Collects the words of a page and of the pages in its frames."""

    def __init__(self):
        super().__init__()
        self.words = []

    def handle_starttag(self, tag, attributes):
        frame = dict(attributes).get("srcdoc")
        if frame is not None:
            inner = Words()
            inner.feed(frame)
            self.words += inner.words

    def handle_data(self, data):
        self.words += data.split()


def check_notebook():
    """Checks the HTML that a notebook shows below a cell that ends with fovea.explain(...)."""
    page = Words()
    page.feed(fovea.explain("one two three")._repr_html_())
    if "three" not in page.words:
        fail(f"the HTML of fovea.explain lacks a word; it has {page.words[:50]}")


def check_layers(folder):
    file = folder / "layer.npz"
    nn.save(nn.Linear(3, 2), str(file))
    if len(np.load(file).files) != 2:
        fail(f"expected a weight and a bias in {file}, got {np.load(file).files}")


def program_blocks(page, models=False):
    """Returns each ```python block of a page that needs a model, or each that does not, with the output that the
    ```text block right below it shows."""
    pattern = r"^```python\n(.*?)^```$(?:\s*^```text\n(.*?)^```$)?"
    blocks = re.findall(pattern, page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if ("transformers" in block[0]) == models]


def check_readme(readme):
    blocks = program_blocks(readme)
    if not blocks:
        fail(f"{readme} has no ```python block")
    for program, expected in blocks:
        found = run(sys.executable, "-c", program)
        if expected and found != expected:
            fail(f"README.md says\n{expected}and not\n{found}")


def main():
    readme, scene = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    check_place()
    check_attention()
    check_notebook()
    check_layers(pathlib.Path.cwd())
    check_command_line(scene)
    check_readme(readme)
    compilers = [name for name in ("cc", "c++", "gcc", "g++", "clang") if shutil.which(name)]
    print(f"{fovea.info()}; Python {sys.version.split()[0]}; {'with a' if compilers else 'no'} compiler")


if __name__ == "__main__":
    main()
