// SPDX-License-Identifier: Apache-2.0
//
// The heads of an input: their names, numbers and thumbnails, requested layer by layer. The engine
// computes one request at a time, so few are under way, and what is on screen comes first.

import {readFrames} from "../shared/frame.js";

/** @typedef {import("../shared/entry.js").Entry} Entry */
/** @typedef {import("../shared/entry.js").Layer} Layer */
/** @typedef {import("../shared/frame.js").Frame} Frame */

/**
 * A head. `numbers` are in the order of HeadStore.names; a string is one that is not finite.
 * @typedef {{layer: Layer, head: number, key: string, name?: string, numbers?: (number | string)[], frame?: Frame}} Head
 */

const AT_ONCE = 2;  // requests under way

export class HeadStore {
  /**
   * @param {import("../shared/api.js").Api} api
   * @param {Entry} entry
   */
  constructor(api, entry) {
    this.api = api;
    this.entry = entry;
    /** @type {string[]} */
    this.names = [];
    /** @type {Map<string, Head>} */
    this.heads = new Map();
    for (const layer of entry.layers) {
      for (const head of layer.heads) this.heads.set(`${layer.label}.${head}`, {layer, head, key: `${layer.label}.${head}`});
    }
    this.stop = new AbortController();
    /** @type {Map<string, Promise<void>>} */
    this.asked = new Map();
    /** @type {{urgency: number, run: () => Promise<void>}[]} */
    this.waiting = [];
    this.running = 0;
  }

  /** Returns all heads, in the order of layers and heads. */
  get list() {
    return [...this.heads.values()];
  }
  /** Returns whether the names and numbers of all heads are known. */
  get complete() {
    return this.list.every(({numbers}) => numbers);
  }
  /** Returns a number of a head; NaN if it is unknown or not finite. */
  number(/** @type {Head} */ head, /** @type {string} */ name) {
    const value = head.numbers?.[this.names.indexOf(name)];
    return typeof value === "number" ? value : NaN;
  }

  /** Requests the thumbnails of a layer. */
  thumbs(/** @type {Layer} */ layer) {
    return this.once(`thumbs ${layer.label}`, 0, async () => {
      const bytes = await this.api.bytes(`/api/v1/inputs/${encodeURIComponent(this.entry.id)}/thumbs?layer=${layer.label}&reduce=max`, {signal: this.stop.signal});
      readFrames(bytes).forEach((frame, i) => {
        const head = this.heads.get(`${layer.label}.${layer.heads[i]}`);
        if (head) head.frame = frame;
      });
    });
  }
  /** Requests the names and numbers of a layer's heads. */
  numbers(/** @type {Layer} */ layer) {
    return this.once(`numbers ${layer.label}`, 1, async () => {
      const told = await this.api.heads(this.entry.id, layer.label, this.stop.signal);
      this.names = told.names;
      for (const {head, name, numbers} of told.heads) {
        Object.assign(/** @type {Head} */ (this.heads.get(`${layer.label}.${head}`)), {name, numbers});
      }
    });
  }
  /** Requests the names and numbers of all heads; `progress` is called after each layer. */
  async everyNumber(/** @type {() => void} */ progress) {
    await Promise.all(this.entry.layers.map((layer) => this.numbers(layer).then(progress)));
  }

  close() {
    this.waiting = [];
    this.stop.abort();
  }

  /**
   * Queues a request that has not been made before; a failed one may be repeated. Those of lower
   * `urgency` values come first.
   * @param {string} name
   * @param {number} urgency
   * @param {() => Promise<void>} request
   * @returns {Promise<void>}
   */
  once(name, urgency, request) {
    const before = this.asked.get(name);
    if (before) return before;
    const result = new Promise((/** @type {(value: void) => void} */ resolve, reject) => {
      const place = this.waiting.findIndex((other) => other.urgency > urgency);
      const run = () => request().then(resolve, (error) => {
        this.asked.delete(name);
        reject(error);
      });
      this.waiting.splice(place < 0 ? this.waiting.length : place, 0, {urgency, run});
    });
    this.asked.set(name, result);
    this.next();
    return result;
  }
  next() {
    while (this.running < AT_ONCE && this.waiting.length > 0) {
      this.running += 1;
      const {run} = /** @type {{run: () => Promise<void>}} */ (this.waiting.shift());
      run().finally(() => {
        this.running -= 1;
        this.next();
      });
    }
  }
}
