// SPDX-License-Identifier: Apache-2.0
//
// The tooltip that explains the number of a cell, and the keyboard in tables.

const bubble = make("div", {id: "made", role: "status", hidden: "hidden"});
document.body.append(bubble);

function forget() {
  bubble.hidden = true;
  all(".lit").forEach((cell) => cell.classList.remove("lit"));
}

function placeOf(figure) {
  const {step, item, head, plane} = figure.dataset;
  return {step: steps.get(step), item: Number(item) < 0 ? state.item : Number(item),
    head: Number(head), plane: Number(plane ?? state.query)};
}

/** Highlights cells of a table: a row, a column or one cell. */
function illuminate({step, item, head, plane, row, col, first = 0, size = Infinity}) {
  for (const figure of all(`figure.map[data-step="${step}"]`)) {
    const place = placeOf(figure), body = figure.querySelector("tbody");
    if (!body || place.head !== head || figure.hidden ||
        (item !== undefined && place.item !== item) ||
        (figure.dataset.plane && place.plane !== plane)) continue;
    [...body.rows].filter((_, r) => row === undefined || r === row).forEach((line) =>
      [...line.cells].slice(1).forEach((cell, c) => {
        const meant = col === undefined ? c >= first && c < first + size : c === col;
        if (meant && !cell.classList.contains("sum")) cell.classList.add("lit");
      }));
  }
}

/** Explains the number at `box` on the screen, in a tooltip right of `edge` if there is room. */
function tell(place, box, edge = Infinity) {
  forget();
  const {step, item, row, col} = place;
  const what = make("p", {class: "what"}, step.title, ": ", bdi(placed(step.rows, item, row)));
  if (step.base !== "row_sums") {
    what.append(step.cols === "k" ? " \u2192 " : ", ", bdi(placed(step.cols, item, col)));
  }
  const [lines, lights] = explain(place);
  bubble.replaceChildren(what, ...lines.filter(Boolean).map((line) => make("p", {}, line)));
  lights.forEach(illuminate);
  bubble.hidden = false;
  const {width, height} = bubble.getBoundingClientRect(), gap = 8;
  const beside = edge + 2 * gap + width < innerWidth, below = box.bottom + gap + height < innerHeight;
  const top = beside ? box.top : below ? box.bottom + gap : box.top - height - gap;
  bubble.style.left = (beside ? edge + gap : clamp(box.left, gap, innerWidth - width - gap)) + "px";
  bubble.style.top = clamp(top, gap, innerHeight - height - gap) + "px";
}

const isCell = (node) => node?.localName === "td" && node.closest("tbody");
function tellCell(cell) {
  if (!isCell(cell)) return forget();
  const place = placeOf(cell.closest("figure"));
  Object.assign(place, {row: cell.parentNode.sectionRowIndex, col: cell.cellIndex - 1});
  if (cell.classList.contains("sum")) {
    Object.assign(place, {step: steps.get(place.step.name.replace("weights", "row_sums")), col: 0});
  }
  const edge = cell.closest("table").getBoundingClientRect().right;
  if (place.step) tell(place, cell.getBoundingClientRect(), edge);
}

function setUpTable(table) {
  const first = table.querySelector("tbody td"), {step, item} = placeOf(table.closest("figure"));
  if (!first || !step) return;
  first.tabIndex = 0;  // one tab stop per table; arrow keys move within it
  table.addEventListener("mouseover", (event) => tellCell(event.target));
  table.addEventListener("focusin", (event) => tellCell(event.target));
  table.addEventListener("mouseleave", forget);
  table.addEventListener("focusout", forget);
  table.addEventListener("click", (event) => {
    const heading = event.target.closest("tbody th");
    if (!heading) tellCell(event.target);
    else if (step.rows === "q") choose(item, heading.parentNode.sectionRowIndex);
  });
  table.addEventListener("keydown", (event) => {
    const [down, right] = ARROWS[event.key] || [], cell = event.target;
    const line = table.tBodies[0].rows[cell.parentNode.sectionRowIndex + down];
    const next = line?.cells[cell.cellIndex + right];
    if (!isCell(next)) return;
    event.preventDefault();
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}
all("figure.map table").forEach(setUpTable);
addEventListener("keydown", (event) => { if (event.key === "Escape") forget(); });
