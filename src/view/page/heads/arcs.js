// SPDX-License-Identifier: Apache-2.0
//
// Arcs between the queries and keys of a head: two columns of tokens, or two lines for scripts without
// spaces. The weights of the token under the pointer stand beside the other tokens.

import {button, counted, make, whole} from "../shared/dom.js";
import {columnsOf} from "../shared/tokens.js";

/** @typedef {{query: number, key: number, weight: number}} Link positions in the lists of `names` */
/** @typedef {{side: 0 | 1, index: number}} Place a token: side 0 are the queries */
/**
 * `names` and `positions` are those of the queries and of the keys; `links` are sorted, strongest first.
 * @typedef {{names: [string[], string[]], positions: [number[], number[]], links: Link[]}} ArcModel
 */

const MOST_LINKS = 2000;
const LINE = 21, ROOM = 110, VALUE = 46, LETTER = 8.2, DEPTH = 190;  // pixels
// Scripts without spaces read better in lines.
const NO_SPACES = /[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]/;

/** Returns whether a text reads better in a line than in a column. */
const inLines = (/** @type {string[]} */ names) => 2 * names.filter((name) => NO_SPACES.test(name)).length > names.length;

const weightText = (/** @type {number} */ weight) => weight >= 0.9995 ? "1" : weight.toFixed(3).slice(1);

export class Arcs {
  /** @param {{announce: (text: string) => void}} calls */
  constructor({announce}) {
    this.announce = announce;
    this.stage = make("div", {class: "arcs-stage", tabindex: 0, role: "application", "aria-roledescription": "arcs",
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event)});
    this.note = make("p", {class: "small"});
    this.turn = button({onclick: () => this.draw(!this.flat)});
    this.node = make("div", {class: "arcs"}, make("div", {class: "row-of-controls"}, this.turn), this.stage, this.note);
    /** @type {ArcModel} */
    this.model = {names: [[], []], positions: [[], []], links: []};
    /** @type {Place | null} */
    this.lit = null;
    this.locked = false;
    this.flat = false;
    /** @type {{link: Link, node: SVGPathElement}[]} */
    this.paths = [];
    /** @type {[SVGTextElement[], SVGTextElement[]]} */
    this.labels = [[], []];
    /** @type {[SVGTextElement[], SVGTextElement[]]} */
    this.values = [[], []];
  }

  /** Shows links, of which the strongest are drawn. */
  show(/** @type {ArcModel} */ model) {
    this.model = model;
    this.lit = null;
    this.locked = false;
    const more = model.links.length - MOST_LINKS;
    this.note.textContent = more > 0 ? `${counted(more, "weaker link")} not drawn` : "";
    const strongest = model.links.slice(0, 3).map((link) => this.told(link)).join("; ");
    this.stage.setAttribute("aria-label", `${counted(model.links.length, "link")} between queries and keys` + (strongest ? `; the strongest: ${strongest}` : ""));
    this.draw(inLines(model.names[1]));
  }
  told(/** @type {Link} */ {query, key, weight}) {
    return `${this.model.names[0][query]} \u2192 ${this.model.names[1][key]} ${weight.toFixed(3)}`;
  }

  draw(/** @type {boolean} */ flat) {
    this.flat = flat;
    this.turn.textContent = flat ? "In columns" : "In lines";
    const {names, links} = this.model, widths = names.map((list) => Math.max(2, ...list.map(columnsOf)) * LETTER);
    const slot = flat ? Math.max(VALUE - 10, ...widths.map((width) => width + 10)) : LINE, longest = Math.max(names[0].length, names[1].length);
    const at = (/** @type {number} */ side, /** @type {number} */ i) => (i + 0.5) * slot + (longest - names[side].length) * slot / 2 + (flat ? 8 : 2);
    const along = longest * slot + (flat ? 16 : 4), near = flat ? 44 : VALUE + widths[0];
    const far = near + (flat ? DEPTH : ROOM), across = far + (flat ? 44 : widths[1] + VALUE);
    const [width, height] = flat ? [along, across] : [across, along], middle = (near + far) / 2;
    const drawn = links.slice(0, MOST_LINKS), most = drawn[0]?.weight || 1;
    this.paths = drawn.map((link) => {
      const a = at(0, link.query), b = at(1, link.key);
      const d = flat ? `M${a} ${near}C${a} ${middle} ${b} ${middle} ${b} ${far}` : `M${near + 6} ${a}C${middle} ${a} ${middle} ${b} ${far - 6} ${b}`;
      return {link, node: make("path", {d, "stroke-width": Math.max(0.5, Math.min(7, link.weight / Math.max(most, 0.3) * 6)).toFixed(2)})};
    });
    const texts = (/** @type {0 | 1} */ side) => names[side].map((name, index) => {
      const place = at(side, index), anchor = flat ? "middle" : side ? "start" : "end";
      const name_node = make("text", {class: "token", x: flat ? place : side ? far : near, y: flat ? (side ? far + 17 : near - 7) : place + 5, "text-anchor": anchor,
        onpointerenter: () => { if (!this.locked) this.light({side, index}); },
        onpointerleave: () => { if (!this.locked) this.light(null); },
        onclick: () => this.press({side, index})}, name);
      const value = make("text", {class: "value", x: flat ? place : side ? far + widths[1] + 6 : near - widths[0] - 6,
        y: flat ? (side ? far + 34 : near - 25) : place + 5, "text-anchor": anchor});
      return [name_node, value];
    });
    const sides = [texts(0), texts(1)];
    this.labels = /** @type {any} */ (sides.map((list) => list.map(([label]) => label)));
    this.values = /** @type {any} */ (sides.map((list) => list.map(([, value]) => value)));
    // The strongest are drawn last, on top.
    const svg = make("svg", {width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", onclick: (/** @type {MouseEvent} */ event) => {
      if (event.target === svg) this.unlock();
    }}, make("g", {class: "links"}, ...this.paths.map(({node}) => node).reverse()), ...sides.flat(2));
    this.stage.replaceChildren(svg);
    this.light(this.lit);
  }

  /** Emphasises the links of a token and shows their weights; null shows all alike. */
  light(/** @type {Place | null} */ place) {
    this.lit = place;
    const most = this.model.links[0]?.weight || 1, touches = (/** @type {Link} */ {query, key}) => place && (place.side ? key : query) === place.index;
    for (const {link, node} of this.paths) {
      node.setAttribute("stroke-opacity", (place && !touches(link) ? 0.04 : (place ? 0.35 : 0.15) + 0.6 * Math.sqrt(link.weight / most)).toFixed(2));
    }
    for (const side of /** @type {const} */ ([0, 1])) {
      this.labels[side].forEach((label, i) => label.classList.toggle("on", place?.side === side && place.index === i));
      for (const value of this.values[side]) if (value.textContent) value.textContent = "";
    }
    if (!place) return;
    for (const link of this.model.links) {
      if (!touches(link)) continue;
      const other = place.side ? this.values[0][link.query] : this.values[1][link.key];
      if (link.weight >= 0.0005) other.textContent = weightText(link.weight);
    }
  }
  press(/** @type {Place} */ place) {
    const same = this.locked && this.lit?.side === place.side && this.lit.index === place.index;
    this.locked = !same;
    this.light(place);
    if (this.locked) this.announcePlace(place);
  }
  /** Returns whether something was locked. */
  unlock() {
    const was = this.locked || this.lit !== null;
    this.locked = false;
    this.light(null);
    return was;
  }
  announcePlace(/** @type {Place} */ {side, index}) {
    const {names, positions, links} = this.model;
    const found = links.filter(({query, key}) => (side ? key : query) === index).slice(0, 5);
    const told = found.map(({query, key, weight}) => `${names[1 - side][side ? query : key]} ${weight.toFixed(3)}`).join(", ");
    this.announce(`${side ? "key" : "query"} ${whole(positions[side][index])} '${names[side][index]}': ${told || "no links"}`);
  }
  key(/** @type {KeyboardEvent} */ event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape" && this.unlock()) return void event.stopPropagation();
    const {side, index} = this.lit ?? {side: /** @type {0 | 1} */ (0), index: -1}, count = this.model.names[side].length;
    const step = {ArrowDown: 1, ArrowUp: -1, ArrowRight: 2, ArrowLeft: -2}[event.key];
    if (step === undefined || count === 0) return;
    event.preventDefault();
    const alongside = (Math.abs(step) === 1) !== this.flat, other = /** @type {0 | 1} */ (1 - side);
    const next = alongside ? {side, index: Math.min(count - 1, Math.max(0, index + Math.sign(step)))}
        : {side: other, index: Math.min(this.model.names[other].length - 1, Math.max(0, index))};
    this.locked = true;
    this.light(next);
    this.labels[next.side][next.index].scrollIntoView({block: "nearest", inline: "nearest"});
    this.announcePlace(next);
  }
}
