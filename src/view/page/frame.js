// SPDX-License-Identifier: Apache-2.0
//
// Frames: tiles of weights as the server sends them (section "Frame format" of docs/view.md).
// Weights are 16-bit logarithms ("log16"), so that a change of colours needs no request.

export const HIDDEN = 0, NAN = 1, ZERO = 2;
export const FIRST_CODE = 3;
const FIRST = FIRST_CODE, LAST = 65475, STEPS = 1023, OCTAVES = 64;
const HEADER = 40;

/**
 * `codes` is null if all cells are hidden (`allHidden`).
 * @typedef {{reduce: "mean" | "max", level: number, x: number, y: number, columns: number, rows: number,
 *   hasHidden: boolean, allHidden: boolean, hasNan: boolean, preview: boolean, failed: boolean, job: number,
 *   smallest: number, largest: number, codes: Uint16Array | null, error: string}} Frame
 */

/** Returns the weight of a code: nan for a hidden one and for nan. */
export const valueOf = (/** @type {number} */ code) =>
  code >= FIRST ? 2 ** ((code - FIRST) / STEPS - OCTAVES) : code === ZERO ? 0 : NaN;

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
  const end = offset + 4 + length, failed = (flags & 16) !== 0, bytes = end - offset - HEADER;
  if (!known || end > buffer.byteLength || bytes < 0) throw new Error("frame: expected FVT1 with log16");
  const allHidden = (flags & 2) !== 0, body = offset + HEADER;
  if (!failed && !allHidden && bytes !== 2 * columns * rows) {
    throw new Error(`frame: expected ${columns} x ${rows} codes, got ${bytes} bytes`);
  }
  let codes = null;
  if (!failed && !allHidden) {
    codes = body % 2 ? new Uint16Array(buffer.slice(body, end)) : new Uint16Array(buffer, body, columns * rows);
  }
  return {
    reduce: view.getUint8(9) === 1 ? "max" : "mean", level: view.getUint8(10),
    x: view.getUint32(12, true), y: view.getUint32(16, true), columns, rows,
    hasHidden: (flags & 1) !== 0, allHidden, hasNan: (flags & 4) !== 0, preview: (flags & 8) !== 0, failed,
    job: view.getUint32(24, true), smallest: view.getFloat32(28, true), largest: view.getFloat32(32, true),
    codes, error: failed ? new TextDecoder().decode(new Uint8Array(buffer, body, bytes)) : "", end,
  };
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

/** Returns the weights of a frame: nan for hidden cells and nan. */
export function frameValues(/** @type {Frame} */ frame) {
  return Float64Array.from({length: frame.columns * frame.rows}, (_, i) => frame.codes ? valueOf(frame.codes[i]) : NaN);
}
