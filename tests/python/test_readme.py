# SPDX-License-Identifier: Apache-2.0
"""Tests that the Python programs of README.md and docs/python.md run and print the output shown below them."""

import os
import pathlib
import subprocess
import sys

import pytest
from try_installed import program_blocks

import fovea

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "python.md"]


@pytest.mark.parametrize(("program", "expected"), [block for page in PAGES for block in program_blocks(page)])
def test_block(program, expected, tmp_path):
    # PYTHONPATH may be relative.
    package = {"PYTHONPATH": str(pathlib.Path(fovea.__file__).absolute().parents[1])}
    command = [sys.executable, "-B", "-c", program]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=tmp_path, env=os.environ | package)
    assert result.returncode == 0, result.stderr
    assert expected in ("", result.stdout)
