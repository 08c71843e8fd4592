// SPDX-License-Identifier: Apache-2.0
//
// The bar of the pages other than the map: the input that is shown and its other pages.

import {make} from "./dom.js";
import {headAddress} from "./entry.js";
import {writePath} from "./address.js";
import {visible} from "./visible.js";

/** @typedef {"heads" | "map" | "text" | "compare"} PageName */
const TITLES = /** @type {[PageName, string][]} */ ([["heads", "Heads"], ["map", "Map"], ["text", "Text"], ["compare", "Compare"]]);

/** Returns the head after another in an input, which a comparison shows beside it. */
export function headAfter(/** @type {import("./entry.js").Entry} */ entry, /** @type {import("./entry.js").Layer} */ layer, /** @type {number} */ head) {
  const all = entry.layers.flatMap((one) => one.heads.map((n) => `${one.label}.${n}`));
  return all[(all.indexOf(`${layer.label}.${head}`) + 1) % all.length];
}

/** Returns the addresses of the pages about a head. @returns {Record<PageName, string>} */
export const pagesOf = (/** @type {import("./entry.js").Entry} */ entry, /** @type {import("./entry.js").Layer} */ layer, /** @type {number} */ head) => ({
  heads: `${writePath("heads", entry.id)}#layer=${layer.label}&head=${head}`,
  map: headAddress("map", entry, layer, head),
  text: headAddress("text", entry, layer, head),
  compare: writePath("compare", entry.id, `${layer.label}.${head}`, entry.id, headAfter(entry, layer, head)),
});

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
    const pages = pagesOf(this.entry, layer, head);
    this.nav.replaceChildren(...TITLES.map(([page, title]) => page === this.page ? make("span", {"aria-current": "page"}, title) : make("a", {href: pages[page]}, title)));
  }
}
