// SPDX-License-Identifier: Apache-2.0
//
// Start, after all other scripts.

if (data.focus) [state.item, state.query] = data.focus;
setUpBar();
setUpCopying();
if (weights) setUpArcs();
update();
paintAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
let wide = innerWidth;
addEventListener("resize", () => {
  if (weights && innerWidth !== wide) drawArcs();
  wide = innerWidth;
});
// Print everything: open all details and show every batch item.
addEventListener("beforeprint", () => {
  all("details").forEach((details) => { details.open = true; });
  all("[data-item][hidden], [data-plane][hidden]").forEach((node) => { node.hidden = false; });
  paintAll();
});
addEventListener("afterprint", () => update());
