// SPDX-License-Identifier: Apache-2.0
//
// The tooltip that explains the number of a cell, in matrices and in the story, and the keyboard in tables.

const bubble = make("div", {id: "made", role: "status", hidden: "hidden"});
document.body.append(bubble);
let focused = null;  // the cell that the tooltip explains because it has the focus

function forget() {
  focused = null;
  if (bubble.hidden) return;
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

/** Returns what a cell of the story shows. Only cells with numbers have a step. */
function placeInStory(cell) {
  const figure = cell.closest("figure"), line = cell.parentNode, foot = cell.closest("tfoot");
  const {kind} = figure.dataset, head = Number(figure.dataset.head), {item, query} = state;
  const place = (name, row, col) => ({step: steps.get(name), item, head, plane: query, row, col});
  const operandAt = (name, i, col) => {
    const {step, light} = operand(name, item, head, i);
    return {...place(step.name, i, light.first + col), head: light.head};
  };
  if (kind === "word" || kind === "merged") {
    const name = plain(line.dataset.step), col = cell.cellIndex - 1;
    return /embed|merged/.test(name) ? {...place(name, query, col), head: 0} : operandAt(name, query, col);
  }
  const seen = listed([head]).filter((key) => kind !== "context" || !masked(item, head, query, key));
  const key = foot ? 0 : seen[line.sectionRowIndex];
  if (kind === "hidden") return place("hidden", key, cell.cellIndex - 1);
  if (kind === "context") {
    if (foot) return place("context", query, cell.cellIndex - 2);
    return cell.cellIndex === 1 ? place("weights", query, key) : operandAt("value", key, cell.cellIndex - 3);
  }
  // The cells of sums have steps of their own.
  const column = cell.dataset.step ? cell : [...all("thead tr", figure)].pop().cells[cell.cellIndex];
  return {...place(plain(column.dataset.step ?? ""), query, key), total: column === cell ? undefined : line.dataset.total};
}
function placeInMatrix(cell) {
  const place = placeOf(cell.closest("figure"));
  Object.assign(place, {row: cell.parentNode.sectionRowIndex, col: cell.cellIndex - 1});
  if (cell.classList.contains("sum")) {
    Object.assign(place, {step: steps.get(place.step.name.replace("weights", "row_sums")), col: 0});
  }
  return place;
}

/**
 * Places the tooltip beside the table, below or above it, or else below or above the number: where it
 * covers least of what it explains.
 */
function placeBubble(box, around) {
  const {width, height} = bubble.getBoundingClientRect(), gap = 8;
  const low = (y) => clamp(y, gap, innerHeight - height - gap), x = clamp(box.left, gap, innerWidth - width - gap);
  const hidden = document.getElementById("bar").getBoundingClientRect().bottom;
  const parts = [box, ...all(".lit").map((cell) => cell.getBoundingClientRect())];
  const covers = (/** @type {number[]} */ [left, top]) => parts.filter((part) => part.right > left && part.left < left + width &&
      part.bottom > top && part.top < top + height).length + (top < hidden ? 0.5 : 0);
  const spots = [[around.right + gap, low(box.top)], [x, around.bottom + gap], [x, around.top - height - gap],
    [around.left - width - gap, low(box.top)], [x, box.bottom + gap], [x, box.top - height - gap], [x, gap]]
      .filter(([left, top]) => top === low(top) && left >= gap && left + width <= innerWidth - gap);
  const least = Math.min(...spots.map(covers)), [left, top] = spots.find((spot) => covers(spot) === least) ?? [gap, gap];
  bubble.style.left = left + "px";
  bubble.style.top = top + "px";
}

/** Explains the number at `box` on the screen, in a tooltip that leaves `around` free if there is room. */
function tell(place, box, around = box, shown = undefined) {
  forget();
  const {step, item, row, col} = place;
  const what = make("p", {class: "what"}, step.title, text("list.colon"), bdi(placed(step.rows, item, row)));
  if (place.total) what.append(` \u2192 ${text("softmax." + place.total)}`);
  else if (!/sums$/.test(step.base)) {
    what.append(step.cols === "k" ? " \u2192 " : ", ", bdi(placed(step.cols, item, col)));
  }
  const question = place.total ? undefined : questionAt(step, indexOf(step, item, place.head, place.plane, row, col));
  const [lines, lights] = question === undefined ? explain(place, shown) : [[text("question.cell", {n: question})], []];
  bubble.replaceChildren(what, ...lines.filter(Boolean).map((line) => make("p", {}, line)));
  lights.forEach(illuminate);
  bubble.hidden = false;
  placeBubble(box, around);
}

/** Returns whether a node is a cell with a number, or with the sign of a masked one. */
const isCell = (node) => node?.localName === "td" && node.matches("figure :is(tbody, tfoot) td") &&
    !node.matches(".times, .terms, .bar-cell, [colspan], .rest td") &&
    (/\S/.test(node.textContent) || node.querySelector("input")) && node.textContent !== "\u2026";
function tellCell(cell) {
  if (/** @type {Element} */ (cell).matches?.(".term")) return tellTerm(cell);
  if (!isCell(cell)) return forget();
  const tale = cell.closest(".tale");
  if (tale && !whole) return;
  const place = tale ? placeInStory(cell) : placeInMatrix(cell), area = cell.closest(".scroll").getBoundingClientRect();
  const {top, bottom, left, right} = cell.closest("table").getBoundingClientRect();
  if (place.step) {
    tell(place, cell.getBoundingClientRect(), {top: Math.max(top, area.top), bottom: Math.min(bottom, area.bottom),
      left: Math.max(left, area.left), right: Math.min(right, area.right)}, cell.textContent);
  }
}

/** Gives a table one tab stop; arrow keys move within it. */
function setUpTable(table) {
  const first = all("td", table).find(isCell);
  if (first) first.tabIndex = 0;
}
function moveInTable(event) {
  const [down, right] = ARROWS[event.key] || [], cell = event.target;
  if (down === undefined || !isCell(cell)) return;
  let row = cell.parentNode.rowIndex, col = cell.cellIndex, next;
  const {rows} = cell.closest("table");
  do {
    row += down;
    col += right;
    next = rows[row]?.cells[col];
  } while (next && !isCell(next));
  if (!next) return;
  event.preventDefault();
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

/** Explains a cell that has the focus. */
function tellFocused(cell) {
  tellCell(cell);
  if (!bubble.hidden) focused = cell;
}
let mouse = null;  // its last position on the screen
/** Returns whether the mouse moved. Browsers also send mouseover when the page scrolls under a mouse at rest. */
function mouseMoved({screenX, screenY}) {
  const [x, y] = mouse ?? [screenX, screenY];
  mouse = [screenX, screenY];
  return x !== screenX || y !== screenY;
}
all("figure table").forEach(setUpTable);
document.addEventListener("mousemove", mouseMoved);
document.addEventListener("mouseover", (event) => {
  if (mouseMoved(event) || !focused) tellCell(event.target);
});
document.addEventListener("focusin", (event) => tellFocused(event.target));
addEventListener("scroll", () => {
  if (focused && focused === document.activeElement) tellFocused(focused);  // moves the tooltip with its cell
}, {passive: true, capture: true});
document.addEventListener("focusout", forget);
document.addEventListener("mouseleave", forget);
document.addEventListener("keydown", moveInTable);
document.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  const heading = target.closest("figure.map tbody th");
  if (!heading) return target.localName === "canvas" || tellCell(target);
  if (placeOf(heading.closest("figure")).step?.rows === "q") choose(state.item, [...heading.closest("tbody").children].indexOf(heading.parentElement));
});
addEventListener("keydown", (event) => { if (event.key === "Escape") forget(); });
