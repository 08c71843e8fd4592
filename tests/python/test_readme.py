# SPDX-License-Identifier: Apache-2.0
"""What the README shows of Python: it runs, and prints what stands below it."""

import subprocess
import sys

import pytest
from try_wheel import readme_blocks


@pytest.mark.parametrize(("program", "expected"), readme_blocks())
def test_block(program, expected):
    result = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    assert expected in ("", result.stdout)
