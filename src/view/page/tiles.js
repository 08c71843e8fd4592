// SPDX-License-Identifier: Apache-2.0
//
// Tiles of maps: few requests at a time, the nearest to the centre first; those out of view are
// aborted. 192 MiB of tiles are kept, of which the least recently used goes first.

import {ApiError, isAbort} from "./api.js";
import {framePixels, readFrame} from "./frame.js";

/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {{reduce: "max" | "mean", z: number, x: number, y: number}} TilePlace */
/**
 * `exact`: the server will not know it better. `canvas` has the colours of `lookup`.
 * @typedef {{frame: Frame, exact: boolean, bytes: number, canvas: HTMLCanvasElement | null,
 *   lookup: Uint32Array | null, at: number}} Tile
 */

// Browsers open six connections to a server. Two are left for other requests, and tiles that wait for
// many rows take up two at most.
const IN_FLIGHT = 4;
const SLOW = 2;
const CAPACITY = 192 * 2 ** 20;
const AGAIN = 400;  // milliseconds before an incomplete tile is requested again

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
  /** @type {Map<string, {controller: AbortController, slow: boolean}>} */
  #flying = new Map();
  /** @type {TilePlace[]} in the order of urgency */
  #wanted = [];
  /** @type {Map<string, number>} when a failed tile may be requested again */
  #later = new Map();
  #timer = 0;
  #paused = false;

  /**
   * @param {import("./api.js").HeadApi} api
   * @param {string} prefix of names in the cache: the input's id and the head
   * @param {{arrived: () => void, failed: (error: unknown) => void}} events
   * @param {(place: TilePlace) => "slow" | "blocked" | ""} waits whether a tile waits for the pass, or has to until it is resumed
   */
  constructor(api, prefix, events, waits) {
    this.api = api;
    this.prefix = prefix + "/";
    this.events = events;
    this.waits = waits;
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
    for (const [name, {controller}] of this.#flying) if (!names.has(name)) controller.abort();
    this.#start();
  }

  /** Stops requests until resume(), such as while the server does not respond. */
  pause() {
    this.#paused = true;
    for (const {controller} of this.#flying.values()) controller.abort();
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
    return this.#wanted.filter((place) => !this.get(place)?.exact && !this.#flying.has(tileName(place)) &&
      this.waits(place) !== "blocked");
  }

  #start() {
    if (this.#paused) return;
    const now = performance.now();
    let next = Infinity, slow = [...this.#flying.values()].filter((flight) => flight.slow).length;
    for (const place of this.#missing()) {
      if (this.#flying.size >= IN_FLIGHT) return;
      if (this.waits(place) && slow >= SLOW) continue;
      const due = Math.max(this.#later.get(tileName(place)) ?? 0, (this.get(place)?.at ?? -Infinity) + AGAIN);
      if (due > now) next = Math.min(next, due);
      else {
        if (this.waits(place)) ++slow;
        this.#load(place);
      }
    }
    clearTimeout(this.#timer);
    this.#timer = next < Infinity ? setTimeout(() => {
      this.#timer = 0;
      this.#start();
    }, next - now + 1) : 0;
  }

  async #load(/** @type {TilePlace} */ place) {
    const name = tileName(place), controller = new AbortController();
    this.#flying.set(name, {controller, slow: this.waits(place) !== ""});
    try {
      const {buffer, exact} = await this.api.tileAndState(place.reduce, place.z, place.x, place.y, controller.signal);
      const frame = readFrame(buffer);
      if (frame.failed) throw new ApiError(500, "failed", frame.error);
      cache.put(this.prefix + name, {frame, exact, at: performance.now(), bytes: buffer.byteLength, canvas: null, lookup: null});
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
