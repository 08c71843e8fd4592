# SPDX-License-Identifier: Apache-2.0
"""The editor renders what C++ renders: an unedited page again, and an edited page as `fovea explain` renders the copied
scene."""

import json
import pathlib
import random

import browser as pages
import pytest
from conftest import rendered
from test_compute import random_scene

# Returns the content of a page without what only marks the selection, the edits and the focus.
CONTENT = """(page) => {
  const canon = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.textContent.trim() === "" ? "" : node.textContent;
    if (node.matches?.(".term")) return node.textContent;
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches(".tools, .note, .drawn, .arrows, template")) return "";
    const classes = [...node.classList].filter((name) => !["q", "lit", "changed", "editable"].includes(name)).sort();
    const attributes = [...node.attributes].map(({name, value}) => `${name}=${value.trim().replace(/;$/, "")}`)
      .filter((one) => !/^(tabindex|class|hidden|style=(width|height)|aria-current)/.test(one)).sort();
    return `<${node.localName} ${[...attributes, ...classes]}>${[...node.childNodes].map(canon).join("")}`;
  };
  const parts = {summary: page.querySelector(".kind").textContent};
  for (const node of page.querySelectorAll("#flow, main h2[id]:not(#edit-title), section.step, #glance")) {
    if (node.id !== "glance") parts[node.id] = canon(node);
  }
  return parts;
}"""


def content(page):
    return page.evaluate(f"() => ({CONTENT})(document)")


def static_content(page, name):
    text = rendered(name).read_text(encoding="utf-8")
    return page.evaluate(f"(text) => ({CONTENT})(new DOMParser().parseFromString(text, 'text/html'))", text)


def assert_same(ours, theirs):
    assert list(ours) == list(theirs)
    for part, text in ours.items():
        assert text.split("<") == theirs[part].split("<"), part


def is_editable(name):
    return '"editable":true' in rendered(name).read_text(encoding="utf-8")


def written(seed):
    """Writes a random scene to a file, and returns its path."""
    path = pages.BUILD / "scenes" / f"random_{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(random_scene(seed)), encoding="utf-8")
    return str(path)


# In float32, exp and tanh of the browser and of the C library differ in digits that are shown.
RANDOM = [written(seed) for seed in range(60) if random_scene(seed).get("dtype") != "float32"][:4]
EDITABLE = [name for name in [*pages.page_names(), *RANDOM] if is_editable(name)]


def switch(page):
    page.get_by_role("switch", name="Edit").click()


def test_some_pages_can_be_edited():
    assert "two_heads" in EDITABLE
    assert "additive_score" not in EDITABLE


@pytest.mark.parametrize("name", EDITABLE)
def test_an_unedited_page_is_rendered_as_by_the_program(opener, name):
    page = opener(name)
    expected = static_content(page, name)
    switch(page)
    switch(page)
    assert_same(content(page), expected)


def edits(page, explained, seed):
    """Returns the fragment with ten random edits of a page's scene."""
    generator = random.Random(seed)
    draws = [generator.random() for _ in range(80)]
    source = "\n".join(
        (pages.ROOT / f"src/scene/html/page/{part}.js").read_text() for part in ("compute", "format", "scene")
    )
    code = """
      const {author, read, draws} = JSON.parse(given), original = literalScene(author, (name) => read[name]);
      const edit = startEdit(original), {scene} = edit, next = (most) => Math.floor(draws.pop() * most);
      for (let i = 0; i < 10; ++i) {
        const kind = next(6), words = wordsOf(scene), fixed = wordsFixedBy(scene);
        const kinds = Object.values(inputsOf(scene)), fresh = typeof words[0] === "string" ? `new${i}` : `${i}`;
        if (kind === 0) setScale(scene, draws.pop());
        else if (kind === 1) setCausal(scene, !isCausal(scene));
        else if (kind === 2 && !fixed) addWord(edit, asToken(scene, fresh), 4);
        else if (kind === 3 && !fixed && words.length > 1) removeWord(edit, next(words.length));
        else {
          const rows = inputRows(scene, kinds[next(kinds.length)]), row = rows[next(rows.length)];
          row[next(row.length)] = Math.round(draws.pop() * 4000 - 2000) / 1000;
        }
      }
      return encodeEdit(original, edit);"""
    scene = json.loads(page.locator("#scene-json").text_content())
    read = {step["name"]: step["values"] for step in explained["steps"]}
    given = json.dumps({"author": scene, "read": read, "draws": draws})
    return page.evaluate("([code, given]) => new Function('given', code)(given)", [source + code, given])


@pytest.mark.parametrize("name", EDITABLE)
def test_an_edited_page_is_that_of_the_copied_scene(opener, name, tmp_path):
    page = opener(name)
    explained = json.loads(pages.explain("-", "--format", "json", text=page.locator("#scene-json").text_content()))
    code = edits(page, explained, name)
    page.evaluate("(code) => { location.hash = `#edit=${code}`; }", code)
    page.wait_for_function("() => document.documentElement.classList.contains('edited')")
    page.get_by_role("button", name="Copy scene").click()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    path = tmp_path / f"copied_{pathlib.Path(name).stem}.json"
    path.write_text(copied, encoding="utf-8")
    switch(page)
    other = opener(str(path))
    assert_same(content(page), content(other))
    # Reset brings the original back.
    page.get_by_role("button", name="Reset").first.click()
    page.locator(".chips:visible button").nth(explained["focus"] or 0).click()
    assert_same(content(page), content(opener(name)))
