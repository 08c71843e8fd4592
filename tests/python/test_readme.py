# SPDX-License-Identifier: Apache-2.0
"""Tests that the Python programs of README.md and docs/python.md run and print the output shown below them."""

import pathlib
import subprocess
import sys

import pytest
from try_installed import program_blocks

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "python.md"]


@pytest.mark.parametrize(("program", "expected"), [block for page in PAGES for block in program_blocks(page)])
def test_block(program, expected):
    result = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    assert expected in ("", result.stdout)
