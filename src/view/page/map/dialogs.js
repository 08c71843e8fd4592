// SPDX-License-Identifier: Apache-2.0
//
// Dialogs of a map: a position to go to, an export, and the table of the cells at the cursor.

import {inWords, isAbort} from "../shared/api.js";
import {openDialog} from "../shared/dialog.js";
import {bdi, choice, make, whole} from "../shared/dom.js";
import {digits} from "./panel.js";
import {label} from "../shared/tokens.js";

/** @typedef {import("./page.js").MapPage} MapPage */

const TABLE = 32;

/** Asks for a position: "812" or "812, 17". */
export function openGoTo(/** @type {MapPage} */ page) {
  const {queries, keys} = page.of.layer;
  const field = make("input", {type: "text", inputmode: "numeric", autocomplete: "off", "aria-describedby": "goto-why", value: page.selection.focus ? `${page.selection.focus.query}, ${page.selection.focus.key}` : ""});
  const why = make("p", {class: "small", id: "goto-why"}, `Query 0 to ${whole(queries - 1)}, key 0 to ${whole(keys - 1)}. One number is both.`);
  const form = make("form", {method: "dialog", onsubmit: (/** @type {Event} */ event) => {
    const found = field.value.replace(/(\d)[,.\s](?=\d{3}\b)/g, "$1").match(/\d+/g)?.map(Number) ?? [];
    const query = found[0], key = found[1] ?? found[0];
    if (!found.length || found.length > 2 || query >= queries || key >= keys) {
      event.preventDefault();
      why.textContent = `Expected a query from 0 to ${whole(queries - 1)} and a key from 0 to ${whole(keys - 1)}, got “${field.value.slice(0, 40)}”.`;
      why.setAttribute("role", "alert");
      return;
    }
    page.selection.goTo({query, key}, {lock: false});
  }}, make("label", {class: "choice"}, "Query, key", field), why, make("div", {class: "buttons"}, make("button", {class: "plain strong"}, "Go")));
  openDialog("Go to a position", [form]);
  field.select();
}

/** Saves a response as a file. */
async function save(/** @type {Response} */ response, /** @type {string} */ name) {
  const given = /filename="?([^";]+)"?/.exec(response.headers.get("Content-Disposition") ?? "")?.[1];
  const address = URL.createObjectURL(await response.blob());
  const link = make("a", {href: address, download: given ?? name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
  return given ?? name;
}

/** Exports what is in view, or the whole matrix, as `fovea map` does. */
export function openExport(/** @type {MapPage} */ page) {
  const {queries, keys} = page.of.layer, visible = page.of.view.visible();
  const chosen = {format: "png", part: "view", side: 512};
  const told = make("p", {class: "small", role: "status"});
  const range = () => chosen.part === "view" ? visible : {queries: [0, queries], keys: [0, keys]};
  /** The cells of the picture: those of the matrix, or fewer of the same proportions. */
  const size = () => {
    const {queries: [q0, q1], keys: [k0, k1]} = range(), most = Math.max(1, q1 - q0, k1 - k0), share = Math.min(1, chosen.side / most);
    return {wide: Math.max(1, Math.round((k1 - k0) * share)), high: Math.max(1, Math.round((q1 - q0) * share))};
  };
  const tell = () => {
    const {queries: [q0, q1], keys: [k0, k1]} = range(), {wide, high} = size();
    told.textContent = `Queries ${whole(q0)} to ${whole(q1 - 1)}, keys ${whole(k0)} to ${whole(k1 - 1)}: ${whole(high)} rows × ${whole(wide)} columns.`;
  };
  const set = (/** @type {keyof chosen} */ name) => (/** @type {string} */ value) => {
    Object.assign(chosen, {[name]: name === "side" ? Number(value) : value});
    tell();
  };
  const work = make("button", {class: "plain strong"}, "Save");
  const form = make("form", {onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    const {queries: [q0, q1], keys: [k0, k1]} = range(), {wide, high} = size();
    work.disabled = true;
    told.textContent = "Computing\u2026";
    try {
      const response = await page.of.api.export({format: chosen.format, rows: `${q0}:${q1}`, cols: `${k0}:${k1}`, size: `${wide}x${high}`,
        reduce: page.state.reduce, tone: page.state.tone, colors: page.state.colormap});
      told.textContent = `Saved as ${await save(response, `map.${chosen.format}`)}.`;
    } catch (error) {
      told.textContent = inWords(error);
      page.failed(error);
    }
    work.disabled = false;
  }},
  choice("Format", [["png", "PNG, a pixel per cell"], ["svg", "SVG, with axes and labels"], ["npy", "npy, for NumPy"], ["csv", "CSV, for spreadsheets"]], chosen.format, set("format")),
  choice("Part", [["view", "what is in view"], ["whole", "the whole matrix"]], chosen.part, set("part")),
  choice("Size", [["128", "up to 128 cells"], ["512", "up to 512 cells"], ["2048", "up to 2,048 cells"], ["4096", "up to 4,096 cells"]], String(chosen.side), set("side")),
  told, make("div", {class: "buttons"}, work));
  tell();
  openDialog("Export", [form]);
}

/** The cells at the cursor as a table of numbers, with a heading for each row and column. */
export async function openTable(/** @type {MapPage} */ page, /** @type {() => void} */ closed) {
  const at = page.selection.focus ?? page.of.centre(), {queries, keys} = page.of.layer;
  const first = (/** @type {number} */ position, /** @type {number} */ most) => Math.max(0, Math.min(most - TABLE, position - TABLE / 2));
  const q0 = first(at.query, queries), k0 = first(at.key, keys), q1 = Math.min(queries, q0 + TABLE), k1 = Math.min(keys, k0 + TABLE);
  const named = (/** @type {number} */ position, /** @type {import("../shared/tokens.js").Tokens} */ tokens) => {
    const token = tokens.at(position);
    return token ? [whole(position), " ", bdi(label(token))] : [whole(position)];
  };
  const stop = new AbortController();
  const told = make("p", {class: "small", role: "status"}, "Loading\u2026"), place = make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Weights"});
  const dialog = openDialog("Table of weights", [told, place], () => {
    stop.abort();
    closed();
  }, "wide");
  try {
    await Promise.all([[q0, page.of.queryTokens], [q1 - 1, page.of.queryTokens], [k0, page.of.keyTokens], [k1 - 1, page.of.keyTokens]]
        .map(([position, tokens]) => typeof tokens === "object" && tokens.known ? tokens.load(Number(position)) : null));
    /** @type {Float32Array[]} */
    const rows = [];
    const lines = Array.from({length: q1 - q0}, (_, i) => i);
    // As many requests at a time as for tiles.
    await Promise.all(Array.from({length: 6}, async () => {
      for (let i = lines.shift(); i !== undefined; i = lines.shift()) rows[i] = await page.of.api.weights("query", [q0 + i], [k0, k1], stop.signal);
    }));
    const cell = (/** @type {number} */ weight, /** @type {number} */ query, /** @type {number} */ key) =>
      make("td", {class: [weight < 0 && "masked", query === at.query && key === at.key && "at"].filter(Boolean).join(" ")}, weight < 0 ? "hidden" : digits(Number(weight.toPrecision(4))));
    place.append(make("table", {class: "cells"}, make("caption", {}, `Weights of queries ${whole(q0)} to ${whole(q1 - 1)} (rows) on keys ${whole(k0)} to ${whole(k1 - 1)} (columns)`),
        make("thead", {}, make("tr", {}, make("td", {}, "query \\ key"), ...Array.from({length: k1 - k0}, (_, i) => make("th", {scope: "col"}, ...named(k0 + i, page.of.keyTokens))))),
        make("tbody", {}, ...rows.map((weights, i) => make("tr", {}, make("th", {scope: "row"}, ...named(q0 + i, page.of.queryTokens)),
            ...Array.from(weights, (weight, j) => cell(weight, q0 + i, k0 + j)))))));
    told.textContent = "“hidden”: hidden by the mask.";
    place.querySelector(".at")?.scrollIntoView({block: "center", inline: "center"});
    place.focus();
  } catch (error) {
    if (!isAbort(error)) told.textContent = inWords(error);
    page.failed(error);
  }
  return dialog;
}
