# SPDX-License-Identifier: Apache-2.0
"""Scenes: the page of `fovea explain` in a frame without an origin."""

import pytest
from playwright.sync_api import expect
from server import ROOT
from waiting import until

SCENES = ROOT / "examples" / "scenes"


@pytest.fixture
def server(viewer):
    return viewer(SCENES / "causal_mask.json", SCENES / "two_heads.json", SCENES / "emoji.json")


def frame(page):
    found = page.frame_locator("iframe")
    found.locator("#arcs path").first.wait_for(state="attached")
    return found


def test_the_page_of_the_scene_runs_in_a_frame(server, opener):
    page = opener(server, f"/scene/{server.id(0)}")
    scene = frame(page)
    assert scene.locator("h1").text_content() == "A causal mask: no word sees the future"
    # Its script runs: a word can be chosen.
    scene.locator(".chips button", has_text="read").click()
    assert scene.locator(".chips [aria-pressed=true]").text_content() == "read"
    box = page.locator("iframe")
    assert box.get_attribute("sandbox") == "allow-scripts allow-downloads"
    assert scene.locator("body").evaluate("() => { try { return !parent.document; } catch { return true; } }")


def test_the_list_leads_to_other_scenes(server, opener):
    page = opener(server, f"/scene/{server.id(0)}")
    frame(page)
    links = page.locator(".scene-list a")
    expect(links).to_have_count(3)
    assert page.locator(".scene-list [aria-current=page]").text_content() == "A causal mask: no word sees the future"
    links.nth(1).click()
    page.wait_for_url(f"**/scene/{server.id(1)}*")
    assert frame(page).locator("h1").text_content().startswith("Two heads")
    page.go_back()
    page.wait_for_url(f"**/scene/{server.id(0)}*")
    assert frame(page).locator("h1").text_content().startswith("A causal mask")


def test_the_address_has_the_place_in_the_scene(server, opener):
    page = opener(server, f"/scene/{server.id(0)}", "step=1&word=read")
    scene = frame(page)
    assert scene.locator(".chips [aria-pressed=true]").text_content() == "read"
    scene.locator(".chips button", has_text="right").click()
    until(page, "location.hash.includes('word=right')")
    again = opener.tab(page, server, f"/scene/{server.id(0)}", page.evaluate("location.hash.slice(1)"))
    assert frame(again).locator(".chips [aria-pressed=true]").text_content() == "right"


def test_the_frame_follows_the_theme(server, opener):
    page = opener(server, f"/scene/{server.id(0)}")
    scene = frame(page)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark colours").click()
    scene.locator("html[data-theme=dark]").wait_for()
    assert page.evaluate(paper) != light
    assert scene.locator("body").evaluate("body => getComputedStyle(body).backgroundColor") == page.evaluate(paper)


def test_the_theme_has_one_button(server, opener):
    page = opener(server, f"/scene/{server.id(0)}")
    expect(page.get_by_role("button", name="Dark colours")).to_be_visible()
    inner = frame(page).get_by_title("Light or dark")
    expect(inner).to_have_count(1)
    expect(inner).to_be_hidden()


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_a_single_scene_fills_the_window(viewer, opener, size):
    server = viewer(SCENES / "two_heads.json")
    page = opener(server, f"/scene/{server.id(0)}", size=size)
    frame(page)
    box, window = page.locator("iframe").bounding_box(), page.viewport_size
    assert box["x"] == 0
    assert box["width"] == window["width"]
    assert box["y"] + box["height"] == window["height"]
    assert box["y"] < 80


def test_an_unknown_scene_is_an_error(server, opener):
    page = opener(server, "/scene/nothing-00000000")
    assert page.get_by_role("alert").text_content() == "No open scene has this address."
