// SPDX-License-Identifier: Apache-2.0
//
// Frames: tiles of weights as the server sends them (src/view/explorer/frame.h has the format).
// Weights are 16-bit logarithms ("log16"), so that a change of colours needs no request.

export const HIDDEN = 0, NAN = 1, ZERO = 2, UNKNOWN = 65535;
/** What is known of a row of cells; below FINAL it will change. */
export const ROW = /** @type {const} */ ({UNKNOWN: 0, PREVIEW: 1, FINAL: 2});
export const FIRST_CODE = 3;
const FIRST = FIRST_CODE, LAST = 65475, STEPS = 1023, OCTAVES = 64;
const HEADER = 40;

/**
 * `codes` is null if all cells are hidden (`allHidden`), `states` if all rows are final; otherwise it
 * has a ROW of each.
 * @typedef {{reduce: "mean" | "max", level: number, x: number, y: number, columns: number, rows: number,
 *   hasHidden: boolean, allHidden: boolean, hasNan: boolean, smallest: number, largest: number,
 *   codes: Uint16Array | null, states: Uint8Array | null}} Frame
 */

/** Returns the weight of a code: nan for a hidden or unknown one and for nan. */
export const valueOf = (/** @type {number} */ code) =>
  code === UNKNOWN ? NaN : code >= FIRST ? 2 ** ((code - FIRST) / STEPS - OCTAVES) : code === ZERO ? 0 : NaN;

/** Returns the code of a weight, as the server does. */
export function codeOf(/** @type {number} */ weight) {
  if (Number.isNaN(weight)) return NAN;
  if (weight <= 0) return ZERO;
  return Math.min(LAST, Math.max(FIRST, FIRST + Math.round(STEPS * (OCTAVES + Math.log2(weight)))));
}

/**
 * Reads the frame at `offset`.
 * @param {ArrayBuffer} buffer
 * @param {number} offset
 * @returns {Frame & {end: number}} with the offset of the next frame; throws Error if it is not a frame
 */
export function readFrame(buffer, offset = 0) {
  if (buffer.byteLength < offset + HEADER) throw new Error(`frame: expected ${HEADER} bytes, got ${buffer.byteLength - offset}`);
  const view = new DataView(buffer, offset);
  const length = view.getUint32(0, true), flags = view.getUint8(11);
  const columns = view.getUint16(20, true), rows = view.getUint16(22, true);
  const known = view.getUint32(4, true) === 0x31545646 && view.getUint8(8) === 1;  // "FVT1", log16
  const end = offset + 4 + length, bytes = end - offset - HEADER;
  if (!known || end > buffer.byteLength || bytes < 0) throw new Error("frame: expected FVT1 with log16");
  const allHidden = (flags & 2) !== 0, body = offset + HEADER, size = allHidden ? 0 : 2 * columns * rows, states = body + size;
  if (bytes !== size + (flags & 8 ? rows : 0)) throw new Error(`frame: expected ${columns} x ${rows} codes, got ${bytes} bytes`);
  let codes = null;
  if (!allHidden) codes = body % 2 ? new Uint16Array(buffer.slice(body, states)) : new Uint16Array(buffer, body, columns * rows);
  return {
    reduce: view.getUint8(9) === 1 ? "max" : "mean", level: view.getUint8(10),
    x: view.getUint32(12, true), y: view.getUint32(16, true), columns, rows,
    hasHidden: (flags & 1) !== 0, allHidden, hasNan: (flags & 4) !== 0,
    smallest: view.getFloat32(28, true), largest: view.getFloat32(32, true),
    codes, states: flags & 8 ? new Uint8Array(buffer, states, rows) : null, end,
  };
}

/**
 * Returns rectangles of cells, [row, end, column, end], that contain the unknown cells of a frame and no
 * others.
 * @param {Frame} frame
 */
export function unknownParts({codes, states, rows, columns}) {
  /** @type {number[][]} */
  const parts = [];
  /** @type {number[][]} */
  let open = [];
  for (let r = 0; codes && states && r < rows; ++r) {
    /** @type {number[][]} */
    const runs = [];
    for (let c = 0; states[r] < ROW.FINAL && c < columns; ++c) {
      if (codes[r * columns + c] !== UNKNOWN) continue;
      const begin = c;
      while (c < columns && codes[r * columns + c] === UNKNOWN) ++c;
      runs.push([r, r + 1, begin, c]);
    }
    if (runs.length === open.length && runs.every(([, , begin, end], i) => begin === open[i][2] && end === open[i][3])) {
      for (const part of open) ++part[1];
    } else {
      parts.push(...runs);
      open = runs;
    }
  }
  return parts;
}

/** Reads frames one after another (thumbnails). @returns {Frame[]} */
export function readFrames(/** @type {ArrayBuffer} */ buffer) {
  const frames = [];
  for (let at = 0; at < buffer.byteLength;) {
    const frame = readFrame(buffer, at);
    frames.push(frame);
    at = frame.end;
  }
  return frames;
}

/**
 * Returns the cells of a frame as pixels.
 * @param {Frame} frame
 * @param {Uint32Array} lookup colours by code (colors.js)
 */
export function framePixels(frame, lookup) {
  const image = new ImageData(frame.columns, frame.rows);
  const pixels = new Uint32Array(image.data.buffer), codes = frame.codes;
  if (!codes) pixels.fill(lookup[HIDDEN]);
  else for (let i = 0; i < codes.length; ++i) pixels[i] = lookup[codes[i]];
  return image;
}
