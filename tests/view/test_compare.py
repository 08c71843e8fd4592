# SPDX-License-Identifier: Apache-2.0
"""Two heads side by side: the difference, one view and one cursor, and heads that cannot be compared."""

import hashlib

import inputs
import numpy as np
import pytest
from maps import wait_until
from waiting import until

LIST = "/api/v1/inputs"  # asked for again and again, to notice a server that has gone
LENGTH = 600
RAMP = [0x2D004B, 0x532687, 0x8073AC, 0xB1AAD1, 0xD8DAEB, 0xF6F6F7, 0xFEE0B6, 0xFCB761, 0xE08214, 0xB25706, 0x7F3B08]


def field(page, name):
    return page.get_by_role("combobox", name=name, exact=True)


@pytest.fixture(scope="module")
def layers():
    return inputs.random_layers(2, 2, LENGTH, 16)


@pytest.fixture(scope="module")
def server(module_viewer, layers):
    folder, texts = module_viewer.folder, inputs.words(LENGTH)
    inputs.recording(folder / "one.safetensors", layers, texts)
    # The same text in another model, another text, and a shorter one.
    inputs.recording(folder / "two.safetensors", inputs.random_layers(2, 2, LENGTH, 16, seed=50), texts)
    inputs.recording(folder / "three.safetensors", layers[:1], [*texts[:7], " other", *texts[8:]])
    inputs.recording(folder / "four.safetensors", inputs.random_layers(1, 1, 40, 16), inputs.words(40))
    return module_viewer(*(folder / f"{name}.safetensors" for name in ("one", "two", "three", "four")))


@pytest.fixture(scope="module")
def difference(layers):
    """Returns the weights of head 0 of layer 0 minus those of head 1 of layer 1."""
    first, second = (inputs.weights(*(one[h] for one in layers[i]), range(LENGTH))[0] for i, h in ((0, 0), (1, 1)))
    return first - second, first, second


def compare(opener, server, fragment="", heads=("0.0", "1.1"), numbers=(0, 0), **options):
    a, b = (server.id(number) for number in numbers)
    page = opener(server, f"/compare/{a}/{heads[0]}/{b}/{heads[1]}", fragment, **options)
    page.wait_for_selector(".compare-pane canvas")
    page.evaluate("fovea.idle")
    return page


def pictures(page):
    """Returns a digest of each map. To explain a difference between whole pictures, pytest takes minutes."""
    script = "[...document.querySelectorAll('.compare-pane canvas')].map((canvas) => canvas.toDataURL())"
    return [hashlib.sha256(one.encode()).hexdigest() for one in page.evaluate(script)]


def color(value, most):
    """Returns the colour of a difference."""
    place = np.clip(0.5 + value / (2 * most), 0, 1) * (len(RAMP) - 1)
    below = min(int(place), len(RAMP) - 2)
    channels = [[one >> shift & 255 for shift in (16, 8, 0)] for one in RAMP[below : below + 2]]
    return np.array(channels[0]) + (np.array(channels[1]) - channels[0]) * (place - below)


def pixel(page, pane, query, key):
    """Returns the colour in the middle of a pair."""
    return np.array(
        page.evaluate(
            """([pane, query, key]) => {
      const canvas = document.querySelectorAll(".compare-pane canvas")[pane], [x, y] = fovea.pixelOf(query, key);
      const copy = document.createElement("canvas");
      copy.width = copy.height = 1;
      const pen = copy.getContext("2d", {willReadFrequently: true});
      pen.drawImage(canvas, -Math.floor(x * devicePixelRatio), -Math.floor(y * devicePixelRatio));
      return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
    }""",
            [pane, query, key],
        )
    )


@pytest.mark.parametrize("scale", [2, 1, 0.1])
def test_the_third_map_is_the_difference(server, opener, difference, scale):
    _, first, second = difference
    places = [
        (300, 290),
        (301, 8),
        (320, 270),
        (299, 299),
        (330, 305),
        (280, 260),
        (310, 300),
        (290, 285),
        (305, 264),
        (315, 280),
    ]
    if scale >= 1:
        places += [(150, 40), (450, 200), (590, 580)]
    for query, key in places[:10]:
        page = compare(opener, server, f"at={query},{key}&scale={scale}&most=0.2")
        state = page.evaluate("fovea.state")
        side = 2 ** state["level"]
        assert side == {2: 2, 1: 1, 0.1: 1}[scale]
        q, k = query // side * side, key // side * side
        cells = [
            np.where(np.tri(LENGTH, dtype=bool), one, -1)[q : q + side, k : k + side].max() for one in (first, second)
        ]
        value = cells[0] - cells[1]
        # A step of 1/1000 of the range, and the rounding of both weights to 16 bits.
        slack = 0.2 / 1000 + 3.6e-4 * sum(cells)
        bounds = np.array([color(value + shift, 0.2) for shift in np.linspace(-slack, slack, 9)])
        found = pixel(page, 2, q + (side - 1) / 2, k + (side - 1) / 2)
        assert (found >= bounds.min(axis=0) - 1.01).all(), (query, key, value, found, color(value, 0.2))
        assert (found <= bounds.max(axis=0) + 1.01).all(), (query, key, value, found, color(value, 0.2))
        page.context.close()
        opener.opened.remove(page)


def test_equal_heads_have_no_difference(server, opener):
    page = compare(opener, server, heads=("0.1", "0.1"))
    shown = page.evaluate("fovea.state")
    assert shown["missing"] == 0
    for query, key in ((300, 100), (500, 499), (590, 3)):
        assert (pixel(page, 2, query, key) == [0xF6, 0xF6, 0xF7]).all()


def test_no_difference_is_dark_on_a_dark_page(server, opener):
    page = compare(opener, server, heads=("0.1", "0.1"))
    page.get_by_role("button", name="Dark colours").click()
    wait_until(lambda: (pixel(page, 2, 300, 100) == [0x2A, 0x2A, 0x30]).all())
    page.get_by_role("button", name="Light colours").click()


def test_panning_and_zooming_one_map_moves_all(server, opener):
    page = compare(opener, server, "at=300,250&scale=0.5")
    before, state = pictures(page), page.evaluate("fovea.state")
    for pane in range(3):
        box = page.locator(".compare-pane canvas").nth(pane).bounding_box()
        x, y = box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.4
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x - 40, y - 24, steps=4)
        page.mouse.up()
        page.mouse.move(2, 2)
        page.evaluate("fovea.idle")
        after, moved = pictures(page), page.evaluate("fovea.state")
        assert moved["at"] == pytest.approx([state["at"][0] + 12, state["at"][1] + 20], abs=0.01)
        assert all(one != other for one, other in zip(before, after, strict=True))
        before, state = after, moved
    page.mouse.move(x, y)
    page.mouse.wheel(0, 300)
    until(page, f"fovea.state.scale > {state['scale']} * 1.2")
    page.evaluate("fovea.idle")
    assert all(one != other for one, other in zip(before, pictures(page), strict=True))


def test_the_cursor_tells_both_weights_and_a_click_locks(server, opener, difference):
    value, first, second = difference
    page = compare(opener, server, "at=300,290&scale=0.1")
    box = page.locator(".compare-pane canvas").nth(1).bounding_box()
    x, y = page.evaluate("fovea.pixelOf(301, 288)")
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.wait_for_selector(".compare-told .difference")
    told = [float(page.locator(f".compare-told .{name}").text_content()) for name in ("one", "other", "difference")]
    assert told == pytest.approx([first[301, 288], second[301, 288], value[301, 288]], rel=1e-4, abs=1e-6)
    assert page.locator(".compare-told").text_content().startswith("query 301 ")
    page.mouse.click(box["x"] + x, box["y"] + y)
    until(page, "location.hash.includes('query=301&key=288')")
    page.mouse.move(box["x"] + x + 60, box["y"] + y)
    page.wait_for_timeout(300)
    assert page.locator(".compare-told").text_content().startswith("query 301 ")
    page.keyboard.press("Escape")
    until(page, "!location.hash.includes('query=')")
    # A pair that the mask hides.
    x, y = page.evaluate("fovea.pixelOf(290, 295)")
    page.mouse.move(box["x"] + x, box["y"] + y - 1)
    page.mouse.move(box["x"] + x, box["y"] + y)
    until(page, "document.querySelector('.compare-told .one')?.textContent === 'hidden'")


def test_keys(server, opener):
    page = compare(opener, server, "at=300,250&scale=0.1")
    page.locator(".compare-pane canvas").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("fovea.state.cursor") == {"query": 299, "key": 251}
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('query=299&key=251')")
    page.keyboard.press("-")
    until(page, "fovea.state.scale > 0.14")
    page.keyboard.press("0")
    until(page, "fovea.state.scale > 1")
    page.keyboard.press("Escape")
    until(page, "fovea.state.locked === null")


def test_colors_need_no_request(server, opener):
    page = compare(opener, server)
    asked = []
    page.on("request", lambda request: asked.append(request.url) if not request.url.endswith(LIST) else None)
    before = pixel(page, 2, 500, 450), pixel(page, 0, 500, 450)
    field(page, "Difference up to").select_option("0.001")
    field(page, "Tone").select_option("linear")
    page.evaluate("fovea.idle")
    assert (pixel(page, 2, 500, 450) != before[0]).any()
    assert (pixel(page, 0, 500, 450) != before[1]).any()
    assert page.locator(".compare-legend .ticks").nth(1).text_content().startswith("-0.001")
    assert asked == []


def test_a_link_shows_the_same(server, opener):
    page = compare(opener, server, "at=300,250&scale=0.5&most=0.1&query=310&key=240")
    again = compare(opener, server, page.evaluate("location.hash.slice(1)"))
    for one in (page, again):
        one.wait_for_selector(".compare-told .difference")
        one.evaluate("fovea.idle")
    told = [one.locator(".compare-page").inner_text() for one in (page, again)]
    assert told[0] == told[1]
    # Compares maps instead of screenshots, where corners of buttons may differ slightly between drawings.
    assert pictures(page) == pictures(again)


def test_other_heads_are_chosen_from_lists(server, opener):
    page = compare(opener, server, "at=300,250&scale=0.5")
    field(page, "head of the second").select_option("0")
    page.wait_for_url("**/1.0*")
    page.evaluate("fovea.idle")
    assert page.evaluate("fovea.state.scale") == 0.5
    field(page, "input of the second").select_option(server.id(1))
    page.wait_for_url(f"**/{server.id(1)}/1.0*")
    page.get_by_role("button", name="Exchange the two heads").click()
    page.wait_for_url(f"**/compare/{server.id(1)}/1.0/{server.id(0)}/0.0*")
    page.evaluate("fovea.idle")
    assert "two.safetensors, layer 1, head 0" in page.locator(".compare-pane h2").first.text_content()
    page.go_back()
    page.wait_for_url(f"**/compare/{server.id(0)}/0.0/{server.id(1)}/1.0*")


def test_heads_that_cannot_be_compared_say_why(server, opener):
    page = opener(server, f"/compare/{server.id(0)}/0.0/{server.id(3)}/0.0")
    page.wait_for_selector(".why-not")
    assert "600 \u00d7 600 and 40 \u00d7 40" in page.locator(".why-not").first.text_content()
    page = opener(server, f"/compare/{server.id(0)}/0.0/{server.id(2)}/0.0")
    page.wait_for_selector(".why-not")
    assert "query 7 is “ then” and “ other”" in page.locator(".why-not").first.text_content()
    # The lists still lead to heads that fit.
    field(page, "input of the second").select_option(server.id(1))
    page.wait_for_selector(".compare-pane canvas")
    page = opener(server, f"/compare/{server.id(0)}/0.0/{server.id(1)}/9.9")
    assert "No open input has the head" in page.get_by_role("alert").text_content()


def test_an_unfinished_pass_is_explained(viewer, opener, tmp_path):
    inputs.tensors(tmp_path / "long.safetensors", q_len=65_536, head_dim=64, heads=2)
    server = viewer(tmp_path / "long.safetensors", "--causal", "--threads", "1")
    for head in (0, 1):
        server.api(f"/inputs/{server.id()}/0.{head}")
        server.api(f"/inputs/{server.id()}/0.{head}/pass", method="DELETE")
    page = opener(server, f"/compare/{server.id()}/0.0/{server.id()}/0.1")
    told = page.locator(".tools-row [role=status]")
    told.get_by_text("Dotted cells are not computed yet").wait_for()
    assert "layer 0, head 0 was stopped" in told.text_content()
