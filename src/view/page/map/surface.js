// SPDX-License-Identifier: Apache-2.0
//
// The two canvases of a map: the matrix with its axes, and over it what follows the pointer (the cross
// hair, the locked cell, a rectangle), so that a movement of the pointer draws no tiles.

import {Axes} from "../canvas/axes.js";
import {make} from "../shared/dom.js";
import {Painter, tilesInView} from "../canvas/painter.js";
import {themeColor} from "../shared/theme.js";

/** @typedef {import("./page.js").MapPage} MapPage */
/** @typedef {{query: number, key: number}} Pair */

const TOGETHER = 60;  // milliseconds for which tiles that arrive are collected: a frame costs more than a tile

export class Surface {
  #dirty = false;
  #frame = 0;
  #later = 0;
  #size = "";
  /**
   * How long the last frames took, in milliseconds.
   * @type {number[]}
   */
  times = [];
  missing = 0;

  /** @param {MapPage} page */
  constructor(page) {
    this.page = page;
    this.canvas = make("canvas", {tabindex: 0, role: "application", "aria-roledescription": "attention map", class: "matrix"});
    this.overlay = make("canvas", {class: "over", "aria-hidden": "true"});
    this.node = make("div", {class: "surface"}, this.canvas, this.overlay);
    this.pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d", {alpha: false}));
    this.ink = /** @type {CanvasRenderingContext2D} */ (this.overlay.getContext("2d"));
    this.theme = {paper: "", loading: "", hatch: "", line: "", ink: "", soft: "", plum: ""};
    this.observer = new ResizeObserver(() => this.resize());
    this.show();
  }

  /** Takes the view of another head. */
  show() {
    const {page} = this;
    this.painter = new Painter(this.pen, page.of.view);
    this.axes = new Axes(this.pen, page.of.view, page.of.queryTokens, page.of.keyTokens);
    this.setTheme();
  }

  setTheme() {
    for (const name of Object.keys(this.theme)) this.theme[/** @type {"paper"} */ (name)] = themeColor("--" + name);
    this.painter?.setTheme(this.theme, this.ratio);
    this.redraw();
  }

  get ratio() {
    return devicePixelRatio || 1;
  }

  start() {
    this.observer.observe(this.node);
    this.resize();
  }

  /** Tells the view its size, before anything is drawn. */
  measure() {
    const {width, height} = this.node.getBoundingClientRect();
    if (width >= 10 && height >= 10) this.page.of.view.resize(width, height);
  }

  resize() {
    const {width, height} = this.node.getBoundingClientRect(), {ratio} = this, size = `${width} ${height} ${ratio}`;
    if (width < 10 || height < 10 || size === this.#size) return;
    this.#size = size;
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    this.page.of.view.resize(width, height);
    this.painter?.setTheme(this.theme, ratio);
    this.#dirty = true;
    this.#draw();  // at once: an empty canvas would flash
  }

  /** Draws in the next frame: everything, or only what follows the pointer. */
  redraw(everything = true) {
    this.#dirty ||= everything;
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** Draws what has arrived: at once if it is the last of it, otherwise with what arrives soon after. */
  arrived() {
    if (!this.page.of.tiles.inFlight) this.redraw();
    else this.#later ||= setTimeout(() => this.redraw(), TOGETHER);
  }

  get idle() {
    return !this.#frame && !this.#later;
  }

  #draw() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#later);
    this.#frame = this.#later = 0;
    const started = performance.now();
    if (this.#dirty) this.#drawAll();
    this.#dirty = false;
    this.#drawOver();
    this.times.push(performance.now() - started);
    if (this.times.length > 240) this.times.shift();
  }

  #drawAll() {
    const {page, pen, ratio, theme} = this, {axes, painter} = this;
    if (!axes || !painter) return;
    axes.layOut();
    page.chooseLevel();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = theme.paper;
    pen.fillRect(0, 0, page.of.view.width, page.of.view.height);
    const places = tilesInView(page.of.view, page.reduce, page.level);
    const {place: whole, first} = page.overview;
    const others = places.filter(({z, reduce}) => z !== whole.z || reduce !== whole.reduce);
    page.of.tiles.want(first ? [whole, ...others] : [...others, whole]);
    const {absent, partial} = painter.draw(page.of.tiles, places, page.lookup, page.of.status.levels);
    this.missing = absent + partial;
    axes.draw(theme, page.selection.focus);
    if (this.missing && page.of.status.pass.state !== "done") axes.exact(page.of.status.blocks, page.of.status.row_block, theme.soft);
    for (const side of page.search.sides) axes.marks(side, page.search.positions, page.search.current, theme);
    this.canvas.dataset.tiles = this.missing ? "loading" : "exact";
    page.server.pass.setMissing(absent, partial);
    page.drawn(places);
  }

  #drawOver() {
    const {ink, page, ratio} = this, {view} = page.of, {left, top, right, bottom} = view.area();
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    ink.clearRect(0, 0, view.width, view.height);
    ink.save();
    ink.beginPath();
    ink.rect(left, top, right - left, bottom - top);
    ink.clip();
    if (page.selection.cursor) this.#crossHair(page.selection.cursor, false);
    if (page.selection.locked) this.#crossHair(page.selection.locked, true);
    this.#rectangle();
    ink.restore();
  }

  /** The box of a cell, of one pair if it is locked. */
  #box(/** @type {Pair} */ {query, key}, size = 1) {
    const {view} = this.page.of, q = Math.floor(query / size) * size, k = Math.floor(key / size) * size;
    const x = Math.round(view.x(k)), y = Math.round(view.y(q));
    return {x, y, width: Math.max(1, Math.round(view.x(k + size)) - x), height: Math.max(1, Math.round(view.y(q + size)) - y)};
  }

  #crossHair(/** @type {Pair} */ pair, /** @type {boolean} */ locked) {
    const {ink, page} = this;
    if (!this.axes) return;
    const {left, top, right, bottom} = this.axes.box();
    const box = this.#box(pair, locked ? 1 : 2 ** page.level);
    const cx = box.x + box.width / 2, cy = box.y + box.height / 2;
    const gap = Math.max(6, box.width / 2 + 3), rise = Math.max(6, box.height / 2 + 3), grow = Math.max(1.5, (9 - box.width) / 2);
    const color = locked ? "#84306f" : "#15181c";
    // A dark line on a light one can be seen on all colours.
    for (const [style, wide] of /** @type {[string, number][]} */ ([["rgb(255 255 255 / .5)", 3], [color, 1]])) {
      ink.strokeStyle = style;
      ink.lineWidth = wide;
      ink.beginPath();
      for (const [x0, y0, x1, y1] of [[left, cy, cx - gap, cy], [cx + gap, cy, right, cy], [cx, top, cx, cy - rise], [cx, cy + rise, cx, bottom]]) {
        if (x1 < x0 || y1 < y0) continue;
        ink.moveTo(x0, y0);
        ink.lineTo(x1, y1);
      }
      ink.stroke();
    }
    for (const [style, wide] of /** @type {[string, number][]} */ ([["#fff", 5], [color, 2]])) {
      ink.strokeStyle = style;
      ink.lineWidth = wide;
      ink.strokeRect(box.x - grow, box.y - grow, box.width + 2 * grow, box.height + 2 * grow);
    }
  }

  #rectangle() {
    const {ink, page} = this, {rectangle} = page.selection;
    if (!rectangle) return;
    const {queries: [q0, q1], keys: [k0, k1]} = rectangle, {view} = page.of;
    const [x, y, w, h] = [view.x(k0), view.y(q0), (k1 - k0) / view.scale, (q1 - q0) / view.scale];
    ink.fillStyle = "rgb(255 255 255 / .18)";
    ink.fillRect(x, y, w, h);
    ink.strokeStyle = "#000";
    ink.lineWidth = 3;
    ink.strokeRect(x, y, w, h);
    ink.strokeStyle = "#fff";
    ink.lineWidth = 1.5;
    ink.setLineDash([6, 4]);
    ink.strokeRect(x, y, w, h);
    ink.setLineDash([]);
  }

  close() {
    this.observer.disconnect();
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#later);
  }
}
