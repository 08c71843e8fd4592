// SPDX-License-Identifier: Apache-2.0
//
// Colours of weights, as in src/picture/colors.cc: a tone maps a weight to a heat from 0 to 1, a colour
// map the heat to a colour. Viridis and magma are by van der Walt and Smith (CC0), cividis by Nunez,
// Anderton and Renslow (2018), the diverging map is PuOr by Brewer. All are sampled at eleven stops.

import {FIRST_CODE, HIDDEN, NAN, UNKNOWN, codeOf, valueOf} from "./frame.js";

export const COLORS = /** @type {const} */ (["viridis", "magma", "cividis", "grey"]);
export const TONES = /** @type {const} */ (["log", "sqrt", "linear"]);
const TONE_WORDS = {log: "logarithm", sqrt: "square root", linear: "linear"};
/** Returns tones with their names for readers. */
export const toneWords = (/** @type {readonly ToneName[]} */ tones) => tones.map((tone) => /** @type {[string, string]} */ ([tone, TONE_WORDS[tone]]));
/**
 * @typedef {typeof COLORS[number]} ColorName
 * @typedef {typeof TONES[number]} ToneName
 * @typedef {[bottom: number, top: number]} Range weights at the ends of the colours
 */

/**
 * The default range of the largest weights of cells, at every level.
 * @type {Range}
 */
export const WHOLE_RANGE = [1e-6, 1];

/** @type {Record<string, number[]>} */
const RAMPS = {
  viridis: [0x440154, 0x482576, 0x414487, 0x35608d, 0x2a788e, 0x21908c, 0x22a884, 0x43bf71, 0x7ad151, 0xbbdf27, 0xfde725],
  magma: [0x000004, 0x140e36, 0x3b0f70, 0x641a80, 0x8c2981, 0xb73779, 0xde4968, 0xf7705c, 0xfe9f6d, 0xfecf92, 0xfcfdbf],
  cividis: [0x00224e, 0x083370, 0x35456c, 0x4f576c, 0x666970, 0x7d7c78, 0x948e77, 0xaea371, 0xc8b866, 0xe5cf52, 0xfee838],
  grey: [0x000000, 0xffffff],
  difference: [0x2d004b, 0x532687, 0x8073ac, 0xb1aad1, 0xd8daeb, 0xf6f6f7, 0xfee0b6, 0xfcb761, 0xe08214, 0xb25706, 0x7f3b08],
  // For dark pages: zero has a dark colour.
  dark_difference: [0xd5c4ff, 0xb7a0f0, 0x957cd4, 0x6f58a8, 0x4a3d70, 0x2a2a30, 0x5c4220, 0x8a5c1c, 0xb97a1a, 0xe79c2c, 0xffd08a],
};
/**
 * NaN has a colour that the map does not contain.
 * @type {Record<string, number>}
 */
const NAN_COLORS = {viridis: 0xff2d55, magma: 0x00d6a3, cividis: 0xff2d55, grey: 0xff2d55, difference: 0x00b050, dark_difference: 0x00b050};

/** Returns the colour of a heat, clamped to 0 to 1, as 0xrrggbb. */
export function rampColor(/** @type {string} */ name, /** @type {number} */ heat) {
  const ramp = RAMPS[name], place = Math.min(1, Math.max(0, heat)) * (ramp.length - 1);
  const below = Math.min(Math.floor(place), ramp.length - 2), share = place - below;
  let color = 0;
  for (const shift of [16, 8, 0]) {
    const from = ramp[below] >> shift & 255, to = ramp[below + 1] >> shift & 255;
    color |= Math.round(from * (1 - share) + to * share) << shift;
  }
  return color;
}

/** Returns "#440154". */
export const css = (/** @type {number} */ color) => "#" + color.toString(16).padStart(6, "0");

export const nanColor = (/** @type {string} */ name) => NAN_COLORS[name];

/** Returns a pixel of ImageData, opaque, on little-endian machines (all that browsers run on). */
const pixelOf = (/** @type {number} */ color) =>
  (0xff000000 | (color & 255) << 16 | color & 0xff00 | color >> 16) >>> 0;

/** Returns the heat of a weight, which may be outside 0 to 1. */
export function heatOf(/** @type {ToneName} */ tone, /** @type {Range} */ [bottom, top], /** @type {number} */ weight) {
  if (tone === "linear") return weight / top;
  if (tone === "sqrt") return Math.sqrt(weight / top);
  return weight <= bottom ? 0 : Math.log(weight / bottom) / Math.log(top / bottom);
}

/** Returns the weight of a heat: the inverse of heatOf(). */
export function weightOf(/** @type {ToneName} */ tone, /** @type {Range} */ [bottom, top], /** @type {number} */ heat) {
  if (tone === "linear") return heat * top;
  if (tone === "sqrt") return heat * heat * top;
  return bottom * (top / bottom) ** heat;
}

/** The weights of all codes, once needed. */
let known = new Float64Array(0);
function valuesOfCodes() {
  if (known.length) return known;
  known = new Float64Array(65536);
  // 1,023 codes further, the weight is twice as large.
  for (let code = 0; code < 65536; ++code) known[code] = code < FIRST_CODE + 1023 ? valueOf(code) : 2 * known[code - 1023];
  return known;
}

/**
 * Returns the pixel of each of the 65,536 codes of a frame. Hidden and unknown cells are
 * transparent: the pattern under them shows.
 * @param {ColorName} name
 * @param {ToneName} tone
 * @param {Range} range
 */
export function colorLookup(name, tone, range) {
  const steps = Uint32Array.from({length: 1025}, (_, i) => pixelOf(rampColor(name, i / 1024)));
  const lookup = new Uint32Array(65536), [bottom, top] = range;
  const values = valuesOfCodes();
  // Codes are logarithms: with a logarithmic tone, the heat is linear in the code.
  const per = 1 / (1023 * Math.log2(top / bottom)), zero = codeOf(bottom);
  for (let code = 2; code < 65536; ++code) {
    const heat = tone === "log" ? (code - zero) * per : tone === "sqrt" ? Math.sqrt(values[code] / top) : values[code] / top;
    lookup[code] = steps[Math.round(heat > 1 ? 1024 : heat > 0 ? heat * 1024 : 0)];
  }
  lookup[HIDDEN] = lookup[UNKNOWN] = 0;
  lookup[NAN] = pixelOf(nanColor(name));
  return lookup;
}

/** @typedef {"difference" | "dark_difference"} DifferenceRamp */

/** Returns the pixel of a difference in [-most, most]; nan has the colour of nan. */
export function differencePixel(/** @type {number} */ difference, /** @type {number} */ most, /** @type {DifferenceRamp} */ ramp) {
  if (Number.isNaN(difference)) return pixelOf(nanColor(ramp));
  return pixelOf(rampColor(ramp, 0.5 + difference / (2 * most)));
}

/** Returns round weights from bottom to top, for ticks: powers of ten, or 1, 2 and 5 times these. */
export function roundWeights(/** @type {ToneName} */ tone, /** @type {Range} */ range, most = 7) {
  const [bottom, top] = range, least = tone === "log" ? bottom : top / 100;
  const decades = Math.log10(top / least), digits = tone === "log" && decades > 2.5 ? [1] : [1, 2, 5];
  const found = tone === "log" ? [] : [0];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(top)); ++power) {
    for (const digit of digits) {
      const weight = Number(`${digit}e${power}`);
      if (weight >= least * 0.999 && weight <= top * 1.001) found.push(weight);
    }
  }
  // Too close ones are left out from the top, which stays.
  const kept = [];
  let last = Infinity;
  for (const weight of found.reverse()) {
    const at = heatOf(tone, range, weight);
    if (last - at < 1 / most || (weight > 0 && tone !== "log" && at < 1 / most)) continue;
    kept.push(weight);
    last = at;
  }
  return kept.reverse();
}

/** Returns a weight as the text of a tick: "0.01", "1e-6". */
export function brief(/** @type {number} */ weight) {
  if (weight !== 0 && Math.abs(weight) < 1e-3) return weight.toExponential(2).replace(/\.?0+e/, "e");
  return String(Number(weight.toPrecision(3)));
}

/**
 * Returns a pattern of `side` x `side` device pixels on paper.
 * @param {CanvasRenderingContext2D} context
 * @param {string} paper
 * @param {number} side
 * @param {(pen: CanvasRenderingContext2D) => void} draw
 */
function pattern(context, paper, side, draw) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.fillStyle = paper;
  pen.fillRect(0, 0, side, side);
  draw(pen);
  return /** @type {CanvasPattern} */ (context.createPattern(canvas, "repeat"));
}

/** Returns the period of the patterns in device pixels. */
export const patternSide = (/** @type {number} */ ratio) => Math.max(4, Math.round(8 * ratio));

/**
 * Returns a hatching for hidden cells.
 * @param {CanvasRenderingContext2D} context
 * @param {string} paper
 * @param {string} line
 * @param {number} ratio device pixels per CSS pixel
 */
export function hatching(context, paper, line, ratio = 1) {
  const side = patternSide(ratio);
  return pattern(context, paper, side, (pen) => {
    pen.strokeStyle = line;
    pen.lineWidth = Math.max(1, 1.25 * ratio);
    pen.beginPath();
    for (const shift of [-side, 0, side]) {
      pen.moveTo(shift - 1, side + 1);
      pen.lineTo(shift + side + 1, -1);
    }
    pen.stroke();
  });
}

/**
 * Returns dots for cells that are not computed yet.
 * @param {CanvasRenderingContext2D} context
 * @param {string} paper
 * @param {string} dot
 * @param {number} ratio device pixels per CSS pixel
 */
export function dots(context, paper, dot, ratio = 1) {
  const side = patternSide(ratio), size = Math.max(1, Math.round(ratio));
  return pattern(context, paper, side, (pen) => {
    pen.fillStyle = dot;
    pen.fillRect(side >> 2, side >> 2, size, size);
  });
}
