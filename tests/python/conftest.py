# SPDX-License-Identifier: Apache-2.0
"""Tests the package in build/release/python, which PYTHONPATH names."""

import pytest

import fovea


def pytest_report_header():
    return f"{fovea.info()}; {fovea.__file__}"


@pytest.fixture
def say(request):
    """Adds a line to the summary, for example the case count of a third-party suite."""
    # pytest-xdist sends the properties of a test, but no other data, from worker processes to the main process.
    return lambda line: request.node.user_properties.append(("said", line))


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, line in report.user_properties:
            if name == "said" and report.when == "call":
                terminalreporter.write_line(line)
