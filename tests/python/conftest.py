# SPDX-License-Identifier: Apache-2.0
"""What is tested: the package of build/release/python, which PYTHONPATH names."""

import pytest

import fovea

SAID = pytest.StashKey[list[str]]()


def pytest_report_header():
    return f"{fovea.info()}; {fovea.__file__}"


@pytest.fixture
def say(request):
    """Lines for the end: how many cases a suite of others ran."""
    return request.config.stash.setdefault(SAID, []).append


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash.get(SAID, []):
        terminalreporter.write_line(line)
