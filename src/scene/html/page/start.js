// SPDX-License-Identifier: Apache-2.0
//
// Start, after all other scripts.

if (scenes.length) return compareScenes();
if (data.focus) [state.item, state.query] = data.focus;
setUpBar();
setUpCopying();
if (weights) setUpArcs();
setUpArrows();
setUpQuestions();
setUpGlossary();
update();
paintAll();
setUpAddress();
setUpPane();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
/** Gives areas that scroll a tab stop, if nothing in them has one, for the arrow keys. */
function setTabStops() {
  const areas = all(".scroll, .formulas p, .word-list, pre").filter((area) => !area.querySelector("[tabindex], button, input"));
  const wider = areas.map((area) => area.scrollWidth > area.clientWidth || area.scrollHeight > area.clientHeight);
  areas.forEach((area, i) => {
    if (wider[i]) area.tabIndex = 0;
    else area.removeAttribute("tabindex");
  });
}
new ResizeObserver(() => requestAnimationFrame(() => {
  arrange();
  setTabStops();
})).observe(document.querySelector("main"));
let wide = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== wide) update();
  wide = innerWidth;
});
// Print everything: open all details and show every batch item.
addEventListener("beforeprint", () => {
  all("details").forEach((details) => { details.open = true; });
  all("[data-item][hidden], [data-plane][hidden], [data-heads][hidden]").forEach((node) => { node.hidden = false; });
  paintAll();
});
addEventListener("afterprint", () => update());
