// SPDX-License-Identifier: Apache-2.0
//
// The keys of a map, for the page and for its help; ? is that of every page.

import {openExport, openGoTo} from "./dialogs.js";
import {COLORS, TONES} from "../shared/colors.js";
import {READABLE} from "./selection.js";

/** @typedef {import("./page.js").MapPage} MapPage */
/**
 * `keys`: as in the help; `codes`: values of KeyboardEvent.key; `canvas`: only while the map has the
 * focus, because other elements use these keys as well.
 * @typedef {{keys: string[], codes: string[], shift?: boolean, canvas?: boolean, text: string,
 *   run: (page: MapPage, event: KeyboardEvent) => void}} Key
 */

const ARROWS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];
/**
 * The direction of an arrow: [queries, keys].
 * @type {Record<string, [number, number]>}
 */
const DIRECTIONS = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
const ZOOM = 1.5;

/** @template T @param {readonly T[]} list @param {T} now @returns {T} the one after it */
const after = (list, now) => list[(list.indexOf(now) + 1) % list.length];

/** @type {Key[]} */
export const KEYS = [
  {keys: ["←", "→", "↑", "↓"], codes: ARROWS, shift: false, canvas: true, text: "move the cursor by a cell",
    run: (page, {key}) => page.selection.move(...DIRECTIONS[key])},
  {keys: ["Shift + arrows"], codes: ARROWS, shift: true, canvas: true, text: "pan by a tenth of the view",
    run: (page, {key}) => page.panByTenth(...DIRECTIONS[key])},
  {keys: ["+", "−"], codes: ["+", "=", "-", "_"], text: "zoom at the cursor",
    run: (page, {key}) => page.zoom(key === "+" || key === "=" ? 1 / ZOOM : ZOOM)},
  {keys: ["0"], codes: ["0"], text: "show the whole matrix", run: (page) => page.showWhole()},
  {keys: ["1"], codes: ["1"], text: "16 pixels per token", run: (page) => page.setScale(READABLE)},
  {keys: ["2"], codes: ["2"], text: "one pixel per token", run: (page) => page.setScale(1)},
  {keys: ["Enter"], codes: ["Enter"], canvas: true, text: "lock the cell of the cursor; zoom to the rectangle", run: (page) => page.selection.enter()},
  {keys: ["Esc"], codes: ["Escape"], text: "unlock, drop the rectangle", run: (page) => page.selection.escape()},
  {keys: ["[", "]"], codes: ["[", "]"], text: "set the corners of a rectangle to zoom to", run: (page, {key}) => page.selection.setCorner(key === "[" ? 0 : 1)},
  {keys: ["g"], codes: ["g"], text: "go to a position", run: openGoTo},
  {keys: ["/"], codes: ["/"], text: "search in tokens", run: (page) => page.search.field.focus()},
  {keys: ["n", "p"], codes: ["n", "p"], text: "next, previous match", run: (page, {key}) => void page.search.step(key === "n" ? 1 : -1)},
  {keys: ["h", "H"], codes: ["h", "H"], text: "next, previous head", run: (page, {key}) => page.stepHead(key === "h" ? 1 : -1)},
  {keys: ["l", "L"], codes: ["l", "L"], text: "next, previous layer", run: (page, {key}) => page.stepLayer(key === "l" ? 1 : -1)},
  {keys: ["m"], codes: ["m"], text: "largest or mean weight of a cell", run: (page) => page.setAppearance({reduce: page.state.reduce === "max" ? "mean" : "max"})},
  {keys: ["t"], codes: ["t"], text: "next tone", run: (page) => page.setAppearance({tone: after(TONES, page.state.tone)})},
  {keys: ["c"], codes: ["c"], text: "next colours", run: (page) => page.setAppearance({colormap: after(COLORS, page.state.colormap)})},
  {keys: ["k"], codes: ["k"], text: "keep the range of colours, or reset it", run: (page) => page.keepRange()},
  {keys: ["r", "q"], codes: ["r", "q"], text: "keys of the query, queries of the key", run: (page, {key}) => page.togglePanel(key === "r" ? "row" : "column")},
  {keys: ["a"], codes: ["a"], text: "the cells at the cursor as a table", run: (page) => page.togglePanel("table")},
  {keys: ["e"], codes: ["e"], text: "export", run: openExport},
];

export const HELP = {keys: KEYS, pointer: "Mouse: drag to pan, turn the wheel to zoom, click to lock a cell, Shift and drag to zoom to a rectangle."};

/** Runs the action of a key, unless it belongs to a field or another element. */
export function handleKey(/** @type {MapPage} */ page, /** @type {KeyboardEvent} */ event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (target.closest("input, select, textarea")) return;
  const found = KEYS.find(({codes, shift, canvas}) => codes.includes(event.key) && (shift === undefined || shift === event.shiftKey) &&
    (!canvas || target === page.surface.canvas || target === document.body));
  if (!found) return;
  event.preventDefault();
  found.run(page, event);
}
