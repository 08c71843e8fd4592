// SPDX-License-Identifier: Apache-2.0
//
// The fragment of a map's address: what is in view, how it is coloured, what is locked and open.

import {flag, integer, real, text, word} from "../shared/address.js";
import {COLORS, TONES} from "../shared/colors.js";

/** @typedef {import("../shared/colors.js").Range} Range */
/**
 * @typedef {{at: number[], scale: number, reduce: "max" | "mean", tone: import("../shared/colors.js").ToneName,
 *   range: Range | null, colormap: import("../shared/colors.js").ColorName, query: number, key: number, find: string,
 *   side: "key" | "query", exact: boolean, panel: "cell" | "row" | "column" | "table", input: string}} State
 */

/** @type {import("../shared/address.js").Field<Range | null>} */
const rangeField = {otherwise: null, write: (range) => range ? `${range[0]}:${range[1]}` : "", read: (given) => {
  const [bottom, top] = given.split(":").map(Number);
  return bottom > 0 && top > bottom && top <= 1 ? [bottom, top] : undefined;
}};
/** @type {import("../shared/address.js").Field<number[]>} */
const atField = {otherwise: [], write: (at) => at.join(","), read: (given) => {
  const at = given.split(",").map(Number);
  return at.length === 2 && at.every((value) => Number.isFinite(value) && value >= 0) ? at : undefined;
}};
/**
 * `at` is empty and `scale` 0 for the whole matrix.
 * @type {{[Name in keyof State]: import("../shared/address.js").Field<State[Name]>}}
 */
export const FIELDS = {
  at: atField, scale: real(0, 1e-3, 1e9), reduce: word(/** @type {const} */ (["max", "mean"])), tone: word(TONES), range: rangeField,
  colormap: word(COLORS), query: integer(-1), key: integer(-1), find: text(), side: word(/** @type {const} */ (["key", "query"])),
  exact: flag(), panel: word(/** @type {const} */ (["cell", "row", "column", "table"])), input: text(16),
};
