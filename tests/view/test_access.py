# SPDX-License-Identifier: Apache-2.0
"""Accessibility of the pages other than the map: axe in both themes and sizes, text at twice its size, keyboard."""

import inputs
import pytest
from conftest import violations
from server import ROOT

# The pages by their names: path and fragment, with {0} for the recording and {1} for the scene, and what must be there.
PAGES = {
    "start": ("/", "", ".card"),
    "heads": ("/heads/{0}", "layer=1&head=0", ".head-numbers dd"),
    "arcs": ("/heads/{0}", "layer=1&head=0&panel=arcs", ".arcs-stage path"),
    "scatter": ("/heads/{0}", "view=scatter", "circle"),
    "text": ("/text/{0}/1.0", "query=20", ".top-weights td"),
    "compare": ("/compare/{0}/0.0/{0}/0.1", "query=20&key=3", ".compare-told .difference"),
    "scene": ("/scene/{1}", "", "iframe"),
}


@pytest.fixture(scope="module")
def server(module_viewer):
    path = module_viewer.folder / "run.safetensors"
    inputs.recording(path, inputs.patterned_layers(3, 5, 60), inputs.words(60))
    return module_viewer(path, ROOT / "examples" / "scenes" / "causal_mask.json")


def show(opener, server, name, **options):
    path, fragment, found = PAGES[name]
    page = opener(server, path.format(server.id(0), server.id(1)), fragment, **options)
    page.wait_for_selector(found)
    page.wait_for_load_state("networkidle")
    return page


@pytest.mark.parametrize("size", ["large", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe(server, opener, name, scheme, size):
    page = show(opener, server, name, scheme=scheme, size=size)
    assert violations(page, contrast="html") == []


@pytest.mark.parametrize("name", [name for name in PAGES if name != "scene"])
def test_text_of_twice_the_size_is_not_cut_off(server, opener, name):
    page = show(opener, server, name, size="large")
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    cut = page.evaluate("""() => [...document.querySelectorAll("button, h1, h2, h3, p, label, dt, dd, a")]
        .filter((node) => {
      const {overflow} = getComputedStyle(node);
      return node.checkVisibility() && overflow === "hidden" && !node.closest(".unseen, .source") &&
          (node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1);
    }).map((node) => node.outerHTML.slice(0, 80))""")
    assert cut == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", ["heads", "scatter", "text", "compare"])
def test_the_keys_of_each_page(server, opener, name):
    page = show(opener, server, name)
    page.keyboard.press("?")
    page.wait_for_selector("dialog .keys")
    assert page.locator(".keys kbd").all_text_contents()[-1] == "?"
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.get_by_role("button", name="Help").click()
    page.wait_for_selector("dialog .keys")


@pytest.mark.parametrize("name", [name for name in PAGES if name != "scene"])
def test_focus_is_never_lost_and_always_visible(server, opener, name):
    page = show(opener, server, name)
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        told = page.evaluate("""() => {
          const node = document.activeElement, {outlineStyle, outlineWidth} = getComputedStyle(node);
          return [node.tagName, node.outerHTML.slice(0, 60), outlineStyle !== "none" && parseFloat(outlineWidth) > 0];
        }""")
        if told[0] == "BODY":
            break
        assert told[2], told
        seen.append(told[1])
    assert len(seen) >= 2
