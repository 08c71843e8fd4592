// SPDX-License-Identifier: Apache-2.0
//
// The view of a map: which tokens are where on the canvas. All lengths are CSS pixels, positions are
// tokens: token i covers [i, i + 1). Both axes have the same scale.

const LARGEST_CELL = 64;  // pixels of one token, at most
const FIT_CELL = 44;      // the same for the whole of a small matrix
const MARGIN = {top: 10, right: 12};
// Room for the labels of the axes: positions, or tokens of up to 16 columns.
const GUTTER = {positions: {left: 78, bottom: 42}, tokens: {left: 148, bottom: 112}};
export const TOKENS_FROM = 4;   // pixels of a token from which tokens label the axes

/** @typedef {{left: number, top: number, right: number, bottom: number}} Box */

export class Viewport {
  width = 600;
  height = 400;
  query = 0;
  key = 0;
  scale = 1;
  /** What the labels of the axes need (axes.js). */
  inset = {left: 1e9, bottom: 1e9};
  /** Whether the whole matrix is shown, also after the window changes its size. */
  whole = true;

  /** @param {number} queries @param {number} keys @param {boolean} tokens whether an axis has tokens */
  constructor(queries, keys, tokens) {
    this.queries = queries;
    this.keys = keys;
    this.tokens = tokens;
  }

  /** Pixels of a token. */
  get pixels() {
    return 1 / this.scale;
  }

  /** The most that the labels of a scale need. */
  #gutter(/** @type {number} */ scale) {
    return this.tokens && 1 / scale >= TOKENS_FROM ? GUTTER.tokens : GUTTER.positions;
  }

  /** Where the matrix may be drawn, if the labels need all of their room. @returns {Box} */
  plot(scale = this.scale) {
    const {left, bottom} = this.#gutter(scale);
    return {left, top: MARGIN.top, right: Math.max(left + 40, this.width - MARGIN.right),
      bottom: Math.max(MARGIN.top + 40, this.height - bottom)};
  }

  /**
   * Where the matrix is drawn: the plot and what the labels in view leave of their room.
   * @returns {Box}
   */
  area() {
    const plot = this.plot();
    return {...plot, left: Math.min(plot.left, this.inset.left), bottom: Math.max(plot.bottom, this.height - this.inset.bottom)};
  }

  /** The centre of the plot. */
  #centre(scale = this.scale) {
    const {left, top, right, bottom} = this.plot(scale);
    return {x: (left + right) / 2, y: (top + bottom) / 2};
  }

  x(/** @type {number} */ key) {
    return (key - this.key) / this.scale + this.#centre().x;
  }
  y(/** @type {number} */ query) {
    return (query - this.query) / this.scale + this.#centre().y;
  }
  keyAt(/** @type {number} */ x) {
    return this.key + (x - this.#centre().x) * this.scale;
  }
  queryAt(/** @type {number} */ y) {
    return this.query + (y - this.#centre().y) * this.scale;
  }

  /** Returns the query and key at a pixel, or null outside the matrix or plot. */
  tokenAt(/** @type {number} */ x, /** @type {number} */ y) {
    const {left, top, right, bottom} = this.area();
    const query = Math.floor(this.queryAt(y)), key = Math.floor(this.keyAt(x));
    const inside = x >= left && x < right && y >= top && y < bottom;
    return inside && query >= 0 && query < this.queries && key >= 0 && key < this.keys ? {query, key} : null;
  }

  /** The tokens in view, cut to the matrix: [begin, end) of each side. */
  visible({left, top, right, bottom} = this.area()) {
    const cut = (/** @type {number} */ value, /** @type {number} */ most) => Math.min(most, Math.max(0, value));
    return {
      queries: /** @type {[number, number]} */ ([cut(Math.floor(this.queryAt(top)), this.queries), cut(Math.ceil(this.queryAt(bottom)), this.queries)]),
      keys: /** @type {[number, number]} */ ([cut(Math.floor(this.keyAt(left)), this.keys), cut(Math.ceil(this.keyAt(right)), this.keys)]),
    };
  }

  /** The scale at which the whole matrix fits. */
  fitScale() {
    const fits = (/** @type {Box} */ {left, top, right, bottom}) => Math.max(this.keys / (right - left), this.queries / (bottom - top));
    const small = fits(this.plot(1e-3));  // with room for tokens
    const scale = this.tokens && 1 / small >= TOKENS_FROM ? small : fits(this.plot(1e9));
    // Between the two, tokens would appear without room for them.
    return Math.max(this.tokens && 1 / small < TOKENS_FROM ? Math.max(scale, 1.0001 / TOKENS_FROM) : scale, 1 / FIT_CELL);
  }

  fit() {
    this.scale = this.fitScale();
    this.query = this.queries / 2;
    this.key = this.keys / 2;
    this.whole = true;
  }

  resize(/** @type {number} */ width, /** @type {number} */ height) {
    this.width = width;
    this.height = height;
    if (this.whole) this.fit();
    else this.scale = Math.min(this.scale, this.#widest());
  }

  #widest() {
    return Math.max(this.fitScale() * 2, 1 / LARGEST_CELL);
  }

  /** Multiplies the scale, with the tokens at (x, y) staying where they are. */
  zoomAt(/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ factor) {
    const query = this.queryAt(y), key = this.keyAt(x);
    this.scale = Math.min(this.#widest(), Math.max(1 / LARGEST_CELL, this.scale * factor));
    const centre = this.#centre();
    this.query = query - (y - centre.y) * this.scale;
    this.key = key - (x - centre.x) * this.scale;
    this.whole = false;
    this.clamp();
  }

  pan(/** @type {number} */ dx, /** @type {number} */ dy) {
    this.query += dy * this.scale;
    this.key += dx * this.scale;
    this.whole = false;
    this.clamp();
  }

  /** Keeps the centre of the plot on the matrix. */
  clamp() {
    this.query = Math.min(this.queries, Math.max(0, this.query));
    this.key = Math.min(this.keys, Math.max(0, this.key));
  }

  moveTo(/** @type {number} */ query, /** @type {number} */ key, scale = this.scale) {
    this.query = query;
    this.key = key;
    this.scale = Math.min(this.#widest(), Math.max(1 / LARGEST_CELL, scale));
    this.whole = false;
    this.clamp();
  }

  /** Shows a range of queries and keys. */
  showRange(/** @type {[number, number]} */ queries, /** @type {[number, number]} */ keys) {
    const height = queries[1] - queries[0], width = keys[1] - keys[0];
    let scale = this.scale;
    for (let i = 0; i < 3; ++i) {  // the room for labels depends on the scale
      const {left, top, right, bottom} = this.plot(scale);
      scale = Math.max(width / (right - left), height / (bottom - top));
    }
    this.moveTo(queries[0] + height / 2, keys[0] + width / 2, scale);
  }

  /** Moves as little as necessary to show a token with a margin; returns whether it moved. */
  reveal(/** @type {number} */ query, /** @type {number} */ key, margin = 24) {
    const {left, top, right, bottom} = this.plot();
    const shift = (/** @type {number} */ at, /** @type {number} */ low, /** @type {number} */ high) => {
      const room = Math.min(margin, (high - low) / 3);
      return at < low + room ? at - low - room : at > high - room ? at - high + room : 0;
    };
    const dx = shift(this.x(key + 0.5), left, right), dy = shift(this.y(query + 0.5), top, bottom);
    if (dx || dy) this.pan(dx, dy);
    return dx !== 0 || dy !== 0;
  }

  /** The level whose cells are 1 to 2 pixels wide, or 0. */
  level(/** @type {number} */ levels) {
    return this.scale <= 1 ? 0 : Math.min(levels - 1, Math.ceil(Math.log2(this.scale)));
  }

  /**
   * The state as in an address: rounded to a hundredth of a pixel, so that an address gives exactly
   * what was shown. Null for the whole matrix.
   */
  rounded() {
    if (this.whole) return null;
    const scale = Number(this.scale.toPrecision(6));
    const decimals = Math.max(0, Math.min(6, Math.ceil(2 - Math.log10(scale))));
    return {query: Number(this.query.toFixed(decimals)), key: Number(this.key.toFixed(decimals)), scale};
  }

  /** Takes the state that rounded() returns. */
  settle() {
    const state = this.rounded();
    if (state) Object.assign(this, state);
  }
}
