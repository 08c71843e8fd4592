// SPDX-License-Identifier: Apache-2.0
//
// The panel of a map: the cell under the pointer or cursor, or the locked one, and on demand the row of
// its query and the column of its key. All numbers come from the server, except those of cells that
// stand for many weights, which come from their tile.

import {inWords, number} from "../shared/api.js";
import {bdi, button, make, whole} from "../shared/dom.js";
import {Newest} from "./newest.js";
import {visible} from "../shared/visible.js";

/** @typedef {import("./page.js").MapPage} MapPage */
/** @typedef {import("../shared/api.js").Num} Num */

const TOP = 12;
const PAUSE = 120;  // milliseconds that the cursor rests before its row or column is requested

/** Returns a number with five digits, as text. */
export function digits(/** @type {Num} */ value) {
  const x = number(value);
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x < 0 ? "\u2212\u221e" : "\u221e";
  const text = x !== 0 && (Math.abs(x) < 1e-4 || Math.abs(x) >= 1e6) ? x.toExponential(4) : String(Number(x.toPrecision(5)));
  return text.replace("-", "\u2212");
}

/** Returns “cat” as an element whose direction does not affect its surroundings; "" without a token. */
function quoted(/** @type {string | null | undefined} */ token) {
  if (token === null || token === undefined) return "";
  const short = token.length > 400 ? token.slice(0, 400) + "\u2026" : token;
  return make("span", {class: "token"}, "\u201c", bdi(visible(short)), "\u201d");
}

const term = (/** @type {string} */ name, /** @type {(Node | string)[]} */ ...value) =>
  make("div", {}, make("dt", {}, name), make("dd", {}, ...value));

export class Panel {
  #cells = new Newest();
  #lines = new Newest();
  #timer = 0;
  #shown = "";
  #line = "";

  /** @param {MapPage} page */
  constructor(page) {
    this.page = page;
    this.cell = make("dl", {class: "facts"});
    this.lock = button({class: "plain", hidden: true, onclick: () => {
      page.selection.lock(null);
      page.focus();
    }}, "Unlock");
    this.title = make("h2", {}, "Cell");
    const tab = (/** @type {"row" | "column"} */ name, /** @type {string} */ text) =>
      button({"aria-expanded": "false", "aria-controls": "line", onclick: () => page.setPanel(page.state.panel === name ? "cell" : name)}, text);
    this.tabs = {row: tab("row", "Keys of the query"), column: tab("column", "Queries of the key")};
    this.line = make("div", {id: "line", class: "line"});
    this.node = make("section", {class: "panel", "aria-label": "Cell"},
        make("div", {class: "head"}, this.title, this.lock), this.cell, make("div", {class: "tabs"}, this.tabs.row, this.tabs.column), this.line);
  }

  get idle() {
    return this.#cells.idle && this.#lines.idle && !this.#timer;
  }

  /** Shows what the cursor or lock points at. */
  update() {
    const {page} = this, at = page.selection.focus;
    for (const [name, tab] of Object.entries(this.tabs)) tab.setAttribute("aria-expanded", String(page.state.panel === name));
    this.lock.hidden = !page.selection.locked;
    this.title.textContent = page.selection.locked ? "Locked cell" : "Cell";
    this.#updateCell(at);
    this.#updateLine(at);
  }

  #updateCell(/** @type {{query: number, key: number} | null} */ at) {
    const {page} = this;
    if (!at) {
      this.#shown = "";
      this.#setWeight(null);
      this.cell.replaceChildren(make("p", {class: "small"}, "Point at a cell to see its numbers. A click locks it."));
      return;
    }
    if (!page.selection.locked && page.level > 0) return this.#showPooled(at);
    const name = `${page.of.name}/${at.query}/${at.key}`;
    if (name === this.#shown) return;
    this.#shown = name;
    this.#cells.run(async () => {
      try {
        const cell = await page.of.api.cell(at.query, at.key);
        if (name !== this.#shown) return;
        const weight = number(cell.weight);
        this.#setWeight(cell.hidden ? null : weight);
        const token = (/** @type {number} */ position, /** @type {string | null} */ text) => [whole(position), " ", quoted(text)];
        this.cell.replaceChildren(term("query", ...token(cell.query, cell.query_token)), term("key", ...token(cell.key, cell.key_token)),
            ...cell.hidden ? [term("weight", "hidden by the mask")]
                : [term("weight", make("b", {}, digits(cell.weight))), term("score", digits(cell.score)), term("lse", digits(cell.lse))]);
        page.selection.announce(at, cell);
      } catch (error) {
        if (name !== this.#shown) return;
        this.#shown = "";
        this.cell.replaceChildren(make("p", {class: "small"}, inWords(error)));
        page.failed(error);
      }
    });
  }

  /** A cell that stands for many weights. */
  #showPooled(/** @type {{query: number, key: number}} */ at) {
    const {page} = this, size = 2 ** page.level, code = page.selection.codeAt(at);
    const name = `${page.of.name}/${page.level}/${Math.floor(at.query / size)}/${Math.floor(at.key / size)}/${code?.text}/${page.reduce}`;
    if (name === this.#shown) return;
    this.#shown = name;
    const range = (/** @type {number} */ position, /** @type {number} */ most) => {
      const first = Math.floor(position / size) * size;
      return `${whole(first)} to ${whole(Math.min(most, first + size) - 1)}`;
    };
    this.#setWeight(code?.weight ?? null);
    this.cell.replaceChildren(term("queries", range(at.query, page.of.layer.queries)), term("keys", range(at.key, page.of.layer.keys)),
        term(page.reduce === "max" ? "largest" : "mean", make("b", {}, code?.text ?? "loading")),
        make("p", {class: "small"}, "A click locks the largest weight of the cell."));
    page.selection.announce(at, null);
  }

  #setWeight(/** @type {number | null} */ weight) {
    this.page.shownWeight = weight;
    this.page.legend.draw();
  }

  #updateLine(/** @type {{query: number, key: number} | null} */ at) {
    const {page} = this, {panel} = page.state, of = panel === "row" ? at?.query : panel === "column" ? at?.key : undefined;
    const name = of === undefined ? "" : `${page.of.name}/${panel}/${of}`;
    if (panel !== "row" && panel !== "column") this.line.replaceChildren();
    else if (of === undefined) this.line.replaceChildren(make("p", {class: "small"}, "Point at a cell or lock one."));
    if (name === this.#line) return;
    this.#line = name;
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (of === undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#lines.run(async () => {
        if (name !== this.#line) return;
        try {
          const parts = panel === "row" ? await this.#row(of) : await this.#column(of);
          if (name === this.#line) this.line.replaceChildren(...parts);
        } catch (error) {
          if (name !== this.#line) return;
          this.#line = "";
          this.line.replaceChildren(make("p", {class: "small"}, inWords(error)));
          page.failed(error);
        }
        page.surface.redraw(false);
      });
    }, page.selection.locked ? 0 : PAUSE);
  }

  async #row(/** @type {number} */ query) {
    const row = await this.page.of.api.row(query, TOP), entropy = number(row.entropy);
    const title = make("h3", {}, "Query ", whole(row.query), " ", quoted(row.token));
    if (!row.visible) return [title, make("p", {}, "This query sees no key.")];
    return [title, this.#list("Top keys", "key", row.top.map(({key, weight, token}) => ({at: key, weight, token})), (key) => ({query, key})),
      make("dl", {class: "facts"}, term("keys seen", whole(row.visible)),
          term("entropy", `${digits(row.entropy)} nats`), term("effective keys", digits(Math.exp(entropy))),
          term("largest", digits(row.maximum), " at key ", whole(row.maximum_key)),
          term("mean distance", digits(row.mean_distance)), term("first key", digits(row.first_key)), term("lse", digits(row.lse))),
      ...this.#powers(row.powers)];
  }

  async #column(/** @type {number} */ key) {
    const column = await this.page.of.api.column(key, TOP);
    return [make("h3", {}, "Key ", whole(column.key), " ", quoted(column.token)),
      this.#list("Top queries", "query", column.top.map(({query, weight, token}) => ({at: query, weight, token})), (query) => ({query, key})),
      make("dl", {class: "facts"}, term("received", digits(column.sum)), term("largest", digits(column.largest)))];
  }

  /** The largest weights of a line, with bars relative to the first. Each can be gone to. */
  #list(/** @type {string} */ caption, /** @type {string} */ what, /** @type {{at: number, weight: Num, token: string | null}[]} */ entries,
      /** @type {(at: number) => {query: number, key: number}} */ pair) {
    const {page} = this, most = Math.max(0, ...entries.map(({weight}) => number(weight) || 0));
    const rows = entries.map(({at, weight, token}) => make("tr", {},
        make("th", {scope: "row"}, button({class: "go", title: `Go to ${what} ${at}`, onclick: () => page.selection.goTo(pair(at), {lock: true})}, whole(at))),
        make("td", {class: "words"}, quoted(token === null ? null : token.slice(0, 64))),
        make("td", {class: "bar"}, make("i", {style: `width:${most ? ((number(weight) || 0) / most * 100).toFixed(1) : 0}%`})),
        make("td", {}, digits(weight))));
    return make("table", {class: "top"}, make("caption", {}, caption),
        make("thead", {class: "unseen"}, make("tr", {}, ...[what, "token", "part of the largest", "weight"].map((name) => make("th", {scope: "col"}, name)))),
        make("tbody", {}, ...rows));
  }

  /** How many weights lie between two powers of two. */
  #powers(/** @type {number[]} */ powers) {
    const most = Math.max(1, ...powers);
    let last = powers.length - 1;
    while (last > 0 && !powers[last]) --last;
    const shown = powers.slice(0, last + 1);
    if (!shown.length) return [];
    const bars = shown.map((count, b) => make("tr", {}, make("th", {scope: "row"}, b === 0 ? "1/2 to 1" : `2${superscript(-b - 1)} to 2${superscript(-b)}`),
        make("td", {class: "bar"}, make("i", {style: `width:${(Math.log1p(count) / Math.log1p(most) * 100).toFixed(1)}%`})),
        make("td", {}, whole(count))));
    return [make("details", {class: "powers"}, make("summary", {}, "Weights by powers of two"), make("table", {class: "top"},
        make("thead", {class: "unseen"}, make("tr", {}, ...["weight", "share", "number of keys"].map((name) => make("th", {scope: "col"}, name)))),
        make("tbody", {}, ...bars)))];
  }

  close() {
    clearTimeout(this.#timer);
    this.#cells.clear();
    this.#lines.clear();
  }
}

const superscript = (/** @type {number} */ n) => String(n).replace(/./g, (digit) => digit === "-" ? "\u207b" : "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"[Number(digit)]);
