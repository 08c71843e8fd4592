# SPDX-License-Identifier: Apache-2.0
"""Waiting for pages. Their content security policy forbids the evaluation that Playwright's wait_for_function needs."""

from maps import wait_until


def until(page, expression, seconds=5):
    """Waits until an expression of JavaScript is true in the page."""
    wait_until(lambda: page.evaluate(expression), seconds)
