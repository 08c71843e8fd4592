// SPDX-License-Identifier: Apache-2.0
//
// Tokens of a layer, requested in ranges of 4,096 and kept, and their labels of at most 16 columns.

import {visible} from "./visible.js";

/** @typedef {"query" | "key"} Side */

const BLOCK = 4096;
const COLUMNS = 16;

// Two columns in a fixed grid: East Asian wide characters and emoji.
const WIDE = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}|[\u{20000}-\u{3fffd}]/u;
/** @type {Intl.Segmenter | undefined} */
let segmenter;  // takes milliseconds to make, which maps without tokens save
const clusters = (/** @type {string} */ text) => (segmenter ??= new Intl.Segmenter("en", {granularity: "grapheme"})).segment(text);

/** Returns the columns of a text in a fixed grid; an estimate that needs no font. */
export function columnsOf(/** @type {string} */ shown) {
  let columns = 0;
  for (const {segment} of clusters(shown)) columns += WIDE.test(segment) ? 2 : 1;
  return columns;
}

/** Returns a token as a label of at most 16 columns; a longer one ends in "…". */
export function label(/** @type {string} */ token, columns = COLUMNS) {
  const shown = visible(token.slice(0, 8 * columns));
  let cut = "", used = 0;
  for (const {segment} of clusters(shown)) {
    const width = WIDE.test(segment) ? 2 : 1;
    used += width;
    if (used > columns) {
      while (columnsOf(cut) > columns - 1) cut = [...clusters(cut)].slice(0, -1).map((part) => part.segment).join("");
      return cut + "…";
    }
    cut += segment;
  }
  return token.length > 8 * columns ? cut.slice(0, columns - 1) + "…" : cut;
}

/** The tokens along one side of a layer. A token is undefined until its range has arrived, null if there is none. */
export class Tokens {
  /** @type {Map<number, string[] | null>} null: requested */
  #blocks = new Map();
  /** @type {Map<number, string>} */
  #labels = new Map();

  /**
   * @param {import("./api.js").Api} api
   * @param {string} input
   * @param {import("./api.js").LayerEntry} layer
   * @param {Side} side
   * @param {() => void} arrived called when a range has arrived
   */
  constructor(api, input, layer, side, arrived) {
    this.api = api;
    this.input = input;
    this.layer = layer.label;
    this.side = side;
    this.length = side === "query" ? layer.queries : layer.keys;
    this.known = side === "query" ? layer.query_tokens : layer.key_tokens;
    this.arrived = arrived;
  }

  /** Returns a token, and requests its range if necessary. @returns {string | null | undefined} */
  at(/** @type {number} */ position) {
    if (!this.known || position < 0 || position >= this.length) return null;
    const block = this.#blocks.get(Math.floor(position / BLOCK));
    if (block) return block[position % BLOCK] ?? null;
    if (block === undefined) this.load(position);
    return undefined;
  }

  /** Returns a token as a label of an axis; "" until it has arrived. */
  label(/** @type {number} */ position) {
    const found = this.#labels.get(position);
    if (found !== undefined) return found;
    const token = this.at(position);
    if (token === undefined || token === null) return "";
    if (this.#labels.size > 4 * BLOCK) this.#labels.clear();
    const short = label(token);
    this.#labels.set(position, short);
    return short;
  }

  /** Requests the range of a position, and returns its tokens. @returns {Promise<string[]>} */
  async load(/** @type {number} */ position) {
    const index = Math.floor(position / BLOCK), first = index * BLOCK;
    const known = this.#blocks.get(index);
    if (known) return known;
    this.#blocks.set(index, null);
    try {
      const {tokens} = await this.api.tokens(this.input, this.layer, this.side, first, Math.min(first + BLOCK, this.length));
      this.#blocks.set(index, tokens);
      this.arrived();
      return tokens;
    } catch {
      // The next look at the token asks again. Whether the server responds is watched elsewhere.
      setTimeout(() => this.#blocks.delete(index), 1000);
      return [];
    }
  }
}
