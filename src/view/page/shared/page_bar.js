// SPDX-License-Identifier: Apache-2.0
//
// The bar of the pages other than the map: the input that is shown and its other pages.

import {button, make} from "./dom.js";
import {headAddress, headCount} from "./entry.js";
import {writePath} from "./address.js";
import {visible} from "./visible.js";

/** @typedef {"heads" | "map" | "text" | "compare"} PageName */
const TITLES = /** @type {[PageName, string][]} */ ([["heads", "Heads"], ["map", "Map"], ["text", "Text"], ["compare", "Compare"]]);

/** Returns the head after another in an input, which a comparison shows beside it. */
function headAfter(/** @type {import("./entry.js").Entry} */ entry, /** @type {import("./entry.js").Layer} */ layer, /** @type {number} */ head) {
  const all = entry.layers.flatMap((one) => one.heads.map((n) => `${one.label}.${n}`));
  return all[(all.indexOf(`${layer.label}.${head}`) + 1) % all.length];
}

/**
 * Returns the addresses of the pages about a head: with tokens a text, and with several heads a comparison.
 * @param {import("./entry.js").Entry} entry @param {import("./entry.js").Layer} layer @param {number} head
 * @returns {Partial<Record<PageName, string>>}
 */
const pagesOf = (entry, layer, head) => ({
  heads: `${writePath("heads", entry.id)}#layer=${layer.label}&head=${head}`,
  map: headAddress("map", entry, layer, head),
  ...(layer.query_tokens || layer.key_tokens) && {text: headAddress("text", entry, layer, head)},
  ...headCount(entry) > 1 && {compare: writePath("compare", entry.id, `${layer.label}.${head}`, entry.id, headAfter(entry, layer, head))},
});

/**
 * Returns links to the pages of a head, with the name of the one that is shown in its place.
 * @param {import("./entry.js").Entry} entry @param {import("./entry.js").Layer} layer @param {number} head @param {PageName} shown
 */
export function linksOf(entry, layer, head, shown) {
  const pages = pagesOf(entry, layer, head);
  return TITLES.flatMap(([page, title]) => page === shown ? [make("span", {"aria-current": "page"}, title)]
    : pages[page] ? [make("a", {href: pages[page]}, title)] : []);
}

/** Shows the name of an input and links to the pages of a head. */
export class PageBar {
  /** @param {HTMLElement} bar @param {import("./entry.js").Entry} entry @param {PageName} page */
  constructor(bar, entry, page) {
    this.entry = entry;
    this.page = page;
    this.nav = make("nav", {class: "pages", "aria-label": "pages of this input"});
    bar.append(make("span", {class: "name", title: visible(entry.path)}, visible(entry.name)), this.nav);
  }
  /** Links to the pages of a head, keeping the page that is shown. */
  show(/** @type {import("./entry.js").Layer} */ layer, /** @type {number} */ head) {
    this.nav.replaceChildren(...linksOf(this.entry, layer, head, this.page));
  }
}

/**
 * Returns a list between two arrows.
 * @param {"Layer" | "Head"} name
 * @param {HTMLSelectElement} select
 * @param {(by: 1 | -1) => void} step
 * @param {string} keys of the next and the previous one
 */
export function stepper(name, select, step, keys) {
  const arrow = (/** @type {1 | -1} */ by) => {
    const words = `${by > 0 ? "Next" : "Previous"} ${name.toLowerCase()}`;
    return button({"aria-label": words, title: `${words} (${by > 0 ? keys[0] : keys[1]})`, onclick: () => step(by)}, by > 0 ? "\u203a" : "\u2039");
  };
  return make("span", {class: "stepper", role: "group", "aria-label": name}, arrow(-1), select, arrow(1));
}
