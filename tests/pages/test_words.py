# SPDX-License-Identifier: Apache-2.0
"""Every word of every page is chosen: what is shown belongs to it, and every number explains itself."""

import json
import re

import browser as pages
import pytest

# The scenes; the sentence with most steps; other scripts; pictures instead of tables.
NAMES = [*pages.scene_names(), "text_causal_heads", "text_scripts", "text_long"]

# What a page shows of the chosen word: titles and tables of the story, and the remarks. Also for a page that is only
# parsed, so that neither scripts, which draw the arrows, nor layout take part.
TOLD = """
const told = (page, item) => [...page.querySelectorAll(
    "section.step[id^=story-] h3 .title, section.step[id^=story-] .tale:not(.arrows), .remarks li")]
  .filter((node) => !node.closest("[hidden]") && Number(node.dataset.item ?? item) === item)
  .map((node) => [...(node.matches(".tale") ? node.querySelectorAll("th, td") : [node])]
    .map((cell) => cell.textContent.replace(/\\s+/g, " ").trim()).join(" | "));
"""

CHOOSE = """
const chips = [...document.querySelectorAll(".chips")];
const visible = (node) => node.getClientRects().length > 0 && !node.closest("[hidden]");
function choose(item, index) {
  const list = chips[item];
  if (!visible(list)) {
    const select = document.querySelector("#bar select");
    select.value = String(item);
    select.dispatchEvent(new Event("change", {bubbles: true}));
  }
  list.querySelectorAll("button")[index].click();
}
"""


def words_of(page):
    """Returns (item, index) of every word."""
    counts = page.evaluate("() => [...document.querySelectorAll('.chips')].map((list) => list.children.length)")
    return [(item, index) for item, count in enumerate(counts) for index in range(count)]


def scene_of(page):
    text = page.evaluate("() => document.getElementById('scene-json')?.textContent ?? '{}'")
    return json.loads(text)


# Numbers that a page has as float32 may give exponentials that differ by one in the last digit.
SAME = r"""
const rounded = document.getElementById("data").textContent.includes('"f32"');
const unit = (text) => 10 ** -(text.split(".")[1] ?? "").length;
function same(a, b) {
  const NUMBER = /-?\d+(?:\.\d+)?/g, numbers = [a, b].map((line) => line?.match(NUMBER) ?? []);
  return a === b || rounded && a?.replace(NUMBER, "") === b?.replace(NUMBER, "") &&
    numbers[0].every((x, i) => Math.abs(x - numbers[1][i]) < 1.5 * unit(x));
}
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_chosen_word_is_told_as_by_explain(opener, name):
    page = opener(name)
    words = words_of(page)
    batch = words[-1][0] > 0
    # A batch of many words or a long sentence: some are enough.
    words = words[:: max(1, len(words) // 12)]
    rendered = [
        pages.explain(*pages.source(name), "--query", f"@{item}:{index}" if batch else f"@{index}", "--format", "html")
        for item, index in words
    ]
    differing = page.evaluate(
        f"""([words, rendered]) => {{
        {TOLD} {CHOOSE} {SAME}
        return words.flatMap(([item, index], i) => {{
          choose(item, index);
          const expected = told(new DOMParser().parseFromString(rendered[i], "text/html"), item),
            got = told(document, item);
          const lines = Array.from({{length: Math.max(expected.length, got.length)}}, (_, k) => [expected[k], got[k]])
            .filter(([a, b]) => !same(a, b));
          if (lines.length === 0) return [];
          return [`word ${{item}}:${{index}}\\n  expected ${{lines[0][0]}}\\n  got      ${{lines[0][1]}}`];
        }});
      }}""",
        [words, rendered],
    )
    assert not differing, "\n".join(differing)


# Explains every visible number of the page by hovering over it; returns a line per number that has no explanation, or
# another one than its own.
NUMBERS = """
const NUMBER = /<?[-\u2212]?\\d+(?:\\.\\d+)?(?:e[+-]\\d+)?/g;
function unexplained(where, figures) {
  const bubble = document.getElementById("made"), wrong = [];
  let examined = 0;
  for (const cell of document.querySelectorAll(`:is(${figures}) :is(tbody, tfoot) td`)) {
    // Not numbers of the scene: operators, bars, sums that are written out, and what is masked or not finite.
    if (!visible(cell) || cell.matches(".times, .terms, .bar-cell, .m, .odd") || cell.closest(".rest")) continue;
    const text = (cell.querySelector("input")?.value ?? cell.textContent).trim();
    if (!NUMBER.test(text) || text.replace(NUMBER, "") !== "") continue;
    NUMBER.lastIndex = 0;
    ++examined;
    cell.dispatchEvent(new PointerEvent("pointerover", {bubbles: true, pointerType: "mouse"}));
    cell.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
    const lines = bubble.hidden ? [] : [...bubble.querySelectorAll("p")].map((line) => line.textContent);
    if (!lines.some((line) => (line.match(NUMBER) ?? []).pop() === text)) {
      const figure = cell.closest("figure");
      wrong.push(`${where}: ${text} in ${figure.dataset.step ?? figure.dataset.kind}, ` +
        `row ${cell.parentNode.rowIndex}, column ${cell.cellIndex}: ${lines.join(" / ") || "no explanation"}`);
    }
    document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true}));
  }
  return [examined, wrong];
}
"""


@pytest.mark.parametrize("name", NAMES)
def test_every_number_explains_itself(opener, name):
    page = opener(name)
    words = words_of(page)
    # Pages with thousands of numbers: some words are enough.
    words = words[:: max(1, len(words) // 12)]
    examined, wrong = page.evaluate(
        f"""(words) => {{
        {CHOOSE} {NUMBERS}
        let examined = 0;
        const wrong = [];
        for (const [item, index] of words) {{
          choose(item, index);
          // Matrices of all words are the same for each word of an item.
          const figures = index === 0 ? ".tale, figure.map" : ".tale, figure.map[data-plane]";
          const [more, bad] = unexplained(`word ${{item}}:${{index}}`, figures);
          examined += more;
          wrong.push(...bad);
        }}
        return [examined, wrong];
      }}""",
        words,
    )
    assert examined >= 2 * len(words)
    assert not wrong, f"{len(wrong)} of {examined}:\n" + "\n".join(wrong[:20])


def focus_of(page):
    return page.evaluate(
        """() => {
          const list = [...document.querySelectorAll(".chips")].findIndex((one) => one.getClientRects().length > 0);
          const chips = [...document.querySelectorAll(".chips")[list].querySelectorAll("button")];
          return [list, chips.findIndex((chip) => chip.getAttribute("aria-pressed") === "true")];
        }"""
    )


@pytest.mark.parametrize("name", pages.scene_names())
def test_notes_of_the_focus_belong_to_its_word(opener, name):
    page = opener(name)
    focus = focus_of(page)
    notes = [
        re.sub(r"\s+", " ", note).strip()
        for step, note in scene_of(page).get("notes", {}).items()
        if step.startswith("focus.")
    ]
    shown = page.evaluate(
        f"""(words) => {{
        {CHOOSE}
        return words.map(([item, index]) => {{
          choose(item, index);
          return [...document.querySelectorAll(".note")].filter(visible)
            .map((note) => note.textContent.replace(/\\s+/g, " ").trim());
        }});
      }}""",
        words_of(page),
    )
    for word, texts in zip(words_of(page), shown, strict=True):
        # Also after another word had been chosen in between, the notes are back.
        expected = notes if list(word) == focus else []
        assert [note for note in notes if note in texts] == expected, word


def number(text):
    return float(text.replace("\u2212", "-").lstrip("<"))


def ulp(text):
    """Returns the value of a unit of the last digit that is shown."""
    mantissa, _, exponent = text.lstrip("<").partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


@pytest.mark.parametrize("name", NAMES)
def test_the_columns_of_softmax_add_up(opener, name):
    page = opener(name)
    words = words_of(page)
    tables = page.evaluate(
        f"""(words) => {{
        {CHOOSE}
        const COLUMNS = ["exponentials", "weights"];
        return words.slice(0, 24).map(([item, index]) => {{
          choose(item, index);
          return [...document.querySelectorAll(".tale[data-kind=weights] table, .tale[data-kind=softmax] table")]
            .filter(visible).flatMap((table) => {{
            const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
            return heads.map((head, column) => [head.dataset.step ?? "", column])
              .filter(([step]) => COLUMNS.some((one) => step.replace("focus.", "").startsWith(one)))
              .map(([step, column]) => ({{step,
                cells: [...table.querySelectorAll("tbody tr:not(.rest), [data-total=sink]")]
                  .map((row) => row.cells[column]).map((cell) => cell.matches(".m") ? "0" : cell.textContent.trim()),
                sum: table.querySelector("[data-total=sum]").cells[column].textContent.trim(),
                cut: table.querySelector(".rest") !== null}}));
          }});
        }});
      }}""",
        words,
    )
    for word, columns in zip(words, tables, strict=False):
        assert any("weights" in column["step"] for column in columns), word
        for column in columns:
            cells, total = column["cells"], column["sum"]
            if column["cut"] or not all(re.match(r"<?[-\u2212]?\d", cell) for cell in [*cells, total]):
                continue
            # Each number shown may be off by half a unit of its last digit.
            room = sum(map(ulp, [*cells, total]))
            assert abs(sum(map(number, cells)) - number(total)) <= room, (word, column)
