# SPDX-License-Identifier: Apache-2.0
"""Tests the package's types: mypy --strict accepts the package and its examples, and reports exactly the lines marked
as wrong in typed_use.py."""

import json
import os
import pathlib
import re
import subprocess
import sys

import fovea

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = pathlib.Path(fovea.__file__).parent
EXAMPLES = ROOT / "examples" / "python"


def mypy(*arguments):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--no-error-summary",
            *map(str, arguments),
        ],
        capture_output=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": f"{PACKAGE.parent}{os.pathsep}{EXAMPLES}"},
    )


def code_of(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code") + "\n"


def test_examples(tmp_path):
    scripts = sorted(EXAMPLES.glob("*.py")) + sorted((ROOT / "examples" / "distributed").glob("*.py"))
    notebooks = sorted(EXAMPLES.glob("*.ipynb"))
    assert scripts
    assert notebooks
    for notebook in notebooks:
        script = tmp_path / f"of_{notebook.stem}.py"  # transformers.py would shadow the library that it imports
        script.write_text(code_of(notebook), encoding="utf-8")
        scripts.append(script)
    result = mypy(*scripts)
    assert result.returncode == 0, result.stdout + result.stderr


def test_package_and_its_use():
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "_fovea.pyi").exists()
    assert (PACKAGE / "_nn.pyi").exists()
    result = mypy("-p", "fovea")
    assert result.returncode == 0, result.stdout + result.stderr
    use = HERE / "typed_use.py"
    wrong = {number for number, line in enumerate(use.read_text(encoding="utf-8").splitlines(), 1) if "# wrong" in line}
    result = mypy(use)
    found = {int(number) for number in re.findall(r"typed_use\.py:(\d+): error", result.stdout)}
    assert found == wrong, result.stdout + result.stderr
