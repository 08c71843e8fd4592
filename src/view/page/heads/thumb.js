// SPDX-License-Identifier: Apache-2.0
//
// Thumbnails: a frame of cells as a small picture, whose colours all thumbnails share.

import {colorLookup} from "../shared/colors.js";
import {framePixels} from "../shared/frame.js";

/** @typedef {"sqrt" | "log"} ThumbTone */

/**
 * Ranges of the colours. A thumbnail shows the largest weight of its cells, which is rarely small.
 * @type {Record<ThumbTone, import("../shared/colors.js").Range>}
 */
const THUMB_RANGES = {sqrt: [0, 1], log: [1e-4, 1]};

/** @type {Map<string, Uint32Array>} */
const lookups = new Map();

/** Draws a frame on a canvas, one pixel per cell; hidden cells are transparent. */
export function drawFrame(/** @type {HTMLCanvasElement} */ canvas, /** @type {import("../shared/frame.js").Frame} */ frame, /** @type {ThumbTone} */ tone) {
  let lookup = lookups.get(tone);
  if (!lookup) {
    lookup = colorLookup("viridis", tone, THUMB_RANGES[tone]);
    lookups.set(tone, lookup);
  }
  Object.assign(canvas, {width: frame.columns, height: frame.rows});
  /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).putImageData(framePixels(frame, lookup), 0, 0);
}
