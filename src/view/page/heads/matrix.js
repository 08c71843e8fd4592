// SPDX-License-Identifier: Apache-2.0
//
// The matrix of a head as one picture: the tile that holds all of it, and the cell under the pointer.

import {headAddress} from "../shared/entry.js";
import {make, whole} from "../shared/dom.js";
import {HIDDEN, UNKNOWN, valueOf} from "../shared/frame.js";
import {drawFrame} from "./thumb.js";

/** @typedef {import("../shared/frame.js").Frame} Frame */
/** @typedef {import("./store.js").Head} Head */
/** @typedef {import("./thumb.js").ThumbTone} ThumbTone */

/** Returns "12", or "12 to 15" for several positions. */
const span = (/** @type {number} */ first, /** @type {number} */ end) =>
  end - first > 1 ? `${whole(first)} to ${whole(end - 1)}` : whole(first);

export class Matrix {
  /** @param {import("../shared/entry.js").Context} context @param {import("../shared/entry.js").Entry} entry */
  constructor(context, entry) {
    this.context = context;
    this.entry = entry;
    this.canvas = make("canvas", {width: 1, height: 1, role: "img", onpointermove: (/** @type {PointerEvent} */ event) => this.hover(event),
      onpointerleave: () => this.told.textContent = this.hint(), onclick: (/** @type {MouseEvent} */ event) => this.go(event)});
    this.told = make("p", {class: "small told"});
    this.node = make("div", {class: "matrix"}, this.canvas, this.told);
    /** @type {Head | null} */
    this.head = null;
    /** @type {Frame | null} */
    this.frame = null;
    this.side = 1;  // pairs along a side of a cell
    /** @type {(position: [query: number, key: number]) => string} */
    this.nameOf = () => "";
  }

  hint() {
    return this.frame ? "A click opens this place as a map." : "The weights are being computed.";
  }
  /** Shows the thumbnail of a head until its whole matrix has arrived. */
  begin(/** @type {Head} */ head, /** @type {ThumbTone} */ tone) {
    this.head = head;
    this.frame = null;
    const {queries, keys} = head.layer;
    this.canvas.style.aspectRatio = `${Math.min(4, Math.max(0.25, keys / queries))}`;
    this.canvas.setAttribute("aria-label", `weights of ${whole(queries)} queries and ${whole(keys)} keys`);
    if (head.frame) drawFrame(this.canvas, head.frame, tone);
    this.told.textContent = this.hint();
  }
  /** Shows the tile with all cells, each of `side` x `side` pairs. */
  show(/** @type {Frame} */ frame, /** @type {number} */ side, /** @type {ThumbTone} */ tone) {
    this.frame = frame;
    this.side = side;
    drawFrame(this.canvas, frame, tone);
    this.told.textContent = this.hint();
  }
  restyle(/** @type {ThumbTone} */ tone) {
    const frame = this.frame ?? this.head?.frame;
    if (frame) drawFrame(this.canvas, frame, tone);
  }

  /** Returns the row and column of the cell under the pointer. */
  cellAt(/** @type {MouseEvent} */ event) {
    if (!this.frame) return null;
    const box = this.canvas.getBoundingClientRect(), {rows, columns} = this.frame;
    const row = Math.floor((event.clientY - box.top) / box.height * rows), column = Math.floor((event.clientX - box.left) / box.width * columns);
    return row >= 0 && row < rows && column >= 0 && column < columns ? {row, column} : null;
  }
  hover(/** @type {PointerEvent} */ event) {
    const cell = this.cellAt(event);
    if (!cell || !this.frame || !this.head) return;
    const {side} = this, {queries, keys} = this.head.layer, code = this.frame.codes ? this.frame.codes[cell.row * this.frame.columns + cell.column] : HIDDEN;
    const query = cell.row * side, key = cell.column * side, value = valueOf(code);
    const text = code === HIDDEN ? "hidden by the mask" : code === UNKNOWN ? "not computed yet" : Number.isNaN(value) ? "nan" : Number(value.toPrecision(3));
    this.told.textContent = `query ${span(query, Math.min(queries, query + side))}, key ${span(key, Math.min(keys, key + side))}: ` +
        (side > 1 && value >= 0 ? `largest weight ${text}` : `${text}`);
  }
  go(/** @type {MouseEvent} */ event) {
    const cell = this.cellAt(event);
    if (!cell || !this.head) return;
    const middle = (/** @type {number} */ i) => Math.floor((i + 0.5) * this.side);
    this.context.navigate(headAddress("map", this.entry, this.head.layer, this.head.head), `at=${middle(cell.row)},${middle(cell.column)}`);
  }
}
