// SPDX-License-Identifier: Apache-2.0
//
// What is selected on a map: the cursor, which follows the pointer or the keys; the locked pair; and a
// rectangle to zoom to.

import {HIDDEN, NAN, ROW, UNKNOWN, valueOf} from "../shared/frame.js";
import {SIDE} from "../canvas/painter.js";
import {digits} from "./panel.js";
import {strongest} from "./strongest.js";
import {visible} from "../shared/visible.js";

/** @typedef {import("./page.js").MapPage} MapPage */
/** @typedef {{query: number, key: number}} Pair */

const MARGIN = 24;  // pixels between what is gone to and the edge of the view
/** The scale at which tokens can be read: 16 pixels per token. */
export const READABLE = 1 / 16;

export class Selection {
  /** @type {Pair | null} */
  cursor = null;
  /** @type {{queries: [number, number], keys: [number, number]} | null} */
  rectangle = null;
  /** @type {[Pair | null, Pair | null]} */
  #corners = [null, null];
  #byKeys = false;
  #searching = new AbortController();

  /** @param {MapPage} page */
  constructor(page) {
    this.page = page;
  }

  /**
   * The locked pair, which is a part of the address.
   * @returns {Pair | null}
   */
  get locked() {
    const {state: {query, key}, of: {layer}} = this.page;
    if ((query < 0 && key < 0) || query >= layer.queries || key >= layer.keys) return null;
    return {query: Math.max(0, query), key: Math.max(0, key)};
  }
  /**
   * What the panel shows.
   * @returns {Pair | null}
   */
  get focus() {
    return this.locked ?? this.cursor;
  }

  /** The pointer is at a pixel. */
  hover(/** @type {number} */ x, /** @type {number} */ y) {
    this.#byKeys = false;
    this.point(this.page.of.view.tokenAt(x, y));
  }
  leave() {
    this.point(null);
  }
  point(/** @type {Pair | null} */ pair) {
    if (pair?.query === this.cursor?.query && pair?.key === this.cursor?.key) return;
    this.cursor = pair;
    this.page.surface.redraw(false);
    this.page.panel.update();
  }

  /** Moves the cursor by cells. */
  move(/** @type {number} */ down, /** @type {number} */ across) {
    const {page} = this, {layer, view} = page.of, size = 2 ** page.level, from = this.focus;
    const cut = (/** @type {number} */ value, /** @type {number} */ most) => Math.min(most - 1, Math.max(0, value));
    const start = this.cursor ?? from;
    const next = start ? {query: cut(start.query + down * size, layer.queries), key: cut(start.key + across * size, layer.keys)} : page.of.centre();
    this.#byKeys = true;
    this.point(next);
    if (this.locked) this.#announceBeside(next);
    if (view.reveal(next.query, next.key)) page.moved();
  }

  /** Says what the cursor's cell is while the panel shows the locked one. */
  async #announceBeside(/** @type {Pair} */ pair) {
    const {page} = this;
    try {
      const cell = page.level === 0 ? await page.of.api.cell(pair.query, pair.key) : null;
      if (this.cursor === pair) this.announce(pair, cell);
    } catch (error) {
      page.failed(error);
    }
  }

  /** Locks or unlocks the cell at a pixel. */
  click(/** @type {number} */ x, /** @type {number} */ y) {
    const pair = this.page.of.view.tokenAt(x, y);
    if (pair) this.#toggle(pair);
  }
  enter() {
    if (this.rectangle) this.zoomToRectangle();
    else this.#toggle(this.cursor ?? this.page.of.centre());
  }

  /** Locks a pair: in a cell of many, that of the largest weight. Unlocks it if it is locked. */
  async #toggle(/** @type {Pair} */ pair) {
    const {page, locked} = this, {api, tiles} = page.of, size = 2 ** page.level;
    const cell = (/** @type {Pair} */ {query, key}) => `${Math.floor(query / size)}/${Math.floor(key / size)}`;
    if (locked && cell(locked) === cell(pair)) {
      this.lock(null);
      return;
    }
    this.#searching.abort();
    this.#searching = new AbortController();
    const {signal} = this.#searching;
    try {
      const found = await strongest(api, page.level, pair, (place) => {
        const tile = tiles.get(place);
        return tile?.exact ? tile.frame : undefined;
      }, signal);
      if (!signal.aborted) this.lock(found ?? pair);
    } catch (error) {
      if (!signal.aborted) page.failed(error);
    }
  }

  lock(/** @type {Pair | null} */ pair) {
    const {page} = this;
    this.#searching.abort();
    Object.assign(page.state, pair ?? {query: -1, key: -1});
    page.panel.update();
    page.redraw();
    page.save();
    page.context.announce(pair ? `Locked query ${pair.query}, key ${pair.key}.` : "Unlocked.");
  }

  escape() {
    this.#corners = [null, null];
    this.rectangle = null;
    if (this.locked) this.lock(null);
    this.page.surface.redraw(false);
  }

  setCorner(/** @type {0 | 1} */ which) {
    this.#corners[which] = this.focus ?? this.page.of.centre();
    const [a, b] = this.#corners;
    this.page.context.announce(a && b ? "Enter zooms to the rectangle." : "The first corner is set.");
    if (a && b) this.setRectangle(a, b);
  }
  setRectangle(/** @type {Pair} */ a, /** @type {Pair} */ b) {
    this.rectangle = {queries: [Math.min(a.query, b.query), Math.max(a.query, b.query) + 1], keys: [Math.min(a.key, b.key), Math.max(a.key, b.key) + 1]};
    this.page.surface.redraw(false);
  }
  zoomToRectangle() {
    if (this.rectangle) this.page.of.view.showRange(this.rectangle.queries, this.rectangle.keys);
    this.rectangle = null;
    this.#corners = [null, null];
    this.page.moved();
  }

  /** Shows a pair, with the scale as it is. */
  goTo(/** @type {Pair} */ pair, {lock = false} = {}) {
    const {page} = this;
    this.cursor = pair;
    this.#byKeys = true;
    this.#show(pair, true, true);
    if (lock || this.locked) this.lock(pair);
    else page.panel.update();
    page.focus();
  }

  /**
   * Shows a match of the search. If both axes have the same tokens and no cell is locked, goes to the
   * match on the diagonal. If a cell has more than one token, zooms in until tokens can be read.
   */
  showMatch(/** @type {number} */ at, /** @type {("query" | "key")[]} */ sides) {
    const {page} = this, from = this.focus ?? page.of.centre(), both = sides.length > 1 && !this.locked;
    const down = both || sides[0] === "query", across = both || sides[0] === "key";
    this.cursor = {query: down ? at : from.query, key: across ? at : from.key};
    this.#byKeys = true;
    if (page.level > 0) page.of.view.moveTo(this.cursor.query + 0.5, this.cursor.key + 0.5, READABLE);
    this.#show(this.cursor, down, across);
    page.panel.update();
  }

  /** Centres a pair on the given axes unless it is in view. */
  #show(/** @type {Pair} */ {query, key}, /** @type {boolean} */ down, /** @type {boolean} */ across) {
    const {view} = this.page.of, {left, right, top, bottom} = view.area(), x = view.x(key + 0.5), y = view.y(query + 0.5);
    const outside = {x: x < left + MARGIN || x > right - MARGIN, y: y < top + MARGIN || y > bottom - MARGIN};
    // A matrix that is seen as a whole needs no movement.
    if (!view.whole && ((down && outside.y) || (across && outside.x))) {
      view.moveTo(down && outside.y ? query + 0.5 : view.query, across && outside.x ? key + 0.5 : view.key);
    }
    this.page.moved();
  }

  /** The value of the drawn cell with this pair; null until its tile is there. */
  codeAt(/** @type {Pair} */ {query, key}) {
    const {page} = this, size = 2 ** page.level, row = Math.floor(query / size), column = Math.floor(key / size);
    const place = {reduce: page.reduce, z: page.level, x: Math.floor(column / SIDE), y: Math.floor(row / SIDE)};
    const frame = page.of.tiles.get(place)?.frame;
    if (!frame) return null;
    const code = frame.codes ? frame.codes[(row - place.y * SIDE) * frame.columns + column - place.x * SIDE] : HIDDEN;
    const weight = valueOf(code), preview = frame.states?.[row - place.y * SIDE] === ROW.PREVIEW;
    const text = code === HIDDEN ? "hidden by the mask" : code === UNKNOWN ? "not computed yet" : code === NAN ? "nan" : digits(Number(weight.toPrecision(4)));
    return {code, weight, text: preview && code !== HIDDEN && code !== UNKNOWN ? `${text} (preview)` : text};
  }

  /** Says what a cell is, after a movement of the cursor by keys. */
  announce(/** @type {Pair} */ at, /** @type {import("../shared/api.js").Cell | null} */ cell) {
    if (!this.#byKeys) return;
    this.#byKeys = false;
    const token = (/** @type {string | null | undefined} */ word) => word ? ` '${visible(word.slice(0, 100))}'` : "";
    const value = cell ? (cell.hidden ? "hidden by the mask" : `weight ${digits(cell.weight)}`)
        : `${this.page.reduce === "max" ? "largest weight of the cell" : "mean"} ${this.codeAt(at)?.text ?? "loading"}`;
    this.page.context.announce(`query ${at.query}${token(cell?.query_token)}, key ${at.key}${token(cell?.key_token)}, ${value}`);
  }
}
