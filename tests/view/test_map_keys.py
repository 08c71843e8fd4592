# SPDX-License-Identifier: Apache-2.0
"""A map by keys alone, and for readers of screens."""

import inputs
import maps
import pytest
from conftest import violations


@pytest.fixture(scope="module")
def server(module_viewer):
    path = module_viewer.folder / "run.safetensors"
    inputs.recording(path, inputs.random_layers(2, 3, 600, 32), inputs.words(600))
    return module_viewer(path)


def focused(page):
    return page.evaluate("document.activeElement?.className ?? ''")


def test_from_the_address_to_a_cell_its_table_another_head_and_an_export(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0")
    maps.ready(page)
    for _ in range(60):
        page.keyboard.press("Tab")
        if focused(page) == "matrix":
            break
    assert focused(page) == "matrix"
    page.keyboard.press("1")  # tokens of 16 pixels
    maps.ready(page)
    for key in ["ArrowDown", "ArrowLeft", "ArrowLeft"]:
        page.keyboard.press(key)
    maps.ready(page)
    cursor = maps.state(page)["cursor"]
    live = page.locator("#live")
    maps.wait_until(lambda: live.text_content().startswith(f"query {cursor['query']} '"))
    assert "weight" in live.text_content()
    page.keyboard.press("Enter")
    maps.wait_until(lambda: maps.state(page)["locked"] == cursor)

    page.keyboard.press("a")
    page.wait_for_selector(".cells .at")
    assert page.locator(".cells .at").text_content() != "hidden"
    page.keyboard.press("Escape")
    maps.wait_until(lambda: focused(page) == "matrix")
    assert maps.state(page)["locked"] == cursor

    page.keyboard.press("h")
    maps.wait_until(lambda: maps.state(page)["head"] == 1)
    page.keyboard.press("l")
    maps.wait_until(lambda: maps.state(page)["layer"] == "1")
    page.keyboard.press("L")
    maps.wait_until(lambda: maps.state(page)["layer"] == "0")
    assert focused(page) == "matrix"

    page.keyboard.press("e")
    page.wait_for_selector("dialog[open]")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save").focus()
        page.keyboard.press("Enter")
    assert download.value.suggested_filename.endswith(".png")
    page.keyboard.press("Escape")
    maps.wait_until(lambda: focused(page) == "matrix")
    page.keyboard.press("Escape")
    assert maps.state(page)["locked"] is None


def test_every_key_of_the_help(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0")
    maps.ready(page)
    page.keyboard.press("?")
    page.wait_for_selector(".keys")
    assert page.locator(".keys tr").count() >= 20
    page.keyboard.press("Escape")
    page.locator(maps.CANVAS).focus()
    before = maps.state(page)
    for key, field in [("m", "reduce"), ("t", "tone"), ("c", "colormap")]:
        page.keyboard.press(key)
        assert maps.state(page)[field] != before[field] or field == "reduce"
    page.keyboard.press("r")
    assert maps.state(page)["panel"] == "row"
    page.keyboard.press("q")
    assert maps.state(page)["panel"] == "column"
    page.keyboard.press("2")
    assert maps.ready(page)["scale"] == 1
    at = maps.state(page)["at"]
    page.keyboard.press("Shift+ArrowRight")
    assert maps.ready(page)["at"][1] > at[1]
    page.keyboard.press("0")
    assert maps.ready(page)["whole"]
    # A rectangle by its corners.
    page.keyboard.press("g")
    page.keyboard.type("100, 50")
    page.keyboard.press("Enter")
    page.keyboard.press("[")
    page.keyboard.press("g")
    page.keyboard.type("140, 90")
    page.keyboard.press("Enter")
    page.keyboard.press("]")
    page.keyboard.press("Enter")
    visible = maps.ready(page)["visible"]
    first, end = visible["queries"]
    assert first <= 100
    assert 141 <= end < first + 80
    # A position that does not exist.
    page.keyboard.press("g")
    page.keyboard.type("600")
    page.keyboard.press("Enter")
    assert "Expected a query from 0 to 599" in page.locator("dialog").text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["large", "phone"])
def test_axe(server, opener, scheme, size):
    page = opener(server, f"/map/{server.id()}/0.0", "query=400&key=300&panel=row&find=cat", size=size, scheme=scheme)
    maps.ready(page)
    page.wait_for_selector(".line .top")
    assert violations(page, contrast="html") == []
    page.get_by_role("button", name="Export").click()
    assert violations(page, contrast="dialog") == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Table", exact=True).click()
    page.wait_for_selector(".cells .at")
    assert violations(page, contrast="dialog") == []


def test_nothing_is_cut_off_at_twice_the_size(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0", "query=400&key=300&panel=row", size="large")
    maps.ready(page)
    page.set_viewport_size({"width": 960, "height": 540})  # what 200 % leaves of 1920 x 1080
    maps.ready(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 960
    for name in ["Copy link", "Export", "Help"]:
        assert page.get_by_role("button", name=name).is_visible()


def test_a_phone_has_its_map_and_the_locked_cell_without_scrolling(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0", "query=400&key=300", size="phone")
    maps.ready(page)
    assert page.locator("#bar").bounding_box()["height"] < 160
    assert page.locator(".panel .facts").bounding_box()["y"] < page.viewport_size["height"]
    page.get_by_role("button", name="Export").click()  # scrolls into view
    page.wait_for_selector("dialog")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
