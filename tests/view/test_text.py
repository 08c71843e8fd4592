# SPDX-License-Identifier: Apache-2.0
"""A head as text: colours, averages, the mask, long texts, and what tokens may contain."""

import inputs
import numpy as np
import pytest
from playwright.sync_api import expect
from waiting import until

LIST = "/api/v1/inputs"  # asked for again and again, to notice a server that has gone
LENGTH = 120
HEAD = "1.2"


def field(page, name):
    return page.get_by_role("combobox", name=name, exact=True)


@pytest.fixture(scope="module")
def server(module_viewer):
    path = module_viewer.folder / "run.safetensors"
    module_viewer.layers = inputs.recording(path, inputs.random_layers(2, 3, LENGTH, 16), inputs.words(LENGTH))
    return module_viewer(path)


@pytest.fixture(scope="module")
def weights(server, module_viewer):
    query, key = module_viewer.layers[1]
    return inputs.weights(query[2], key[2], range(LENGTH))[0]


@pytest.fixture
def page(server, opener):
    page = opener(server, f"/text/{server.id()}/{HEAD}")
    page.wait_for_selector("[data-token='0']")
    return page


def token(page, position):
    return page.locator(f"[data-token='{position}']")


def colors(page):
    """Returns the strengths of the colours of all tokens, nan for hidden ones, after they have arrived."""
    until(page, "document.querySelector('[data-token].tinted')")
    return np.array(
        page.evaluate("""() => [...document.querySelectorAll("[data-token]")].map((node) =>
        node.classList.contains("hidden-token") ? NaN : Number(node.style.getPropertyValue("--v") || 0))""")
    )


def settle(page):
    """Waits until the weights that the page asked for are shown."""
    until(page, "document.querySelector('.text-page').dataset.weights === 'shown'")


def strengths(row, seen, tone="sqrt"):
    share = row / row[seen].max()
    return np.where(seen, np.sqrt(share) if tone == "sqrt" else share, np.nan)


def assert_colors(found, wanted):
    assert (np.isnan(found) == np.isnan(wanted)).all()
    # Three decimals, and nothing below 0.004.
    np.testing.assert_allclose(np.nan_to_num(found), np.nan_to_num(wanted), atol=0.0045)


# ---- colours ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 17, 60, 99, LENGTH - 1])
def test_colors_are_the_weights_of_the_token_under_the_pointer(page, weights, position):
    token(page, position).hover()
    settle(page)
    seen = np.arange(LENGTH) <= position
    assert_colors(colors(page), strengths(weights[position], seen))


def test_alt_shows_the_queries_that_attend_to_a_key(page, weights):
    token(page, 17).hover()
    settle(page)
    page.keyboard.down("Alt")
    settle(page)
    seen = np.arange(LENGTH) >= 17
    assert_colors(colors(page), strengths(weights[:, 17], seen))
    page.keyboard.up("Alt")
    settle(page)
    assert_colors(colors(page), strengths(weights[17], np.arange(LENGTH) <= 17))
    field(page, "Colours show").select_option(label="queries that attend to it")
    token(page, 30).hover()
    settle(page)
    assert_colors(colors(page), strengths(weights[:, 30], np.arange(LENGTH) >= 30))


def test_tones_need_no_request(page, weights):
    token(page, 60).click()
    settle(page)
    asked = []
    page.on("request", lambda request: asked.append(request.url) if not request.url.endswith(LIST) else None)
    field(page, "Tone").select_option(label="linear")
    seen = np.arange(LENGTH) <= 60
    assert_colors(colors(page), strengths(weights[60], seen, "linear"))
    page.get_by_label("Without the first token").check()
    seen_later = seen & (np.arange(LENGTH) > 0)
    found = colors(page)
    assert found[0] == 0
    assert_colors(found[1:], strengths(weights[60], seen_later, "linear")[1:])
    assert "skipped" in token(page, 0).get_attribute("class")
    assert asked == []


def test_the_average_of_several_tokens(page, weights):
    token(page, 20).click()
    token(page, 50).click(modifiers=["Shift"])
    token(page, 90).click(modifiers=["Shift"])
    settle(page)
    mean = weights[[20, 50, 90]].mean(axis=0)
    seen = np.arange(LENGTH) <= 90
    assert_colors(colors(page), strengths(mean, seen))
    assert page.locator(".text-panel .small").first.text_content().startswith("queries 20, 50 and 90, averaged")
    shown = page.locator(".top-weights .weight").all_text_contents()
    np.testing.assert_allclose([float(text) for text in shown], np.sort(mean)[::-1][: len(shown)], atol=6e-5)
    # The second click with Shift takes a token out again.
    token(page, 50).click(modifiers=["Shift"])
    settle(page)
    assert_colors(colors(page), strengths(weights[[20, 90]].mean(axis=0), seen))


def test_dragging_selects_a_range(page, weights):
    first, last = token(page, 40).bounding_box(), token(page, 44).bounding_box()
    page.mouse.move(first["x"] + 3, first["y"] + 10)
    page.mouse.down()
    page.mouse.move(last["x"] + 3, last["y"] + 10, steps=8)
    page.mouse.up()
    until(page, "location.hash === '#query=40,41,42,43,44'")
    settle(page)
    assert_colors(colors(page), strengths(weights[40:45].mean(axis=0), np.arange(LENGTH) <= 44))


# ---- locking ---------------------------------------------------------------------------------------------------


def test_a_click_locks_and_a_second_click_or_escape_unlocks(page, weights):
    token(page, 60).click()
    until(page, "location.hash === '#query=60'")
    token(page, 10).hover()
    settle(page)
    assert_colors(colors(page), strengths(weights[60], np.arange(LENGTH) <= 60))
    told = page.locator(".text-bubble").text_content()
    assert told.startswith("key 10: weight ")
    assert float(told.split()[-1]) == pytest.approx(weights[60, 10], abs=6e-5)
    token(page, 99).hover()
    assert page.locator(".text-bubble").text_content() == "key 99: hidden by the mask"
    page.keyboard.press("Escape")
    until(page, "location.hash === ''")
    token(page, 60).click()
    until(page, "location.hash === '#query=60'")
    token(page, 60).click()
    until(page, "location.hash === ''")


def test_keys_go_through_the_text(page, weights):
    page.locator(".text-flow").focus()
    page.keyboard.press("Home")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    settle(page)
    assert_colors(colors(page), strengths(weights[5], np.arange(LENGTH) <= 5))
    told = page.locator("#live").text_content()
    assert told.startswith("query 5 'dog'") or told.startswith("query 5 '" + inputs.words(6)[5].strip())
    below = token(page, 5).bounding_box()["y"]
    page.keyboard.press("ArrowDown")
    settle(page)
    assert page.locator(".token.cursor").bounding_box()["y"] > below
    page.keyboard.press("ArrowUp")
    assert page.locator(".token.cursor").get_attribute("data-token") == "5"
    page.keyboard.press("Enter")
    until(page, "location.hash === '#query=5'")
    page.keyboard.press("Shift+ArrowRight")
    until(page, "location.hash === '#query=5,6'")
    page.keyboard.press("Escape")
    until(page, "location.hash === ''")


def test_another_head_keeps_the_selection(page, server, module_viewer):
    token(page, 60).click()
    until(page, "location.hash === '#query=60'")
    page.get_by_role("button", name="Previous head").click()
    page.wait_for_url(f"**/text/{server.id()}/1.1#query=60")
    page.wait_for_selector(".tinted")
    settle(page)
    query, key = module_viewer.layers[1]
    wanted = inputs.weights(query[1], key[1], [60])[0][0]
    assert_colors(colors(page), strengths(wanted, np.arange(LENGTH) <= 60))
    page.keyboard.press("L")
    page.wait_for_url(f"**/text/{server.id()}/0.1#query=60")
    page.go_back()
    page.wait_for_url(f"**/text/{server.id()}/1.1#query=60")
    page.wait_for_selector(".text-panel .chosen-token")


def test_a_link_shows_the_same(page, server, opener):
    token(page, 60).click()
    field(page, "Tone").select_option(label="logarithm")
    page.get_by_label("Without the first token").check()
    until(page, "location.hash.includes('hide=1')")
    settle(page)
    again = opener.tab(page, server, f"/text/{server.id()}/{HEAD}", page.evaluate("location.hash.slice(1)"))
    again.wait_for_selector(".tinted")
    settle(again)
    np.testing.assert_array_equal(colors(again), colors(page))


def test_nonsense_in_the_address_gives_the_defaults(server, opener):
    page = opener(server, f"/text/{server.id()}/{HEAD}", "query=5,999&tone=pink&hide=yes&at=-3&key=a")
    page.wait_for_selector(".tinted")
    assert page.locator(".text-panel .small").first.text_content().startswith("query 5; locked")
    assert field(page, "Tone").input_value() == "sqrt"
    other = opener.tab(page, server, f"/text/{server.id()}/7.7")
    assert "has no head 7.7" in other.get_by_role("alert").text_content()


# ---- tokens ----------------------------------------------------------------------------------------------------


def test_tokens_are_text(viewer, opener, tmp_path):
    path, texts = tmp_path / "hostile.safetensors", inputs.HOSTILE
    inputs.recording(path, inputs.random_layers(1, 1, len(texts), 8), texts)
    server = viewer(path)
    page = opener(server, f"/text/{server.id()}/0.0", size="phone")
    page.wait_for_selector("[data-token='0']")
    shown = page.locator("[data-token]").all_text_contents()
    assert shown[0] == texts[0]
    assert shown[1] == texts[1]
    assert shown[2] == "␛[31mred␇␀"
    assert shown[3].startswith("\\u202e")
    assert len(shown[4]) == 300
    assert shown[4].endswith("a…")
    assert shown[5] == texts[5]
    assert "␊" in shown[6]
    assert shown[-1] == "猫"
    assert page.title().startswith("layer 0, head 0")
    assert page.locator("img").count() == 0
    assert page.evaluate("document.querySelector('.text-flow').scrollWidth <= innerWidth")
    token(page, len(texts) - 1).click()
    page.wait_for_selector(".top-weights tbody tr")
    assert texts[0][:10] in page.locator(".top-weights").text_content()


def test_scripts_without_spaces_wrap(viewer, opener, tmp_path):
    path, texts = tmp_path / "run.safetensors", list("猫坐在垫子上看着窗外的鸟") * 20
    inputs.recording(path, inputs.random_layers(1, 1, len(texts), 8), texts)
    server = viewer(path)
    page = opener(server, f"/text/{server.id()}/0.0", size="phone")
    page.wait_for_selector("[data-token='0']")
    boxes = [token(page, i).bounding_box() for i in range(60)]
    assert len({round(box["y"]) for box in boxes}) > 1
    assert all(box["x"] + box["width"] <= 390 for box in boxes)
    # Characters of a line touch.
    assert 0 <= boxes[1]["x"] - boxes[0]["x"] - boxes[0]["width"] < 3


def test_queries_and_keys_with_different_tokens(viewer, opener, tmp_path):
    path = tmp_path / "layer.safetensors"
    ((query, key),) = inputs.tensors(path, q_len=20, kv_len=30, head_dim=16)
    server = viewer(path)
    page = opener(server, f"/text/{server.id()}/0.0")
    flows = page.locator(".text-flow")
    expect(flows).to_have_count(2)
    wanted = inputs.weights(query[0, 0], key[0, 0], range(20), mask="none")[0]
    flows.nth(0).locator("[data-token='4']").click()
    settle(page)
    found = (
        flows.nth(1)
        .locator("[data-token]")
        .evaluate_all("nodes => nodes.map((node) => Number(node.style.getPropertyValue('--v') || 0))")
    )
    assert_colors(np.array(found), strengths(wanted[4], np.ones(30, bool)))
    page.keyboard.press("Escape")
    flows.nth(1).locator("[data-token='7']").click()
    settle(page)
    found = (
        flows.nth(0)
        .locator("[data-token]")
        .evaluate_all("nodes => nodes.map((node) => Number(node.style.getPropertyValue('--v') || 0))")
    )
    assert_colors(np.array(found), strengths(wanted[:, 7], np.ones(20, bool)))


# ---- long texts ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long(module_viewer):
    length, folder = 131_072, module_viewer.folder
    texts = inputs.words(length)
    texts[100_000] = " needle"
    inputs.tensors(folder / "long.safetensors", q_len=length, head_dim=16)
    tokens = inputs.token_file(folder / "long.txt", texts)
    return module_viewer(folder / "long.safetensors", "--tokens", tokens, "--window", "255,0")


def test_long_texts_scroll(long, opener):
    page = opener(long, f"/text/{long.id()}/0.0")
    page.wait_for_selector("[data-token='0']")
    assert page.locator("[data-token]").count() < 3000
    page.locator(".text-flow").evaluate("node => node.scrollTop = node.scrollHeight / 2")
    until(page, "Number(/at=(\\d+)/.exec(location.hash)?.[1] ?? 0) > 50000")
    assert page.locator("[data-token]").count() < 3000
    page.locator(".text-flow").focus()
    page.keyboard.press("End")
    token(page, 131_071).wait_for()
    assert token(page, 131_071).bounding_box()["y"] < 900


def test_a_link_leads_to_a_place_in_a_long_text(long, opener):
    page = opener(long, f"/text/{long.id()}/0.0", "at=100000")
    needle = token(page, 100_000)
    needle.wait_for()
    assert needle.text_content() == "needle"
    page.wait_for_timeout(500)
    top = page.locator(".text-flow").bounding_box()["y"]
    assert top - 5 <= needle.bounding_box()["y"] < top + 80


def test_a_link_to_a_locked_token_shows_it(viewer, opener, tmp_path):
    length = 4096
    inputs.recording(tmp_path / "long.safetensors", inputs.random_layers(1, 1, length, 16), inputs.words(length))
    server = viewer(tmp_path / "long.safetensors")
    for side in ("query", "key"):
        page = opener(server, f"/text/{server.id()}/0.0", f"{side}=3000")
        chosen = page.locator(".text-flow .chosen-token")
        chosen.wait_for()
        box, flow = chosen.bounding_box(), page.locator(".text-flow").bounding_box()
        assert flow["y"] < box["y"] < flow["y"] + flow["height"]
