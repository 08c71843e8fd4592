// SPDX-License-Identifier: Apache-2.0
//
// One of the maps of a comparison: a canvas that draws the common view.

import {Axes} from "../canvas/axes.js";
import {make} from "../shared/dom.js";
import {Painter} from "../canvas/painter.js";
import {Pointer} from "../canvas/pointer.js";

/** @typedef {import("./compare.js").ComparePage} ComparePage */
/** @typedef {{get(place: import("../canvas/tiles.js").TilePlace): import("../canvas/tiles.js").Tile | undefined}} TileSource */
/** @typedef {{paper: string, loading: string, hatch: string, line: string, ink: string, soft: string, plum: string}} Theme */

export class ComparePane {
  /** @param {ComparePage} page @param {string} title @param {TileSource} tiles */
  constructor(page, title, tiles) {
    this.page = page;
    this.tiles = tiles;
    this.canvas = make("canvas", {tabindex: 0, role: "application", "aria-roledescription": "attention map", "aria-label": title});
    this.stage = make("div", {class: "compare-stage"}, this.canvas);
    this.note = make("span", {class: "small"});
    this.node = make("section", {class: "compare-pane"}, make("h2", {}, title, " ", this.note), this.stage);
    const {first} = page;
    this.pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d", {alpha: false}));
    this.painter = new Painter(this.pen, page.view);
    this.axes = new Axes(this.pen, page.view, first.queryTokens, first.keyTokens);
    /** @type {Theme | null} */
    this.theme = null;
    const pairAt = (/** @type {number} */ x, /** @type {number} */ y) => page.view.tokenAt(x, y);
    // What a pointer does on a map, without rectangles.
    const selection = {hover: (/** @type {number} */ x, /** @type {number} */ y) => page.point(pairAt(x, y)), click: (/** @type {number} */ x, /** @type {number} */ y) => page.click(pairAt(x, y)),
      leave: () => page.point(null), setRectangle() {}, zoomToRectangle() {}};
    this.pointer = new Pointer(/** @type {any} */ ({surface: this, selection, of: {view: page.view, layer: first.layer}, moved: () => page.moved()}));
  }

  get ratio() {
    return devicePixelRatio || 1;
  }
  setTheme(/** @type {Theme} */ theme) {
    this.theme = theme;
    this.painter.setTheme(theme, this.ratio);
  }
  resize(/** @type {number} */ width, /** @type {number} */ height) {
    Object.assign(this.canvas, {width: Math.round(width * this.ratio), height: Math.round(height * this.ratio)});
    if (this.theme) this.painter.setTheme(this.theme, this.ratio);
  }

  /** Draws tiles and the cursor; returns the tiles that are missing, as Painter.draw() does. */
  draw(/** @type {import("../canvas/tiles.js").TilePlace[]} */ places, /** @type {Uint32Array} */ lookup, /** @type {number} */ levels) {
    const {page, pen, theme, ratio} = this, {view} = page;
    if (!theme) return {absent: 0, partial: 0};
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = theme.paper;
    pen.fillRect(0, 0, view.width, view.height);
    if (this !== page.panes[0]) Object.assign(this.axes, {left: page.panes[0].axes.left, below: page.panes[0].axes.below});
    const missing = this.painter.draw(/** @type {any} */ (this.tiles), places, lookup, levels);
    this.axes.draw(theme, page.focus);
    if (page.cursor) this.crossHair(page.cursor, [4, 3]);
    if (page.locked) this.crossHair(page.locked, []);
    return missing;
  }
  /** Lines through a pair, on all maps at the same place. */
  crossHair(/** @type {{query: number, key: number}} */ {query, key}, /** @type {number[]} */ dash) {
    const {pen, page} = this, {view} = page, {left, top, right, bottom} = view.area();
    const x = Math.round(view.x(key + 0.5)), y = Math.round(view.y(query + 0.5)), half = Math.max(4, view.pixels / 2 + 1);
    pen.save();
    pen.beginPath();
    const box = {left: Math.max(left, view.x(0)), right: Math.min(right, view.x(view.keys)), top: Math.max(top, view.y(0)), bottom: Math.min(bottom, view.y(view.queries))};
    pen.rect(box.left - half, box.top - half, box.right - box.left + 2 * half, box.bottom - box.top + 2 * half);
    pen.clip();
    for (const [color, wide] of /** @type {[string, number][]} */ ([["rgb(0 0 0 / .6)", 3], ["rgb(255 255 255 / .9)", 1]])) {
      pen.strokeStyle = color;
      pen.lineWidth = wide;
      pen.setLineDash(dash);
      pen.beginPath();
      for (const [x0, y0, x1, y1] of [[box.left, y, x - half, y], [x + half, y, box.right, y], [x, box.top, x, y - half], [x, y + half, x, box.bottom]]) {
        pen.moveTo(x0, y0);
        pen.lineTo(x1, y1);
      }
      pen.stroke();
      pen.setLineDash([]);
      pen.strokeRect(x - half, y - half, 2 * half, 2 * half);
    }
    pen.restore();
  }
}
