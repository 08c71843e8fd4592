// SPDX-License-Identifier: Apache-2.0
//
// Search in the tokens of a map: a field, the number of matches, and the way from one to the next.
// Matches are marked on the axes and in the corner map.

import {inWords} from "../shared/api.js";
import {button, make, whole} from "../shared/dom.js";

/** @typedef {import("./page.js").MapPage} MapPage */

const PAUSE = 200;  // milliseconds after the last letter
const BATCH = 1000; // positions in a response

export class Search {
  /** @type {number[]} matches that are marked, ascending */
  positions = [];
  count = 0;
  /** The number of the current match, from 0; -1 before the first. */
  index = -1;
  #current = -1;
  #timer = 0;
  #abort = new AbortController();
  #busy = 0;
  /** @type {number[] | null} the batch of the current match, if it is beyond the marked ones */
  #batch = null;
  #batchStart = 0;

  /** @param {MapPage} page */
  constructor(page) {
    this.page = page;
    this.field = make("input", {type: "search", "aria-label": "Search in tokens", placeholder: "search tokens  /", spellcheck: "false",
      autocomplete: "off", maxlength: 200, oninput: () => this.#typed(), onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event)});
    this.side = make("select", {"aria-label": "Tokens to search in", onchange: () => page.setSearch({side: this.side.value})},
        make("option", {value: "key"}, "in keys"), make("option", {value: "query"}, "in queries"));
    this.exact = button({"aria-pressed": "false", "aria-label": "Match case", title: "Match case",
      onclick: () => page.setSearch({exact: !page.state.exact})}, "Aa");
    const step = (/** @type {number} */ by, /** @type {string} */ name, /** @type {string} */ sign) =>
      button({"aria-label": name, title: `${name} (${by > 0 ? "n" : "p"})`, onclick: () => this.step(by)}, sign);
    this.steps = [step(-1, "Previous match", "\u2191"), step(1, "Next match", "\u2193")];
    this.told = make("output", {class: "small", "aria-live": "polite"});
    this.node = make("div", {class: "search", role: "search"}, this.field, this.side, this.exact, ...this.steps, this.told);
  }

  get idle() {
    return !this.#timer && this.#busy === 0;
  }
  /**
   * The sides that the matches belong to.
   * @returns {("query" | "key")[]}
   */
  get sides() {
    return this.page.of.layer.same_tokens ? ["key", "query"] : [this.page.state.side];
  }
  /** The position of the current match, or -1. */
  get current() {
    return this.index < 0 ? -1 : this.#current;
  }

  /** Takes the state of the page; searches if it has changed. */
  update() {
    const {page} = this, {find, side, exact} = page.state, {query_tokens: queries, key_tokens: keys, same_tokens: same} = page.of.layer;
    this.node.hidden = !queries && !keys;
    if (document.activeElement !== this.field) this.field.value = find;
    this.side.value = side;
    this.side.hidden = same || !queries || !keys;
    this.exact.setAttribute("aria-pressed", String(exact));
    this.#search();
  }

  #typed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.page.setSearch({find: this.field.value});
    }, PAUSE);
  }

  #key(/** @type {KeyboardEvent} */ event) {
    if (event.key === "Enter") {
      event.preventDefault();
      clearTimeout(this.#timer);
      this.#timer = 0;
      if (this.field.value !== this.page.state.find) this.page.setSearch({find: this.field.value});
      this.#ready.then(() => this.step(event.shiftKey ? -1 : 1));
    } else if (event.key === "Escape") {
      event.preventDefault();
      this.field.value = "";
      this.page.setSearch({find: ""});
      this.page.focus();
    }
  }

  /** Fulfilled when the matches of the last search are there. */
  #ready = Promise.resolve();
  #searched = "";

  #search() {
    const {page} = this, {find, exact} = page.state, [side] = this.sides;
    const name = `${page.of.entry.id}/${page.of.layer.label}/${side}/${exact}/${find}`;
    if (name === this.#searched) return;
    this.#searched = name;
    this.#abort.abort();
    this.#abort = new AbortController();
    this.positions = [];
    this.count = 0;
    this.index = -1;
    this.#batch = null;
    this.#tell();
    page.redraw();
    if (!find || this.node.hidden) return;
    const {signal} = this.#abort;
    this.#ready = this.#track(async () => {
      const {count, positions} = await page.context.api.find(page.of.entry.id, page.of.layer.label, side, find, {fold: !exact}, signal);
      this.count = count;
      this.positions = positions;
      this.#tell();
      page.redraw();
    });
  }

  /** Awaits a request; a failure is told beside the field. */
  async #track(/** @type {() => Promise<void>} */ task) {
    ++this.#busy;
    try {
      await task();
    } catch (error) {
      if (!this.#abort.signal.aborted) this.told.textContent = inWords(error);
      this.page.failed(error);
    } finally {
      --this.#busy;
    }
  }

  #tell() {
    const {find} = this.page.state;
    for (const node of this.steps) node.disabled = this.count === 0;
    if (!find) this.told.textContent = "";
    else if (this.index >= 0) this.told.textContent = `${whole(this.index + 1)} of ${whole(this.count)}`;
    else this.told.textContent = this.count === 1 ? "1 match" : this.count ? `${whole(this.count)} matches` : "no match";
  }

  /** Goes to the next (1) or previous (-1) match; after the last one comes the first. */
  async step(/** @type {number} */ by) {
    if (!this.count) return;
    const target = this.index < 0 ? (by > 0 ? 0 : this.count - 1) : (this.index + by + this.count) % this.count;
    if (this.count > this.positions.length && target >= this.positions.length) await this.#track(() => this.#loadBatch(target));
    const at = target < this.positions.length ? this.positions[target] : this.#batch?.[target - this.#batchStart];
    if (at === undefined) return;
    this.index = target;
    this.#current = at;
    this.#tell();
    this.page.selection.showMatch(at, this.sides);
  }

  /** Requests the positions around match `target`, which follow those that are known. */
  async #loadBatch(/** @type {number} */ target) {
    const {page} = this, {find, exact} = page.state, {signal} = this.#abort;
    if (this.#batch && target >= this.#batchStart && target < this.#batchStart + this.#batch.length) return;
    let start = this.positions.length, after = this.positions[start - 1];
    if (this.#batch && target >= this.#batchStart) {
      start = this.#batchStart + this.#batch.length;
      after = this.#batch[this.#batch.length - 1];
    }
    for (;;) {
      const {positions} = await page.context.api.find(page.of.entry.id, page.of.layer.label, this.sides[0], find, {fold: !exact, after}, signal);
      if (!positions.length) return;
      this.#batch = positions;
      this.#batchStart = start;
      if (target < start + positions.length) return;
      start += positions.length;
      after = positions[Math.min(positions.length, BATCH) - 1];
    }
  }

  close() {
    clearTimeout(this.#timer);
    this.#abort.abort();
  }
}
