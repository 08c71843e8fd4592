// SPDX-License-Identifier: Apache-2.0
//
// Interaction: selecting a word, explaining how a number was computed, arcs, and the walk through
// the steps. The page is complete without this script. All displayed data comes from the JSON in
// #data and is inserted as text nodes, so that words of a scene can never become markup.
(() => {
"use strict";

const root = document.documentElement;
const data = JSON.parse(document.getElementById("data").textContent);
const state = {item: 0, query: 0, least: 0, heads: new Set()};
// Okabe and Ito's colours, which are distinguishable with colour blindness. Further heads reuse
// them with dashed lines.
const HEADS = ["#009e73", "#d55e00", "#0072b2", "#cc79a7", "#e69f00", "#56b4e9"];
const STAGES = ["scores", "scaled_scores", "softcapped_scores", "biased_scores", "masked_scores"];
const ARROWS = {ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1]};
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const count = (n, f) => Array.from({length: n}, (_, i) => f(i));
const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const plain = (name) => name.replace("focus.", "");

/** Creates an element with attributes, listeners (on...) and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "g", "text", "title"].includes(tag);
  const node = document.createElementNS(svg ? "http://www.w3.org/2000/svg" : root.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
const bdi = (text) => make("bdi", {}, text);
const button = (attributes, ...children) => make("button", {type: "button", ...attributes}, ...children);

// ---- Numbers and their formats

const NAMED = {inf: Infinity, "-inf": -Infinity, nan: NaN};
const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
const number = (x) => typeof x === "number" ? x : NAMED[x];

const steps = new Map();
for (const step of data.steps) {
  const {v, f32, u16, u8, low, high} = step;
  step.digits = v ? 17 : f32 ? 7 : u16 ? 5 : 3;
  if (v) step.values = v.map(number);
  else if (f32) step.values = new Float32Array(bytes(f32).buffer);
  else {  // levels between low and high, then the codes of -inf, inf and NaN
    const codes = u16 ? new Uint16Array(bytes(u16).buffer) : bytes(u8), most = u16 ? 65532 : 252;
    step.values = Float32Array.from(codes, (c) => c > most
        ? [-Infinity, Infinity, NaN][c - most - 1] : low + c / most * (high - low));
    step.sci = false;
  }
  // Show no more digits than rounding preserved.
  const left = step.digits - Math.ceil(Math.log10(step.largest || 1));
  if (!v && !step.sci) step.decimals = clamp(step.decimals, -1, Math.max(left, 0));
  step.base = step.name.replace(/\[.*/, "");
  steps.set(step.name, step);
}
const mask = data.mask && bytes(data.mask);
const queries = data.tokens[0].length;
const keys = (data.source || data.tokens)[0].length;
const weights = steps.get("weights");
const last = STAGES.filter((name) => steps.has(name)).pop();

function at(step, item, head, plane, row, col) {
  const [batch, heads, planes, rows, cols] = step.dims;
  const b = batch > 1 ? item : 0, h = heads > 1 ? head : 0, p = planes > 1 ? plane : 0;
  return step.values[(((b * heads + h) * planes + p) * rows + row) * cols + col];
}
function masked(item, head, query, key) {
  const i = ((item * data.heads + head) * queries + query) * keys + key;
  return mask !== null && (mask[i >> 3] >> (i & 7) & 1) === 1;
}
function word(axis, item, i) {
  return axis === "d" ? String(i) : (axis === "k" && data.source || data.tokens)[item][i];
}
/** Returns a label. If there are many words, the position distinguishes repeated ones. */
const many = queries > 40 || keys > 40;
const placed = (axis, item, i) => word(axis, item, i) + (many && axis !== "d" ? ` \u00b7 ${i}` : "");

/** toFixed with ties to even, as in the rest of the page. */
function fixed(x, digits) {
  const size = Math.abs(x), scaled = size * 10 ** digits, floor = Math.floor(scaled);
  const tie = scaled - floor === 0.5 && Number.isInteger(size * 2 ** (digits + 1));
  const text = (tie && floor % 2 === 0 ? floor / 10 ** digits : size).toFixed(digits);
  return (x < 0 ? "-" : "") + text;
}
const special = (x) => Number.isNaN(x) ? "nan" : x < 0 ? "-inf" : "inf";
/** Formats a number as in the table of its step. */
function show(step, x) {
  if (!Number.isFinite(x)) return special(x);
  const digits = Math.max(step.decimals, 0);
  if (step.sci) return x.toExponential(digits).replace(/e([+-])(\d)$/, "e$10$2");
  return fixed(x, digits);
}
/** Formats a number that is not part of a step, without trailing zeros. */
function factor(x) {
  if (!Number.isFinite(x)) return special(x);
  if (x !== 0 && Math.abs(x) < 10 ** -data.precision) return x.toExponential(2);
  const text = fixed(x, data.precision);
  return (text.includes(".") ? text.replace(/\.?0+$/, "") : text).replace(/^-0$/, "0");
}
/** Formats a1*b1 + a2*b2 + ...; if there are more than `most` products, only the largest. */
function sumOf({pairs, left, right}, most = 12) {
  const write = (step, x) => step ? show(step, x) : factor(x);
  const size = ([a, b]) => Math.abs(a * b);
  const shown = pairs.length <= most ? pairs
      : [...pairs].sort((x, y) => size(y) - size(x)).slice(0, most);
  return shown.map(([a, b]) => {
    const second = write(right, b);
    return write(left, a) + "\u00b7" + (b < 0 ? `(${second})` : second);
  }).join(" + ") + (shown === pairs ? "" : ` + \u2026 (${pairs.length - most} more)`);
}

// ---- Explanation of a number

/** Returns the row of a query, key or value for one query head, and its location on the page. */
function operand(name, item, head, i) {
  const isKey = name !== "query", own = steps.get(name);
  const h = isKey ? Math.floor(head * data.kvHeads / data.heads) : head;
  const step = own || steps.get(isKey && data.source ? "source_embeddings" : "embeddings");
  const size = own ? step.dims[4] : step.dims[4] / (isKey ? data.kvHeads : data.heads);
  const first = own ? 0 : h * size;
  return {step, numbers: count(size, (d) => at(step, item, h, 0, i, first + d)),
    light: {step: step.name, item, head: own ? h : 0, row: i, first, size}};
}

function scoreTerms(item, head, query, key) {
  const {v, general} = data.score, right = steps.get("hidden");
  if (v) return {pairs: v.map((x, d) => [x, at(right, item, head, query, key, d)]), right};
  const q = operand("query", item, head, query), k = operand("key", item, head, key);
  const moved = general && k.numbers.map((_, e) =>
      q.numbers.reduce((sum, x, d) => sum + x * general[d * k.numbers.length + e], 0));
  return {pairs: k.numbers.map((x, d) => [(moved || q.numbers)[d], x]),
    left: moved ? null : q.step, right: k.step};
}

/** Returns lines that explain how a cell was computed, and the cells that were its inputs. */
function explain({step, item, head, plane, row, col}) {
  const base = step.base, shown = show(step, at(step, item, head, plane, row, col));
  const light = (name, r, c) => ({step: name, item, head, plane, row: r, col: c});
  if (step.maskable && masked(item, head, row, col)) {
    return [["masked: this key may not be seen, so its weight is exactly 0"], []];
  }
  const projection = steps.get(base + "_weights");
  if (projection) {
    const from = steps.get(base !== "query" && data.source ? "source_embeddings" : "embeddings");
    const column = head * step.dims[4] + col;
    const pairs = count(from.dims[4], (d) =>
        [at(from, item, 0, 0, row, d), at(projection, 0, 0, 0, d, column)]);
    return [[`${sumOf({pairs, left: from, right: projection})} = ${shown}`],
      [{step: from.name, item, head: 0, row}, {step: projection.name, head: 0, col: column}]];
  }
  if (base === "hidden") {
    return [[`tanh(q W + k U) = ${shown}`],
      [operand("query", item, head, plane).light, operand("key", item, head, row).light]];
  }
  if (base === "scores") {
    const lights = data.score.v ? [{step: "hidden", item, head, plane: row, row: col}]
        : [operand("query", item, head, row).light, operand("key", item, head, col).light];
    return [[`${sumOf(scoreTerms(item, head, row, col))} = ${shown}`], lights];
  }
  const stage = STAGES.indexOf(base);
  if (stage > 0) {
    const before = steps.get(STAGES.slice(0, stage).filter((name) => steps.has(name)).pop());
    if (!before) return [[shown], []];
    const x = at(before, item, head, 0, row, col), old = show(before, x);
    const cap = factor(data.score.softcap);
    const how = {scaled_scores: `${old} \u00b7 ${factor(data.score.scale)}`,
      softcapped_scores: `${cap} \u00b7 tanh(${old} / ${cap})`,
      biased_scores: `${old} + ${factor(at(step, item, head, 0, row, col) - x)}`,
      masked_scores: "visible, so it stays"}[base];
    return [[`${how} = ${shown}`], [light(before.name, row, col)]];
  }
  if (base === "weights" && last) {
    const scores = steps.get(last), s = at(scores, item, head, 0, row, col);
    const sink = data.score.sinks ? [number(data.score.sinks[head])] : [];
    const others = count(keys, (k) => k).filter((k) => !masked(item, head, row, k))
        .map((k) => at(scores, item, head, 0, row, k)).concat(sink);
    const how = (/\[(.*)\]/.exec(step.name) || [0, data.score.how])[1];
    const shift = how === "softmax" ? Math.max(...others) : 0;
    const part = how === "sum" ? (x) => x : (x) => Math.exp(x - shift);
    const sum = others.reduce((total, x) => total + part(x), 0);
    const power = show(scores, s) + (how === "softmax" ? ` \u2212 ${show(scores, shift)}` : "");
    return [[how === "sum" ? null : `exp(${power}) = ${factor(part(s))}`,
      `${factor(part(s))} / ${factor(sum)} = ${shown}`,
      `(${factor(sum)} is the sum over the row${sink.length ? " and the sink" : ""})`],
    [light(last, row)]];
  }
  if (base === "row_sums") {
    const from = steps.get(step.name.replace(base, "weights"));
    const parts = keys > 16 ? `all ${keys} weights of the row`
        : count(keys, (k) => show(from, at(from, item, head, 0, row, k))).join(" + ");
    return [[`${parts} = ${shown}`], [light(from.name, row)]];
  }
  if (base === "context" && weights) {
    const seen = count(keys, (k) => k).filter((k) => !masked(item, head, row, k));
    const {step: right, light: from} = operand("value", item, head, 0);
    const pairs = seen.map((k) => [at(weights, item, head, 0, row, k),
      operand("value", item, head, k).numbers[col]]);
    return [[`${sumOf({pairs, left: weights, right})} = ${shown}`], [light("weights", row),
      {step: right.name, item, head: from.head, col: from.first + col}]];
  }
  if (base === "merged_context") {
    const size = step.dims[4] / data.heads, h = Math.floor(col / size), c = col % size;
    return [[`number ${c} of head ${h}: ${shown}`], [{step: "context", item, head: h, row, col: c}]];
  }
  return [[shown], []];
}

// ---- Tooltip for a cell

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

for (const table of all("figure.map table")) {
  const first = table.querySelector("tbody td"), {step, item} = placeOf(table.closest("figure"));
  if (!first || !step) continue;
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
addEventListener("keydown", (event) => { if (event.key === "Escape") forget(); });

// ---- Pictures of large matrices: one pixel per number, enlarged by the style sheet

function paint(canvas) {
  const {step, item, head, plane} = placeOf(canvas.closest("figure"));
  const {width: cols, height: rows} = canvas, style = getComputedStyle(root);
  const rgb = (name) => style.getPropertyValue(name).trim().split(" ").map(Number);
  const paper = rgb("--paper-rgb"), above = rgb(step.base === "weights" ? "--green" : "--blue");
  const below = rgb("--orange");
  const pen = canvas.getContext("2d"), image = pen.createImageData(cols, rows);
  for (let i = 0; i < rows * cols; ++i) {
    const row = Math.floor(i / cols), x = at(step, item, head, plane, row, i % cols);
    const hidden = step.maskable && masked(item, head, row, i % cols);
    const share = Number.isFinite(x) ? Math.min(1, Math.abs(x) / (step.largest || 1)) : 0;
    // Most weights of a long row are small; the square root makes them visible.
    const v = step.base === "weights" ? Math.sqrt(share) : share, ink = x < 0 ? below : above;
    paper.forEach((c, k) => { image.data[4 * i + k] = c + (ink[k] - c) * v; });
    image.data[4 * i + 3] = hidden ? 0 : 255;
  }
  pen.putImageData(image, 0, 0);
}
const paintAll = () => all("figure.map:not([hidden]) canvas").forEach(paint);

for (const canvas of all("figure.map canvas")) {
  const {width: cols, height: rows} = canvas;
  const figure = canvas.closest("figure"), {step} = placeOf(figure);
  if (!step) {
    canvas.replaceWith(make("p", {class: "small"}, "Too many numbers for this page; ask for JSON."));
    continue;
  }
  const enlarge = (n, most) => n * clamp(Math.floor(600 / n), 1, most) + "px";
  canvas.style.width = enlarge(cols, 24);
  canvas.style.height = cols === rows ? "auto" : enlarge(rows, 16);
  canvas.tabIndex = 0;
  let here = [0, 0];
  const point = (row, col) => {
    here = [clamp(row, 0, rows - 1), clamp(col, 0, cols - 1)];
    const box = canvas.getBoundingClientRect(), top = box.top + here[0] / rows * box.height;
    tell({...placeOf(figure), row: here[0], col: here[1]},
        {left: box.left + here[1] / cols * box.width + 12, top, bottom: top + box.height / rows});
  };
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    point(Math.floor((event.clientY - box.top) / box.height * rows),
        Math.floor((event.clientX - box.left) / box.width * cols));
  });
  canvas.addEventListener("click", () => { if (step.rows === "q") choose(state.item, here[0]); });
  canvas.addEventListener("focus", () => point(...here));
  canvas.addEventListener("mouseleave", forget);
  canvas.addEventListener("blur", forget);
  canvas.addEventListener("keydown", (event) => {
    const [down, right] = ARROWS[event.key] || [];
    if (down === undefined) return;
    event.preventDefault();
    point(here[0] + down, here[1] + right);
  });
}

// ---- The story, rebuilt for another word (story.cc renders the initial one)

function heatCells(step, numbers) {
  const cells = numbers.slice(0, data.limits.numbers).map((x) => Number.isFinite(x)
      ? make("td", {class: x < 0 ? "n" : null,
        style: `--v:${(Math.abs(x) / (step.largest || 1)).toFixed(2)}`}, show(step, x))
      : make("td", {class: "odd"}, show(step, x)));
  return numbers.length > cells.length ? [...cells, make("td", {}, "\u2026")] : cells;
}
const rowOf = (step, head, plane, row) =>
    count(step.dims[4], (d) => at(step, state.item, head, plane, row, d));
const weightOf = (head, key) => at(weights, state.item, head, 0, state.query, key);
/** Returns all keys, or if there are many, those with the largest weights in any of the heads. */
function listed(heads, few = data.limits.table, most = data.limits.keys) {
  const list = count(keys, (k) => k);
  const size = (x) => Number.isNaN(x) ? -Infinity : x;
  const rank = list.map((k) => Math.max(...heads.map((head) => size(weightOf(head, k)))));
  return keys <= few ? list : list.sort((a, b) => rank[b] - rank[a] || a - b).slice(0, most);
}

function fillKeys(figure, head, cells) {
  const body = figure.querySelector("tbody"), rest = all(".rest", body);
  const lines = listed([head]).map((key) => [key, cells(key)]).filter(([, line]) => line);
  body.replaceChildren(...lines.map(([key, line]) => {
    const name = word("k", state.item, key);
    return make("tr", {}, make("th", {scope: "row", title: name}, bdi(name)), ...line);
  }), ...rest);
  if (!body.rows.length) {
    body.append(make("tr", {}, make("th", {scope: "row"}, "\u2013"),
        make("td", {colspan: 3}, "no key may be seen")));
  }
}
function fillWord(figure, head) {
  for (const line of all("tr[data-step]", figure)) {
    const name = plain(line.dataset.step), step = steps.get(name);
    line.replaceChildren(line.cells[0], ...heatCells(step, /embed|merged/.test(name)
        ? rowOf(step, head, 0, state.query) : operand(name, state.item, head, state.query).numbers));
  }
}
function fillList(figure, head) {
  const {item, query} = state, products = figure.querySelector("th.terms");
  const list = all("th[data-step]", figure).map((th) => steps.get(plain(th.dataset.step)));
  const main = list[list.length - 1];
  fillKeys(figure, head, (key) => {
    const cells = products ? [make("td", {class: "terms"},
        sumOf(scoreTerms(item, head, query, key)) + " =")] : [];
    for (const step of list) {
      cells.push(step.maskable && masked(item, head, query, key)
          ? make("td", {class: "m", "aria-label": "masked"}, "\u00b7")
          : make("td", {}, show(step, at(step, item, head, 0, query, key))));
    }
    const x = at(main, item, head, 0, query, key), v = Math.abs(x) / (main.largest || 1);
    const kind = "bar-cell" + (x < 0 ? " n" : "") + (main === weights ? " share" : "");
    cells.push(Number.isFinite(x) && x !== 0 ? make("td", {class: kind,
      style: `--v:${v.toFixed(3)}`}, make("i", {}, "\u00a0")) : make("td"));
    return cells;
  });
  for (const cell of all("tfoot [data-step]", figure)) {
    const sum = steps.get(plain(cell.dataset.step));
    cell.textContent = show(sum, at(sum, item, head, 0, query, 0));
  }
}
function fillContext(figure, head) {
  const {item, query} = state, context = steps.get("context");
  fillKeys(figure, head, (key) => {
    if (masked(item, head, query, key)) return null;
    const value = operand("value", item, head, key);
    return [make("td", {}, show(weights, weightOf(head, key))),
      make("td", {class: "times"}, "\u00d7"), ...heatCells(value.step, value.numbers)];
  });
  const foot = figure.querySelector("tfoot tr");
  foot.replaceChildren(foot.cells[0], foot.cells[1],
      ...heatCells(context, rowOf(context, head, 0, query)));
}
function fillHidden(figure, head) {
  const hidden = steps.get("hidden");
  fillKeys(figure, head, (key) => heatCells(hidden, rowOf(hidden, head, state.query, key)));
}
const FILL = {word: fillWord, merged: fillWord, scores: fillList, weights: fillList,
  context: fillContext, hidden: fillHidden};
// If the size of the page required omitting or coarsely rounding numbers, the initial story stays.
const whole = weights && !weights.u8 &&
    all(".tale [data-step]").every((node) => steps.has(plain(node.dataset.step)));

// ---- Arcs between two copies of the sentence, or two sentences

const glance = document.getElementById("glance");

function shorten(text) {
  const letters = [...text];
  return letters.length > 18 ? letters.slice(0, 12).join("") + "\u2026" + letters.slice(-4).join("") : text;
}

function drawArcs() {
  const old = document.getElementById("arcs"), width = old.parentNode.clientWidth;
  const {item, query} = state;
  // If there are many words, only the strongest links of the selected one, in sentence order.
  const indices = many ? [[query], listed([...state.heads], 24, 24).sort((a, b) => a - b)]
      : [count(queries, (i) => i), count(keys, (i) => i)];
  const names = indices.map((list, side) => list.map((i) =>
      shorten(placed(side ? "k" : "q", item, i))));

  // Words are laid out horizontally if they fit, otherwise vertically.
  const pen = document.createElement("canvas").getContext("2d"), gap = 26, line = 26;
  pen.font = "700 17px " + getComputedStyle(glance.querySelector("h2")).fontFamily;
  const sizes = names.map((list) => list.map((text) => pen.measureText(text).width + gap));
  const sums = sizes.map((list) => list.reduce((a, b) => a + b, 0));
  const flat = Math.max(...sums) <= width, across = flat ? width : Math.min(width, 620);
  const widest = sizes.map((list) => Math.max(...list));
  const longest = Math.max(...names.map((list) => list.length));
  const places = sizes.map((list, side) => {
    const room = Math.min(1.8, width / sums[side]), slot = line * longest / list.length;
    let x = (width - sums[side] * room) / 2;
    return list.map((size, i) => flat ? (x += size * room) - size * room / 2 : slot * (i + 0.5) + 8);
  });
  const height = flat ? 250 : line * longest + 16;
  const [from, to] = flat ? [34, height - 34] : [widest[0] - 10, across - widest[1] + 10];
  const svg = make("svg", {id: "arcs", role: "img", viewBox: `0 0 ${across} ${height}`,
    style: `max-width:${across}px`});

  const thick = 13 / Math.max(weights.largest, 0.3), arcs = [];
  for (const head of state.heads) {
    const aside = (head - (data.heads - 1) / 2) * (flat ? 5 : 3);
    indices[0].forEach((q, i) => indices[1].forEach((k, j) => {
      const w = at(weights, item, head, 0, q, k), m = (from + to) / 2;
      if (!(w > 0 && w >= state.least) || masked(item, head, q, k)) return;
      const a = places[0][i] + aside, b = places[1][j] + aside;
      const d = flat ? `M${a} ${from}C${a} ${m} ${b} ${m} ${b} ${to}`
          : `M${from} ${a}C${m} ${a} ${m} ${b} ${to} ${b}`;
      arcs.push({q, k, w, arc: make("path", {d, stroke: HEADS[head % HEADS.length],
        "stroke-width": Math.max(0.4, w * thick).toFixed(2),
        "stroke-dasharray": head >= HEADS.length ? "6 3" : null},
      make("title", {}, `${names[0][i]} \u2192 ${names[1][j]}: ${show(weights, w)}`))});
    }));
  }
  const group = make("g", {}, ...arcs.map(({arc}) => arc));
  svg.append(group);
  const light = (test) => arcs.forEach((one) => {
    one.arc.setAttribute("stroke-opacity", test(one) ? 0.85 : 0.12);
    if (test(one)) group.append(one.arc);  // the last element is drawn on top
  });
  const chosen = ({q}) => q === query;
  names.forEach((list, side) => list.forEach((text, n) => {
    const i = indices[side][n], place = places[side][n];
    svg.append(make("text", {
      "text-anchor": flat ? "middle" : side ? "start" : "end",
      class: side ? null : i === query ? "ask on" : "ask",
      x: flat ? place : side ? to + 6 : from - 6,
      y: flat ? (side ? to + 22 : from - 10) : place + 5,
      onmouseenter: () => light(({q, k}) => (side ? k : q) === i),
      onmouseleave: () => light(chosen),
      onclick: () => { if (!side) choose(item, i); }}, text));
  }));
  light(chosen);
  const told = arcs.filter(chosen).sort((a, b) => b.w - a.w).slice(0, 8)
      .map(({arc}) => arc.textContent).join("; ");
  svg.setAttribute("aria-label", `Arcs from words to the words they look at. ${told}`);
  old.replaceWith(svg);
}

function setUpArcs() {
  glance.hidden = false;
  const output = make("output", {}, "all"), controls = make("div", {class: "controls"},
      make("label", {}, "Show weights from", make("input", {type: "range", min: 0, max: 100, value: 0,
        oninput: (event) => {
          state.least = weights.largest * Number(event.target.value) / 100;
          output.textContent = state.least ? fixed(state.least, 3) : "all";
          drawArcs();
        }}), output));
  for (let head = 0; head < data.heads; ++head) {
    state.heads.add(head);
    if (data.heads > 1) {
      controls.append(button({class: "plain", "aria-pressed": true, onclick: (event) => {
        const on = !state.heads.delete(head);
        if (on) state.heads.add(head);
        event.currentTarget.setAttribute("aria-pressed", on);
        drawArcs();
      }}, make("span", {class: "swatch", style: `background:${HEADS[head % HEADS.length]}`}),
      `head ${head}`));
    }
  }
  glance.append(make("p", {class: "reading"}, data.source ? "Two sentences" : "The sentence twice",
      ": the words that ask, and the words they look at; the thicker, the more. Choose a word."),
  controls, make("div", {}, make("svg", {id: "arcs"})));
}

// ---- Selecting a word

function update({retell} = {}) {
  const {item, query} = state;
  for (const node of all("[data-item]")) {
    node.hidden = Number(node.dataset.item) >= 0 && Number(node.dataset.item) !== item;
  }
  for (const node of all("[data-plane] + [data-plane], [data-plane]:not(:last-child)")) {
    node.hidden ||= Number(node.dataset.plane) !== query;
  }
  for (const list of all(".chips")) {
    all("button", list).forEach((chip, i) => {
      chip.setAttribute("aria-pressed", i === query);
      if (i !== query || list.hidden) return;
      list.scrollTop = chip.offsetTop - list.offsetTop - list.clientHeight / 2 + 16;
      list.scrollLeft = chip.offsetLeft - list.offsetLeft - list.clientWidth / 2 + 30;
    });
  }
  all("tr.q").forEach((line) => line.classList.remove("q"));
  for (const figure of all("figure.map")) {
    if (placeOf(figure).step?.rows === "q") {
      figure.querySelector("tbody")?.rows[query].classList.add("q");
    }
  }
  if (whole && retell) {
    all(".focus-word").forEach((node) => node.replaceChildren(bdi(word("q", item, query))));
    all(".tale").forEach((tale) => FILL[tale.dataset.kind](tale, Number(tale.dataset.head)));
  }
  if (weights) drawArcs();
}
function choose(item, query) {
  const moved = item !== state.item;
  Object.assign(state, {item, query});
  update({retell: true});
  if (moved) paintAll();
}

// ---- The bar (words, batch item, walk) and the theme button

function setUpBar() {
  const bar = document.getElementById("bar");
  for (const list of all(".chips")) {
    list.setAttribute("aria-label", "Choose the word that asks");
    all("li", list).forEach((place, i) => place.append(button({title: place.textContent,
      onclick: () => choose(Number(list.dataset.item), i)}, ...place.childNodes)));
  }
  if (data.tokens.length > 1) {
    bar.append(make("label", {class: "controls"}, "item", make("select", {
      onchange: (event) => choose(Number(event.target.value), state.query)},
    ...data.tokens.map((_, i) => make("option", {value: i, selected: i === state.item ? "" : null},
        String(i))))));
  }
  document.querySelector(".banner").append(button({class: "plain", title: "Light or dark",
    "aria-label": "Light or dark", onclick: () => {
      const dark = (root.dataset.theme ?? getComputedStyle(root).colorScheme) === "dark";
      root.dataset.theme = dark ? "light" : "dark";
      paintAll();
    }}, "\u25d0"));

  const sections = all("section.step"), output = make("output");
  const slider = make("input", {type: "range", min: 0, max: sections.length - 1, value: 0,
    "aria-label": "Walk through the steps", oninput: () => {
      jumped = Date.now();
      mark(Number(slider.value));
      sections[slider.value].scrollIntoView();
    }});
  let jumped = 0;
  const mark = (i) => {
    const names = sections[i].dataset.step.split(" ").map(plain);
    const title = `${i + 1}  ${sections[i].querySelector(".title").textContent}`;
    slider.value = i;
    slider.setAttribute("aria-valuetext", title);
    output.textContent = title;
    for (const box of all("#flow a")) {
      if (names.includes(box.dataset.step)) box.setAttribute("aria-current", "step");
      else box.removeAttribute("aria-current");
    }
  };
  addEventListener("scroll", () => {
    if (Date.now() - jumped < 900) return;  // still scrolling to the slider's section
    const above = sections.filter((one) => one.getBoundingClientRect().top < innerHeight * 0.4);
    mark(Math.max(0, above.length - 1));
  }, {passive: true});
  bar.append(make("div", {class: "controls walk"}, make("label", {}, "Walk", slider), output));
  mark(0);
  new ResizeObserver(() => root.style.setProperty("--bar", bar.offsetHeight + "px")).observe(bar);
}

// ---- Copying numbers

function nested(step, write) {
  let i = 0;
  const exact = (x) => Number.isFinite(x) ? String(Number(x.toPrecision(step.digits))) : write(x);
  const level = ([extent, ...rest]) => extent === undefined ? exact(step.values[i++])
      : "[" + count(extent, () => level(rest)).join(", ") + "]";
  return level(step.shape);
}
const FORMATS = {
  NumPy: (step) => "np.array(" + nested(step, (x) => special(x).replace(/[a-z]+/, "np.$&")) + ")",
  JSON: (step) => nested(step, (x) => `"${special(x)}"`),
  LaTeX: (step) => {
    const [batch, heads, planes, rows, cols] = step.dims;
    const entry = (x) => Number.isFinite(x) ? show(step, x)
        : special(x).replace("inf", "\\infty").replace("nan", "\\mathrm{nan}");
    return count(batch * heads * planes, (m) => "\\begin{bmatrix}\n" + count(rows, (r) =>
      count(cols, (c) => entry(step.values[(m * rows + r) * cols + c])).join(" & ")).join(" \\\\\n") +
      "\n\\end{bmatrix}").join("\n");
  },
};

async function copy(text, node) {
  const name = node.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // the clipboard API is not permitted here
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  node.textContent = "copied";
  setTimeout(() => { node.textContent = name; }, 1200);
}

function setUpCopying() {
  for (const section of all("section.step")) {
    const step = steps.get(section.dataset.step.split(" ")[0]);
    if (!step) continue;
    section.querySelector("h3").append(make("span", {class: "tools"}, "copy as ",
        ...Object.entries(FORMATS).map(([name, write]) => button({
          "aria-label": `Copy ${step.title} as ${name}`,
          onclick: (event) => copy(write(step), event.currentTarget)}, name))));
  }
  const scene = document.getElementById("scene-json");
  scene?.before(button({class: "plain",
    onclick: (event) => copy(scene.textContent, event.currentTarget)}, "copy"));
}

// ---- Start

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
})();
