# SPDX-License-Identifier: Apache-2.0
"""The walk through the steps, and the address that keeps the place."""

import pytest


def step(page):
    """Returns the number of the current step, after comparing the slider with its label."""
    value = int(page.locator("#walk").input_value())
    assert page.locator("#walked").inner_text().startswith(str(value + 1))
    return value + 1


def top(page, number):
    """Returns the distance of a step's top from that of the window."""
    return page.locator("section.step").nth(number - 1).evaluate("(node) => node.getBoundingClientRect().top")


def hash_of(page, part):
    page.wait_for_function("(part) => location.hash.includes(part)", arg=part)
    return page.evaluate("() => location.hash")


@pytest.fixture
def page(opener):
    page = opener("001_your_journey")
    page.emulate_media(reduced_motion="reduce")
    return page


def test_buttons_and_keys_walk(page):
    assert step(page) == 1
    page.get_by_role("button", name="Next step").click()
    page.get_by_role("button", name="Next step").click()
    assert step(page) == 3
    assert 0 <= top(page, 3) < 300
    page.get_by_role("button", name="Previous step").click()
    assert step(page) == 2
    for key in ("n", "]", "]", "p", "["):
        page.keyboard.press(key)
    assert step(page) == 3
    page.locator("#walk").focus()
    page.keyboard.press("n")
    assert step(page) == 3, "keys belong to an input that has the focus"
    count = page.locator("section.step").count()
    for _ in range(count + 3):
        page.get_by_role("button", name="Next step").click()
    assert step(page) == count


def test_play_stops_at_an_interaction_and_at_the_end(opener):
    page = opener.blank()
    page.clock.install()
    page.emulate_media(reduced_motion="reduce")
    page.goto(opener.address("001_your_journey"))
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(4100)
    assert step(page) == 2
    page.mouse.wheel(0, 10)
    page.get_by_role("button", name="Play").wait_for()
    page.clock.run_for(9000)
    assert step(page) == 2
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(200_000)
    assert step(page) == page.locator("section.step").count()
    assert page.get_by_role("button", name="Play").count() == 1


def test_the_address_is_kept_and_read(page, opener):
    assert page.evaluate("() => location.hash") == "", "opening a page changes no address"
    page.locator(".chips button").nth(4).click()
    hash_of(page, "word=one")
    page.get_by_role("button", name="Next step").click()
    fragment = hash_of(page, "step=2")
    assert fragment == "#step=2&word=one"

    other = opener("001_your_journey", fragment="#step=4&word=with")
    assert step(other) == 4
    assert other.locator(".chips [aria-pressed=true]").inner_text() == "with"
    other.evaluate("() => { location.hash = '#word=step'; }")
    other.wait_for_function("() => document.querySelector('.chips [aria-pressed=true]').textContent === 'step'")


def test_addresses_of_batches_and_repeated_words(opener):
    page = opener("padded_batch", fragment="#item=1&word=tree")
    assert page.locator(".chips:visible [aria-pressed=true]").inner_text() == "tree"
    page.locator("#bar select").select_option("0")
    page.locator(".chips:visible button").last.click()
    assert hash_of(page, "word=%403") == "#step=1&word=%403&item=0"


@pytest.mark.parametrize(
    "fragment", ["#word=nobody", "#step=99&word=@77", "#step=-1", "#word=%E0%A4%A", "#a=b&&=", "#step-scores"]
)
def test_strange_addresses_do_no_harm(opener, fragment):
    page = opener("001_your_journey", fragment=fragment)
    assert page.locator(".chips [aria-pressed=true]").inner_text() == "journey"


def test_links_lead_to_their_place(opener):
    page = opener("001_your_journey", fragment="#word=one")
    page.get_by_role("button", name="Copy a link").click()
    link = page.evaluate("() => navigator.clipboard.readText()")
    assert link.startswith("file:")
    assert "word=one" in link
