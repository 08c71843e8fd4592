// SPDX-License-Identifier: Apache-2.0
//
// The axes of a map: tokens if a cell is high enough, of smaller cells every n-th token, otherwise
// round positions; and the marks of search matches.

import {columnsOf} from "../shared/tokens.js";
import {ROW as ROW_STATE} from "../shared/frame.js";
import {TOKENS_FROM} from "./viewport.js";
import {whole} from "../shared/dom.js";

/** @typedef {import("./viewport.js").Viewport} Viewport */
/** @typedef {import("../shared/tokens.js").Tokens} Tokens */
/** @typedef {{at: number, text: string, token: boolean}[]} Labels of one axis */

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';
const ROW = 11;          // pixels between labels of tokens, at least
const LETTER = 7;        // pixels of a column of text, about
const NUMBER_ROOM = {left: 26, bottom: 74};
const LEAN = Math.PI / 4;
const EXACT = new RegExp(`${ROW_STATE.FINAL}+`, "g");
const TICK = 4, GAP = 4, TITLE = 16;

/** Returns the smallest of 1, 2, 5, 10, ... that is at least `least`. */
function roundStep(/** @type {number} */ least) {
  for (let power = 1; ; power *= 10) for (const digit of [1, 2, 5]) if (digit * power >= least) return digit * power;
}


/**
 * @param {Viewport} view
 * @param {Tokens} tokens
 * @param {[number, number]} range positions in view
 * @param {number} room pixels between two numbers
 * @returns {Labels}
 */
function labelsOf(view, tokens, [begin, end], room) {
  const named = tokens.known && view.pixels >= TOKENS_FROM;
  const step = roundStep((named ? ROW : room) * view.scale);
  const labels = [];
  for (let at = Math.ceil(begin / step) * step; at < end; at += step) {
    labels.push({at, text: named ? tokens.label(at) : whole(at), token: named});
  }
  // A range in the middle of a long axis may contain no round number.
  if (!labels.length && end > begin) labels.push({at: begin, text: named ? tokens.label(begin) : whole(begin), token: named});
  return labels;
}

export class Axes {
  /** @param {CanvasRenderingContext2D} pen @param {Viewport} view @param {Tokens} queries @param {Tokens} keys */
  constructor(pen, view, queries, keys) {
    this.pen = pen;
    this.view = view;
    this.queries = queries;
    this.keys = keys;
    /** @type {Labels} */
    this.left = [];
    /** @type {Labels} */
    this.below = [];
  }

  /** Chooses the labels, and gives the view the room that they leave. The longest label decides. */
  layOut() {
    const {view} = this, plot = view.plot();
    const most = view.visible({...plot, left: 40, bottom: view.height - 40});
    this.left = labelsOf(view, this.queries, most.queries, NUMBER_ROOM.left);
    this.below = labelsOf(view, this.keys, most.keys, NUMBER_ROOM.bottom);
    const longest = (/** @type {Labels} */ labels) => Math.max(2, ...labels.map(({text}) => columnsOf(text))) * LETTER;
    // In steps, so that the edge of the map seldom moves while panning.
    const steps = (/** @type {number} */ pixels) => Math.ceil(pixels / 14) * 14;
    const lean = this.below[0]?.token ? longest(this.below) * Math.sin(LEAN) + 6 : 12;
    view.inset = {left: TITLE + steps(Math.max(longest(this.left), this.below[0]?.token ? lean - TITLE : 0)) + TICK + GAP,
      bottom: TITLE + steps(lean) + TICK + GAP};
  }

  /** The part of the view that the matrix covers: labels lie at its edges. */
  box() {
    const {view} = this, {left, top, right, bottom} = view.area();
    return {left: Math.round(Math.min(right, Math.max(left, view.x(0)))), top: Math.max(top, view.y(0)),
      right: Math.min(right, view.x(view.keys)), bottom: Math.round(Math.max(top, Math.min(bottom, view.y(view.queries))))};
  }

  /**
   * @param {{ink: string, soft: string, paper: string, plum: string}} theme
   * @param {{query: number, key: number} | null} cursor
   */
  draw(theme, cursor) {
    const {pen, view} = this, {left, top, right, bottom} = this.box();
    pen.font = FONT;
    pen.lineWidth = 1;
    const inView = (/** @type {number} */ at, /** @type {number} */ low, /** @type {number} */ high) => at >= low - 0.5 && at <= high + 0.5;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.direction = "ltr";
    for (const {at, text, token} of this.left) {
      const y = view.y(at + 0.5);
      if (!inView(y, top, bottom)) continue;
      this.#label(text, left - TICK - GAP, y, at === cursor?.query ? theme.plum : token ? theme.ink : theme.soft, at === cursor?.query);
      pen.fillStyle = theme.soft;
      pen.fillRect(left - TICK, Math.round(y), TICK, 1);
    }
    for (const {at, text, token} of this.below) {
      const x = view.x(at + 0.5);
      if (!inView(x, left, right)) continue;
      pen.fillStyle = theme.soft;
      pen.fillRect(Math.round(x), bottom, 1, TICK);
      pen.save();
      const half = token ? 0 : pen.measureText(text).width / 2 + 1;
      pen.translate(token ? x + 3 : Math.max(half, Math.min(view.width - half, x)), bottom + TICK + (token ? 6 : GAP + 6));
      if (token) pen.rotate(-LEAN);
      else pen.textAlign = "center";
      this.#label(text, 0, 0, at === cursor?.key ? theme.plum : token ? theme.ink : theme.soft, at === cursor?.key);
      pen.restore();
    }
    this.#titles(theme.soft);
  }

  /** Draws a bar at the right edge along the row blocks that are exact. */
  exact(/** @type {string} */ states, /** @type {number} */ rows, /** @type {string} */ color) {
    const {pen, view} = this, {top, right, bottom} = this.box();
    pen.fillStyle = color;
    for (const {index: begin = 0, 0: run} of states.matchAll(EXACT)) {
      const from = Math.max(top, view.y(begin * rows)), to = Math.min(bottom, view.y(Math.min(view.queries, (begin + run.length) * rows)));
      if (to > from) pen.fillRect(right + 3, from, 4, to - from);
    }
  }

  #label(/** @type {string} */ text, /** @type {number} */ x, /** @type {number} */ y, /** @type {string} */ color, /** @type {boolean} */ bold) {
    this.pen.font = bold ? "bold " + FONT : FONT;
    this.pen.fillStyle = color;
    this.pen.fillText(text, x, y);
  }

  #titles(/** @type {string} */ color) {
    const {pen, view} = this, {left, top, right, bottom} = this.box(), {inset} = view;
    if (right <= left || bottom <= top) return;
    pen.font = FONT;
    pen.fillStyle = color;
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    pen.fillText("key →", (left + right) / 2, Math.min(view.height, bottom + inset.bottom) - 2);
    pen.save();
    pen.translate(Math.max(0, left - inset.left) + 3, (top + bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "top";
    pen.fillText("← query", 0, 0);
    pen.restore();
  }

  /**
   * Marks search matches at the edge of an axis. Marks closer than 3 pixels become rows of ticks, with
   * their count.
   * @param {"query" | "key"} side
   * @param {number[]} positions ascending
   * @param {number} current the match shown, or -1
   * @param {{plum: string, paper: string}} theme
   */
  marks(side, positions, current, theme) {
    const {pen, view} = this, {left, top, right, bottom} = this.box(), across = side === "key";
    const place = (/** @type {number} */ at) => across ? view.x(at + 0.5) : view.y(at + 0.5);
    const [low, high] = across ? [left, right] : [top, bottom];
    /** @type {{from: number, to: number, count: number}[]} */
    const groups = [];
    for (const at of positions) {
      const pixel = place(at), last = groups[groups.length - 1];
      if (pixel < low || pixel > high) continue;
      if (last && pixel - last.to < 3) {
        last.to = pixel;
        ++last.count;
      } else {
        groups.push({from: pixel, to: pixel, count: 1});
      }
    }
    const tick = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ color, depth = 7) => {
      pen.fillStyle = color;
      const wide = Math.max(3, to - from + 2), start = (from + to - wide) / 2;
      if (across) pen.fillRect(start, bottom - depth, wide, depth);
      else pen.fillRect(left, start, depth, wide);
    };
    for (const {from, to, count} of groups) {
      tick(from - 1, to + 1, theme.paper, 9);
      tick(from, to, theme.plum);
      if (count > 1 && to - from > 26) this.#count(count, (from + to) / 2, across, theme);
    }
    if (current >= 0 && place(current) >= low && place(current) <= high) tick(place(current) - 1, place(current) + 1, theme.plum, 14);
  }

  #count(/** @type {number} */ count, /** @type {number} */ at, /** @type {boolean} */ across, /** @type {{plum: string, paper: string}} */ theme) {
    const {pen} = this, {left, bottom} = this.box(), text = whole(count);
    pen.font = FONT;
    const wide = pen.measureText(text).width + 6, x = across ? at : left + 14 + wide / 2, y = across ? bottom - 18 : at;
    pen.fillStyle = theme.paper;
    pen.fillRect(x - wide / 2, y - 8, wide, 16);
    pen.fillStyle = theme.plum;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(text, x, y);
  }
}
