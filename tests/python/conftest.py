# SPDX-License-Identifier: Apache-2.0
"""Tests the package in build/release/python, which PYTHONPATH names."""

import pytest

import fovea

SAID = pytest.StashKey[list[str]]()


def pytest_report_header():
    return f"{fovea.info()}; {fovea.__file__}"


@pytest.fixture
def say(request):
    """Adds a line to the summary, for example the case count of a third-party suite."""
    return request.config.stash.setdefault(SAID, []).append


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash.get(SAID, []):
        terminalreporter.write_line(line)
