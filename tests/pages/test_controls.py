# SPDX-License-Identifier: Apache-2.0
"""The page's controls, with keyboard, mouse and finger, in a tab of its own and in the frame of a notebook."""

import html
import json

import browser as pages
import pytest
from conftest import rendered


def chosen(page):
    """Returns the word that the story is about, after comparing it with the chip that is pressed."""
    pressed = page.locator(".chips:visible button[aria-pressed=true]")
    assert pressed.count() == 1
    told = page.locator("#story-word .focus-word").first.text_content()
    assert pressed.text_content() == told
    return told


def active(page, expression):
    return page.evaluate(f"() => {{ const node = document.activeElement; return {expression}; }}")


def tab_to(page, selector, most=80):
    """Presses Tab until an element that matches is focused."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if active(page, f"node.matches({json.dumps(selector)})"):
            return
    raise AssertionError(f"no {selector} within {most} tab stops; at {active(page, 'node.outerHTML.slice(0, 200)')}")


def position(page):
    return active(page, "[node.parentNode.sectionRowIndex, node.cellIndex]")


def test_the_keyboard_chooses_words(opener):
    page = opener("001_your_journey")
    assert chosen(page) == "journey"
    page.keyboard.press("Tab")
    assert active(page, "node.matches('a.skip')")
    tab_to(page, ".chips button")
    page.keyboard.press("Enter")
    assert chosen(page) == "Your"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert chosen(page) == "with"
    assert active(page, "node.textContent") == "with", "the focus stays at the chip"


def test_arrows_move_in_a_table_and_escape_closes(opener):
    page = opener("001_your_journey")
    bubble = page.locator("#made")
    # One tab stop per matrix: the walk through the page stays short.
    assert page.locator("#step-scores figure.map td[tabindex='0']").count() == 1
    page.locator("#step-scores figure.map td[tabindex='0']").focus()
    assert position(page) == [0, 1]
    assert bubble.is_visible()
    first = bubble.inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert position(page) == [2, 2]
    assert bubble.is_visible()
    assert bubble.inner_text() != first
    for key in ("ArrowLeft", "ArrowLeft", "ArrowUp", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)
    assert position(page) == [0, 1], "arrows end at the edges"
    page.keyboard.press("Escape")
    assert bubble.is_hidden()
    assert position(page) == [0, 1], "Escape keeps the focus"
    page.keyboard.press("Tab")
    assert not active(page, "node.closest('#step-scores figure.map')?.querySelector('table').contains(node)")


def test_the_tooltip_of_the_focus_stays_at_its_cell_when_the_page_scrolls(opener):
    page = opener("001_your_journey")
    page.mouse.move(400, 300)
    cell, bubble = page.locator("#step-scores figure.map td[tabindex='0']"), page.locator("#made")
    cell.focus()
    for _ in range(2):
        pages.settle(page)
        assert bubble.is_visible(), "other cells come under the mouse, which is at rest"
        assert abs(bubble.bounding_box()["y"] - cell.bounding_box()["y"]) < 300
        page.evaluate("scrollBy(0, 100)")
    page.mouse.move(500, 20)
    assert bubble.is_hidden()


def test_what_a_number_was_made_of_is_lit(opener):
    page = opener("001_your_journey")
    page.locator("#step-context figure.map tbody td").first.hover()
    lit = page.locator(".lit")
    # The row of weights and the column of values: six numbers each.
    assert lit.count() == 12
    page.mouse.move(0, 0)
    assert lit.count() == 0


def test_a_row_heading_chooses_its_word(opener):
    page = opener("001_your_journey")
    page.locator("#step-scores figure.map tbody th").nth(4).click()
    assert chosen(page) == "one"


@pytest.mark.parametrize("name", pages.page_names())
def test_a_finger_is_enough(opener, name):
    page = opener(name, "phone")
    words = page.locator(".chips:visible button")
    words.last.tap()
    assert words.last.get_attribute("aria-pressed") == "true"
    cells = page.locator("figure.map:visible tbody td:not(.odd)")
    if cells.count() > 0:  # not on pages of many words, where matrices are pictures
        cells.first.tap()
        bubble = page.locator("#made")
        assert bubble.is_visible()
        box = bubble.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= pages.PHONE["width"]


def test_items_of_a_batch(opener):
    page = opener("padded_batch")
    select = page.locator("#bar select")
    select.select_option("1")
    assert page.locator(".chips:visible").get_attribute("data-item") == "1"
    shown = page.locator("figure.map:visible").evaluate_all("(all) => all.map((one) => one.dataset.item)")
    assert set(shown) <= {"1", "-1"}
    select.select_option("0")
    assert page.locator(".chips:visible").get_attribute("data-item") == "0"


def test_light_and_dark(opener):
    page = opener("001_your_journey")
    scheme = "() => getComputedStyle(document.documentElement).colorScheme"
    assert page.evaluate(scheme) != "dark"
    button = page.get_by_role("button", name="Light or dark")
    button.click()
    assert page.evaluate(scheme) == "dark"
    button.click()
    assert page.evaluate(scheme) == "light"


def test_numbers_are_copied(opener):
    page = opener("001_your_journey")
    expected = json.loads(pages.explain(*pages.source("001_your_journey"), "--format", "json"))
    scores = next(step for step in expected["steps"] if step["name"] == "scores")["values"]
    page.get_by_role("button", name="Copy Scores as JSON").click()
    copied = json.loads(page.evaluate("() => navigator.clipboard.readText()"))
    assert copied == scores
    page.get_by_role("button", name="Copy Scores as NumPy").click()
    assert page.evaluate("() => navigator.clipboard.readText()").startswith("np.array([[")


def test_markup_in_words_stays_text(opener):
    page = opener("text_markup")
    assert page.locator("img").count() == 0
    assert page.locator(".chips button").first.inner_text() == "<img"


def framed(opener, name, size):
    """Opens a page as notebooks show it: in a frame without an address of its own, 780 px high."""
    page = opener.blank(size)
    text = html.escape(rendered(name).read_text(encoding="utf-8"))
    page.set_content(
        '<!doctype html><html lang="en"><title>notebook</title><main><h1>Cell</h1>'
        f'<iframe title="scene" srcdoc="{text}" style="width: 100%; height: 780px; border: 1px solid"></iframe></main>'
    )
    frame = page.frames[1]
    frame.wait_for_selector(".chips button")
    return page, frame


@pytest.mark.parametrize("size", pages.VIEWPORTS)
def test_in_the_frame_of_a_notebook(opener, size):
    page, frame = framed(opener, "001_your_journey", size)
    assert chosen(frame) == "journey"
    frame.locator(".chips button").nth(4).click()
    assert chosen(frame) == "one"
    frame.locator("#next").click()
    frame.locator("#next").click()
    assert frame.locator("#walk").input_value() == "2"
    cell = frame.locator("#step-weights figure.map tbody td").first
    cell.click()
    assert frame.locator("#made").is_visible()
    assert frame.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("() => scrollX") == 0
