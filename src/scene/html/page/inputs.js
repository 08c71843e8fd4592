// SPDX-License-Identifier: Apache-2.0
//
// Typing of numbers into the matrices of the scene: one input at a time, in the cell that has the
// focus. Enter, Tab and the arrow keys move it; Escape restores the number.

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
/** Returns a typed number, or NaN. A comma and the signs of typography are accepted. */
function parseNumber(typed) {
  const plainText = typed.trim().replace(",", ".").replace("\u2212", "-");
  const x = NUMBER.test(plainText) ? Number(plainText) : NaN;
  return Number.isFinite(x) ? x + 0 : NaN;  // -0 becomes 0
}

/** Returns the row of the scene that a cell belongs to, and the column in it. */
function cellInScene({step, item, head, row, col}) {
  const split = step.dims[1] > 1 ? head * step.dims[4] : 0;
  return {numbers: inputRows(editor.edit.scene, step.name, item)[row], column: split + col};
}
/** Returns the cell of a node, if its number can be changed. */
function editableCell(node) {
  const cell = node?.closest?.("td"), figure = cell?.closest("figure.map");
  return editor?.on && isCell(cell) && isInput(figure?.dataset.step) ? cell : null;
}
function positionOf(cell) {
  const figure = cell.closest("figure");
  return {...placeOf(figure), figure, row: cell.parentNode.sectionRowIndex, col: cell.cellIndex - 1};
}
const cellAt = (figure, row, col) => figure.querySelector("tbody")?.rows[row]?.cells[col + 1];

let typing = null;  // what is being typed: {input, place, before}

function openInput(cell) {
  if (typing) {
    if (cell.contains(typing.input)) return typing.input.focus();
    const {figure, row, col} = positionOf(cell);
    closeInput();
    cell = cellAt(figure, row, col);  // closing may have rendered the table again
  }
  const place = positionOf(cell), {numbers, column} = cellInScene(place), {step} = place;
  const label = `${step.title}${text("list.colon")}${placed(step.rows, place.item, place.row)}, ${placed(step.cols, place.item, place.col)}`;
  const input = make("input", {class: "number-input", "aria-label": label, autocomplete: "off", spellcheck: "false",
    enterkeyhint: "next", value: Object.is(numbers[column], -0) ? "-0" : String(numbers[column])});
  typing = {input, place, before: numbers[column]};
  forget();
  cell.classList.add("typed");
  cell.append(input);
  input.focus();
  input.select();
}
/** Ends typing. A number that is not one is replaced by the last one that was. */
function closeInput() {
  const {input, place: {figure}} = typing;
  if (input.getAttribute("aria-invalid")) sayNow(text("edit.kept", {text: input.value}));
  typing = null;
  input.remove();
  fillMatrix(figure, true);
}
function typeNumber(x) {
  const {input, place} = typing, {numbers, column} = cellInScene(place), valid = !Number.isNaN(x);
  if (valid) input.removeAttribute("aria-invalid");
  else input.setAttribute("aria-invalid", true);
  if (!valid) return sayNow(text("edit.invalid", {text: input.value}));
  if (Object.is(numbers[column], x)) return;
  numbers[column] = x;
  recompute(place.figure);
}

function moveInput(down, right) {
  const {figure, row, col} = typing.place;
  const next = cellAt(figure, row + down, col + right);
  if (next) openInput(next);
  return Boolean(next);
}
/** Moves to the next or previous cell in reading order. */
function stepInput(by) {
  const {figure, row, col, step} = typing.place, i = row * step.dims[4] + col + by;
  const next = i < 0 ? null : cellAt(figure, Math.floor(i / step.dims[4]), i % step.dims[4]);
  if (next) openInput(next);
  return Boolean(next);
}
function onInputKey(event) {
  const {input, before} = typing, {key} = event, end = input.value.length;
  const allSelected = input.selectionStart === 0 && input.selectionEnd === end;
  const atStart = input.selectionEnd === 0, atEnd = input.selectionStart === end;
  let done = false;
  if (key === "Escape") {
    input.value = String(before);
    typeNumber(before);
    input.select();
    done = true;
  } else if (key === "Enter") {
    done = moveInput(event.shiftKey ? -1 : 1, 0) || (closeInput(), true);
  } else if (key === "Tab") {
    done = stepInput(event.shiftKey ? -1 : 1);
  } else if (key === "ArrowUp" || key === "ArrowDown") {
    done = moveInput(...ARROWS[key]) || true;
  } else if ((key === "ArrowLeft" && (allSelected || atStart)) || (key === "ArrowRight" && (allSelected || atEnd))) {
    done = moveInput(...ARROWS[key]);
  }
  if (done) event.preventDefault();
  event.stopPropagation();
}

function setUpInputs() {
  const steps = byId("steps");
  steps.addEventListener("mousedown", (event) => {
    const cell = editableCell(event.target);
    if (!cell || cell.contains(typing?.input)) return;
    event.preventDefault();  // the focus would leave the present input
    openInput(cell);
  });
  steps.addEventListener("focusin", (event) => {
    const cell = editableCell(event.target);
    if (cell === event.target) openInput(cell);
  });
  steps.addEventListener("focusout", (event) => {
    const back = event.relatedTarget?.contains(event.target);  // the cell of the input has the focus for a moment
    if (event.target === typing?.input && document.hasFocus() && !back) closeInput();
  });
  steps.addEventListener("input", (event) => {
    if (event.target === typing?.input) typeNumber(parseNumber(typing.input.value));
  });
  steps.addEventListener("keydown", (event) => { if (event.target === typing?.input) onInputKey(event); }, true);
}
