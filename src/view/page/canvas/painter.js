// SPDX-License-Identifier: Apache-2.0
//
// Draws the matrix: the tiles of the level that fits the scale, and until they have arrived the
// nearest coarser and finer ones. Edges of cells lie on device pixels, so that tiles have no seams.

import {dots, hatching, patternSide} from "../shared/colors.js";
import {NAN} from "../shared/frame.js";
import {tileCanvas} from "./tiles.js";

/** @typedef {import("./tiles.js").TilePlace} TilePlace */
/** @typedef {import("./tiles.js").Tile} Tile */
/** @typedef {import("./tiles.js").Tiles} Tiles */
/** @typedef {import("./viewport.js").Viewport} Viewport */
/** @typedef {{q0: number, q1: number, k0: number, k1: number}} Pairs a rectangle in tokens */

export const SIDE = 256;
/** How many levels finer tiles may be to stand in for one that is missing. */
const FINER = 2;
const GRID_FROM = 14;  // CSS pixels of a cell from which cells are separated by lines
const MARK_FROM = 9;   // and from which nan has a mark

/**
 * The tiles in view at a level, the nearest to the centre first.
 * @param {Viewport} view @param {"max" | "mean"} reduce @param {number} z
 * @returns {TilePlace[]}
 */
export function tilesInView(view, reduce, z) {
  const {queries, keys} = view.visible(), side = SIDE * 2 ** z;
  if (queries[0] >= queries[1] || keys[0] >= keys[1]) return [];
  const places = [], middle = {x: (keys[0] + keys[1]) / 2 / side - 0.5, y: (queries[0] + queries[1]) / 2 / side - 0.5};
  for (let y = Math.floor(queries[0] / side); y * side < queries[1]; ++y) {
    for (let x = Math.floor(keys[0] / side); x * side < keys[1]; ++x) places.push({reduce, z, x, y});
  }
  const distance = (/** @type {TilePlace} */ {x, y}) => (x - middle.x) ** 2 + (y - middle.y) ** 2;
  return places.sort((a, b) => distance(a) - distance(b));
}

export class Painter {
  /** @type {CanvasPattern | null} */
  #hatching = null;
  /** @type {CanvasPattern | null} */
  #dots = null;
  /** @type {{paper: string, loading: string, hatch: string, line: string, soft: string}} */
  #theme = {paper: "", loading: "", hatch: "", line: "", soft: ""};

  /** @param {CanvasRenderingContext2D} pen @param {Viewport} view */
  constructor(pen, view) {
    this.pen = pen;
    this.view = view;
    this.ratio = 1;
  }

  /** Takes the colours of the page and device pixels per CSS pixel. */
  setTheme(/** @type {{paper: string, loading: string, hatch: string, line: string, soft: string}} */ theme, /** @type {number} */ ratio) {
    this.#theme = theme;
    this.ratio = ratio;
    this.#hatching = hatching(this.pen, theme.paper, theme.hatch, ratio);
    this.#dots = dots(this.pen, theme.loading, theme.soft, ratio);
  }

  #x(/** @type {number} */ key) {
    return Math.round(this.view.x(key) * this.ratio);
  }
  #y(/** @type {number} */ query) {
    return Math.round(this.view.y(query) * this.ratio);
  }

  /**
   * Draws the matrix.
   * @param {Tiles} tiles
   * @param {TilePlace[]} places
   * @param {Uint32Array} lookup
   * @param {number} levels
   * @returns {{absent: number, partial: number}} the tiles that are not there yet, and those that are not exact
   */
  draw(tiles, places, lookup, levels) {
    const {pen, view, ratio} = this, {left, top, right, bottom} = view.area();
    pen.save();
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.beginPath();
    pen.rect(Math.round(left * ratio), Math.round(top * ratio), Math.round((right - left) * ratio), Math.round((bottom - top) * ratio));
    pen.clip();
    const matrix = {q0: 0, q1: view.queries, k0: 0, k1: view.keys};
    this.#clip(matrix);
    // The patterns move with the matrix.
    const period = patternSide(ratio), shift = new DOMMatrix().translate(this.#x(0) % period, this.#y(0) % period);
    this.#hatching?.setTransform(shift);
    this.#dots?.setTransform(shift);
    const missing = {absent: 0, partial: 0};
    for (const place of places) {
      const tile = tiles.get(place);
      if (!tile) ++missing.absent;
      else if (!tile.exact) ++missing.partial;
      if (tile) this.#tile(tile, place, lookup, this.#pairs(place));
      else this.#standIn(tiles, place, lookup, levels);
    }
    const level = places[0]?.z ?? 0, cell = 2 ** level * view.pixels;
    if (cell >= GRID_FROM) this.#grid(level);
    pen.restore();
    pen.save();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.strokeStyle = this.#theme.line;
    pen.lineWidth = 1 / ratio;
    const edge = {left: Math.max(left, view.x(0)), right: Math.min(right, view.x(view.keys)),
      top: Math.max(top, view.y(0)), bottom: Math.min(bottom, view.y(view.queries))};
    if (edge.right > edge.left && edge.bottom > edge.top) {
      pen.strokeRect(edge.left, edge.top, edge.right - edge.left, edge.bottom - edge.top);
    }
    pen.restore();
    return missing;
  }

  /** The pairs of a tile. @returns {Pairs} */
  #pairs(/** @type {TilePlace} */ {z, x, y}) {
    const side = SIDE * 2 ** z;
    return {q0: y * side, q1: Math.min(this.view.queries, (y + 1) * side), k0: x * side, k1: Math.min(this.view.keys, (x + 1) * side)};
  }

  #clip(/** @type {Pairs} */ {q0, q1, k0, k1}) {
    this.pen.beginPath();
    this.pen.rect(this.#x(k0), this.#y(q0), this.#x(k1) - this.#x(k0), this.#y(q1) - this.#y(q0));
    this.pen.clip();
  }

  #fill(/** @type {Pairs} */ {q0, q1, k0, k1}, /** @type {string | CanvasPattern} */ style) {
    this.pen.fillStyle = style;
    this.pen.fillRect(this.#x(k0), this.#y(q0), this.#x(k1) - this.#x(k0), this.#y(q1) - this.#y(q0));
  }

  /** Draws the cells of a tile that overlap `pairs` and the view. */
  #tile(/** @type {Tile} */ tile, /** @type {TilePlace} */ place, /** @type {Uint32Array} */ lookup, /** @type {Pairs} */ pairs) {
    const {frame} = tile, size = 2 ** place.z, visible = this.view.visible();
    const origin = {q: place.y * SIDE * size, k: place.x * SIDE * size};
    const c0 = Math.max(0, Math.floor((Math.max(pairs.k0, visible.keys[0]) - origin.k) / size));
    const c1 = Math.min(frame.columns, Math.ceil((Math.min(pairs.k1, visible.keys[1]) - origin.k) / size));
    const r0 = Math.max(0, Math.floor((Math.max(pairs.q0, visible.queries[0]) - origin.q) / size));
    const r1 = Math.min(frame.rows, Math.ceil((Math.min(pairs.q1, visible.queries[1]) - origin.q) / size));
    if (c0 >= c1 || r0 >= r1) return;
    const x0 = this.#x(origin.k + c0 * size), x1 = this.#x(origin.k + c1 * size);
    const y0 = this.#y(origin.q + r0 * size), y1 = this.#y(origin.q + r1 * size);
    if ((frame.hasHidden || frame.allHidden) && this.#hatching) {
      this.pen.fillStyle = this.#hatching;
      this.pen.fillRect(x0, y0, x1 - x0, y1 - y0);
    }
    for (const [r, rEnd, c, cEnd] of tile.unknown) {
      const [top, bottom, left, right] = [Math.max(r, r0), Math.min(rEnd, r1), Math.max(c, c0), Math.min(cEnd, c1)];
      if (top >= bottom || left >= right || !this.#dots) continue;
      this.#fill({q0: origin.q + top * size, q1: origin.q + bottom * size, k0: origin.k + left * size, k1: origin.k + right * size}, this.#dots);
    }
    const canvas = tileCanvas(tile, lookup);
    if (!canvas) return;
    this.pen.drawImage(canvas, c0, r0, c1 - c0, r1 - r0, x0, y0, x1 - x0, y1 - y0);
    if (frame.hasNan && size * this.view.pixels >= MARK_FROM) this.#marks(tile, origin, size, [r0, r1, c0, c1]);
  }

  /** Crosses out the cells that are nan: they are told apart without their colour. */
  #marks(/** @type {Tile} */ {frame}, /** @type {{q: number, k: number}} */ origin, /** @type {number} */ size, /** @type {number[]} */ [r0, r1, c0, c1]) {
    const {pen} = this, codes = /** @type {Uint16Array} */ (frame.codes);
    pen.strokeStyle = "#fff";
    pen.lineWidth = 1.5 * this.ratio;
    pen.beginPath();
    for (let r = r0; r < r1; ++r) {
      for (let c = c0; c < c1; ++c) {
        if (codes[r * frame.columns + c] !== NAN) continue;
        const x = this.#x(origin.k + c * size), y = this.#y(origin.q + r * size);
        const x1 = this.#x(origin.k + (c + 1) * size), y1 = this.#y(origin.q + (r + 1) * size);
        pen.moveTo(x, y);
        pen.lineTo(x1, y1);
        pen.moveTo(x1, y);
        pen.lineTo(x, y1);
      }
    }
    pen.stroke();
  }

  /** Draws what is known of a tile that has not arrived: the nearest coarser one, and finer ones over it. */
  #standIn(/** @type {Tiles} */ tiles, /** @type {TilePlace} */ place, /** @type {Uint32Array} */ lookup, /** @type {number} */ levels) {
    const pairs = this.#pairs(place);
    this.#fill(pairs, this.#theme.loading);
    for (let z = place.z + 1; z < levels; ++z) {
      const shift = 2 ** (z - place.z);
      const coarser = {...place, z, x: Math.floor(place.x / shift), y: Math.floor(place.y / shift)};
      const tile = tiles.get(coarser);
      if (!tile) continue;
      this.pen.save();
      this.#clip(pairs);
      this.#tile(tile, coarser, lookup, pairs);
      this.pen.restore();
      break;
    }
    for (let z = place.z - 1; z >= Math.max(0, place.z - FINER); --z) {
      const parts = 2 ** (place.z - z);
      for (let dy = 0; dy < parts; ++dy) {
        for (let dx = 0; dx < parts; ++dx) {
          const finer = {...place, z, x: place.x * parts + dx, y: place.y * parts + dy};
          const tile = tiles.get(finer);
          if (tile) this.#tile(tile, finer, lookup, this.#pairs(finer));
        }
      }
    }
  }

  /** Lines between cells. */
  #grid(/** @type {number} */ level) {
    const {queries, keys} = this.view.visible(), size = 2 ** level, {pen} = this;
    const wide = Math.max(1, Math.round(this.ratio));
    pen.fillStyle = this.#theme.paper;
    const [x0, x1, y0, y1] = [this.#x(keys[0]), this.#x(keys[1]), this.#y(queries[0]), this.#y(queries[1])];
    for (let k = Math.ceil(keys[0] / size) * size; k <= keys[1]; k += size) pen.fillRect(this.#x(k), y0, wide, y1 - y0);
    for (let q = Math.ceil(queries[0] / size) * size; q <= queries[1]; q += size) pen.fillRect(x0, this.#y(q), x1 - x0, wide);
  }
}
