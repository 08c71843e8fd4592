// SPDX-License-Identifier: Apache-2.0
//
// Beside the text: the selected tokens, the largest of their weights as a table, and the legend.

import {make, whole} from "../shared/dom.js";
import {label} from "../shared/tokens.js";

/** @typedef {"query" | "key"} Side */
/** @typedef {"sqrt" | "linear" | "log"} TextTone */

const TOP = 12, DEPTH = 1e-4;  // the smallest share of the largest weight that a logarithm shows

/** Returns how strongly a weight is coloured, from 0 to 1, if `most` is the largest. */
export function strengthOf(/** @type {TextTone} */ tone, /** @type {number} */ weight, /** @type {number} */ most) {
  if (!(weight > 0) || !(most > 0)) return 0;
  const share = Math.min(1, weight / most);
  return tone === "linear" ? share : tone === "sqrt" ? Math.sqrt(share) : Math.max(0, 1 - Math.log(share) / Math.log(DEPTH));
}

/** Returns a weight with four decimals; a smaller one with an exponent. */
export const weightText = (/** @type {number} */ weight) => Number.isNaN(weight) ? "nan" : weight < 0 ? "hidden"
    : weight === 0 ? "0" : weight >= 0.0001 ? weight.toFixed(4) : weight.toExponential(1);

/** Returns the positions of the largest weights, of which `skip` is left out. */
function largest(/** @type {Float32Array} */ weights, /** @type {number} */ skip, most = TOP) {
  /** @type {number[]} */
  const top = [];
  for (let i = 0; i < weights.length; ++i) {
    if (i === skip || !(weights[i] > 0)) continue;
    if (top.length === most && weights[i] <= weights[top[most - 1]]) continue;
    let place = top.length;
    while (place > 0 && weights[top[place - 1]] < weights[i]) --place;
    top.splice(place, 0, i);
    if (top.length > most) top.pop();
  }
  return top;
}

/** Returns positions in words: "4, 5 and 9", or their number if there are many. */
function positionsText(/** @type {number[]} */ lines, /** @type {Side} */ side) {
  const noun = side === "query" ? (lines.length === 1 ? "query" : "queries") : (lines.length === 1 ? "key" : "keys");
  if (lines.length > 4) return `${whole(lines.length)} ${noun} from ${whole(Math.min(...lines))} to ${whole(Math.max(...lines))}`;
  const texts = lines.map(whole);
  return `${noun} ${texts.length > 1 ? texts.slice(0, -1).join(", ") + " and " + texts[texts.length - 1] : texts[0]}`;
}

export class TextPanel {
  /** @param {{go: (position: number) => void}} calls */
  constructor(calls) {
    this.calls = calls;
    this.title = make("h2", {});
    this.about = make("p", {class: "small"});
    this.table = make("tbody");
    this.caption = make("caption", {class: "unseen"}, "largest weights");
    this.rest = make("p", {class: "small"});
    this.list = make("div", {hidden: true}, make("table", {class: "top-weights"}, this.caption, make("thead", {}, make("tr", {},
        make("th", {scope: "col"}, "token"), make("th", {scope: "col"}, "position"), make("th", {scope: "col"}, "weight"))), this.table), this.rest);
    this.most = make("span");
    this.hatched = make("span", {class: "token hidden-token"}, "hidden");
    this.legend = make("div", {class: "text-legend", "aria-hidden": "true"}, make("span", {}, "0"), make("i"), this.most,
        this.hatched);
    this.node = make("aside", {class: "text-panel", tabindex: 0, "aria-label": "weights"}, this.title, this.about, this.list, this.legend);
  }
  /** Shows what to do while nothing is selected. */
  invite(/** @type {boolean} */ same) {
    this.title.textContent = "Point at a token";
    this.about.textContent = (same ? "Its colours show the keys that it attends to; with Alt, the queries that attend to it. "
        : "A query colours the keys that it attends to, a key the queries that attend to it. ") +
        "A click locks it, Shift and a click or dragging selects several, whose weights are averaged.";
    this.list.hidden = true;
  }
  /**
   * @param {{side: Side, lines: number[], locked: boolean, name: (side: Side, position: number) => string,
   *   weights: Float32Array | null, skip: number, most: number, tone: TextTone}} shown
   */
  show({side, lines, locked, name, weights, skip, most, tone}) {
    const other = side === "query" ? "key" : "query";
    this.title.replaceChildren(...lines.slice(0, 6).flatMap((i) => [make("bdi", {class: "chosen-token"}, name(side, i)), " "]), lines.length > 6 ? "\u2026" : "");
    this.about.textContent = positionsText(lines, side) + (lines.length > 1 ? ", averaged" : "") + (locked ? "; locked, Esc unlocks" : "");
    if (!weights) return;
    const top = largest(weights, skip), seen = weights.reduce((n, weight) => n + (weight >= 0 ? 1 : 0), 0);
    let rest = 0;
    for (const weight of weights) if (weight > 0) rest += weight;
    for (const i of top) rest -= weights[i];
    const skipped = skip >= 0 && weights[skip] > 0 ? weights[skip] : 0;
    this.list.hidden = false;
    this.table.replaceChildren(...top.map((i) => make("tr", {class: "goes", onclick: () => this.calls.go(i)},
        make("th", {scope: "row"}, make("bdi", {}, name(other, i))), make("td", {}, whole(i)),
        make("td", {class: "weight", style: `--v:${strengthOf(tone, weights[i], most).toFixed(3)}`}, weightText(weights[i])))));
    const parts = [`${whole(seen)} ${seen === 1 ? other : other === "key" ? "keys" : "queries"} visible`];
    if (seen > top.length) parts.push(`all others ${weightText(Math.max(0, rest - skipped))}`);
    if (skip >= 0) parts.push(`first token ${weightText(weights[skip])}`);
    this.rest.textContent = parts.join("; ");
    this.most.textContent = weightText(most);
    this.hatched.hidden = seen === weights.length;
  }
}

/** Returns the largest weights in words, for announcements. */
export function toldWeights(/** @type {Float32Array} */ weights, /** @type {number} */ skip, /** @type {(position: number) => string} */ name) {
  const top = largest(weights, skip, 3);
  return top.map((i) => `${name(i)} ${weightText(weights[i])}`).join(", ") || "no weights";
}
/** Returns a token as it is told: shortened, or its position if there is none. */
export const toldToken = (/** @type {string | null | undefined} */ token, /** @type {number} */ position) =>
  token === null || token === undefined ? whole(position) : label(token).trim();
