// SPDX-License-Identifier: Apache-2.0
//
// What can be pointed at: choosing a word, how a number was made, arcs, the walk through the steps.
// The page is complete without this file. Everything shown is read from the JSON in #data and
// written with textContent, so no word of a scene can become markup.
(() => {
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const state = {item: 0, query: 0, threshold: 0, heads: new Set()};
const SVG = "http://www.w3.org/2000/svg";
// Okabe and Ito's colours, which the colour-blind tell apart; then again, dashed.
const HEADS = ["#009e73", "#d55e00", "#0072b2", "#cc79a7", "#e69f00", "#56b4e9"];
const STAGES = ["scores", "scaled_scores", "softcapped_scores", "biased_scores", "masked_scores"];
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

/** An element with attributes and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "g", "text", "title"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
const bdi = (text) => make("bdi", {}, text);

// ---- Numbers ------------------------------------------------------------------------------------

function bytes(base64) {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

function decode(step) {
  if (step.v) return step.v.map(Number0);
  if (step.f32) return new Float32Array(bytes(step.f32).buffer);
  const special = {253: -Infinity, 254: Infinity, 255: NaN};
  return Float32Array.from(bytes(step.u8), (b) =>
      b in special ? special[b] : step.low + b / 252 * (step.high - step.low));
}
function Number0(x) {
  return typeof x === "number" ? x : {inf: Infinity, "-inf": -Infinity}[x] ?? NaN;
}

const steps = new Map();
for (const step of data.steps) {
  step.values = decode(step);
  step.base = step.name.replace(/\[.*/, "");
  step.about = step.u8 ? "\u2248" : "";
  steps.set(step.name, step);
}
const maskBits = data.mask && bytes(data.mask);
const queries = data.tokens[0].length;
const keys = (data.source || data.tokens)[0].length;
const last = STAGES.filter((name) => steps.has(name)).pop();

function at(step, item, head, plane, row, col) {
  const [batch, heads, planes, rows, cols] = step.dims;
  const b = batch > 1 ? item : 0, h = heads > 1 ? head : 0, p = planes > 1 ? plane : 0;
  return step.values[(((b * heads + h) * planes + p) * rows + row) * cols + col];
}
function masked(item, head, query, key) {
  if (!maskBits) return false;
  const i = ((item * data.heads + head) * queries + query) * keys + key;
  return (maskBits[i >> 3] >> (i & 7) & 1) === 1;
}
function word(axis, item, i) {
  return axis === "d" ? String(i) : (axis === "k" && data.source || data.tokens)[item][i];
}

/** toFixed, with ties to even as in the rest of the page. */
function fixed(x, digits) {
  const size = Math.abs(x), scaled = size * 10 ** digits, floor = Math.floor(scaled);
  const tie = scaled - floor === 0.5 && Number.isInteger(size * 2 ** (digits + 1));
  const text = (tie && floor % 2 === 0 ? floor / 10 ** digits : size).toFixed(digits);
  return (x < 0 && Number(text) !== 0 ? "-" : "") + text;
}
function special(x) {
  return Number.isNaN(x) ? "nan" : x < 0 ? "-inf" : "inf";
}
/** A number as its step's table writes it. */
function show(step, x) {
  if (!Number.isFinite(x)) return special(x);
  if (step.sci) {
    return x.toExponential(Math.max(step.decimals, 0)).replace(/e([+-])(\d)$/, "e$10$2");
  }
  return step.about + fixed(x, Math.max(step.decimals, 0));
}
/** A number inside a sum: no zeros at its end. */
function factor(x) {
  if (!Number.isFinite(x)) return special(x);
  if (x !== 0 && Math.abs(x) < 10 ** -data.precision) return x.toExponential(2);
  const text = fixed(x, data.precision);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
const times = ([a, b]) => factor(a) + "\u00b7" + (b < 0 ? "(" + factor(b) + ")" : factor(b));
/** a1*b1 + a2*b2 + ...; of a long sum, its largest terms. */
function sumOf(pairs) {
  const most = 2 * data.limits.terms;
  if (pairs.length <= most) return pairs.map(times).join(" + ");
  const large = [...pairs].sort((x, y) => Math.abs(y[0] * y[1]) - Math.abs(x[0] * x[1]));
  return large.slice(0, most).map(times).join(" + ") + ` + \u2026 (${pairs.length - most} more)`;
}

// ---- What a number was made from ----------------------------------------------------------------

/** A query's, key's or value's row for one query head, and where it stands on the page. */
function operand(name, item, head, i) {
  const isKey = name !== "query";
  const h = isKey ? Math.floor(head * data.kvHeads / data.heads) : head;
  const own = steps.get(name);
  const step = own || steps.get(isKey && data.source ? "source_embeddings" : "embeddings");
  const size = own ? step.dims[4] : step.dims[4] / (isKey ? data.kvHeads : data.heads);
  const first = own ? 0 : h * size;
  const numbers = Array.from({length: size}, (_, d) => at(step, item, h, 0, i, first + d));
  return {numbers, step, light: {step: step.name, item, head: own ? h : 0, row: i, first, size}};
}
function scoreTerms(item, head, query, key) {
  if (data.score.v) {
    const hidden = steps.get("hidden");
    return hidden ? data.score.v.map((v, d) => [v, at(hidden, item, head, query, key, d)]) : [];
  }
  let left = operand("query", item, head, query).numbers;
  const right = operand("key", item, head, key).numbers;
  const general = data.score.general;
  if (general) {
    const q = left;
    left = right.map((_, e) => q.reduce((sum, x, d) => sum + x * general[d * right.length + e], 0));
  }
  return right.map((k, d) => [left[d], k]);
}
function scoreRow(item, head, query) {
  const step = steps.get(last), out = [];
  for (let k = 0; step && k < keys; ++k) {
    if (!masked(item, head, query, k)) out.push(at(step, item, head, 0, query, k));
  }
  return out;
}

/** Lines that say how a cell came about, and the cells it was made from. */
function explain({step, item, head, plane, row, col}) {
  const base = step.base, value = at(step, item, head, plane, row, col);
  const shown = show(step, value);
  const light = (name, r, c) => ({step: name, item, head, plane, row: r, col: c});
  const product = (left, right, lights) =>
      ({lines: [sumOf(left.map((x, i) => [x, right[i]])) + " = " + shown], lights});
  if (step.maskable && masked(item, head, row, col)) {
    return {lines: ["masked: this key may not be seen, so its weight is exactly 0"], lights: []};
  }
  if (["query", "key", "value"].includes(base) && steps.has(base + "_weights")) {
    const weights = steps.get(base + "_weights");
    const from = steps.get(base !== "query" && data.source ? "source_embeddings" : "embeddings");
    const column = head * step.dims[4] + col;
    const x = Array.from({length: from.dims[4]}, (_, d) => at(from, item, 0, 0, row, d));
    return product(x, x.map((_, d) => at(weights, 0, 0, 0, d, column)), [
      {step: from.name, item, head: 0, row}, {step: weights.name, item: -1, head: 0, col: column}]);
  }
  if (base === "hidden") {
    return {lines: [`tanh(q W + k U) = ${shown}`], lights: [
      operand("query", item, head, plane).light, operand("key", item, head, row).light]};
  }
  if (base === "scores") {
    const pairs = scoreTerms(item, head, row, col);
    const lights = data.score.v ? [{step: "hidden", item, head, plane: row, row: col}]
        : [operand("query", item, head, row).light, operand("key", item, head, col).light];
    return {lines: [sumOf(pairs) + " = " + shown], lights};
  }
  const stage = STAGES.indexOf(base);
  if (stage > 0) {
    const before = steps.get(STAGES.slice(0, stage).filter((name) => steps.has(name)).pop());
    const x = at(before, item, head, 0, row, col), cap = data.score.softcap;
    const how = {
      scaled_scores: `${show(before, x)} \u00b7 ${factor(data.score.scale)}`,
      softcapped_scores: `${factor(cap)} \u00b7 tanh(${show(before, x)} / ${factor(cap)})`,
      biased_scores: `${show(before, x)} + ${factor(value - x)}`,
      masked_scores: "visible, so it stays",
    }[base];
    return {lines: [`${how} = ${shown}`], lights: [light(before.name, row, col)]};
  }
  if (base === "weights" && last) {
    const scores = steps.get(last), s = at(scores, item, head, 0, row, col);
    const visible = scoreRow(item, head, row);
    const how = (/\[(.*)\]/.exec(step.name) || [0, data.score.how])[1];
    const lights = [light(last, row)];
    if (how === "sum") {
      const sum = visible.reduce((a, b) => a + b, 0);
      return {lines: [`${show(scores, s)} / ${factor(sum)} = ${shown}`], lights};
    }
    const sink = data.score.sinks ? [Number0(data.score.sinks[head])] : [];
    const shift = how === "softmax" ? Math.max(...visible, ...sink) : 0;
    const sum = [...visible, ...sink].reduce((a, b) => a + Math.exp(b - shift), 0);
    const power = how === "softmax" ? `${show(scores, s)} \u2212 ${factor(shift)}` : show(scores, s);
    return {lines: [`exp(${power}) = ${factor(Math.exp(s - shift))}`,
      `${factor(Math.exp(s - shift))} / ${factor(sum)} = ${shown}`,
      `(${factor(sum)}: the sum of exp over the row${sink.length ? " and the sink" : ""})`], lights};
  }
  if (base === "row_sums") {
    const name = step.name.replace("row_sums", "weights"), weights = steps.get(name);
    const parts = Array.from({length: keys}, (_, k) => show(weights, at(weights, item, head, 0, row, k)));
    return {lines: [(keys > 16 ? `all ${keys} weights of the row` : parts.join(" + ")) + " = " + shown],
      lights: [light(name, row)]};
  }
  if (base === "context" && steps.has("weights")) {
    const weights = steps.get("weights"), pairs = [];
    for (let k = 0; k < keys; ++k) {
      if (masked(item, head, row, k)) continue;
      pairs.push([at(weights, item, head, 0, row, k), operand("value", item, head, k).numbers[col]]);
    }
    const from = operand("value", item, head, 0).light;
    return {lines: [sumOf(pairs) + " = " + shown], lights: [light("weights", row),
      {step: from.step, item, head: from.head, col: from.first + col}]};
  }
  if (base === "merged_context") {
    const size = step.dims[4] / data.heads, h = Math.floor(col / size);
    return {lines: [`number ${col % size} of head ${h}: ${shown}`],
      lights: [{step: "context", item, head: h, row, col: col % size}]};
  }
  return {lines: [shown], lights: []};
}

// ---- Pointing at a cell -------------------------------------------------------------------------

const bubble = make("div", {id: "made", role: "status", hidden: "hidden"});
document.body.append(bubble);

function forget() {
  bubble.hidden = true;
  all(".lit").forEach((cell) => cell.classList.remove("lit"));
}

function placeOf(figure) {
  const number = (name, none) => name in figure.dataset ? Number(figure.dataset[name]) : none;
  const item = number("item", -1);
  return {step: steps.get(figure.dataset.step), item: item < 0 ? state.item : item,
    head: number("head", 0), plane: number("plane", state.query)};
}

/** Lights the cells of a figure's table that `light` names: a row, a column or one cell. */
function illuminate(light) {
  for (const figure of all(`figure.map[data-step="${light.step}"]`)) {
    const {item, head, plane} = placeOf(figure);
    const other = Number(figure.dataset.item) >= 0 && item !== light.item;
    const elsewhere = "plane" in figure.dataset && plane !== light.plane;
    const body = figure.querySelector("tbody");
    if (other || head !== light.head || elsewhere || !body) continue;
    [...body.rows].forEach((line, r) => {
      if (light.row !== undefined && r !== light.row) return;
      [...line.cells].slice(1).forEach((cell, c) => {
        const inside = light.size === undefined || (c >= light.first && c < light.first + light.size);
        if ((light.col === undefined || c === light.col) && inside &&
            !cell.classList.contains("sum")) cell.classList.add("lit");
      });
    });
  }
}

/** Tells about a number beside `box`, its place on the screen. */
function tell(place, box) {
  forget();
  const {step, item, row, col} = place;
  const [rows, cols] = step.base === "row_sums" ? [step.rows, ""] : [step.rows, step.cols];
  const what = make("p", {class: "what"}, step.title, ": ", bdi(word(rows, item, row)));
  if (cols) what.append(cols === "k" ? " \u2192 " : ", ", bdi(word(cols, item, col)));
  const made = explain(place);
  bubble.replaceChildren(what, ...made.lines.map((line) => make("p", {}, line)));
  made.lights.forEach(illuminate);
  bubble.hidden = false;
  const size = bubble.getBoundingClientRect(), gap = 8;
  const below = box.bottom + gap + size.height < innerHeight;
  const left = Math.min(Math.max(gap, box.left), innerWidth - size.width - gap);
  bubble.style.left = left + "px";
  bubble.style.top = Math.max(gap, below ? box.bottom + gap : box.top - size.height - gap) + "px";
}

function tellCell(cell) {
  const figure = cell.closest("figure.map");
  if (!figure || !cell.closest("tbody") || cell.tagName.toLowerCase() !== "td") return forget();
  const place = placeOf(figure);
  if (!place.step) return;
  Object.assign(place, {row: cell.parentNode.sectionRowIndex, col: cell.cellIndex - 1});
  if (cell.classList.contains("sum")) {
    place.step = steps.get(place.step.name.replace("weights", "row_sums"));
    place.col = 0;
    if (!place.step) return;
  }
  tell(place, cell.getBoundingClientRect());
}

/** One stop of the Tab key per table; arrows move within it. */
function moveInTable(event) {
  const cell = event.target;
  const [down, right] = {ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1],
    ArrowLeft: [0, -1]}[event.key] || [0, 0];
  if (event.key === "Escape") forget();
  if (!down && !right) return;
  const line = cell.closest("tbody").rows[cell.parentNode.sectionRowIndex + down];
  const next = line && line.cells[cell.cellIndex + right];
  if (!next || next.tagName.toLowerCase() !== "td") return;
  event.preventDefault();
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

for (const table of all("figure.map table")) {
  const first = table.querySelector("tbody td");
  if (!first) continue;
  first.tabIndex = 0;
  table.addEventListener("mouseover", (event) => tellCell(event.target));
  table.addEventListener("mouseleave", forget);
  table.addEventListener("focusin", (event) => tellCell(event.target));
  table.addEventListener("focusout", forget);
  table.addEventListener("keydown", moveInTable);
  table.addEventListener("click", (event) => {
    const heading = event.target.closest("tbody th");
    const {step, item} = placeOf(table.closest("figure"));
    if (heading && step && step.rows === "q") choose(item, heading.parentNode.sectionRowIndex);
    else if (!heading) tellCell(event.target);
  });
}
addEventListener("scroll", () => { if (!document.activeElement.closest("td, canvas")) forget(); },
    {passive: true});

// ---- Pictures of large matrices -----------------------------------------------------------------

function colours() {
  const style = getComputedStyle(document.documentElement);
  const rgb = (name) => style.getPropertyValue("--" + name).trim().split(" ").map(Number);
  const hex = style.getPropertyValue("--raised").trim().replace(/^#(.)(.)(.)$/, "#$1$1$2$2$3$3");
  const paper = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return {paper, blue: rgb("blue"), orange: rgb("orange"), green: rgb("green")};
}

function paint(canvas) {
  const figure = canvas.closest("figure"), {step, item, head, plane} = placeOf(figure);
  if (!step) return;
  const rows = canvas.height, cols = canvas.width, palette = colours();
  const picture = canvas.getContext("2d"), image = picture.createImageData(cols, rows);
  for (let i = 0; i < rows * cols; ++i) {
    const row = Math.floor(i / cols), value = at(step, item, head, plane, row, i % cols);
    const ink = step.base === "weights" ? palette.green : value < 0 ? palette.orange : palette.blue;
    const hidden = step.maskable && masked(item, head, row, i % cols);
    const share = hidden || !Number.isFinite(value) ? 0 : Math.abs(value) / (step.largest || 1);
    // A square root lets small shares be seen; a table does not need it, its numbers tell.
    const v = Math.sqrt(Math.min(share, 1));
    palette.paper.forEach((c, k) => { image.data[4 * i + k] = c + (ink[k] - c) * v; });
    image.data[4 * i + 3] = hidden ? 0 : 255;
  }
  picture.putImageData(image, 0, 0);
}

for (const canvas of all("figure.map canvas")) {
  const {width: cols, height: rows} = canvas;
  const figure = canvas.closest("figure"), {step} = placeOf(figure);
  if (!step) {
    canvas.replaceWith(make("p", {class: "small"}, "Too many numbers for one page."));
    continue;
  }
  canvas.style.width = cols * Math.max(1, Math.min(24, Math.floor(600 / cols))) + "px";
  canvas.style.height = cols === rows ? "auto"
      : rows * Math.max(1, Math.min(16, Math.floor(600 / rows))) + "px";
  canvas.tabIndex = 0;
  let here = [0, 0];
  const point = () => {
    const box = canvas.getBoundingClientRect(), [row, col] = here;
    const x = box.left + (col + 1) / cols * box.width, y = box.top + row / rows * box.height;
    tell({...placeOf(figure), row, col}, {left: x + 8, top: y, bottom: y + box.height / rows});
  };
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const limit = (x, count) => Math.min(count - 1, Math.max(0, Math.floor(x * count)));
    here = [limit((event.clientY - box.top) / box.height, rows),
      limit((event.clientX - box.left) / box.width, cols)];
    point();
  });
  canvas.addEventListener("click", () => { if (step.rows === "q") choose(state.item, here[0]); });
  canvas.addEventListener("mouseleave", forget);
  canvas.addEventListener("focus", point);
  canvas.addEventListener("blur", forget);
  canvas.addEventListener("keydown", (event) => {
    const move = {ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1]}[event.key];
    if (!move) return;
    event.preventDefault();
    here = [Math.min(rows - 1, Math.max(0, here[0] + move[0])),
      Math.min(cols - 1, Math.max(0, here[1] + move[1]))];
    point();
  });
}
const paintAll = () => all("figure.map canvas").forEach((canvas) => {
  if (!canvas.closest("[hidden]")) paint(canvas);
});

// ---- The story, told again for another word (html_story.cc tells it first) ----------------------

function heatCell(step, x) {
  if (!Number.isFinite(x)) return make("td", {class: "odd"}, show(step, x));
  const v = (Math.abs(x) / (step.largest || 1)).toFixed(2);
  return make("td", {class: x < 0 ? "n" : null, style: `--v:${v}`}, show(step, x));
}
const dot = () => make("td", {class: "m", "aria-label": "masked"}, "\u00b7");
function numberCells(step, numbers) {
  const cells = numbers.slice(0, data.limits.numbers).map((x) => heatCell(step, x));
  return numbers.length > cells.length ? [...cells, make("td", {}, "\u2026")] : cells;
}
function rowOf(step, head, plane, row) {
  return Array.from({length: step.dims[4]}, (_, d) => at(step, state.item, head, plane, row, d));
}
function listedKeys(head) {
  const list = Array.from({length: keys}, (_, k) => k), weights = steps.get("weights");
  if (keys <= data.limits.table || !weights) return list;
  const w = (k) => at(weights, state.item, head, 0, state.query, k);
  return list.sort((a, b) => w(b) - w(a) || a - b).slice(0, data.limits.keys);
}
function keyHeading(key) {
  const text = word("k", state.item, key);
  return make("th", {scope: "row", title: text}, bdi(text));
}
function refill(part, rows) {
  const rest = all("tr.rest", part);
  part.replaceChildren(...rows, ...rest);
}

function fillWord(figure, head) {
  for (const line of all("tr[data-step]", figure)) {
    const name = line.dataset.step.replace("focus.", "");
    const step = steps.get(name);
    const numbers = name.endsWith("embeddings") || name === "merged_context"
        ? rowOf(step, head, 0, state.query) : operand(name, state.item, head, state.query).numbers;
    line.replaceChildren(line.cells[0], ...numberCells(step, numbers));
  }
}
function fillList(figure, head) {
  const names = all("thead th[data-step]", figure).map((th) => th.dataset.step.replace("focus.", ""));
  const list = names.map((name) => steps.get(name)), main = list[list.length - 1];
  const products = figure.querySelector("th.terms") !== null;
  const {item, query} = state;
  refill(figure.querySelector("tbody"), listedKeys(head).map((key) => {
    const line = make("tr", {}, keyHeading(key));
    if (products) {
      const sum = scoreTerms(item, head, query, key).map(times).join(" + ");
      line.append(make("td", {class: "terms"}, sum + " ="));
    }
    for (const step of list) {
      line.append(step.maskable && masked(item, head, query, key) ? dot()
          : make("td", {}, show(step, at(step, item, head, 0, query, key))));
    }
    const x = at(main, item, head, 0, query, key);
    const kind = (x < 0 ? " n" : "") + (main.base === "weights" ? " share" : "");
    const v = Math.abs(x) / (main.largest || 1);
    line.append(Number.isFinite(x) && x !== 0
        ? make("td", {class: "bar-cell" + kind, style: `--v:${v.toFixed(3)}`}, make("i", {}, "\u00a0"))
        : make("td"));
    return line;
  }));
  for (const cell of all("tfoot td[data-step]", figure)) {
    const sum = at(steps.get(cell.dataset.step.replace("focus.", "")), item, head, 0, query, 0);
    cell.textContent = Number.isFinite(sum) ? fixed(sum, data.precision) : special(sum);
  }
}
function fillContext(figure, head) {
  const {item, query} = state, weights = steps.get("weights"), context = steps.get("context");
  refill(figure.querySelector("tbody"), listedKeys(head)
      .filter((key) => !masked(item, head, query, key)).map((key) => {
        const value = operand("value", item, head, key);
        return make("tr", {}, keyHeading(key),
            make("td", {class: "weight"}, show(weights, at(weights, item, head, 0, query, key))),
            make("td", {class: "times"}, "\u00d7"), ...numberCells(value.step, value.numbers));
      }));
  const foot = figure.querySelector("tfoot tr");
  foot.replaceChildren(foot.cells[0], foot.cells[1],
      ...numberCells(context, rowOf(context, head, 0, query)));
}
function fillHidden(figure, head) {
  const hidden = steps.get("hidden");
  refill(figure.querySelector("tbody"), listedKeys(head).map((key) =>
      make("tr", {}, keyHeading(key), ...numberCells(hidden, rowOf(hidden, head, state.query, key)))));
}
const FILL = {word: fillWord, merged: fillWord, scores: fillList, weights: fillList,
  context: fillContext, hidden: fillHidden};
// What the page leaves out for its size stays as it was told first.
const whole = ["weights", "context", last].every((name) => steps.has(name));

// ---- Arcs ---------------------------------------------------------------------------------------

const glance = document.getElementById("glance");
const weights = steps.get("weights");
const MANY = 60;

function shorten(text, most = 14) {
  const letters = [...text];
  return letters.length > most ? letters.slice(0, most - 1).join("") + "\u2026" : text;
}

function drawArcs() {
  const old = document.getElementById("arcs");
  const width = old.parentNode.clientWidth;
  const names = [data.tokens[state.item], (data.source || data.tokens)[state.item]]
      .map((list) => list.map((text) => shorten(text)));
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "700 17px " + getComputedStyle(document.querySelector(".chips")).fontFamily;
  const sizes = names.map((list) => list.map((text) => pen.measureText(text).width));
  const gap = 26, sums = sizes.map((list) => list.reduce((a, b) => a + b + gap, 0));
  const flat = Math.max(...sums) <= width, widest = Math.max(...sizes.flat());
  const spread = (side) => {
    const room = Math.min(1.8, width / sums[side]);
    let x = (width - sums[side] * room) / 2;
    return sizes[side].map((size) => { x += (size + gap) * room; return x - (size + gap) * room / 2; });
  };
  const across = Math.min(width, 620), line = 26;
  const places = flat ? [spread(0), spread(1)]
      : names.map((list) => list.map((_, i) => line * (i + 1)));
  const height = flat ? 250 : line * (Math.max(queries, keys) + 1);
  const ends = flat ? [34, height - 34] : [widest + 12, across - widest - 12];
  const svg = make("svg", {id: "arcs", role: "img", viewBox: `0 0 ${flat ? width : across} ${height}`,
    style: flat ? null : `max-width:${across}px`});
  old.parentNode.classList.toggle("tall", !flat && height > 520);

  const thick = 13 / Math.max(weights.largest, 0.3), arcs = [];
  for (const head of state.heads) {
    for (let q = 0; q < queries; ++q) {
      let row = Array.from({length: keys}, (_, k) => [at(weights, state.item, head, 0, q, k), k])
          .filter(([w, k]) => w > 0 && w >= state.threshold && !masked(state.item, head, q, k));
      if (keys > MANY && q !== state.query) row = row.sort((a, b) => b[0] - a[0]).slice(0, 2);
      for (const [w, k] of row) {
        const [a, b] = [places[0][q], places[1][k]], [c, d] = ends, m = (c + d) / 2;
        const path = flat ? `M${a} ${c}C${a} ${m} ${b} ${m} ${b} ${d}` : `M${c} ${a}C${m} ${a} ${m} ${b} ${d} ${b}`;
        const arc = make("path", {d: path, stroke: HEADS[head % HEADS.length],
          "stroke-width": Math.max(0.4, w * thick).toFixed(2),
          "stroke-dasharray": head >= HEADS.length ? "6 3" : null},
        make("title", {}, `${names[0][q]} \u2192 ${names[1][k]}: ${show(weights, w)}`));
        arcs.push({arc, q, k});
      }
    }
  }
  const light = (test) => {
    // The lit ones are drawn last, above the others.
    for (const {arc, q, k} of arcs) {
      arc.setAttribute("stroke-opacity", test(q, k) ? 0.85 : 0.12);
      if (test(q, k)) svg.prepend(...[]) || arc.parentNode?.append(arc);
    }
  };
  const group = make("g", {}, ...arcs.map(({arc}) => arc));
  svg.append(group);
  const rest = (q) => q === state.query;
  names.forEach((list, side) => list.forEach((text, i) => {
    const along = places[side][i], chosen = side === 0 && i === state.query;
    const anchor = flat ? "middle" : side === 0 ? "end" : "start";
    const label = make("text", {"text-anchor": anchor, class: (side === 0 ? "ask" : "") + (chosen ? " on" : ""),
      x: flat ? along : ends[side] + (side === 0 ? -6 : 6),
      y: flat ? (side === 0 ? ends[0] - 10 : ends[1] + 22) : along + 5,
      onmouseenter: () => light(side === 0 ? (q) => q === i : (q, k) => k === i),
      onmouseleave: () => light(rest)}, text);
    if (side === 0) label.addEventListener("click", () => choose(state.item, i));
    svg.append(label);
  }));
  light(rest);
  const best = arcs.filter(({q}) => q === state.query)
      .map(({arc}) => arc.firstChild.textContent).slice(0, 12).join("; ");
  svg.setAttribute("aria-label", `Arcs from each word to the words it looks at. ${best}`);
  old.replaceWith(svg);
}

function setUpArcs() {
  if (!glance || !weights) return;
  glance.hidden = false;
  for (let head = 0; head < data.heads; ++head) state.heads.add(head);
  const controls = make("div", {class: "controls"});
  const most = weights.largest, output = make("output", {}, "all");
  controls.append(make("label", {}, "Show weights from", make("input", {type: "range", min: "0",
    max: "100", value: "0", "aria-label": "Smallest weight shown", oninput: (event) => {
      state.threshold = most * Number(event.target.value) / 100;
      output.textContent = state.threshold ? fixed(state.threshold, 3) : "all";
      drawArcs();
    }}), output));
  for (let head = 0; data.heads > 1 && head < data.heads; ++head) {
    const colour = HEADS[head % HEADS.length];
    controls.append(make("button", {type: "button", class: "plain", "aria-pressed": "true",
      onclick: (event) => {
        const on = !state.heads.delete(head);
        if (on) state.heads.add(head);
        event.currentTarget.setAttribute("aria-pressed", on);
        drawArcs();
      }}, make("span", {class: "swatch", style: `background:${colour}`}), `head ${head}`));
  }
  const text = data.source
      ? "Above the words that ask, below the words they look at; the thicker, the more."
      : "The sentence twice: above the words that ask, below the words they look at; the thicker, the more.";
  glance.append(make("p", {class: "reading"}, text), controls,
      make("div", {}, make("svg", {id: "arcs"})));
}

// ---- Choosing a word ----------------------------------------------------------------------------

function update() {
  const {item, query} = state;
  for (const node of all("[data-item]")) {
    const own = Number(node.dataset.item);
    node.hidden = own >= 0 && own !== item;
  }
  for (const node of all("[data-plane]")) {
    const own = all(`[data-plane]`, node.parentNode).length > 1;
    if (own) node.hidden = node.hidden || Number(node.dataset.plane) !== query;
  }
  all(".chips").forEach((list) => all("button", list).forEach((chip, i) =>
      chip.setAttribute("aria-pressed", i === query && Number(list.dataset.item) === item)));
  all("tr.q").forEach((line) => line.classList.remove("q"));
  for (const figure of all("figure.map")) {
    const {step} = placeOf(figure), body = figure.querySelector("tbody");
    if (step && step.rows === "q" && body && !figure.hidden) body.rows[query].classList.add("q");
  }
  for (const node of all(".focus-word")) node.replaceChildren(bdi(word("q", item, query)));
  if (whole) {
    all("figure.tale").forEach((figure) => FILL[figure.dataset.kind](figure, Number(figure.dataset.head)));
  }
  if (weights) drawArcs();
}
function choose(item, query) {
  const moved = item !== state.item;
  state.item = item;
  state.query = query;
  update();
  if (moved) paintAll();
}

// ---- The bar: words, batch item, walk, theme ----------------------------------------------------

function setUpBar() {
  const bar = document.getElementById("bar"), controls = make("div", {class: "controls"});
  for (const list of all(".chips")) {
    list.setAttribute("aria-label", "Choose the word that asks");
    all("li", list).forEach((place, i) => {
      const chip = make("button", {type: "button", title: place.textContent,
        onclick: () => choose(Number(list.dataset.item), i)}, ...place.childNodes);
      place.append(chip);
    });
  }
  if (data.tokens.length > 1) {
    controls.append(make("label", {}, "item", make("select", {id: "item", onchange: (event) =>
      choose(Number(event.target.value), state.query)},
    ...data.tokens.map((_, i) => make("option", {value: i}, String(i))))));
  }
  controls.append(make("button", {type: "button", class: "plain", onclick: () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    paintAll();
  }}, "light / dark"));

  const sections = all("section.step"), output = make("output");
  const slider = make("input", {type: "range", min: "0", max: String(sections.length - 1), value: "0",
    "aria-label": "Walk through the steps, from words to context"});
  const titleOf = (section) => section.querySelector("h3").firstChild.nextSibling.textContent.trim() +
      (section.querySelector("h3 .focus-word")?.textContent ?? "");
  let jumping = 0;
  const mark = (i) => {
    slider.value = i;
    const name = `${i + 1}  ${titleOf(sections[i]).replace(/ (of|for|word)(?=\S)/, " $1 ")}`;
    output.textContent = name;
    slider.setAttribute("aria-valuetext", name);
    for (const link of all("#flow a")) {
      if (link.getAttribute("href") === "#" + sections[i].id) link.setAttribute("aria-current", "step");
      else link.removeAttribute("aria-current");
    }
  };
  slider.addEventListener("input", () => {
    const i = Number(slider.value);
    jumping = Date.now();
    mark(i);
    sections[i].scrollIntoView({block: "start"});
  });
  addEventListener("scroll", () => {
    if (Date.now() - jumping < 900) return;
    const line = innerHeight * 0.4;
    const passed = sections.filter((section) => section.getBoundingClientRect().top < line).length;
    mark(Math.max(0, passed - 1));
  }, {passive: true});
  bar.append(controls, make("div", {class: "controls walk"}, make("label", {}, "Walk"), slider, output));
  mark(0);
}

// ---- Taking a matrix away -----------------------------------------------------------------------

const exact = (step, x) => Number(x.toPrecision(step.v ? 17 : step.f32 ? 7 : 3));
function nested(step, write) {
  let i = 0;
  const level = (shape) => shape.length === 0 ? write(step.values[i++])
      : "[" + Array.from({length: shape[0]}, () => level(shape.slice(1))).join(", ") + "]";
  return level(step.shape);
}
function latex(step) {
  const [batch, heads, planes, rows, cols] = step.dims, out = [];
  for (let m = 0; m < batch * heads * planes; ++m) {
    const lines = Array.from({length: rows}, (_, r) => Array.from({length: cols}, (_, c) => {
      const x = step.values[(m * rows + r) * cols + c];
      return Number.isFinite(x) ? show(step, x)
          : Number.isNaN(x) ? "\\mathrm{nan}" : (x < 0 ? "-" : "") + "\\infty";
    }).join(" & "));
    out.push("\\begin{bmatrix}\n" + lines.join(" \\\\\n") + "\n\\end{bmatrix}");
  }
  return out.join("\n");
}
const FORMATS = {
  NumPy: (step) => "np.array(" + nested(step, (x) => Number.isFinite(x) ? String(exact(step, x))
      : (x < 0 ? "-" : "") + "np." + (Number.isNaN(x) ? "nan" : "inf")) + ")",
  JSON: (step) => nested(step, (x) => Number.isFinite(x) ? String(exact(step, x)) : `"${special(x)}"`),
  LaTeX: latex,
};

async function copy(text, button) {
  const name = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = name; }, 1200);
}

function setUpCopying() {
  for (const section of all("section.step")) {
    const step = steps.get(section.dataset.step.split(" ")[0]);
    if (!step) continue;
    const tools = make("span", {class: "tools"}, "copy as ");
    for (const [name, write] of Object.entries(FORMATS)) {
      tools.append(make("button", {type: "button", "aria-label": `Copy ${step.title} as ${name}`,
        onclick: (event) => copy(write(step), event.currentTarget)}, name));
    }
    section.querySelector("h3").append(tools);
  }
  const scene = document.getElementById("scene-json");
  if (scene) {
    scene.before(make("button", {type: "button", class: "plain", onclick: (event) =>
      copy(scene.textContent, event.currentTarget)}, "copy"));
  }
}

// ---- Start --------------------------------------------------------------------------------------

if (data.focus) [state.item, state.query] = data.focus;
setUpBar();
setUpCopying();
setUpArcs();
update();
paintAll();
const select = document.getElementById("item");
if (select) select.value = state.item;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
let wide = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== wide && weights) drawArcs();
  wide = innerWidth;
});
// On paper everything is open, every batch item too.
addEventListener("beforeprint", () => {
  all("details").forEach((details) => { details.open = true; });
  all("figure[hidden], ol.words[hidden]").forEach((node) => { node.hidden = false; });
  paintAll();
});
addEventListener("afterprint", update);
})();
