# SPDX-License-Identifier: Apache-2.0
"""The types that the package promises: mypy --strict finds nothing wrong in it, and in typed_use.py what is
said to be wrong there."""

import os
import pathlib
import re
import subprocess
import sys

import fovea

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = pathlib.Path(fovea.__file__).parent


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
        env={**os.environ, "MYPYPATH": str(PACKAGE.parent)},
    )


def test_package_and_its_use():
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "_fovea.pyi").exists()
    result = mypy("-p", "fovea")
    assert result.returncode == 0, result.stdout + result.stderr
    result = mypy(ROOT / "examples" / "python" / "picture.py")
    assert result.returncode == 0, result.stdout + result.stderr
    use = HERE / "typed_use.py"
    wrong = {number for number, line in enumerate(use.read_text(encoding="utf-8").splitlines(), 1) if "# wrong" in line}
    result = mypy(use)
    found = {int(number) for number in re.findall(r"typed_use\.py:(\d+): error", result.stdout)}
    assert found == wrong, result.stdout + result.stderr
