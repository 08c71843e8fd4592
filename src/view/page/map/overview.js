// SPDX-License-Identifier: Apache-2.0
//
// The corner map: the whole matrix in its coarsest level, with the view as a frame that can be dragged,
// and the matches of a search.

import {dots, hatching} from "../shared/colors.js";
import {make} from "../shared/dom.js";
import {SIDE} from "../canvas/painter.js";
import {themeColor} from "../shared/theme.js";
import {tileCanvas} from "../canvas/tiles.js";

/** @typedef {import("./page.js").MapPage} MapPage */

const LONGEST = {width: 296, height: 200}, LEAST = 24;

export class Overview {
  #dragging = false;

  /** @param {MapPage} page */
  constructor(page) {
    this.page = page;
    this.canvas = make("canvas", {class: "corner", role: "img"});
    this.node = make("section", {class: "overview", "aria-label": "Whole matrix"}, this.canvas);
    this.canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
      this.#dragging = true;
      this.canvas.setPointerCapture(event.pointerId);
      this.#move(event);
    });
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel"]) this.canvas.addEventListener(end, () => { this.#dragging = false; });
  }

  /**
   * The tile that holds the whole matrix.
   * @returns {import("../canvas/tiles.js").TilePlace}
   */
  get place() {
    return {reduce: "max", z: this.page.of.status.levels - 1, x: 0, y: 0};
  }

  /** Whether it comes before the tiles in view: while rows are missing, it arrives at once, and they may wait. */
  get first() {
    const {status} = this.page.of;
    return this.place.z >= status.base_level && status.pass.state !== "done";
  }

  /** The tiles that cover the matrix, of the coarsest level that is there. */
  #tiles() {
    const {tiles, layer: {queries, keys}} = this.page.of, {place} = this;
    const found = [];
    for (let z = place.z; z >= Math.max(0, place.z - 3); --z) {
      const side = SIDE * 2 ** z;
      for (let y = 0; y * side < queries; ++y) {
        for (let x = 0; x * side < keys; ++x) {
          const tile = tiles.get({...place, z, x, y});
          if (tile) found.push({tile, x: x * side, y: y * side, size: 2 ** z});
        }
      }
      if (z === place.z && found.length) break;
    }
    return found;
  }

  /** The size in CSS pixels; the aspect ratio is kept unless the map would be too thin to use. */
  #size() {
    const {queries, keys} = this.page.of.layer, pixel = Math.min(LONGEST.width / keys, LONGEST.height / queries);
    return {width: Math.max(LEAST, Math.round(keys * pixel)), height: Math.max(LEAST, Math.round(queries * pixel))};
  }

  #move(/** @type {PointerEvent} */ event) {
    if (!this.#dragging) return;
    const {queries, keys} = this.page.of.layer, {width, height} = this.#size();
    const {view} = this.page.of;
    view.moveTo(event.offsetY / height * queries, event.offsetX / width * keys);
    this.page.moved();
  }

  draw() {
    const {page} = this, {queries, keys} = page.of.layer, {width, height} = this.#size(), ratio = devicePixelRatio || 1;
    Object.assign(this.canvas.style, {width: width + "px", height: height + "px"});
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== wide) this.canvas.width = wide;
    if (this.canvas.height !== high) this.canvas.height = high;
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = themeColor("--loading");
    pen.fillRect(0, 0, wide, high);
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, wide, high);
    pen.clip();
    for (const {tile, x, y, size} of this.#tiles()) {
      // The last cells reach beyond the matrix.
      const box = /** @type {const} */ ([x / keys * wide, y / queries * high, tile.frame.columns * size / keys * wide, tile.frame.rows * size / queries * high]);
      if (tile.frame.hasHidden || tile.frame.allHidden) {
        pen.fillStyle = hatching(pen, themeColor("--paper"), themeColor("--hatch"), ratio);
        pen.fillRect(...box);
      }
      pen.fillStyle = dots(pen, themeColor("--loading"), themeColor("--soft"), ratio);
      for (const [r, rEnd, c, cEnd] of tile.unknown) {
        const [wide1, high1] = [box[2] / tile.frame.columns, box[3] / tile.frame.rows];
        pen.fillRect(box[0] + c * wide1, box[1] + r * high1, (cEnd - c) * wide1, (rEnd - r) * high1);
      }
      const canvas = tileCanvas(tile, page.lookup);
      pen.imageSmoothingEnabled = box[2] < tile.frame.columns;
      if (canvas) pen.drawImage(canvas, ...box);
    }
    pen.restore();
    pen.scale(ratio, ratio);
    for (const side of page.search.sides) {
      pen.fillStyle = themeColor("--plum");
      for (const at of page.search.positions) {
        if (side === "key") pen.fillRect(at / keys * width, height - 6, 1.5, 6);
        else pen.fillRect(0, at / queries * height, 6, 1.5);
      }
    }
    this.#frame(pen, width, height);
    const {queries: [q0, q1], keys: [k0, k1]} = page.of.view.visible();
    this.canvas.setAttribute("aria-label", `The whole matrix; in view are queries ${q0} to ${q1 - 1} and keys ${k0} to ${k1 - 1}`);
  }

  #frame(/** @type {CanvasRenderingContext2D} */ pen, /** @type {number} */ width, /** @type {number} */ height) {
    const {queries, keys} = this.page.of.layer, {queries: [q0, q1], keys: [k0, k1]} = this.page.of.view.visible();
    const middle = {x: (k0 + k1) / 2 / keys * width, y: (q0 + q1) / 2 / queries * height};
    const w = Math.max(7, (k1 - k0) / keys * width), h = Math.max(7, (q1 - q0) / queries * height);
    const x = Math.min(width - w, Math.max(0, middle.x - w / 2)), y = Math.min(height - h, Math.max(0, middle.y - h / 2));
    pen.lineWidth = 3.5;
    pen.strokeStyle = "rgb(0 0 0 / .65)";
    pen.strokeRect(x + 1, y + 1, w - 2, h - 2);
    pen.lineWidth = 1.5;
    pen.strokeStyle = "#fff";
    pen.strokeRect(x + 1, y + 1, w - 2, h - 2);
  }
}
