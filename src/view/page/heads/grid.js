// SPDX-License-Identifier: Apache-2.0
//
// The grid of heads: a row for each layer, or heads in an order, with a thumbnail, the name and a
// number of each. Rows are filled when they scroll into view.

import {isAbort} from "../shared/api.js";
import {make} from "../shared/dom.js";
import {layerName} from "../shared/entry.js";
import {nameCaption, nameColor, numberLabel, numberText} from "./words.js";
import {drawFrame} from "./thumb.js";

/** @typedef {import("./store.js").Head} Head */
/** @typedef {import("./store.js").HeadStore} HeadStore */
/** @typedef {{label: string, title: string, heads: (Head | null)[]}} Row heads by column; null where there is none */
/**
 * The number shown, the tone, the key of the open head, and whether each head says its place.
 * @typedef {{number: string, tone: "sqrt" | "log", chosen: string, places: boolean}} Look
 */

const AHEAD = "400px";  // rows this far outside the view are filled

export class HeadGrid {
  /**
   * @param {HeadStore} store
   * @param {{open: (head: Head) => void, failed: (error: Error) => void, loaded: () => void, waits: (pending: boolean) => void}} calls
   */
  constructor(store, calls) {
    this.store = store;
    this.calls = calls;
    this.node = make("div", {class: "head-grid", role: "grid", "aria-label": "attention heads",
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
      onclick: (/** @type {MouseEvent} */ event) => this.press(event)});
    /** @type {Row[]} */
    this.rows = [];
    /** @type {Look} */
    this.look = {number: "", tone: "sqrt", chosen: "", places: false};
    /** @type {Map<string, HTMLElement>} */
    this.cells = new Map();
    this.focus = "";  // the key of the head in the tab order
    this.pending = 0;  // layers whose thumbnails are requested
    this.seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
      const row = this.rows[Number(/** @type {HTMLElement} */ (entry.target).dataset.row)];
      if (row && entry.isIntersecting) this.fill(row);
    }), {root: null, rootMargin: AHEAD});
  }

  /** Shows these rows; `columns` are the headings of the columns, if they have any. */
  show(/** @type {Row[]} */ rows, /** @type {string[]} */ columns, /** @type {Look} */ look) {
    this.rows = rows;
    this.look = look;
    this.seen.disconnect();
    this.cells.clear();
    const keys = rows.flatMap(({heads}) => heads.flatMap((head) => head ? [head.key] : []));
    if (!keys.includes(this.focus)) this.focus = keys.includes(look.chosen) ? look.chosen : keys[0] ?? "";
    const parts = rows.map((row, r) => make("div", {role: "row", class: "head-row", "data-row": r, "aria-rowindex": r + (columns.length ? 2 : 1)},
        make("span", {role: "rowheader", class: "row-label", title: row.title || null}, row.label),
        ...row.heads.map((head, c) => head ? this.cell(head, c) : make("span", {role: "gridcell", class: "no-head"}))));
    if (columns.length > 0) {
      parts.unshift(make("div", {role: "row", class: "head-row columns", "aria-rowindex": 1}, make("span", {role: "columnheader", class: "row-label"}, "head"),
          ...columns.map((label) => make("span", {role: "columnheader"}, label))));
    }
    this.node.replaceChildren(...parts);
    this.node.dataset.thumbs = "loading";
    for (const part of this.node.querySelectorAll("[data-row]")) this.seen.observe(part);
  }
  /** Shows another number, tone or open head in the same rows. */
  restyle(/** @type {Look} */ look) {
    const redraw = look.tone !== this.look.tone;
    this.look = look;
    for (const [key, cell] of this.cells) this.update(/** @type {Head} */ (this.store.heads.get(key)), cell, redraw);
  }

  /** @returns {HTMLElement} */
  cell(/** @type {Head} */ head, /** @type {number} */ column) {
    const cell = make("div", {role: "gridcell", class: "head", "data-key": head.key, tabindex: head.key === this.focus ? 0 : -1, "aria-colindex": column + 2},
        make("canvas", {width: 1, height: 1, "aria-hidden": "true"}), make("span", {class: "head-name"}), make("span", {class: "head-number"}));
    this.cells.set(head.key, cell);
    this.update(head, cell, true);
    return cell;
  }
  update(/** @type {Head} */ head, /** @type {HTMLElement} */ cell, redraw = true) {
    const [canvas, name, number] = /** @type {[HTMLCanvasElement, HTMLElement, HTMLElement]} */ (/** @type {unknown} */ ([...cell.children]));
    const value = head.numbers?.[this.store.names.indexOf(this.look.number)];
    if (head.frame && (redraw || canvas.width === 1)) {
      drawFrame(canvas, head.frame, this.look.tone);
      canvas.classList.add("drawn");
    }
    name.textContent = head.name === undefined ? "" : nameCaption(head.name) || "\u2013";
    const told = value === undefined ? "" : numberText(value);
    number.replaceChildren(...this.look.places ? [make("b", {}, head.key), " "] : [], told);
    cell.style.setProperty("--name", nameColor(head.name ?? ""));
    cell.title = head.name ?? "";
    cell.setAttribute("aria-selected", String(head.key === this.look.chosen));
    cell.setAttribute("aria-label", [layerName(head.layer), `head ${head.head}`, ...head.name ? [head.name] : [],
      ...value === undefined ? [] : [`${numberLabel(this.look.number)} ${numberText(value)}`]].join(", "));
  }
  /** Requests what a row shows: first the pictures, then the numbers. */
  fill(/** @type {Row} */ row) {
    for (const layer of new Set(row.heads.flatMap((head) => head ? [head.layer] : []))) {
      const done = () => {
        for (const head of this.store.list) {
          const cell = head.layer === layer && this.cells.get(head.key);
          if (cell) this.update(head, cell, false);
        }
        this.calls.loaded();
      };
      const failed = (/** @type {Error} */ error) => {
        if (!isAbort(error)) this.calls.failed(error);
      };
      ++this.pending;
      this.calls.waits(true);
      this.store.thumbs(layer).then(done, failed).finally(() => {
        this.node.dataset.thumbs = --this.pending > 0 ? "loading" : "done";
        this.calls.waits(this.pending > 0);
      });
      this.store.numbers(layer).then(done, failed);
    }
  }

  press(/** @type {MouseEvent} */ event) {
    const cell = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest(".head"));
    const head = cell && this.store.heads.get(/** @type {string} */ (cell.dataset.key));
    if (!head) return;
    this.setFocus(head.key);
    this.calls.open(head);
  }
  key(/** @type {KeyboardEvent} */ event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const head = this.store.heads.get(this.focus);
    if (head && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      return this.calls.open(head);
    }
    const next = this.neighbour(event.key);
    if (next === undefined) return;
    event.preventDefault();
    if (next) this.setFocus(next.key);
  }
  /** Returns the head that a key goes to, null at an edge, undefined for other keys. */
  neighbour(/** @type {string} */ key) {
    const r = this.rows.findIndex(({heads}) => heads.some((head) => head?.key === this.focus));
    const row = this.rows[r], c = row?.heads.findIndex((head) => head?.key === this.focus);
    if (!row) return undefined;
    const along = (/** @type {(Head | null | undefined)[]} */ list) => list.find(Boolean) ?? null;
    const near = (/** @type {Row[]} */ rows) => {
      const found = rows.find(({heads}) => heads.some(Boolean));
      return found ? along([...found.heads.slice(0, c + 1).reverse(), ...found.heads.slice(c + 1)]) : null;
    };
    switch (key) {
      case "ArrowRight": return along(row.heads.slice(c + 1));
      case "ArrowLeft": return along(row.heads.slice(0, c).reverse());
      case "ArrowDown": return near(this.rows.slice(r + 1));
      case "ArrowUp": return near(this.rows.slice(0, r).reverse());
      case "Home": return along(row.heads);
      case "End": return along([...row.heads].reverse());
      default: return undefined;
    }
  }
  /** Moves the focus to a head. */
  setFocus(/** @type {string} */ key) {
    const before = this.cells.get(this.focus), cell = this.cells.get(key);
    if (!cell) return;
    if (before) before.tabIndex = -1;
    this.focus = key;
    cell.tabIndex = 0;
    cell.focus();
  }
  close() {
    this.seen.disconnect();
  }
}

/** Returns a row for each layer that has a head which `shown` accepts, and the headings of the columns. */
export function rowsOfLayers(/** @type {HeadStore} */ store, /** @type {(head: Head) => boolean} */ shown) {
  const columns = [...new Set(store.entry.layers.flatMap(({heads}) => heads))].sort((a, b) => a - b);
  const rows = store.entry.layers.map((layer) => ({label: layerName(layer), title: layer.name, heads: columns.map((n) => {
    const head = store.heads.get(`${layer.label}.${n}`);
    return head && shown(head) ? head : null;
  })}));
  return {columns: columns.map(String), rows: rows.filter(({heads}) => heads.some(Boolean))};
}
/** Returns rows of `across` heads in the order of a number, from the largest, or the smallest if `up`. */
export function rowsInOrder(/** @type {HeadStore} */ store, /** @type {(head: Head) => boolean} */ shown, /** @type {string} */ number,
    /** @type {boolean} */ up, /** @type {number} */ across) {
  const known = (/** @type {Head} */ head) => {
    const value = store.number(head, number);
    return Number.isNaN(value) ? -Infinity : up ? -value : value;
  };
  const list = store.list.filter(shown).sort((a, b) => known(b) - known(a)), rows = [];
  for (let i = 0; i < list.length; i += across) {
    rows.push({label: `${i + 1}\u2013${Math.min(i + across, list.length)}`, title: "", heads: list.slice(i, i + across)});
  }
  return rows;
}
