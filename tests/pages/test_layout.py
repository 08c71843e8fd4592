# SPDX-License-Identifier: Apache-2.0
"""All pages: nothing is printed, thrown or requested, nothing is wider than a phone, axe finds nothing, paper works."""

import itertools

import browser as pages
import pytest
from conftest import violations

NAMES = pages.page_names()
LOOKS = list(itertools.product(pages.VIEWPORTS, pages.SCHEMES))
# Pages with most kinds of elements: several weights, a batch, heads, two sentences, pictures of many words.
DIVERSE = ("001_your_journey", "padded_batch", "two_heads", "cross_attention", "text_long")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wider_than_a_phone(opener, name):
    page = opener(name, "phone")
    for _ in range(2):
        assert page.evaluate("() => document.documentElement.scrollWidth") <= pages.PHONE["width"]
        # Also with everything open, and for another word.
        page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.locator(".chips:visible button").last.click()


@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing(opener, name):
    page = opener(name)
    found = []
    for i, (size, scheme) in enumerate(LOOKS):
        page.set_viewport_size(pages.VIEWPORTS[size])
        page.emulate_media(color_scheme=scheme)
        pages.settle(page)
        # Contrast: in one look of each page without its thousands of numbers, and everywhere on some pages.
        contrast = None
        if name in DIVERSE and size == "desktop":
            contrast = {"include": ["html"]}
        elif i == NAMES.index(name) % len(LOOKS):
            contrast = {"include": ["html"], "exclude": ["tbody td"]}
        found += [f"{size}, {scheme}: {line}" for line in violations(page, contrast, scheme == "light")]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", NAMES)
def test_paper(opener, name):
    page = opener(name)
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("details:not([open])").count() == 0
    assert page.locator("[data-item][hidden]").count() == 0
    assert len(page.pdf()) > 10_000
    page.emulate_media(media="screen")
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert page.locator(".chips:visible").count() == 1
