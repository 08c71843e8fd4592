// SPDX-License-Identifier: Apache-2.0
//
// The map of one head: /map/ID/LABEL.HEAD.

import {readHead, readPath, writePath} from "../shared/address.js";
import {ApiError, inWords} from "../shared/api.js";
import {headIn} from "../shared/entry.js";
import {HELP} from "./keys.js";
import {MapPage} from "./page.js";
import {cache} from "../canvas/tiles.js";
import {visible} from "../shared/visible.js";
import {notice} from "../shared/watch.js";

/** @typedef {import("../shared/api.js").InputEntry} InputEntry */

/**
 * What programs may read of a map (tests, notebooks): its state, where tokens are, and a promise that
 * is fulfilled when all that the view needs has arrived and is drawn. Nothing can be set.
 */
function expose(/** @type {MapPage} */ page) {
  const reader = {
    get state() {
      const {state, level, reduce, selection: {locked, cursor}, of: {entry, layer, head, view, tiles, status}} = page;
      return structuredClone({input: entry.id, layer: layer.label, head, at: [view.query, view.key], scale: view.scale, whole: view.whole,
        level, reduce, tone: state.tone, colormap: state.colormap, range: page.range(), panel: state.panel, find: state.find,
        matches: page.search.count, match: page.search.current, locked, cursor, missing: page.surface.missing,
        tiles: {kept: cache.count, bytes: cache.bytes, inFlight: tiles.inFlight}, pass: status.pass, health: page.server.watch.health,
        visible: view.visible(), area: view.area()});
    },
    /** The query and key, with fractions, at a pixel of the canvas. */
    tokenAt: (/** @type {number} */ x, /** @type {number} */ y) => [page.of.view.queryAt(y), page.of.view.keyAt(x)],
    /** The pixel of the canvas at the middle of a pair. */
    pixelOf: (/** @type {number} */ query, /** @type {number} */ key) => [page.of.view.x(key + 0.5), page.of.view.y(query + 0.5)],
    /** The milliseconds that the last frames took to draw. */
    get times() {
      return [...page.surface.times];
    },
    get idle() {
      return new Promise((resolve) => {
        const check = () => page.quiet ? resolve(true) : setTimeout(check, 16);
        setTimeout(check, 16);
      });
    },
  };
  Object.defineProperty(window, "fovea", {value: Object.freeze(reader), configurable: true});
}

/**
 * The file had changed before the page was opened: it is read again on demand.
 * @param {HTMLElement} root
 * @param {import("../shared/entry.js").Context} context
 * @param {InputEntry} entry
 * @param {ApiError} error
 */
function openChanged(root, context, entry, error) {
  /** @type {{close(): void}} */
  let page = {close() {}};
  const told = notice({health: "changed", words: inWords(error)}, entry, {adopt() {}, reopen: async () => {
    try {
      const fresh = await context.api.reopen(entry.id);
      context.inputs.splice(context.inputs.findIndex(({id}) => id === entry.id), 1, fresh);
      history.replaceState(null, "", location.pathname.replace(encodeURIComponent(entry.id), encodeURIComponent(fresh.id)) + location.hash);
      page = await open(root, context);
    } catch (error) {
      context.error(inWords(error));
    }
  }});
  if (told) root.replaceChildren(told);
  return {watches: true, close: () => page.close()};
}

/**
 * @param {HTMLElement} root
 * @param {import("../shared/entry.js").Context} context
 * @returns {Promise<import("../main.js").Page>}
 */
export async function open(root, context) {
  const [, id, name] = readPath(location.pathname), place = readHead(name ?? "");
  const inputs = /** @type {InputEntry[]} */ (context.inputs).filter(({layers}) => layers.length > 0);
  const asked = inputs.find((entry) => entry.id === id), stem = (id ?? "").replace(/-[0-9a-f]{8}$/, "");
  const entry = asked ?? inputs.find((one) => one.id.startsWith(stem + "-")) ?? inputs[0];
  if (!entry) throw new Error("No input with attention is open.");
  const layer = entry.layers.find(({label}) => label === place?.label) ?? entry.layers[0];
  const head = headIn(layer, place?.head);
  if (!asked || layer.label !== place?.label || head !== place.head) {
    history.replaceState(history.state, "", writePath("map", entry.id, `${layer.label}.${head}`) + location.hash);
  }
  let status;
  try {
    status = await context.api.head(entry.id, `${layer.label}.${head}`).status();
  } catch (error) {
    if (error instanceof ApiError && error.code === "changed") return openChanged(root, context, entry, error);
    throw error;
  }
  const page = new MapPage(root, context, entry, layer, head, status, asked ? "" : visible(id ?? ""));
  expose(page);
  return {
    watches: true,
    help: HELP,
    arrive: () => page.arrive(),
    close() {
      page.close();
      Reflect.deleteProperty(window, "fovea");
    },
  };
}
