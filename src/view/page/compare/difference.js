// SPDX-License-Identifier: Apache-2.0
//
// Differences of two heads as tiles: a cell is the weight of the first minus that of the second, in
// diverging colours. A weight that the mask hides counts as 0; cells hidden in both stay hatched.

import {differencePixel} from "../shared/colors.js";
import {HIDDEN, NAN, UNKNOWN, unknownParts, valueOf} from "../shared/frame.js";
import {tileName} from "../canvas/tiles.js";

/** @typedef {import("../shared/colors.js").DifferenceRamp} DifferenceRamp */
/** @typedef {import("../canvas/tiles.js").Tile} Tile */
/** @typedef {import("../canvas/tiles.js").Tiles} Tiles */
/** @typedef {import("../canvas/tiles.js").TilePlace} TilePlace */

const STEPS = 1000;  // colours from no difference to the largest
const KEPT = 96;     // tiles, of 256 KiB

/** The weight of each code; 0 if hidden. */
const WEIGHTS = Float32Array.from({length: 65536}, (_, code) => code === HIDDEN ? 0 : valueOf(code));

/** Returns what is known of both rows. */
const lower = (/** @type {Uint8Array | null} */ a, /** @type {Uint8Array | null} */ b) =>
  a && b ? a.map((state, row) => Math.min(state, b[row])) : a ?? b;

export class DifferenceTiles {
  /** @type {Map<string, {a: Tile, b: Tile, tile: Tile}>} the least recently used first */
  #made = new Map();
  #pixels = new Uint32Array(2 * STEPS + 1);
  /** Marks the tiles of the current colours, as the lookup of other tiles does. */
  lookup = new Uint32Array(0);

  most = 0;
  /** @type {DifferenceRamp} */
  ramp = "difference";

  /** @param {Tiles} a @param {Tiles} b */
  constructor(a, b) {
    this.a = a;
    this.b = b;
  }

  /** Sets the difference with the strongest colour, and the colours. */
  setLook(/** @type {number} */ most, /** @type {DifferenceRamp} */ ramp) {
    if (most === this.most && ramp === this.ramp) return;
    this.most = most;
    this.ramp = ramp;
    this.#made.clear();
    this.lookup = new Uint32Array(0);
    for (let i = 0; i < this.#pixels.length; ++i) this.#pixels[i] = differencePixel((i / STEPS - 1) * most, most, ramp);
  }

  /** Returns the tile of a place, if those of both heads have arrived. @returns {Tile | undefined} */
  get(/** @type {TilePlace} */ place) {
    const a = this.a.get(place), b = this.b.get(place), name = tileName(place);
    if (!a || !b) return undefined;
    const known = this.#made.get(name);
    if (known) {
      this.#made.delete(name);
      if (known.a === a && known.b === b) {
        this.#made.set(name, known);
        return known.tile;
      }
    }
    const tile = this.#make(a, b);
    this.#made.set(name, {a, b, tile});
    if (this.#made.size > KEPT) this.#made.delete(/** @type {string} */ (this.#made.keys().next().value));
    return tile;
  }

  /** @returns {Tile} */
  #make(/** @type {Tile} */ a, /** @type {Tile} */ b) {
    const {columns, rows} = a.frame, one = a.frame.codes, other = b.frame.codes;
    const frame = {...a.frame, codes: one ?? other, allHidden: a.frame.allHidden && b.frame.allHidden,
      hasHidden: a.frame.hasHidden && b.frame.hasHidden, hasNan: a.frame.hasNan || b.frame.hasNan, states: lower(a.frame.states, b.frame.states)};
    /** @type {Tile} */
    const tile = {frame, exact: a.exact && b.exact, blocks: "", unknown: [], bytes: 0, canvas: null, lookup: this.lookup};
    if (!frame.codes) return tile;
    const image = new ImageData(columns, rows), pixels = new Uint32Array(image.data.buffer), bad = differencePixel(NaN, 1, this.ramp), scale = STEPS / this.most;
    // Marks of nan are where either is nan, and unknown cells where either is unknown.
    const codes = frame.hasNan || frame.states ? new Uint16Array(columns * rows) : frame.codes;
    for (let i = 0; i < pixels.length; ++i) {
      const first = one ? one[i] : HIDDEN, second = other ? other[i] : HIDDEN;
      if (first === HIDDEN && second === HIDDEN) continue;
      if (first === NAN || second === NAN) {
        pixels[i] = bad;
        codes[i] = NAN;
        continue;
      }
      if (first === UNKNOWN || second === UNKNOWN) {
        codes[i] = UNKNOWN;
        continue;
      }
      const step = Math.round((WEIGHTS[first] - WEIGHTS[second]) * scale);
      pixels[i] = this.#pixels[STEPS + Math.max(-STEPS, Math.min(STEPS, step))];
    }
    frame.codes = codes;
    tile.unknown = unknownParts(frame);
    tile.canvas = document.createElement("canvas");
    Object.assign(tile.canvas, {width: columns, height: rows});
    /** @type {CanvasRenderingContext2D} */ (tile.canvas.getContext("2d")).putImageData(image, 0, 0);
    return tile;
  }
}
