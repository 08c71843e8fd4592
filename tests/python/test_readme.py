# SPDX-License-Identifier: Apache-2.0
"""The Python programs of README.md and docs/python.md run and print the output shown below them."""

import subprocess
import sys

import pytest
from try_wheel import readme_blocks


@pytest.mark.parametrize(("program", "expected"), [*readme_blocks(), *readme_blocks("docs/python.md")])
def test_block(program, expected):
    result = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    assert expected in ("", result.stdout)
