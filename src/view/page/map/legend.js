// SPDX-License-Identifier: Apache-2.0
//
// The legend of a map: the colours and the range of weights that they cover, a histogram of the cells
// in view, what a cell stands for, and the choices of appearance.

import {COLORS, TONES, brief, css, heatOf, nanColor, rampColor, roundWeights, toneWords, weightOf} from "../shared/colors.js";
import {button, choice, make, whole} from "../shared/dom.js";
import {FIRST_CODE, UNKNOWN, valueOf} from "../shared/frame.js";
import {themeColor} from "../shared/theme.js";

/** @typedef {import("./page.js").MapPage} MapPage */
/** @typedef {import("../shared/colors.js").Range} Range */

const WIDTH = 296, HISTOGRAM = 44, BAR = 16, SIDE = 12, TICKS = 20;
const INNER = WIDTH - 2 * SIDE;
const LEAST = 2 ** -64;

export class Legend {
  /** @type {"bottom" | "top" | null} */
  #dragged = null;
  /** @type {Float64Array} counts of the cells in view by log16 code / 128 */
  #histogram = new Float64Array(512);
  #unknown = false;

  /** @param {MapPage} page */
  constructor(page) {
    this.page = page;
    this.canvas = make("canvas", {class: "colours", role: "img"});
    this.canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => this.#grab(event));
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => this.#drag(event));
    this.canvas.addEventListener("pointerup", () => { this.#dragged = null; });
    this.meaning = make("p", {class: "small"});
    const field = (/** @type {string} */ name, /** @type {0 | 1} */ end) => {
      const input = make("input", {size: 8, "aria-label": name, inputmode: "decimal", spellcheck: "false", autocomplete: "off",
        onchange: () => this.#typed(end, input.value)});
      return input;
    };
    this.ends = [field("Smallest weight of the colours", 0), field("Largest weight of the colours", 1)];
    this.keep = button({onclick: () => page.keepRange(), title: "k"}, "");
    const pick = (/** @type {string} */ name, /** @type {[string, string][]} */ options, /** @type {string} */ field) =>
      choice(name, options, "", (value) => page.setAppearance({[field]: value}));
    this.choices = {
      reduce: choice("Cells", [["max", "largest weight"], ["mean", "mean weight"]], "",
          (value) => page.setAppearance({reduce: /** @type {"max" | "mean"} */ (value)})),
      tone: pick("Tone", toneWords(TONES), "tone"), colormap: pick("Colours", COLORS.map((name) => [name, name]), "colormap"),
    };
    this.swatches = make("p", {class: "small swatches"});
    this.unknown = make("div", {hidden: true}, make("p", {class: "small swatches"}, make("i", {class: "swatch unknown-pairs"}), "not computed yet", make("i", {class: "exact-rows"}), "exact rows"),
        make("p", {class: "small"}, `The other rows are a preview: one query stands for each ${whole(page.of.status.row_block)}, so that the largest weights seem smaller.`));
    this.node = make("section", {class: "legend", "aria-label": "Legend"}, make("h2", {}, "Colours"), this.meaning, this.canvas,
        make("div", {class: "ends"}, this.ends[0], this.keep, this.ends[1]),
        make("div", {class: "choices"}, ...Object.values(this.choices)), this.swatches, this.unknown);
  }

  /** The codes of the cells in view were counted anew. */
  setHistogram(/** @type {Float64Array} */ counts) {
    this.#histogram = counts;
    this.draw();
  }

  /** Shows the state of the page. */
  update() {
    const {page} = this, {state} = page, range = page.range();
    const select = (/** @type {HTMLElement} */ label) => /** @type {HTMLSelectElement} */ (label.querySelector("select"));
    for (const [name, label] of Object.entries(this.choices)) select(label).value = String(state[/** @type {"tone"} */ (name)]);
    this.ends.forEach((input, end) => {
      if (document.activeElement !== input) input.value = brief(range[end]);
    });
    this.ends[0].disabled = state.tone !== "log";
    this.keep.textContent = state.range ? "Reset range" : "Keep range";
    this.meaning.textContent = this.#meaning();
    const hatch = make("i", {class: "swatch hidden-pairs"}), odd = make("i", {class: "swatch odd-pairs"}, "\u00d7");
    odd.style.background = css(nanColor(state.colormap));
    this.swatches.replaceChildren(hatch, "hidden by the mask ", odd, "nan");
    this.setUnknown(this.#unknown);
    this.draw();
  }

  /** Explains cells that are not computed yet and previews, while there are any in view. */
  setUnknown(/** @type {boolean} */ unknown) {
    this.#unknown = unknown;
    this.unknown.hidden = !unknown;
  }

  #meaning() {
    const {page} = this, side = 2 ** page.level;
    const cell = side === 1 ? "A cell is one weight" : `A cell is the ${page.reduce === "max" ? "largest" : "mean"} of ${whole(side)} \u00d7 ${whole(side)} weights`;
    if (page.state.reduce === "mean" && page.reduce === "max" && side > 1) {
      const most = whole(2 ** Math.max(0, page.of.status.mean_levels - 1));
      return `${cell}. Zoom in for means: there are some of up to ${most} \u00d7 ${most} weights.`;
    }
    return cell + ".";
  }

  #toX(/** @type {number} */ weight) {
    return SIDE + Math.min(1, Math.max(0, heatOf(this.page.state.tone, this.page.range(), weight))) * INNER;
  }

  draw() {
    const {page} = this, {tone, colormap} = page.state, range = page.range(), ratio = devicePixelRatio || 1;
    const height = HISTOGRAM + BAR + TICKS;
    this.canvas.width = Math.round(WIDTH * ratio);
    this.canvas.height = Math.round(height * ratio);
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    pen.scale(ratio, ratio);
    const ink = themeColor("--ink"), soft = themeColor("--soft"), line = themeColor("--line");
    for (let x = 0; x < INNER; ++x) {
      pen.fillStyle = css(rampColor(colormap, x / (INNER - 1)));
      pen.fillRect(SIDE + x, HISTOGRAM, 1.5, BAR);
    }
    this.#bars(pen, soft);
    pen.strokeStyle = line;
    pen.strokeRect(SIDE - 0.5, HISTOGRAM - 0.5, INNER + 1, BAR + 1);
    // Handles for the ends.
    pen.fillStyle = ink;
    for (const x of tone === "log" ? [SIDE, SIDE + INNER] : [SIDE + INNER]) pen.fillRect(x - 2, HISTOGRAM - 4, 4, BAR + 8);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "top";
    for (const weight of roundWeights(tone, range)) {
      const x = this.#toX(weight), text = brief(weight), half = pen.measureText(text).width / 2;
      pen.fillStyle = soft;
      pen.fillRect(Math.round(x), HISTOGRAM + BAR, 1, 4);
      pen.fillText(text, Math.min(WIDTH - 2 * half - 1, Math.max(1, x - half)), HISTOGRAM + BAR + 6);
    }
    this.#mark(pen, ink);
    this.canvas.setAttribute("aria-label", `Colours ${colormap}, ${tone}, for weights from ${brief(tone === "log" ? range[0] : 0)} to ${brief(range[1])}; above them a histogram of the cells in view`);
  }

  #bars(/** @type {CanvasRenderingContext2D} */ pen, /** @type {string} */ color) {
    const {tone} = this.page.state, range = this.page.range(), bars = new Float64Array(68);
    this.#histogram.forEach((count, i) => {
      if (!count) return;
      const heat = heatOf(tone, range, valueOf(Math.max(FIRST_CODE, i * 128 + 64)));
      bars[Math.min(bars.length - 1, Math.max(0, Math.floor(heat * bars.length)))] += count;
    });
    const most = Math.max(...bars);
    pen.fillStyle = color;
    // Square roots, so that rare large weights can be seen beside many small ones.
    const wide = INNER / bars.length;
    if (most > 0) bars.forEach((count, i) => {
      const high = count ? Math.max(1, Math.sqrt(count / most) * (HISTOGRAM - 8)) : 0;
      pen.fillRect(SIDE + i * wide, HISTOGRAM - 4 - high, wide - 0.5, high);
    });
  }

  /** The weight of the cell that the panel shows. */
  #mark(/** @type {CanvasRenderingContext2D} */ pen, /** @type {string} */ color) {
    const weight = this.page.shownWeight;
    if (weight === null || !Number.isFinite(weight)) return;
    const x = this.#toX(weight);
    pen.fillStyle = color;
    pen.beginPath();
    pen.moveTo(x, HISTOGRAM + 1);
    pen.lineTo(x - 5, HISTOGRAM - 7);
    pen.lineTo(x + 5, HISTOGRAM - 7);
    pen.fill();
  }

  #grab(/** @type {PointerEvent} */ event) {
    const nearTop = event.offsetX > WIDTH / 2 || this.page.state.tone !== "log";
    this.#dragged = nearTop ? "top" : "bottom";
    this.canvas.setPointerCapture(event.pointerId);
    this.#drag(event);
  }

  /** An end moves to the weight that had the colour under the pointer; beyond the bar, further out. */
  #drag(/** @type {PointerEvent} */ event) {
    if (!this.#dragged) return;
    const {tone} = this.page.state, [bottom, top] = this.page.range();
    const heat = Math.min(1.02, Math.max(-0.02, (event.offsetX - SIDE) / INNER));
    const weight = weightOf(tone, [bottom, top], heat);
    if (this.#dragged === "top") this.#set([bottom, Math.min(1, weight)]);
    else this.#set([Math.max(LEAST, weight), top]);
  }

  #typed(/** @type {0 | 1} */ end, /** @type {string} */ text) {
    const value = Number(text), range = this.page.range();
    if (text.trim() && Number.isFinite(value) && value > 0 && value <= 1) range[end] = value;
    this.#set(range);
    this.update();
  }

  #set(/** @type {Range} */ [bottom, top]) {
    if (!(bottom > 0) || !(top > 0)) return;
    const rounded = /** @type {Range} */ ([bottom, top].map((weight) => Number(weight.toPrecision(3))));
    if (rounded[0] * 1.5 < rounded[1]) this.page.setAppearance({range: rounded});
  }
}

/** Counts the codes of cells, a sample of them if there are many. */
export function histogramOf(/** @type {(Uint16Array | null)[]} */ tiles) {
  const counts = new Float64Array(512), total = tiles.reduce((sum, codes) => sum + (codes?.length ?? 0), 0);
  const step = Math.max(1, Math.floor(total / 300000)) | 1;
  for (const codes of tiles) {
    if (!codes) continue;
    for (let i = 0; i < codes.length; i += step) if (codes[i] >= 2 && codes[i] !== UNKNOWN) ++counts[codes[i] >> 7];
  }
  return counts;
}
