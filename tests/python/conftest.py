# SPDX-License-Identifier: Apache-2.0
"""What is tested: the package of build/release/python, which PYTHONPATH names."""

import fovea


def pytest_report_header():
    return f"{fovea.info()}; {fovea.__file__}"
