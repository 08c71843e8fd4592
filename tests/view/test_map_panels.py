# SPDX-License-Identifier: Apache-2.0
"""The panel and the table of a map: rows and columns equal NumPy's, and tokens are shown as text, whatever they are."""

import inputs
import maps
import numpy as np
import pytest

LENGTH = 600


@pytest.fixture(scope="module")
def layers():
    return inputs.random_layers(2, 3, LENGTH, 32)


@pytest.fixture(scope="module")
def texts():
    texts = inputs.words(LENGTH)
    texts[300 : 300 + len(inputs.HOSTILE)] = inputs.HOSTILE
    return texts


@pytest.fixture(scope="module")
def server(module_viewer, layers, texts):
    path = module_viewer.folder / "run.safetensors"
    inputs.recording(path, layers, texts)
    return module_viewer(path)


def table(page, selector):
    """Returns the texts of a table's body as rows."""
    return page.evaluate(
        """(selector) => [...document.querySelectorAll(selector + ' tbody tr')].map((row) =>
        [...row.cells].map((cell) => cell.textContent))""",
        selector,
    )


def line_facts(page):
    return dict(
        page.evaluate("""[...document.querySelectorAll('.line .facts > div')].map((row) =>
        [row.querySelector('dt').textContent, row.querySelector('dd').textContent])""")
    )


def test_the_row_of_a_query(server, opener, layers):
    page = opener(server, f"/map/{server.id()}/1.2", "query=412&key=7&panel=row")
    maps.ready(page)
    page.wait_for_selector(".line .top")
    query, key = layers[1]
    (row,), (lse,) = inputs.weights(query[2], key[2], [412])
    best = np.argsort(-row)[:12]
    shown = table(page, ".line .top:first-of-type")[:12]
    assert [int(cells[0].replace(",", "")) for cells in shown] == best.tolist()
    assert [maps.number(cells[3]) for cells in shown] == pytest.approx(row[best], rel=1e-4)
    bars = page.locator(".line .top .bar i").evaluate_all("(bars) => bars.map((bar) => parseFloat(bar.style.width))")
    assert bars[:12] == pytest.approx(100 * row[best] / row[best[0]], abs=0.1)
    facts = line_facts(page)
    seen = row[row > 0]
    assert facts["keys seen"] == "413"
    assert maps.number(facts["entropy"].split()[0]) == pytest.approx(-(seen * np.log(seen)).sum(), rel=1e-4)
    assert maps.number(facts["largest"].split()[0]) == pytest.approx(row.max(), rel=1e-4)
    assert maps.number(facts["lse"]) == pytest.approx(lse, rel=1e-4)
    assert maps.number(facts["first key"]) == pytest.approx(row[0], rel=1e-3)
    page.locator(".powers summary").click()
    counts = [int(cells[2].replace(",", "")) for cells in table(page, ".powers")]
    assert sum(counts) == 413


def test_the_column_of_a_key(server, opener, layers):
    page = opener(server, f"/map/{server.id()}/0.1", "query=412&key=31&panel=column")
    maps.ready(page)
    page.wait_for_selector(".line .top")
    query, key = layers[0]
    column = inputs.weights(query[1], key[1], range(LENGTH))[0][:, 31]
    best = np.argsort(-column)[:12]
    shown = table(page, ".line .top")
    assert [int(cells[0].replace(",", "")) for cells in shown] == best.tolist()
    assert maps.number(line_facts(page)["received"]) == pytest.approx(column.sum(), rel=1e-4)
    # A click on a query goes to it, and locks it.
    page.locator(".line .go").nth(1).click()
    maps.ready(page)
    assert maps.state(page)["locked"] == {"query": int(best[1]), "key": 31}


def test_the_table(server, opener, layers):
    page = opener(server, f"/map/{server.id()}/0.0", "query=100&key=90")
    maps.ready(page)
    page.get_by_role("button", name="Table", exact=True).click()
    page.wait_for_selector(".cells .at")
    query, key = layers[0]
    rows = table(page, ".cells")
    assert (len(rows), len(rows[0])) == (32, 33)
    first = int(rows[0][0].split()[0])
    columns = page.evaluate("[...document.querySelectorAll('.cells thead th')].map((cell) => cell.textContent)")
    start = int(columns[0].split()[0])
    expected, _ = inputs.weights(query[0], key[0], range(first, first + 32))
    for i, row in enumerate(rows):
        assert row[0] == f"{first + i} {inputs.words(LENGTH)[first + i]}".rstrip()
        for j, text in enumerate(row[1:]):
            if start + j > first + i:
                assert text == "hidden"
            else:
                assert maps.number(text) == pytest.approx(expected[i, start + j], rel=1e-3)
    assert page.evaluate("fovea.state.panel") == "table"
    page.keyboard.press("Escape")
    maps.wait_until(lambda: maps.state(page)["panel"] == "cell")
    assert page.locator("dialog").count() == 0


def test_tokens_are_only_text(server, opener, texts):
    page = opener(server, f"/map/{server.id()}/0.0", "at=304,304&scale=0.04&query=304&key=301&panel=row")
    maps.ready(page)
    for number in range(300, 300 + len(inputs.HOSTILE)):
        facts = maps.hover(page, number, 299)
        assert facts["query"]
        page.keyboard.press("Escape")
        facts = maps.hover(page, 311, number)
        shown = facts["key"].removeprefix(f"{number:,} ")
        assert not set(shown) & set("\x1b\u202e\n")
    page.get_by_label("Search in tokens").fill("<img")
    maps.wait_until(lambda: page.locator(".search output").text_content() == "1 match")
    page.get_by_role("button", name="Table", exact=True).click()
    page.wait_for_selector(".cells tbody tr")
    assert page.evaluate("document.title").startswith("layer 0")
    assert page.evaluate("document.querySelectorAll('img, main script, dialog script').length") == 0
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"]
