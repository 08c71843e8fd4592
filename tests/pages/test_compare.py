# SPDX-License-Identifier: Apache-2.0
"""Two panes show the same place: a scene before and after edits, and two scenes."""

import functools
import re

import browser as pages
import pytest
from conftest import violations
from test_controls import chosen, framed

PANES = "#panes iframe"


@functools.cache
def both(first, second):
    """Writes the page of two scenes and returns its path."""
    path = pages.BUILD / "html" / f"{first}-{second}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    pages.explain(*pages.source(first), *pages.source(second), "--output", path)
    return path


def frames_of(page):
    """Returns the pages in the two panes."""
    found = [node.content_frame() for node in page.wait_for_selector("#panes").query_selector_all("iframe")]
    for frame in found:
        frame.wait_for_selector("#walk", state="attached")
    return found


def two_scenes(opener, size="desktop", first="causal_mask", second="two_heads", fragment=""):
    page = opener.blank(size)
    page.emulate_media(reduced_motion="reduce")
    page.goto(both(first, second).as_uri() + fragment)
    return page, *frames_of(page)


def compared(page):
    """Adds a causal mask and compares. `page` may be a frame."""
    page.locator("#edit-switch").click()
    page.locator("#causal").click()
    page.locator("#edit .compare").click()
    return frames_of(page)


def shows(frame, word=None, step=None):
    """Waits until a pane shows a word or the step of this name."""
    if word:
        frame.locator(".chips:visible [aria-pressed=true]", has_text=re.compile(f"^{word}$")).wait_for(state="attached")
        assert chosen(frame) == word
    if step:
        frame.wait_for_function(
            """(step) => {
              const found = document.querySelectorAll("section.step")[document.getElementById("walk").value];
              const {top} = found.getBoundingClientRect();
              return found.id === step && top >= 0 && top < innerHeight / 2;
            }""",
            arg=step,
        )


def cells(frame, step):
    return frame.locator(f"#step-{step} figure.map tbody td").all_text_contents()


def test_before_and_after_edits(opener):
    page = opener("001_your_journey")
    page.emulate_media(reduced_motion="reduce")
    original = cells(page, "weights")
    assert page.locator(".compare:visible").count() == 0, "nothing is edited yet"
    before, after = compared(page)
    assert page.locator("section.step:visible").count() == 0
    assert cells(before, "weights") == original
    assert cells(after, "weights")[1] == "\u00d7"
    assert after.locator("#edit").is_visible()
    assert before.locator("#edit-switch").is_hidden()

    # The word and the step of either pane are those of the other.
    before.locator(".chips button", has_text="one").click()
    shows(after, word="one")
    after.locator("#flow a[data-step=weights]").click()
    shows(before, step="step-weights")
    before.locator("#previous").click()
    number = int(before.locator("#walk").input_value())
    shows(after, step=before.locator("section.step").nth(number).get_attribute("id"))
    page.wait_for_function("() => location.hash.includes('word=one&compare&edit=')")

    # Edits that were made in the pane stay when it closes.
    after.locator("#scale").fill("2.5")
    after.locator("#edit .compare").click()
    page.locator("#panes").wait_for(state="detached")
    assert chosen(page) == "one"
    assert page.locator("#scale").input_value() == "2.5"
    assert page.locator(".compare:focus").count() == 1
    assert cells(page, "weights") != original


def test_an_address_opens_the_comparison(opener):
    page = opener("001_your_journey")
    after = compared(page)[1]
    after.locator(".chips button", has_text="step").first.click()
    page.wait_for_function("() => location.hash.includes('word=step&compare&edit=')")
    other = opener("001_your_journey", fragment=page.evaluate("() => location.hash"))
    for frame in frames_of(other):
        shows(frame, word="step")
    # Back at the original, nothing is left to compare.
    frames_of(other)[1].locator("#edit .reset").first.click()
    other.get_by_role("button", name="End the comparison").click()
    assert other.locator(".compare:visible").count() == 0


def test_two_scenes(opener):
    page, first, second = two_scenes(opener)
    assert page.locator("#panes h2").all_inner_texts() == [
        frame.locator("h1").inner_text() for frame in (first, second)
    ]
    # Side by side, and as high as the window.
    boxes = [frame.frame_element().bounding_box() for frame in (first, second)]
    assert [(box["x"] // 600, box["width"] // 100, box["height"] // 100) for box in boxes] == [(0, 6, 8), (1, 6, 8)]
    words = first.locator(".chips button").all_inner_texts()
    others = second.locator(".chips button").all_inner_texts()
    shows(second, word=others[words.index(chosen(first))])
    # By position, because none of these words is in both.
    assert not set(words) & set(others)
    first.locator(".chips button").first.click()
    shows(second, word=others[0])
    second.locator("#flow a[data-step=weights]").click()
    shows(first, step="step-weights")
    first.locator("#flow a[data-step=context]").click()
    shows(second, step="step-context")
    page.wait_for_function("(word) => location.hash.includes(`word=${word}`)", arg=words[0])


def test_words_of_the_same_name_and_heads(opener):
    _, first, second = two_scenes(opener, first="alibi_window", second="001_your_journey")
    second.locator(".chips button", has_text="one").click()
    shows(first, word="one")
    second.locator(".chips button", has_text="step").click()
    shows(first, word="six")  # there is no step: the word at its position
    _, first, second = two_scenes(opener, first="alibi_window", second="two_heads")
    first.locator("#head").select_option("1")
    second.wait_for_function("() => document.getElementById('head').value === '1'")
    second.locator("#head").select_option("0")
    first.wait_for_function("() => document.getElementById('head').value === '0'")


def test_the_theme_is_shared(opener):
    page, first, second = two_scenes(opener)
    first.get_by_role("button", name="Light or dark").click()
    for one in (page, second):
        one.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")


def test_edits_of_both_scenes_are_in_the_address(opener):
    page, first, second = two_scenes(opener)
    for frame, scale in ((first, "2"), (second, "3")):
        frame.locator("#edit-switch").click()
        frame.locator("#scale").fill(scale)
        assert frame.locator(".compare").count() == 0, "these panes compare scenes"
    page.wait_for_function("() => /&edit=.*&edit2=/.test(location.hash)")
    _, first, second = two_scenes(opener, fragment=page.evaluate("() => location.hash"))
    assert first.locator("#scale").input_value() == "2"
    assert second.locator("#scale").input_value() == "3"


def test_a_phone_shows_one_pane_at_a_time(opener):
    page, first, second = two_scenes(opener, "phone")
    tabs = page.locator("#panes .tabs button")
    assert page.locator(PANES).nth(1).is_hidden()
    first.locator(".chips button").last.tap()
    tabs.nth(1).tap()
    assert page.locator(PANES).nth(0).is_hidden()
    assert second.locator(".chips button").last.get_attribute("aria-pressed") == "true" or (
        second.locator(".chips button").count() != first.locator(".chips button").count()
    )
    for one in (page, second):
        assert one.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    box = second.frame_element().bounding_box()
    assert (box["x"], box["width"]) == (0, pages.PHONE["width"])
    assert box["height"] > 750


@pytest.mark.parametrize("size", pages.VIEWPORTS)
def test_axe_finds_nothing(opener, size):
    edited = opener("001_your_journey", size)
    panes = compared(edited)
    for one in (edited, *panes, two_scenes(opener, size)[0]):
        assert not violations(one, {"include": [".bar" if one in panes else ".tabs"]})


def test_in_the_frame_of_a_notebook(opener):
    _, frame = framed(opener, "001_your_journey", "desktop")
    before, after = compared(frame)
    before.locator(".chips button", has_text="one").click()
    shows(after, word="one")
    # Links within the page, which has no address of its own.
    after.locator("#flow a[data-step=weights]").click()
    shows(before, step="step-weights")


def test_paper_and_pages_without_a_script(opener):
    page, *_ = two_scenes(opener)
    page.emulate_media(media="print")
    assert page.locator(PANES).first.is_hidden()
    assert page.locator("h1:visible").count() == 2
    assert page.locator("figure.map:visible").count() > 10
