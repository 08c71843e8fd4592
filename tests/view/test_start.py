# SPDX-License-Identifier: Apache-2.0
"""The start page: cards of the open inputs, and files that change."""

import inputs
import pytest
from server import ROOT


@pytest.fixture
def recorded(tmp_path):
    """Returns the path of a recording of 3 layers x 2 heads."""
    path = tmp_path / "run.safetensors"
    inputs.recording(path, inputs.random_layers(3, 2, 40, 16), inputs.words(40), model="Tiny", source="the cat sat")
    return path


def facts(card):
    return dict(zip(card.locator("dt").all_text_contents(), card.locator("dd").all_text_contents(), strict=True))


def test_cards_describe_each_input(viewer, opener, recorded, tmp_path):
    inputs.tensors(tmp_path / "layer.safetensors", q_len=64, kv_len=96, head_dim=16)
    page = opener(viewer(recorded, tmp_path / "layer.safetensors"))
    page.wait_for_selector(".card")
    cards = page.locator(".card")
    assert cards.locator("h3").all_text_contents() == ["run.safetensors", "layer.safetensors"]
    first, second = facts(cards.nth(0)), facts(cards.nth(1))
    assert first["heads"] == "3 layers \u00d7 2 heads"
    assert first["shape"] == "40 tokens"
    assert first["vectors"] == "16 numbers, float32"
    assert "causal" in first["mask"]
    assert "KiB" in first["size"]
    assert second["shape"] == "64 queries \u00d7 96 keys"
    assert cards.nth(0).locator(".model").text_content() == "Tiny"
    assert cards.nth(0).locator(".source").text_content() == "the cat sat"
    assert cards.nth(0).locator(".links a").all_text_contents() == ["Heads", "Map", "Text"]
    assert cards.nth(1).locator(".links a").all_text_contents() == ["Map", "Heads"]


def test_scenes_have_their_title_and_words(viewer, opener):
    page = opener(viewer(ROOT / "examples" / "scenes" / "causal_mask.json"))
    card = page.locator(".card")
    card.wait_for()
    assert card.locator("h3").text_content() == "A causal mask: no word sees the future"
    assert card.locator(".file").text_content() == "causal_mask.json"
    assert card.locator(".source").text_content() == "We read from left to right"
    assert page.locator(".empty").count() == 0


def test_examples_come_with_the_commands_for_files(viewer, opener):
    page = opener(viewer())
    page.get_by_role("heading", name="Your own attention").wait_for()
    assert "16 examples open" in page.locator(".kind").text_content()
    assert "fovea view run.safetensors" in page.locator(".empty").text_content()
    titles = page.locator(".card h3").all_text_contents()
    assert titles[1] == "Your journey starts with one step"
    assert page.locator(".card .file").count() == 0


def test_a_single_head_opens_as_a_map(viewer, opener, tmp_path):
    inputs.tensors(tmp_path / "one.safetensors", q_len=64, head_dim=16)
    page = opener(viewer(tmp_path / "one.safetensors"))
    page.wait_for_selector(".card")
    assert page.locator(".card .links a").all_text_contents() == ["Map", "Heads"]
    assert "/map/" in page.locator(".card h3 a").get_attribute("href")


def test_links_open_the_pages_without_a_reload(viewer, opener, recorded):
    page = opener(viewer(recorded))
    page.evaluate("window.kept = true")
    for name, found in (("Heads", ".head-grid"), ("Text", ".text-flow")):
        page.locator(".card .links a", has_text=name).click()
        page.wait_for_selector(found)
        page.go_back()
        page.wait_for_selector(".card")
    assert page.evaluate("window.kept")


def test_a_changed_file_is_read_again(viewer, opener, recorded):
    page = opener(viewer(recorded))
    page.wait_for_selector(".card .links")
    inputs.recording(recorded, inputs.random_layers(4, 2, 50, 16), inputs.words(50))
    page.reload()
    notice = page.locator(".card .changed")
    notice.wait_for()
    assert "changed since it was opened" in notice.text_content()
    assert page.locator(".card .links").count() == 0
    page.get_by_role("button", name="Read again").click()
    page.wait_for_selector(".card .links")
    assert facts(page.locator(".card"))["heads"] == "4 layers \u00d7 2 heads"
    assert facts(page.locator(".card"))["shape"] == "50 tokens"


def test_nothing_open_explains_what_to_type(viewer, opener, recorded):
    server = viewer(recorded)
    page = opener(server)
    page.wait_for_selector(".card")
    nothing = {"version": "0.1.0", "embed": False, "memory": 1, "inputs": []}
    page.route("**/api/v1/inputs", lambda route: route.fulfill(json=nothing))
    page.reload()
    page.get_by_role("heading", name="Nothing is open yet").wait_for()
    assert "fovea view run.safetensors" in page.locator(".empty").text_content()


def test_names_are_text(viewer, opener, tmp_path):
    path = tmp_path / "run.safetensors"
    texts = inputs.HOSTILE
    inputs.recording(path, inputs.random_layers(1, 1, len(texts), 8), texts, model=texts[0], source=" ".join(texts[:4]))
    page = opener(viewer(path))
    assert page.locator(".card .model").text_content() == texts[0]
    source = page.locator(".card .source").text_content()
    assert "␛[31mred␇␀" in source
    assert "\\u202e" in source
    assert page.title() == "Fovea"


@pytest.mark.parametrize("size", ["large", "phone"])
def test_nothing_is_cut_off(viewer, opener, recorded, size):
    page = opener(viewer(recorded), size=size)
    page.wait_for_selector(".card")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_single_card_fills_the_width_of_the_page(viewer, opener, recorded):
    page = opener(viewer(recorded), size="large")
    card, start = page.locator(".card").bounding_box(), page.locator(".start").bounding_box()
    assert card["width"] > 0.9 * start["width"]
    assert start["x"] + start["width"] / 2 == pytest.approx(page.viewport_size["width"] / 2, abs=10)
