// SPDX-License-Identifier: Apache-2.0
//
// Tiles of maps: few requests at a time, the nearest to the centre first; those out of view are
// aborted. 192 MiB of tiles are kept, of which the least recently used goes first.

import {ApiError, isAbort} from "../shared/api.js";
import {framePixels, readFrame, unknownParts} from "../shared/frame.js";

/** @typedef {import("../shared/frame.js").Frame} Frame */
/** @typedef {{reduce: "max" | "mean", z: number, x: number, y: number}} TilePlace */
/**
 * `exact`: all cells are final; otherwise `blocks` is what was known of its row blocks when it was
 * requested, and `unknown` has the parts that are not. `canvas` has the colours of `lookup`.
 * @typedef {{frame: Frame, exact: boolean, blocks: string, unknown: number[][], bytes: number,
 *   canvas: HTMLCanvasElement | null, lookup: Uint32Array | null}} Tile
 */

// Browsers open six connections to a server. Two are left for other requests while tiles wait for the
// lse of their rows; otherwise a tile takes some milliseconds, and others wait no longer than that.
const CONNECTIONS = 6, LEFT = 2;
const CAPACITY = 192 * 2 ** 20;

export const tileName = (/** @type {TilePlace} */ {reduce, z, x, y}) => `${reduce}/${z}/${x}/${y}`;

/** The tiles of all heads that the page has shown. */
class TileCache {
  /** @type {Map<string, Tile>} the least recently used first */
  #tiles = new Map();
  #bytes = 0;

  get bytes() {
    return this.#bytes;
  }
  get count() {
    return this.#tiles.size;
  }

  /** Returns a tile, which counts as used. */
  get(/** @type {string} */ name) {
    const tile = this.#tiles.get(name);
    if (tile) {
      this.#tiles.delete(name);
      this.#tiles.set(name, tile);
    }
    return tile;
  }

  put(/** @type {string} */ name, /** @type {Tile} */ tile) {
    this.drop(name);
    this.#tiles.set(name, tile);
    this.grow(tile.bytes);
  }

  /** Counts further bytes of the tile used last, and drops others. */
  grow(/** @type {number} */ bytes) {
    this.#bytes += bytes;
    for (const [name] of this.#tiles) {
      if (this.#bytes <= CAPACITY || this.#tiles.size < 2) return;
      this.drop(name);
    }
  }

  drop(/** @type {string} */ name) {
    const tile = this.#tiles.get(name);
    if (!tile) return;
    this.#bytes -= tile.bytes;
    this.#tiles.delete(name);
  }

  /** Drops the tiles of an input. */
  dropAll(/** @type {string} */ prefix) {
    for (const name of [...this.#tiles.keys()]) if (name.startsWith(prefix)) this.drop(name);
  }
}

export const cache = new TileCache();

/** The tiles of one head. */
export class Tiles {
  /** @type {Map<string, AbortController>} */
  #flying = new Map();
  /** @type {TilePlace[]} in the order of urgency */
  #wanted = [];
  /** @type {Map<string, number>} when a failed tile may be requested again */
  #later = new Map();
  #timer = 0;
  #paused = false;

  /**
   * @param {import("../shared/api.js").HeadApi} api
   * @param {string} prefix of names in the cache: the input's id and the head
   * @param {{arrived: () => void, failed: (error: unknown) => void}} events
   * @param {() => boolean} quick whether tiles do not wait for rows
   * @param {(place: TilePlace) => string} blocks returns the states of a tile's row blocks in the pass.
   *   When they change, a tile that is not exact is requested again
   */
  constructor(api, prefix, events, quick, blocks) {
    this.api = api;
    this.prefix = prefix + "/";
    this.events = events;
    this.quick = quick;
    this.blocks = blocks;
  }

  get inFlight() {
    return this.#flying.size;
  }
  /** Whether nothing is requested, nor waits for a request. */
  get idle() {
    return this.#flying.size === 0 && !this.#timer && this.#missing().length === 0;
  }

  get(/** @type {TilePlace} */ place) {
    return cache.get(this.prefix + tileName(place));
  }

  /** Says which tiles are needed now, the most urgent first. Requests for all others end. */
  want(/** @type {TilePlace[]} */ places) {
    this.#wanted = places;
    const names = new Set(places.map(tileName));
    for (const [name, controller] of this.#flying) if (!names.has(name)) controller.abort();
    this.#start();
  }

  /** Requests again what has changed with the progress of the pass. */
  follow() {
    this.#start();
  }

  /** Stops requests until resume(), such as while the server does not respond. */
  pause() {
    this.#paused = true;
    for (const controller of this.#flying.values()) controller.abort();
  }
  resume() {
    this.#paused = false;
    this.#later.clear();
    this.#start();
  }
  close() {
    this.#wanted = [];
    clearTimeout(this.#timer);
    this.pause();
  }

  #missing() {
    return this.#wanted.filter((place) => {
      const tile = this.get(place);
      return !(tile && (tile.exact || tile.blocks === this.blocks(place))) && !this.#flying.has(tileName(place));
    });
  }

  #start() {
    if (this.#paused) return;
    const now = performance.now(), most = this.quick() ? CONNECTIONS : CONNECTIONS - LEFT;
    let next = Infinity;
    for (const place of this.#missing()) {
      if (this.#flying.size >= most) return;
      const due = this.#later.get(tileName(place)) ?? 0;
      if (due > now) next = Math.min(next, due);
      else this.#load(place);
    }
    clearTimeout(this.#timer);
    this.#timer = next < Infinity ? setTimeout(() => {
      this.#timer = 0;
      this.#start();
    }, next - now + 1) : 0;
  }

  async #load(/** @type {TilePlace} */ place) {
    const name = tileName(place), controller = new AbortController(), blocks = this.blocks(place);
    this.#flying.set(name, controller);
    try {
      const buffer = await this.api.tile(place.reduce, place.z, place.x, place.y, controller.signal);
      const frame = readFrame(buffer), canvas = this.get(place)?.canvas ?? null;
      cache.put(this.prefix + name, {frame, exact: !frame.states, blocks, unknown: unknownParts(frame), canvas, lookup: null,
        bytes: buffer.byteLength + (canvas ? 4 * frame.columns * frame.rows : 0)});
      this.#later.delete(name);
    } catch (error) {
      if (!isAbort(error)) {
        this.#later.set(name, performance.now() + (error instanceof ApiError && error.status === 429 ? 500 : 3000));
        this.events.failed(error);
      }
    } finally {
      this.#flying.delete(name);
      this.#start();
      this.events.arrived();
    }
  }
}

/** Returns the pixels of a tile in the colours of `lookup`; null if all of it is hidden. */
export function tileCanvas(/** @type {Tile} */ tile, /** @type {Uint32Array} */ lookup) {
  const {frame} = tile;
  if (!frame.codes) return null;
  if (tile.lookup !== lookup) {
    if (!tile.canvas) {
      tile.canvas = document.createElement("canvas");
      tile.canvas.width = frame.columns;
      tile.canvas.height = frame.rows;
      const pixels = 4 * frame.columns * frame.rows;
      tile.bytes += pixels;
      cache.grow(pixels);
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (tile.canvas.getContext("2d", {willReadFrequently: true}));
    pen.putImageData(framePixels(frame, lookup), 0, 0);
    tile.lookup = lookup;
  }
  return tile.canvas;
}
