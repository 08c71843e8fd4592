// SPDX-License-Identifier: Apache-2.0
//
// Finds the largest weight of a cell: of a tile whose 256 x 256 cells divide the cell, the largest one,
// and so on down to single weights. A matrix of 1,048,576 tokens needs three tiles.

import {FIRST_CODE, UNKNOWN, ZERO, readFrame} from "../shared/frame.js";
import {SIDE} from "../canvas/painter.js";

const STEP = Math.log2(SIDE);

/**
 * @param {import("../shared/api.js").HeadApi} api
 * @param {number} level of the cell
 * @param {{query: number, key: number}} pair any pair of the cell
 * @param {(place: import("../canvas/tiles.js").TilePlace) => import("../shared/frame.js").Frame | undefined} known tiles that need no request
 * @param {AbortSignal} signal
 * @returns {Promise<{query: number, key: number} | null>} null if all of the cell is hidden
 */
export async function strongest(api, level, pair, known, signal) {
  let {query, key} = pair;
  for (let z = level; z > 0;) {
    const finer = Math.max(0, z - STEP), size = 2 ** z, part = 2 ** finer, cells = size / part;
    // The first cells of level `finer` in the cell, and the tile that they lie in.
    const row = Math.floor(query / size) * cells, column = Math.floor(key / size) * cells;
    const place = {reduce: /** @type {const} */ ("max"), z: finer, x: Math.floor(column / SIDE), y: Math.floor(row / SIDE)};
    const frame = known(place) ?? readFrame(await api.tile("max", finer, place.x, place.y, signal));
    if (!frame.codes) return null;
    let most = -1;
    const r0 = row - place.y * SIDE, c0 = column - place.x * SIDE;
    for (let r = r0; r < Math.min(frame.rows, r0 + cells); ++r) {
      for (let c = c0; c < Math.min(frame.columns, c0 + cells); ++c) {
        const code = frame.codes[r * frame.columns + c];
        if (code !== ZERO && code < FIRST_CODE || code === UNKNOWN || code <= most) continue;
        most = code;
        query = (place.y * SIDE + r) * part;
        key = (place.x * SIDE + c) * part;
      }
    }
    if (most < 0) return null;
    z = finer;
  }
  return {query, key};
}
