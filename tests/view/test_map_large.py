# SPDX-License-Identifier: Apache-2.0
"""Maps of many tokens: zooming keeps the pair under the pointer, a single large weight can be seen and locked at every
level, and search finds words."""

import inputs
import maps
import numpy as np
import pytest

LENGTH = 1 << 20
PLANTED = {"query": 77_777, "key": 12_345}


@pytest.fixture(scope="module")
def wide(module_viewer):
    path = module_viewer.folder / "wide.safetensors"
    inputs.wide(path)
    draw = np.random.default_rng(4)
    texts = [inputs.WORDS[i] for i in draw.integers(0, len(inputs.WORDS), LENGTH)]
    texts[5], texts[999_999] = "👩\u200d🚀cat", "Cat"
    tokens = inputs.token_file(module_viewer.folder / "tokens.txt", texts)
    server = module_viewer(path, *inputs.WIDE, "--causal", "--tokens", tokens)
    server.texts = texts
    return server


def test_zooming_keeps_the_pair_under_the_pointer(wide, opener):
    page = opener(wide, f"/map/{wide.id()}/0.0", size="large")
    page.wait_for_selector(maps.CANVAS)
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 500))")
    box = page.locator(maps.CANVAS).bounding_box()
    # On the diagonal, and off the centre of the view.
    x, y = map(round, maps.place(page, 400_000, 400_000))
    page.mouse.move(x, y)
    before = page.evaluate("([x, y]) => fovea.tokenAt(x, y)", [x - box["x"], y - box["y"]])
    scale = maps.state(page)["scale"]
    while maps.state(page)["scale"] > 1 / 60:
        page.mouse.wheel(0, -400)
        page.wait_for_timeout(20)
        now = page.evaluate("([x, y]) => fovea.tokenAt(x, y)", [x - box["x"], y - box["y"]])
        finer = maps.state(page)["scale"]
        assert finer < scale
        # A pixel of the first view is 1,000 tokens; the position is kept to a pixel of the finest one.
        assert np.abs(np.subtract(now, before)).max() <= finer
        scale = finer
    maps.ready(page)
    now = page.evaluate("([x, y]) => fovea.tokenAt(x, y)", [x - box["x"], y - box["y"]])
    assert np.abs(np.subtract(now, before)).max() <= scale
    # What is shown there is what the server says.
    page.mouse.move(x + 1, y)
    maps.ready(page)
    facts = maps.facts(page)
    assert int(facts["query"].split()[0].replace(",", "")) == int(before[0])
    while not maps.state(page)["whole"]:
        page.keyboard.press("0")
    assert maps.state(page)["scale"] == pytest.approx(LENGTH / 900, rel=0.2)


def test_search(wide, opener):
    page = opener(wide, f"/map/{wide.id()}/0.0", "at=500000,500000&scale=1")
    page.wait_for_selector(maps.CANVAS)
    folded = [i for i, text in enumerate(wide.texts) if "cat" in text.lower()]
    page.keyboard.press("/")
    page.keyboard.type("cat")
    told = page.locator(".search output")
    maps.wait_until(lambda: told.text_content() == f"{len(folded):,} matches")
    page.keyboard.press("Enter")
    assert maps.wait_until(lambda: maps.state(page)["match"] == folded[0])
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("👩\u200d🚀cat")
    maps.wait_until(lambda: told.text_content() == "1 match")
    page.get_by_role("button", name="Match case").click()
    page.get_by_label("Search in tokens").fill("Cat")
    maps.wait_until(lambda: maps.state(page)["find"] == "Cat" and told.text_content() == "1 match")
    page.get_by_role("button", name="Next match").click()
    maps.wait_until(lambda: maps.state(page)["match"] == 999_999)
    first, end = maps.state(page)["visible"]["keys"]
    assert first < 999_999 < end
    assert told.text_content() == "1 of 1"
    maps.wait_until(lambda: "find=Cat" in maps.address(page))


def test_a_match_is_shown_where_its_token_can_be_read(wide, opener):
    page = opener(wide, f"/map/{wide.id()}/0.0")
    assert maps.ready(page)["level"] > 0
    page.keyboard.press("/")
    page.keyboard.type("👩\u200d🚀cat")
    maps.wait_until(lambda: page.locator(".search output").text_content() == "1 match")
    page.keyboard.press("Enter")
    at = next(i for i, text in enumerate(wide.texts) if "👩\u200d🚀cat" in text)
    maps.wait_until(lambda: maps.state(page)["cursor"] == {"query": at, "key": at})
    assert maps.ready(page)["level"] == 0
    for first, end in maps.state(page)["visible"].values():
        assert first < at < end <= first + 100


def test_search_goes_round(wide, opener):
    page = opener(wide, f"/map/{wide.id()}/0.0", "at=500000,500000&scale=1&find=sat")
    page.wait_for_selector(maps.CANVAS)
    found = [i for i, text in enumerate(wide.texts) if text == "sat"]
    told = page.locator(".search output")
    maps.wait_until(lambda: told.text_content() == f"{len(found):,} matches")
    page.locator(maps.CANVAS).focus()
    for expected in [found[0], found[1], found[2]]:
        page.keyboard.press("n")
        maps.wait_until(lambda expected=expected: maps.state(page)["match"] == expected)
    for expected in [found[1], found[0]]:
        page.keyboard.press("p")
        maps.wait_until(lambda expected=expected: maps.state(page)["match"] == expected)


@pytest.fixture(scope="module")
def planted(module_viewer):
    path = module_viewer.folder / "planted.safetensors"
    inputs.planted(path, **PLANTED)
    server = module_viewer(path)
    server.wait_for_pass()
    return server


def test_a_planted_weight_is_seen_and_locked_at_every_level(planted, opener):
    page = opener(planted, f"/map/{planted.id()}/0.0")
    seen = set()
    while True:
        level = maps.ready(page)["level"]
        seen.add(level)
        size = 2**level
        middle = [(PLANTED[side] // size + 0.5) * size - 0.5 for side in ("query", "key")]
        page.mouse.move(5, 5)
        # The end of viridis.
        assert maps.color(page, *middle) == pytest.approx((0xFD, 0xE7, 0x25), abs=1)
        box = page.locator(maps.CANVAS).bounding_box()
        cx, cy = page.evaluate("([q, k]) => fovea.pixelOf(q, k)", middle)
        page.mouse.click(box["x"] + cx, box["y"] + cy)
        maps.wait_until(lambda: maps.state(page)["locked"] == PLANTED)
        maps.ready(page)
        assert maps.number(maps.facts(page)["weight"]) == pytest.approx(1, abs=1e-6)
        page.keyboard.press("Escape")
        assert maps.state(page)["locked"] is None
        if level == 0:
            break
        page.mouse.move(*maps.place(page, **PLANTED))
        page.mouse.wheel(0, -433)  # half the scale
    assert seen == set(range(max(seen) + 1))
