# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of pages: the browser, and pages that must stay silent and send no request."""

import functools

import browser as pages
import pytest
from watch import Watch, watched
from watch import chromium as chromium  # the tests find these here
from watch import pytest_runtest_makereport as pytest_runtest_makereport
from watch import violations as violations

# Once per run, because the program may have changed since the last one.
rendered = functools.cache(pages.render)


class Opener(Watch):
    """Opens pages of scenes and sentences, which are files."""

    def blank(self, size="desktop", scheme="light"):
        # Touch only on the phone: the page may offer other controls there.
        return super().blank(pages.VIEWPORTS[size], scheme, has_touch=size == "phone")

    @staticmethod
    def address(name, fragment=""):
        return rendered(name).as_uri() + fragment

    def __call__(self, name, size="desktop", scheme="light", fragment=""):
        page = self.blank(size, scheme)
        page.goto(self.address(name, fragment))
        return page


@pytest.fixture
def opener(chromium, request):
    yield from watched(Opener(chromium, offline=True), request)
