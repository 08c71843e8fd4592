# SPDX-License-Identifier: Apache-2.0
"""The map of a head: its cells are those of `fovea tile` and NumPy, hidden ones are hatched, colours change without
requests, and its place is in the address."""

import subprocess

import inputs
import maps
import numpy as np
import pytest
from server import FOVEA

LENGTH = 4096
CODE = 3.5e-4  # relative error of a code


@pytest.fixture(scope="module")
def path(module_viewer):
    path = module_viewer.folder / "layer.safetensors"
    inputs.tensors(path, q_len=LENGTH, heads=2)
    return path


@pytest.fixture(scope="module")
def server(module_viewer, path):
    server = module_viewer(path, "--causal")
    server.wait_for_pass()
    return server


def tile_of(path, rows, cols, head=0):
    """Returns what `fovea tile` computes."""
    output = path.with_name("tile.npy")
    command = [FOVEA, "tile", "--input", path, "--causal", "--head", str(head), "--rows", f"{rows[0]}:{rows[1]}"]
    subprocess.run([*command, "--cols", f"{cols[0]}:{cols[1]}", "--output", output], check=True, capture_output=True)
    return np.load(output)


def test_cells_equal_those_of_fovea_tile(server, opener, path):
    page = opener(server, f"/map/{server.id()}/0.1", "scale=0.0625&at=2000,1500", size="large")
    assert maps.ready(page)["level"] == 0
    (q0, q1), (k0, k1) = maps.state(page)["visible"]["queries"], maps.state(page)["visible"]["keys"]
    known = tile_of(path, (q0, q1), (k0, k1), head=1)
    draw = np.random.default_rng(3)
    for query, key in zip(draw.integers(q0 + 1, q1 - 1, 20), draw.integers(k0 + 1, k1 - 1, 20), strict=True):
        expected = known[query - q0, key - k0]
        facts = maps.hover(page, int(query), int(key))
        assert facts["query"].strip() == f"{query:,}"
        assert facts["key"].strip() == f"{key:,}"
        assert maps.number(facts["weight"]) == pytest.approx(expected, rel=CODE)
        cell = server.api(f"/inputs/{server.id()}/0.1/cell?query={query}&key={key}")
        assert cell["weight"] == tile_of(path, (query, query + 1), (key, key + 1), head=1)[0, 0]


def test_pixels_have_the_colours_of_their_weights(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0", "scale=0.0625&at=2000,1500&colormap=grey&tone=sqrt")
    maps.ready(page)
    for query, key in [(1990, 1490), (2003, 1511), (2010, 1502)]:
        weight = server.api(f"/inputs/{server.id()}/0.0/cell?query={query}&key={key}")["weight"]
        level = 255 * np.sqrt(weight)
        assert maps.color(page, query, key) == pytest.approx([level] * 3, abs=1)


def test_hidden_cells(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0", "scale=0.0625&at=2000,2000")
    maps.ready(page)
    assert maps.hover(page, 1990, 2010)["weight"] == "hidden by the mask"
    # Hatching: a cell has at least two colours, neither of them a colour of a weight.
    found = set()
    x, y = page.evaluate("fovea.pixelOf(1990, 2010)")
    for row in maps.brightness(page, [int(x) - 6, int(y) - 6, 12, 12]):
        found |= set(row)
    assert len(found) >= 2
    frame, _ = inputs.frame(server.bytes(f"/inputs/{server.id()}/0.0/tile/max/0/9/3"))
    assert frame["flags"] == 3
    assert frame["codes"] is None


def test_levels_hide_above_the_diagonal(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0")
    assert maps.ready(page)["level"] > 0
    facts = maps.hover(page, 1000, 3000)
    assert facts["largest"] == "hidden by the mask"
    facts = maps.hover(page, 3000, 1000)
    assert 0 < maps.number(facts["largest"]) <= 1


def test_means(server, opener, path):
    page = opener(server, f"/map/{server.id()}/0.0", "scale=4&at=2000,1000&reduce=mean")
    assert maps.ready(page)["level"] == 2
    assert maps.state(page)["reduce"] == "mean"
    known = tile_of(path, (2000, 2016), (1000, 1016)).astype(np.float64)
    for row, column in [(0, 0), (1, 3), (3, 2)]:
        facts = maps.hover(page, 2001 + 4 * row, 1002 + 4 * column)
        assert facts["queries"] == f"{2000 + 4 * row:,} to {2003 + 4 * row:,}"
        mean = known[4 * row : 4 * row + 4, 4 * column : 4 * column + 4].mean()
        assert maps.number(facts["mean"]) == pytest.approx(mean, rel=1e-3)
    # Levels without means show the largest, and say so.
    page.keyboard.press("0")
    for _ in range(2):
        page.keyboard.press("-")
    assert maps.ready(page)["level"] == 4
    assert maps.state(page)["reduce"] == "max"
    assert "Zoom in for means" in page.locator(".legend").text_content()


def test_colours_need_no_request(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0", "scale=1&at=2000,1500", size="large")
    maps.ready(page)
    sent = []
    page.on("request", lambda request: sent.append(request.url) if "/tile/" in request.url else None)
    before = maps.color(page, 2000, 1500)
    for field, value in [("Tone", "linear"), ("Colours", "magma"), ("Tone", "sqrt"), ("Colours", "cividis")]:
        page.evaluate("fovea.idle")
        page.get_by_role("combobox", name=field).select_option(value)
        page.evaluate("fovea.idle")
        now = maps.color(page, 2000, 1500)
        assert now != before
        before = now
        label = page.locator(".colours").get_attribute("aria-label")
        assert value in label
    page.get_by_label("Largest weight of the colours").fill("0.01")
    page.keyboard.press("Enter")
    page.evaluate("fovea.idle")
    assert "to 0.01" in page.locator(".colours").get_attribute("aria-label")
    assert maps.color(page, 2000, 1500) != before
    assert maps.state(page)["range"] == [1e-6, 0.01]
    assert not sent


def test_panning_changes_no_colour(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0", "scale=1&at=2000,1500")
    maps.ready(page)
    places = [(2000 + 7 * i, 1500 - 5 * i) for i in range(10)]
    before = [maps.color(page, *place) for place in places]
    box = page.locator(maps.CANVAS).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 61, y + 37, steps=7)
    page.mouse.up()
    maps.ready(page)
    assert maps.state(page)["at"] == pytest.approx([1963, 1439])
    page.mouse.move(5, 5)
    assert [maps.color(page, *place) for place in places] == before


def test_a_copied_link_gives_the_same_picture(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0", "reduce=mean")
    maps.ready(page)
    box = page.locator(maps.CANVAS).bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 400)
    for _ in range(7):
        page.mouse.wheel(0, -211)
    maps.ready(page)
    page.keyboard.press("c")
    page.mouse.click(box["x"] + 350, box["y"] + 410)
    page.wait_for_selector("text=Locked cell")
    page.get_by_role("button", name="Keys of the query").click()
    page.get_by_role("button", name="Copy link").click()
    link = page.evaluate("navigator.clipboard.readText()")
    assert f"input={server.input()['fingerprint'][:8]}" in link
    page.mouse.move(5, 5)
    state = maps.ready(page)
    other = opener.watch(page.context.new_page())
    other.goto(link)  # the token is that of the other tab
    copy = maps.ready(other)
    for name in ("at", "scale", "colormap", "reduce", "locked", "panel"):
        assert copy[name] == state[name]
    assert maps.hash_of(other) == maps.hash_of(page)


def test_links_to_other_inputs_and_nonsense(server, opener):
    name = server.id()
    page = opener(server, f"/map/{name}/0.0", "input=ffffffff")
    maps.ready(page)
    assert page.locator(".warning").text_content().startswith("This link was made for another input")
    page = opener(server, "/map/other.safetensors-12345678/0.0")
    opener.expected.append("404")
    state = maps.ready(page)
    assert state["input"] == name
    assert "other.safetensors-12345678" in page.locator(".warning").text_content()
    assert page.locator(".warning").count() == 1
    page = opener(
        server,
        f"/map/{name}/7.99",
        "at=a,b&scale=-3&reduce=x&tone=%ff&range=5:1&colormap=&query=1e99&key=-7&panel=zzz&find=%00&=&&&",
    )
    state = maps.ready(page)
    assert state["whole"]
    assert state["locked"] is None
    assert (state["tone"], state["colormap"], state["reduce"], state["panel"]) == ("log", "viridis", "max", "cell")
    assert maps.address(page).split("#")[0].endswith(f"/map/{name}/0.0")


def test_back_and_forward(server, opener):
    page = opener(server, f"/map/{server.id()}/0.0")
    maps.ready(page)
    for _ in range(3):
        page.keyboard.press("+")  # movements are no entries of the history
    maps.ready(page)
    page.get_by_role("button", name="Next head").click()
    maps.wait_until(lambda: maps.state(page)["head"] == 1)
    page.get_by_role("button", name="Keys of the query").click()
    assert maps.state(page)["panel"] == "row"
    page.keyboard.press("-")
    maps.ready(page)
    page.go_back()
    maps.wait_until(lambda: maps.state(page)["panel"] == "cell")
    assert maps.state(page)["head"] == 1
    page.go_back()
    maps.wait_until(lambda: maps.state(page)["head"] == 0)
    assert not maps.state(page)["whole"]
    page.go_forward()
    maps.wait_until(lambda: maps.state(page)["head"] == 1)
    maps.ready(page)
    assert maps.address(page).split("#")[0].endswith("/0.1")


def test_two_tabs_share_the_work(viewer, opener, tmp_path):
    inputs.tensors(tmp_path / "layer.safetensors", q_len=3000)
    server = viewer(tmp_path / "layer.safetensors", "--causal")
    first = opener(server, f"/map/{server.id()}/0.0", "scale=1&at=1500,1500")
    second = opener.tab(first, server, f"/map/{server.id()}/0.0", "scale=1&at=1500,1500")
    maps.ready(first)
    maps.ready(second)
    visible = maps.state(first)["visible"]
    rows, columns = (len({at // 256 for at in range(*visible[side])}) for side in ("queries", "keys"))
    # And the tile of the corner map.
    assert server.counters()["tiles"]["computed"] <= rows * columns + 1
