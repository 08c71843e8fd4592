// SPDX-License-Identifier: Apache-2.0
//
// Whether two heads can be compared: their matrices have the same sizes and the same tokens.

import {whole} from "../shared/dom.js";
import {label} from "../shared/tokens.js";

/** @typedef {import("../shared/entry.js").Entry} Entry */
/** @typedef {import("../shared/entry.js").Layer} Layer */
/** @typedef {{entry: Entry, layer: Layer, head: number}} Place */

const BLOCK = 4096;

/** Returns why two heads cannot be compared, or "". */
export async function whyNot(/** @type {import("../shared/api.js").Api} */ api, /** @type {Place} */ a, /** @type {Place} */ b) {
  const size = (/** @type {Layer} */ {queries, keys}) => `${whole(queries)} \u00d7 ${whole(keys)}`;
  if (a.layer.queries !== b.layer.queries || a.layer.keys !== b.layer.keys) {
    return `These heads have matrices of different sizes, ${size(a.layer)} and ${size(b.layer)}. Their weights have no common places.`;
  }
  if (a.layer === b.layer || (a.entry === b.entry && a.layer.kind === b.layer.kind && a.layer.batch === b.layer.batch)) return "";
  for (const side of /** @type {const} */ (["query", "key"])) {
    const known = /** @type {const} */ (`${side}_tokens`), length = side === "query" ? a.layer.queries : a.layer.keys;
    if (!a.layer[known] || !b.layer[known]) continue;
    for (let first = 0; first < length; first += BLOCK) {
      const end = Math.min(first + BLOCK, length);
      const [one, other] = await Promise.all([a, b].map(({entry, layer}) => api.tokens(entry.id, layer.label, side, first, end)));
      const place = one.tokens.findIndex((token, i) => token !== other.tokens[i]);
      if (place >= 0) {
        return `The tokens of these heads differ: ${side} ${whole(first + place)} is \u201c${label(one.tokens[place])}\u201d and \u201c${label(other.tokens[place])}\u201d. ` +
            "Only the same text can be compared.";
      }
    }
  }
  return "";
}
