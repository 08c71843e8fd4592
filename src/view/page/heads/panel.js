// SPDX-License-Identifier: Apache-2.0
//
// The panel of one head beside the grid: its matrix or its arcs, its numbers, and links to its pages.

import {inWords, isAbort, number} from "../shared/api.js";
import {Arcs} from "./arcs.js";
import {button, counted, make, whole} from "../shared/dom.js";
import {headName} from "../shared/entry.js";
import {readFrame, valueOf} from "../shared/frame.js";
import {nameColor, nameMeaning, numberLabel, numberMeaning, numberText} from "./words.js";
import {Matrix} from "./matrix.js";
import {linksOf} from "../shared/page_bar.js";
import {label} from "../shared/tokens.js";

/** @typedef {import("../shared/entry.js").Context} Context */
/** @typedef {import("./store.js").Head} Head */
/** @typedef {import("./store.js").HeadStore} HeadStore */
/** @typedef {import("./thumb.js").ThumbTone} ThumbTone */
/** @typedef {{panel: "matrix" | "arcs", tokens: number[], tone: ThumbTone}} View */

const AGAIN = 250;  // milliseconds until a matrix that is not exact is requested again
const MOST_TOKENS = 200;  // of arcs between all tokens
const TOP = 64;  // arcs of a selected token if there are more
const MOST_SELECTED = 8;

export class HeadPanel {
  /**
   * @param {Context} context
   * @param {HeadStore} store
   * @param {{close: () => void, change: (view: Partial<View>) => void}} calls
   */
  constructor(context, store, calls) {
    this.context = context;
    this.store = store;
    this.calls = calls;
    this.title = make("h2", {tabindex: -1});
    this.name = make("p", {class: "head-kind"});
    this.tabs = /** @type {const} */ (["matrix", "arcs"]).map((panel) => button({"data-panel": panel, onclick: () => calls.change({panel})},
        panel === "matrix" ? "Matrix" : "Arcs"));
    this.content = make("div", {class: "panel-content"});
    this.numbers = make("dl", {class: "head-numbers"});
    this.links = make("nav", {class: "links", "aria-label": "pages of this head"});
    this.node = make("aside", {class: "head-panel", tabindex: 0, "aria-label": "one head", hidden: true, onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") calls.close();
    }}, make("header", {}, this.title, button({class: "plain icon", "aria-label": "Close", title: "Close", onclick: calls.close}, "\u00d7")), this.name,
    make("div", {class: "tabs", role: "group", "aria-label": "how it is shown"}, ...this.tabs), this.content, this.links, this.numbers);
    this.matrix = new Matrix(context, store.entry);
    this.arcs = new Arcs(context);
    /** @type {Head | null} */
    this.head = null;
    this.shown = "";
    this.stop = new AbortController();
  }

  /** Shows a head. */
  show(/** @type {Head} */ head, /** @type {View} */ view) {
    const {entry} = this.store, {layer} = head, isNew = this.head !== head;
    this.head = head;
    this.node.hidden = false;
    this.title.textContent = headName(layer, head.head).replace(/^./, (letter) => letter.toUpperCase());
    this.tabs.forEach((tab) => tab.setAttribute("aria-pressed", String(tab.dataset.panel === view.panel)));
    if (isNew) {
      this.links.replaceChildren(...linksOf(entry, layer, head.head, "heads").filter((link) => link.matches("a")));
    }
    this.update();
    const shown = `${head.key} ${view.panel} ${view.panel === "arcs" ? view.tokens : ""}`;
    if (shown === this.shown) return this.matrix.restyle(view.tone);
    this.shown = shown;
    this.stop.abort();
    this.stop = new AbortController();
    const task = view.panel === "matrix" ? this.showMatrix(head, view) : this.showArcs(head, view);
    task.catch((error) => {
      if (!isAbort(error)) this.content.replaceChildren(make("p", {class: "bad", role: "status"}, inWords(error)));
    });
  }
  /** Shows the name and the numbers, which may arrive later. */
  update() {
    const {head, store} = this;
    if (!head) return;
    const meaning = nameMeaning(head.name ?? "");
    this.name.replaceChildren(...head.name ? [make("span", {class: "swatch", style: `background:${nameColor(head.name)}`}), make("b", {}, head.name),
      meaning ? `: ${meaning}` : ""] : [head.name === undefined ? "" : "no name fits"]);
    this.numbers.replaceChildren(...(head.numbers ?? []).map((value, i) => make("div", {title: numberMeaning(store.names[i])},
        make("dt", {}, numberLabel(store.names[i])), make("dd", {}, numberText(value)))));
  }
  hide() {
    this.stop.abort();
    this.head = null;
    this.shown = "";
    this.node.hidden = true;
  }
  focus() {
    this.title.focus();
  }

  async showMatrix(/** @type {Head} */ head, /** @type {View} */ {tone}) {
    const {signal} = this.stop, requests = this.context.api.head(this.store.entry.id, head.key);
    this.matrix.begin(head, tone);
    this.content.replaceChildren(this.matrix.node);
    const {levels} = await requests.status(signal);
    while (!signal.aborted) {
      const frame = readFrame(await requests.tile("max", levels - 1, 0, 0, signal));
      if (signal.aborted) return;
      this.matrix.show(frame, 2 ** (levels - 1), tone);
      if (!frame.states) return;
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }

  async showArcs(/** @type {Head} */ head, /** @type {View} */ view) {
    const {queries, keys} = head.layer, {signal} = this.stop;
    const few = queries <= MOST_TOKENS && keys <= MOST_TOKENS, wait = make("p", {class: "small", role: "status"}, "The weights are being computed.");
    this.content.replaceChildren(...few ? [] : [this.chooser(head, view)], wait);
    const model = few ? await this.allLinks(head, signal) : await this.topLinks(head, view.tokens, signal);
    if (signal.aborted) return;
    wait.replaceWith(this.arcs.node);
    this.arcs.show(model);
  }
  /** A field for the tokens whose arcs are drawn. */
  chooser(/** @type {Head} */ head, /** @type {View} */ {tokens}) {
    const {queries} = head.layer, field = make("input", {type: "text", inputmode: "numeric", size: 12, value: tokens.join(", ") || "0", id: "arc-tokens"});
    return make("form", {class: "row-of-controls", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      const given = field.value.split(/[\s,]+/).filter(Boolean).map(Number).slice(0, MOST_SELECTED);
      const right = given.length > 0 && given.every((/** @type {number} */ i) => Number.isInteger(i) && i >= 0 && i < queries);
      field.toggleAttribute("aria-invalid", !right);
      if (right) this.calls.change({tokens: given});
      else this.context.announce(`queries: expected numbers from 0 to ${whole(queries - 1)}`);
    }}, make("label", {for: "arc-tokens"}, `Queries (of ${whole(queries)})`), field, button({type: "submit"}, "Show"),
    make("span", {class: "small"}, `with their ${TOP} top keys`));
  }

  /** Returns the links of all pairs, from the weights of one tile. */
  async allLinks(/** @type {Head} */ head, /** @type {AbortSignal} */ signal) {
    const {queries, keys} = head.layer, requests = this.context.api.head(this.store.entry.id, head.key);
    const [bytes, names] = await Promise.all([requests.tile("max", 0, 0, 0, signal), this.namesOf(head, queries, keys)]);
    const {codes, columns} = readFrame(bytes), links = [];
    for (let query = 0; codes && query < queries; ++query) {
      for (let key = 0; key < keys; ++key) {
        const weight = valueOf(codes[query * columns + key]);
        if (weight > 0) links.push({query, key, weight});
      }
    }
    links.sort((a, b) => b.weight - a.weight);
    /** @type {[number[], number[]]} */
    const positions = [names[0].map((_, i) => i), names[1].map((_, i) => i)];
    return {names, positions, links};
  }
  /** @returns {Promise<[string[], string[]]>} */
  async namesOf(/** @type {Head} */ {layer}, /** @type {number} */ queries, /** @type {number} */ keys) {
    const {api} = this.context, {id} = this.store.entry;
    const of = async (/** @type {"query" | "key"} */ side, /** @type {boolean} */ known, /** @type {number} */ n) =>
      known ? (await api.tokens(id, layer.label, side, 0, n)).tokens.map((token) => label(token).trim() || label(token)) : Array.from({length: n}, (_, i) => whole(i));
    return Promise.all([of("query", layer.query_tokens, queries), of("key", layer.key_tokens, keys)]);
  }
  /** Returns the links of some queries to their top keys. */
  async topLinks(/** @type {Head} */ head, /** @type {number[]} */ tokens, /** @type {AbortSignal} */ signal) {
    const requests = this.context.api.head(this.store.entry.id, head.key), chosen = tokens.length > 0 ? tokens : [0];
    const rows = await Promise.all(chosen.filter((query) => query < head.layer.queries).map((query) => requests.row(query, TOP, signal)));
    const keys = [...new Set(rows.flatMap(({top}) => top.map(({key}) => key)))].sort((a, b) => a - b);
    const tokenAt = new Map(rows.flatMap(({top}) => top.map(({key, token}) => [key, token])));
    const name = (/** @type {number} */ i, /** @type {string | null | undefined} */ token) => token === null || token === undefined ? whole(i) : `${label(token).trim()} ${whole(i)}`;
    const links = rows.flatMap(({top}, query) => top.map(({key, weight}) => ({query, key: keys.indexOf(key), weight: number(weight)})));
    links.sort((a, b) => b.weight - a.weight);
    /** @type {[string[], string[]]} */
    const names = [rows.map(({query, token}) => name(query, token)), keys.map((key) => name(key, tokenAt.get(key)))];
    /** @type {[number[], number[]]} */
    const positions = [rows.map(({query}) => query), keys];
    this.context.announce(counted(links.length, "link"));
    return {names, positions, links};
  }
  close() {
    this.stop.abort();
  }
}
