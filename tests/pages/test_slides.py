# SPDX-License-Identifier: Apache-2.0
"""Slides of a scene: keys, buttons, clicks, swipes and the address turn them, and each fits its window."""

import functools
import pathlib
import re

import browser as pages
import pytest
from conftest import violations

TITLE = "Your journey starts with one step"


@functools.cache
def deck(name):
    folder = pages.BUILD / "slides"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{pathlib.Path(name).stem}.html"
    pages.explain(*pages.source(name), "--format", "slides", "--output", path)
    return path


def open_deck(opener, name="001_your_journey", size="desktop", scheme="light", fragment=""):
    page = opener.blank(size, scheme)
    if size == "desktop":
        page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(deck(name).as_uri() + fragment)
    return page


def shown(page):
    """Returns the number of the only visible slide, which the bar and the address repeat."""
    visible = page.locator(".slide:visible")
    assert visible.count() == 1
    number = int(visible.get_attribute("id"))
    assert re.fullmatch(rf"Slide {number} of \d+", page.locator(".turn output").inner_text())
    assert page.evaluate("() => location.hash") == f"#{number}"
    return number


def test_keys_turn_slides(opener):
    page = open_deck(opener)
    last = page.locator(".slide").count()
    assert shown(page) == 1
    assert page.locator("h1:visible").inner_text() == TITLE
    for key, number in (
        ("ArrowRight", 2),
        ("ArrowDown", 3),
        ("PageDown", 4),
        (" ", 5),
        ("Shift+Space", 4),
        ("ArrowLeft", 3),
        ("ArrowUp", 2),
        ("PageUp", 1),
        ("ArrowLeft", 1),
        ("End", last),
        ("ArrowRight", last),
        ("Home", 1),
    ):
        page.keyboard.press(key)
        assert shown(page) == number, key


def test_buttons_clicks_and_addresses_turn_slides(opener):
    page = open_deck(opener, fragment="#3")
    assert shown(page) == 3
    page.get_by_role("button", name="Next slide").click()
    page.keyboard.press(" ")  # activates the button, once
    assert shown(page) == 5
    page.get_by_role("button", name="Previous slide").click()
    assert shown(page) == 4
    page.mouse.click(1000, 600)
    assert shown(page) == 5
    page.mouse.click(100, 600)
    assert shown(page) == 4
    page.evaluate("() => { location.hash = '#2'; }")
    page.wait_for_function("() => document.querySelector('.current').id === '2'")
    page.evaluate("() => { location.hash = '#nowhere'; }")
    page.wait_for_function("() => document.querySelector('.current').id === '1'")
    assert shown(page) == 1


def test_answers_unfold(opener):
    page = open_deck(opener, str(pages.ROOT / "lessons" / "2_softmax.json"), fragment="#99")
    page.keyboard.press("ArrowLeft")
    number = shown(page)
    answer = page.locator(".current summary", has_text="Answer").first
    answer.click()
    assert page.locator(".current details[open]").count() == 1
    page.keyboard.press("Enter")
    assert page.locator(".current details[open]").count() == 0
    assert shown(page) == number


def test_swipes_turn_slides(opener):
    page = open_deck(opener, size="phone")
    touch = page.context.new_cdp_session(page)

    def swipe(*places):
        for kind, place in zip(("touchStart", "touchMove", "touchEnd"), (*places, None), strict=True):
            points = [] if place is None else [{"x": place[0], "y": place[1]}]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        pages.settle(page)

    swipe((300, 500), (100, 510))
    assert shown(page) == 2
    swipe((300, 600), (310, 200))  # scrolls
    assert shown(page) == 2
    swipe((100, 500), (300, 510))
    assert shown(page) == 1


@pytest.mark.parametrize("name", ["001_your_journey", "two_heads", "overflow", "text_long"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_every_slide_fits(opener, name, size):
    page = open_deck(opener, name, size)
    for _ in range(page.locator(".slide").count()):
        wide, high, least, largest = page.evaluate(
            """() => {
              const slide = document.querySelector(".current"), sizes = [...slide.querySelectorAll("td, th")]
                  .map((cell) => parseFloat(getComputedStyle(cell).fontSize));
              return [document.documentElement.scrollWidth - innerWidth, slide.scrollHeight - slide.clientHeight,
                  Math.min(100, ...sizes), parseFloat(getComputedStyle(slide.querySelector("h1")).fontSize)];
            }"""
        )
        assert wide <= 0
        if size == "desktop":
            # The bar does not cover the slide: its padding is part of its height.
            assert high <= 1
            assert largest >= 28
        assert least >= 10.5
        page.keyboard.press("PageDown")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opener, scheme):
    for size in ("desktop", "phone"):
        page = open_deck(opener, "causal_mask", size, scheme)
        for _ in range(page.locator(".slide").count()):
            assert violations(page, "body", structure=scheme == "light") == []
            page.keyboard.press("PageDown")


def test_paper_has_a_page_per_slide(opener):
    page = open_deck(opener, "two_heads")
    content = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", content)) == page.locator(".slide").count()
    assert b"/MediaBox [0 0 960 540]" in content
    # On the screen, one slide is left.
    assert shown(page) == 1


def test_a_deck_without_script_has_all_slides(chromium):
    context = chromium.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 720})
    page = context.new_page()
    page.goto(deck("two_heads").as_uri())
    assert page.locator(".slide:visible").count() == page.locator(".slide").count() > 10
    context.close()
