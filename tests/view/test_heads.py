# SPDX-License-Identifier: Apache-2.0
"""The heads of a recording: the grid, its order and filters, one head as matrix and arcs, and the scatter plot."""

import json
import subprocess

import browser as pages
import inputs
import numpy as np
import pytest
from playwright.sync_api import expect
from server import FOVEA
from waiting import until

LAYERS, HEADS, LENGTH = 30, 9, 96


def field(page, name):
    return page.get_by_role("combobox", name=name, exact=True)


@pytest.fixture(scope="module")
def recorded(module_viewer):
    path = module_viewer.folder / "model.safetensors"
    layers = inputs.patterned_layers(LAYERS, HEADS, LENGTH)
    inputs.recording(path, layers, inputs.words(LENGTH))
    return path


@pytest.fixture(scope="module")
def server(module_viewer, recorded):
    return module_viewer(recorded)


@pytest.fixture(scope="module")
def told(recorded):
    """Returns what `fovea heads` says, by (layer, head)."""
    result = subprocess.run([FOVEA, "heads", recorded, "--json"], check=True, capture_output=True, text=True)
    return {(head["layer"], head["head"]): head for head in json.loads(result.stdout)["heads"]}


@pytest.fixture
def page(server, opener):
    page = opener(server, f"/heads/{server.id()}")
    page.wait_for_selector(".head canvas.drawn")
    return page


def cell(page, layer, head):
    return page.locator(f'.head[data-key="{layer}.{head}"]')


def scroll_through(page):
    """Scrolls through the grid, whose rows are filled when they come into view."""
    page.evaluate("""async () => {
      const body = document.querySelector(".heads-body");
      for (let top = 0; top < body.scrollHeight; top += body.clientHeight / 2) {
        body.scrollTop = top;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }""")


def opened(page):
    panel = page.locator(".head-panel")
    return panel.locator("h2").text_content() if panel.is_visible() else None


# ---- the grid --------------------------------------------------------------------------------------------------


def test_every_thumbnail_is_drawn_and_named_as_by_fovea_heads(page, told):
    expect(page.locator(".head")).to_have_count(LAYERS * HEADS)
    scroll_through(page)
    until(page, f"document.querySelectorAll('.head canvas.drawn').length === {LAYERS * HEADS}")
    until(page, "[...document.querySelectorAll('.head-number')].every((node) => node.textContent)")
    shown = page.evaluate("""() => [...document.querySelectorAll(".head")].map((node) =>
        [node.dataset.key, node.title, node.querySelector(".head-number").textContent])""")
    assert len(shown) == len(told)
    names = set()
    for key, name, number in shown:
        wanted = told[tuple(map(int, key.split(".")))]
        assert name == (wanted["name"] or ""), key
        assert abs(float(number) - wanted["entropy"]) <= 0.0051 * max(0.1, wanted["entropy"]), key
        names.add(name)
    assert {"previous token", "own token", "sink", "uniform", ""} <= names


def test_a_thumbnail_shows_the_largest_weights(page):
    """The pixels are the largest weights of equal parts of the queries and keys, in the colours of the legend."""
    for head in (0, 2, 4):
        width, height, data = page.evaluate(
            """(key) => {
          const canvas = document.querySelector(`.head[data-key="${key}"] canvas`), {width, height} = canvas;
          return [width, height, [...canvas.getContext("2d").getImageData(0, 0, width, height).data]];
        }""",
            f"0.{head}",
        )
        assert width == height == 64
        image = np.array(data).reshape(height, width, 4)
        query, key = inputs.patterned_layers(1, HEADS, LENGTH)[0]
        weights = np.where(np.tri(LENGTH, dtype=bool), inputs.weights(query[head], key[head], range(LENGTH))[0], -1)
        edges = np.arange(65) * LENGTH // 64
        parts = np.array(
            [
                [weights[edges[y] : edges[y + 1], edges[x] : edges[x + 1]].max() for x in range(width)]
                for y in range(height)
            ]
        )
        assert (image[parts < 0][:, 3] == 0).all()
        assert (image[parts >= 0][:, 3] == 255).all()
        # Green increases all the way from 0 to 1.
        order = np.argsort(parts[parts >= 0], kind="stable")
        assert (np.diff(image[parts >= 0][order][:, 1]) >= 0).all()
        yellow = (image[..., 0] > 200) & (image[..., 1] > 200) & (image[..., 3] > 0)
        assert (parts[yellow] > 0.7).all()
        assert (parts[~yellow] < 0.85).all()


def test_only_rows_in_view_are_requested(server, opener):
    page = opener(server)
    page.wait_for_selector(".card")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server.address(f"/heads/{server.id()}"))
    page.wait_for_selector(".head canvas.drawn")
    page.wait_for_load_state("networkidle")
    thumbs = [url for url in asked if "/thumbs" in url]
    assert 4 <= len(thumbs) < LAYERS
    # The pictures in view come before the numbers of the layers behind them.
    assert "/thumbs" in next(url for url in asked if "layer=" in url)


def test_another_number_and_other_colours_need_no_request(page, told):
    page.wait_for_load_state("networkidle")
    asked = []
    # Other than those that watch the server.
    page.on("request", lambda request: None if request.url.endswith("/inputs") else asked.append(request.url))
    field(page, "Number").select_option(label="largest")
    assert abs(float(cell(page, 1, 0).locator(".head-number").text_content()) - told[1, 0]["maximum"]) < 0.001
    before = cell(page, 0, 4).locator("canvas").evaluate("canvas => canvas.toDataURL()")
    field(page, "Tone").select_option(label="logarithm")
    assert cell(page, 0, 4).locator("canvas").evaluate("canvas => canvas.toDataURL()") != before
    assert asked == []
    until(page, "location.hash.includes('number=maximum') && location.hash.includes('tone=log')")


def test_order_and_filters(page, told):
    field(page, "Order").select_option(label="smallest first")
    page.wait_for_selector(".row-label >> text=1\u2013")
    shown = page.evaluate("[...document.querySelectorAll('.head')].map((node) => node.dataset.key)")
    assert len(shown) == LAYERS * HEADS
    values = [told[tuple(map(int, key.split(".")))]["entropy"] for key in shown]
    assert values == sorted(values)
    field(page, "Name").select_option(value="sink")
    sinks = {f"{layer}.{head}" for (layer, head), one in told.items() if one["name"] == "sink"}
    shown = page.evaluate("[...document.querySelectorAll('.head')].map((node) => node.dataset.key)")
    assert set(shown) == sinks
    field(page, "Order").select_option(label="by layer")
    expect(page.locator(".head")).to_have_count(len(sinks))
    field(page, "Name").select_option(label=field(page, "Name").locator("option").first.text_content())
    page.get_by_label("entropy from").fill("1")
    page.get_by_label("entropy from").press("Enter")
    wanted = sum(one["entropy"] >= 1 for one in told.values())
    until(page, f"document.querySelectorAll('.head').length === {wanted}")
    page.get_by_label("entropy from").fill("1e9")
    page.get_by_label("entropy from").press("Enter")
    assert page.get_by_text("No head fits these filters.").is_visible()


def test_arrow_keys_go_through_the_grid(page):
    page.locator(".head").first.focus()
    for key, wanted in (
        ("ArrowRight", "0.1"),
        ("ArrowDown", "1.1"),
        ("End", "1.8"),
        ("ArrowRight", "1.8"),
        ("ArrowUp", "0.8"),
        ("Home", "0.0"),
        ("ArrowUp", "0.0"),
    ):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.key") == wanted, key
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert opened(page) == "Layer 0, head 1"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.key") == "0.1"


# ---- one head --------------------------------------------------------------------------------------------------


def test_a_click_opens_a_head_and_back_closes_it(page, told):
    cell(page, 1, 2).click()
    assert opened(page) == "Layer 1, head 2"
    name = told[1, 2]["name"]
    assert name in page.locator(".head-kind").text_content()
    numbers = dict(
        zip(
            page.locator(".head-numbers dt").all_text_contents(),
            page.locator(".head-numbers dd").all_text_contents(),
            strict=True,
        )
    )
    assert abs(float(numbers["prev"]) - told[1, 2]["previous_key"]) < 0.001
    cell(page, 0, 3).click()
    assert opened(page) == "Layer 0, head 3"
    page.go_back()
    until(page, "document.querySelector('.head-panel h2').textContent === 'Layer 1, head 2'")
    page.go_back()
    page.wait_for_selector(".head-panel", state="hidden")
    page.go_forward()
    page.wait_for_selector(".head-panel h2 >> text=Layer 1, head 2")


def test_the_matrix_tells_the_weight_under_the_pointer(page, recorded):
    cell(page, 0, 0).click()
    page.get_by_text("A click opens this place as a map.").wait_for()
    canvas = page.locator(".matrix canvas")
    assert canvas.evaluate("canvas => [canvas.width, canvas.height]") == [LENGTH, LENGTH]
    box = canvas.bounding_box()

    def hover(query, key):
        page.mouse.move(
            box["x"] + (key + 0.5) * box["width"] / LENGTH, box["y"] + (query + 0.5) * box["height"] / LENGTH
        )
        return page.locator(".matrix .told").text_content()

    query, key = inputs.patterned_layers(1, HEADS, LENGTH)[0]
    wanted, _ = inputs.weights(query[0], key[0], [50])
    for position in (49, 20):
        text = hover(50, position)
        assert text.startswith(f"query 50, key {position}: ")
        assert float(text.split(": ")[1]) == pytest.approx(wanted[0, position], rel=5e-3)
    assert hover(20, 50) == "query 20, key 50: hidden by the mask"


def test_arcs_show_the_strongest_links(page):
    cell(page, 0, 4).click()
    page.get_by_role("button", name="Arcs").click()
    page.wait_for_selector(".arcs-stage path")
    query, key = inputs.patterned_layers(1, HEADS, LENGTH)[0]
    weights, _ = inputs.weights(query[4], key[4], range(LENGTH))
    visible = LENGTH * (LENGTH + 1) // 2
    expect(page.locator(".arcs-stage path")).to_have_count(2000)
    assert page.locator(".arcs .small").text_content() == f"{visible - 2000:,} weaker links not drawn"
    # A click locks the query, and the numbers of its keys appear.
    page.locator(".arcs-stage .token").nth(60).click()
    page.mouse.move(5, 5)
    shown = page.locator(".arcs-stage .value").all_text_contents()[LENGTH:]
    for position in range(61):
        wanted = weights[60, position]
        assert (
            shown[position] == ("" if wanted < 0.0005 else f"{wanted:.3f}"[1:])
            or abs(float(shown[position] or 0) - wanted) < 6e-4 + 4e-4 * wanted
        )
    assert shown[61:] == [""] * (LENGTH - 61)
    page.locator(".arcs-stage").press("Escape")
    assert set(page.locator(".arcs-stage .value").all_text_contents()) == {""}
    assert opened(page) == "Layer 0, head 4"


def test_arcs_of_long_texts_are_those_of_chosen_queries(viewer, opener, tmp_path):
    length, path = 300, tmp_path / "long.safetensors"
    ((query, key),) = inputs.recording(path, inputs.random_layers(1, 2, length, 16), inputs.words(length))
    server = viewer(path)
    page = opener(server, f"/heads/{server.id()}", "layer=0&head=1&panel=arcs&tokens=250,40")
    page.wait_for_selector(".arcs-stage path")
    # The first has 64 top keys, the second sees 41.
    expect(page.locator(".arcs-stage path")).to_have_count(64 + 41)
    wanted, _ = inputs.weights(query[1], key[1], [250, 40])
    keys = set(np.argsort(-wanted[0])[:64]) | set(range(41))
    expect(page.locator(".arcs-stage .token")).to_have_count(2 + len(keys))
    page.get_by_label("Queries (of 300)").fill("7")
    page.get_by_role("button", name="Show").click()
    until(page, "document.querySelectorAll('.arcs-stage path').length === 8")
    page.get_by_label("Queries (of 300)").fill("300")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".arcs-stage path")).to_have_count(8)
    assert "0 to 299" in page.locator("#live").text_content()


def test_the_address_has_the_whole_state(page, server, opener):
    cell(page, 2, 1).click()
    page.get_by_role("button", name="Arcs").click()
    field(page, "Number").select_option(label="prev")
    until(page, "location.hash.includes('number=previous_key')")
    again = opener.tab(page, server, f"/heads/{server.id()}", page.evaluate("location.hash.slice(1)"))
    again.wait_for_selector(".arcs-stage path")
    assert opened(again) == "Layer 2, head 1"
    assert field(again, "Number").input_value() == "previous_key"


def test_nonsense_in_the_address_gives_the_defaults(server, opener):
    page = opener(
        server, f"/heads/{server.id()}", "layer=99&head=x&sort=%zz&tone=pink&view=3d&from=abc&panel=&number=<b>"
    )
    page.wait_for_selector(".head canvas.drawn")
    assert opened(page) is None
    assert field(page, "Tone").input_value() == "sqrt"


# ---- the scatter plot ------------------------------------------------------------------------------------------


def test_the_plot_places_heads_and_opens_the_right_one(server, opener, told):
    page = opener(server, f"/heads/{server.id()}", "view=scatter&x=entropy&y=maximum")
    until(page, f"document.querySelectorAll('circle').length === {LAYERS * HEADS}")
    page.get_by_text("As a table").click()
    rows = page.locator(".numbers tbody tr")
    expect(rows).to_have_count(LAYERS * HEADS)
    pages.settle(page)  # the plot is drawn again for its new size
    # Of heads with random weights no two are alike, so that none hides another.
    alone = [place for place, one in told.items() if not one["name"]][3]
    wanted = f"Layer {alone[0]}, head {alone[1]}"
    found = page.evaluate(
        """(title) => {
      for (const circle of document.querySelectorAll("circle")) {
        circle.dispatchEvent(new PointerEvent("pointerenter"));
        if (document.querySelector(".scatter-bubble p").textContent.startsWith(title)) {
          const {x, y, width} = circle.getBoundingClientRect();
          return [x + width / 2, y + width / 2, document.querySelector(".scatter-bubble p").textContent];
        }
      }
    }""",
        f"layer {alone[0]}, head {alone[1]}\n",
    )
    assert f"entropy {told[alone]['entropy']:.3f}"[:-2] in found[2]
    until(page, "!document.querySelector('.scatter-bubble canvas').hidden")
    page.evaluate(
        """(title) => [...document.querySelectorAll("circle")].find((circle) => {
      circle.dispatchEvent(new PointerEvent("pointerenter"));
      return document.querySelector(".scatter-bubble p").textContent.startsWith(title);
    }).dispatchEvent(new MouseEvent("click", {bubbles: true}))""",
        f"layer {alone[0]}, head {alone[1]}\n",
    )
    assert opened(page) == wanted


def test_the_plot_names_its_colours(server, opener, told):
    page = opener(server, f"/heads/{server.id()}", "view=scatter")
    note = page.locator(".scatter .note")
    until(page, f"document.querySelectorAll('circle').length === {LAYERS * HEADS}")
    names = {one["name"] for one in told.values() if one["name"]}
    assert all(name in note.text_content() for name in names)
    assert note.locator(".swatch").count() == len(names)


def test_heads_that_take_long_are_announced(viewer, opener, tmp_path):
    inputs.tensors(tmp_path / "long.safetensors", q_len=65_536, head_dim=64)
    server = viewer(tmp_path / "long.safetensors", "--causal", "--threads", "1")
    page = opener(server, f"/heads/{server.id()}")
    page.get_by_text("The heads are being computed").wait_for()
    # Without tokens there is no text, and a single head has none to be compared with.
    assert page.locator(".pages a").all_text_contents() == ["Map"]


def test_the_plot_by_keyboard(server, opener):
    page = opener(server, f"/heads/{server.id()}", "view=scatter")
    page.wait_for_selector("circle")
    page.locator(".scatter-stage").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#live").text_content()
    assert first.startswith("layer ")
    assert "entropy" in first
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    name = page.locator(".scatter-bubble p").text_content().split("\n")[0]
    page.keyboard.press("Enter")
    assert opened(page).lower() == name
    page.keyboard.press("Escape")


def test_names_filter_the_plot(server, opener, told):
    page = opener(server, f"/heads/{server.id()}", "view=scatter&name=uniform")
    wanted = sum(one["name"] == "uniform" for one in told.values())
    until(page, f"document.querySelectorAll('circle').length === {wanted}")
