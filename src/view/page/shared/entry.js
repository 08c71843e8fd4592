// SPDX-License-Identifier: Apache-2.0
//
// The inputs that the server has open, as GET /api/v1/inputs describes them, in words and as addresses.

import {readHead, writePath} from "./address.js";
import {counted, whole} from "./dom.js";
import {visible} from "./visible.js";

/** @typedef {import("./api.js").LayerEntry} Layer */
/** @typedef {import("./api.js").InputEntry & {bytes?: number}} Entry */
/**
 * What every page gets: requests, the bar, announcements, and the inputs.
 * @typedef {{api: import("./api.js").Api, bar: HTMLElement, announce: (text: string) => void, error: (text: string) => void,
 *   inputs: Entry[], navigate: (path: string, fragment?: string) => void}} Context
 */

/** Returns the address of a page about a head; `page` is "map" or "text". */
export const headAddress = (/** @type {string} */ page, /** @type {Entry} */ entry, /** @type {Layer} */ layer, /** @type {number} */ head) =>
  writePath(page, entry.id, `${layer.label}.${head}`);

/** Returns the layer and head of "13.2" in an input, or null. */
export function headOf(/** @type {Entry} */ entry, /** @type {string} */ name) {
  const place = readHead(name), layer = place && entry.layers.find(({label}) => label === place.label);
  return layer && layer.heads.includes(place.head) ? {layer, head: place.head} : null;
}

/** Returns the head of a layer with this number, or its first one. */
export const headIn = (/** @type {Layer} */ {heads}, /** @type {number | undefined} */ head) =>
  head !== undefined && heads.includes(head) ? head : heads[0];

/** Returns the title of an input for readers: that of a scene, otherwise the name of the file. */
export const titleOf = (/** @type {Entry} */ {title, name}) => visible(title || name);

/** Returns the name of a layer for readers: "layer 13", "cross-attention 3", "layer 13, item 1". */
export function layerName(/** @type {Layer} */ {kind, layer, batch, label}) {
  const name = kind === "self" ? "layer" : kind === "cross" ? "cross-attention" : kind;
  return `${name} ${layer}${label.endsWith(`-b${batch}`) ? `, item ${batch}` : ""}`;
}

/** Returns "layer 13, head 2". */
export const headName = (/** @type {Layer} */ layer, /** @type {number} */ head) => `${layerName(layer)}, head ${head}`;

/** Returns a size such as "1.2 MiB". */
function sizeText(/** @type {number} */ bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0, size = bytes;
  for (; size >= 1024 && unit < units.length - 1; ++unit) size /= 1024;
  return `${unit && size < 100 ? size.toFixed(1) : whole(Math.round(size))} ${units[unit]}`;
}

/** Returns the different values of the layers, with the number of layers of each unless all have the same. */
function spread(/** @type {Layer[]} */ layers, /** @type {(layer: Layer) => string} */ of) {
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const layer of layers) found.set(of(layer), (found.get(of(layer)) ?? 0) + 1);
  const shown = [...found].slice(0, 4).map(([text, n]) => found.size > 1 ? `${text} (${counted(n, "layer")})` : text);
  return shown.join("; ") + (found.size > shown.length ? `; and ${whole(found.size - shown.length)} more` : "");
}

const tokensOf = (/** @type {Layer} */ {queries, keys, same_tokens: same}) =>
  same && queries === keys ? counted(queries, "token") : `${counted(queries, "query").replace("querys", "queries")} \u00d7 ${counted(keys, "key")}`;

/** Returns the number of heads in all layers. */
export const headCount = (/** @type {Entry} */ entry) => entry.layers.reduce((sum, {heads}) => sum + heads.length, 0);

/** Returns the facts about an input in the order of reading: pairs of a term and its value. */
export function factsOf(/** @type {Entry} */ entry) {
  const {layers} = entry;
  /** @type {[string, string][]} */
  const facts = [];
  if (layers.length > 0) {
    const heads = new Set(layers.map((layer) => layer.heads.length));
    facts.push(["heads", heads.size === 1 ? `${counted(layers.length, "layer")} \u00d7 ${counted([...heads][0], "head")}`
        : `${whole(headCount(entry))} in ${counted(layers.length, "layer")}`]);
    facts.push(["shape", spread(layers, tokensOf)]);
    facts.push(["vectors", spread(layers, ({head_dim: size, dtype}) => `${size} numbers, ${dtype}`)]);
    facts.push(["mask", spread(layers, ({mask}) => mask || "every query sees every key")]);
    facts.push(["score", spread(layers, ({score}) => score)]);
  }
  if (entry.bytes) facts.push(["size", sizeText(entry.bytes)]);
  return facts.filter(([, value]) => value);
}
