// SPDX-License-Identifier: Apache-2.0
//
// State of the page, its data, and number formats. The page is complete without its script. All
// displayed data comes from the JSON in #data and is inserted as text nodes, so that words of a scene
// can never become markup. The scripts of this folder are joined in the order of src/CMakeLists.txt
// and run in one function scope in strict mode.

const root = document.documentElement;
const data = JSON.parse(document.getElementById("data").textContent);
const texts = JSON.parse(document.getElementById("texts").textContent);
const state = {item: 0, query: 0, step: 0, moved: false, edited: false, least: 0, head: null, heads: new Set()};
// Okabe and Ito's colours, which are distinguishable with colour blindness. Further heads reuse
// them with dashed lines.
const HEADS = ["#009e73", "#d55e00", "#0072b2", "#cc79a7", "#e69f00", "#56b4e9"];
const STAGES = ["scores", "scaled_scores", "softcapped_scores", "biased_scores", "masked_scores"];
const ARROWS = {ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1]};
/** @type {(selector: string, within?: any) => any[]} */
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const byId = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const count = (n, f) => Array.from({length: n}, (_, i) => f(i));
const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const plain = (name) => name.replace("focus.", "");

/**
 * Creates an element with attributes, listeners (on...) and children; strings become text.
 * @returns {any} an element of the tag's type
 */
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
/** Returns a text of the page with its {placeholders} replaced (texts/en.json). */
const text = (key, values = {}) =>
    texts[key].replace(/\{(\w+)\}/g, (mark, name) => name in values ? values[name] : mark);
const bdi = (word) => make("bdi", {}, word);
const button = (attributes, ...children) => make("button", {type: "button", ...attributes}, ...children);

// ---- Numbers

const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

/** Returns the last of the stages of the scores among these names. */
const finalStage = (/** @type {string[]} */ names) => STAGES.filter((name) => names.includes(name)).pop();
/** Returns the sinks in the arithmetic of a step. */
const sinksOf = ({single}) => (data.score.sinks ?? []).map((x) => single ? Math.fround(number(x)) : number(x));
const steps = new Map(), finalScores = finalStage(data.steps.map(({name}) => name));
for (const step of data.steps) {
  const {v, single, f32, u16, u8, low, high} = step;
  step.digits = v ? 17 : f32 ? 7 : u16 ? 5 : 3;
  if (v) step.values = v.map(single ? (x) => Math.fround(number(x)) : number);
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
  step.base = baseName(step.name);
  // The data omits the digits of exponents, which are more than two only if a number has three.
  const others = step.name === finalScores ? sinksOf(step) : [];
  step.exponent = step.sci ? stepFormat(step.base, step.values, 0, false, others).exponent : 2;
  steps.set(step.name, step);
}
const kindOf = (step) => (/\[(.*)\]/.exec(step.name) || [0, data.score.how])[1];
/** Adds the parts of softmax, which the data omits because they follow from the scores. */
function addSoftmaxParts() {
  const scores = steps.get(last);
  if (!scores) return;
  const {values: final, single, digits} = scores, round = single ? Math.fround : (x) => x;
  const [batch, heads, , rows, cols] = scores.dims;
  const sinks = data.score.sinks && sinksOf(scores);
  const visible = mask ? Array.from(final, (_, i) => !(mask[i >> 3] >> (i & 7) & 1)) : new Uint8Array(final.length).fill(1);
  for (const of of [...steps.values()].filter((step) => step.base === "weights")) {
    const kind = kindOf(of), variant = of.name.slice("weights".length);
    if (kind === "sum" || steps.has("exponentials" + variant)) continue;
    const {shifted, parts, sums, ofSinks} = softmaxParts({kind, final, visible, keys: cols, heads, queries: rows, sinks, round});
    const add = (base, values, columns, /** @type {number[]} */ others = []) => steps.set(base + variant, {name: base + variant, base, values, digits,
      title: text(`step.${base}.title`), dims: [batch, heads, 1, rows, columns], rows: "q", cols: base === "exponential_sums" ? "d" : "k",
      maskable: mask !== null && base !== "exponential_sums", single, ...stepFormat(base, values, data.precision, single, others)});
    if (kind === "softmax") add("shifted_scores", shifted, cols, ofSinks.shifted);
    add("exponentials", parts, cols, ofSinks.parts);
    add("exponential_sums", sums, 1);
  }
}
/** What follows from the words and steps, which the editor can change. */
let mask, queries, keys, /** @type {any} */ weights, last, many;
function derive() {
  mask = typeof data.mask === "string" ? bytes(data.mask) : data.mask;
  queries = data.tokens[0].length;
  keys = (data.source || data.tokens)[0].length;
  many = queries > 40 || keys > 40;
  weights = steps.get("weights");
  last = finalStage([...steps.keys()]);
  addSoftmaxParts();
}
derive();

function indexOf(step, item, head, plane, row, col) {
  const [batch, heads, planes, rows, cols] = step.dims;
  const b = batch > 1 ? item : 0, h = heads > 1 ? head : 0, p = planes > 1 ? plane : 0;
  return (((b * heads + h) * planes + p) * rows + row) * cols + col;
}
/** For each step, the indices of the numbers that open questions ask for, with the questions. */
const asked = new Map();
const questionAt = (step, i) => asked.size > 0 && !state.edited ? asked.get(step.name)?.get(i) : undefined;
/** Returns a number; undefined, which is shown as "?", if a question asks for it. */
function at(step, item, head, plane, row, col) {
  const i = indexOf(step, item, head, plane, row, col);
  return questionAt(step, i) === undefined ? step.values[i] : undefined;
}
/** Returns a number for computations, also if a question asks for it. */
const known = (step, item, head, plane, row, col) => step.values[indexOf(step, item, head, plane, row, col)];
function masked(item, head, query, key) {
  const i = ((item * data.heads + head) * queries + query) * keys + key;
  return mask !== null && (mask[i >> 3] >> (i & 7) & 1) === 1;
}
function word(axis, item, i) {
  return axis === "d" ? String(i) : (axis === "k" && data.source || data.tokens)[item][i];
}
/** Returns a label. If there are many words, the position distinguishes repeated ones. */
const placed = (axis, item, i) => word(axis, item, i) + (many && axis !== "d" ? ` \u00b7 ${i}` : "");

/** Formats a number that is not part of a step, without trailing zeros. */
function factor(x) {
  if (!Number.isFinite(x)) return special(x);
  if (x !== 0 && Math.abs(x) < 10 ** -data.precision) return x.toExponential(2);
  const long = fixed(x, data.precision);
  return (long.includes(".") ? long.replace(/\.?0+$/, "") : long).replace(/^-0$/, "0");
}
/**
 * Products of pairs [a, b], and the steps whose formats a and b have; without a step, a factor's.
 * @typedef {{pairs: any[], left?: any, right?: any}} Products
 */
/**
 * Formats a1*b1 + a2*b2 + ...; if there are more than `most` products, only the largest.
 * @param {Products} products
 */
function sumOf({pairs, left, right}, most = 12) {
  const write = (step, x) => step ? show(step, x) : factor(x);
  const size = ([a, b]) => Math.abs(a * b);
  const shown = pairs.length <= most ? pairs
      : [...pairs].sort((x, y) => size(y) - size(x)).slice(0, most);
  return shown.map(([a, b]) => {
    const second = write(right, b);
    return write(left, a) + "\u00b7" + (b < 0 ? `(${second})` : second);
  }).join(" + ") + (shown === pairs ? "" : ` + \u2026 (${text("sum.more", {n: pairs.length - most})})`);
}
