// SPDX-License-Identifier: Apache-2.0
//
// A scene: the page of `fovea explain` in a frame, beside a list of the scenes. The frame has no origin;
// its place and theme travel as messages, in the form in which two compared scenes exchange them.

import {Address, readPath, writePath} from "../shared/address.js";
import {bdi, make} from "../shared/dom.js";
import {titleOf} from "../shared/entry.js";
import {watchTheme} from "../shared/theme.js";

/** @typedef {import("../shared/entry.js").Context} Context */

const WAIT = 200;  // milliseconds, if the page is in the background

/** Returns the page with attributes of its root element, which its script reads. */
function withAttributes(/** @type {string} */ page, /** @type {Record<string, string>} */ attributes) {
  const escaped = (/** @type {string} */ value) => value.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const text = Object.entries(attributes).map(([name, value]) => ` ${name}="${escaped(value)}"`).join("");
  return page.replace(/<html\b/, (tag) => tag + text);
}

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export async function open(root, context) {
  const [, id] = readPath(location.pathname), scenes = context.inputs.filter(({kind}) => kind === "scene");
  const scene = scenes.find((entry) => entry.id === id);
  if (!scene) {
    context.error("No open scene has this address.");
    return {close() {}};
  }
  document.title = titleOf(scene);
  const stop = new AbortController(), address = new Address(), {dataset} = document.documentElement;
  const response = await context.api.request(`/api/v1/scenes/${encodeURIComponent(id)}`, {signal: stop.signal});
  const text = withAttributes(await response.text(), {"data-pane": "scene", "data-leads": "", "data-framed": "", "data-hash": location.hash, ...dataset.theme && {"data-theme": dataset.theme}});
  const frame = make("iframe", {class: "scene-frame", title: titleOf(scene), sandbox: "allow-scripts allow-downloads"});

  /** @type {any} the last place that the frame has sent */
  let place = null;
  const follow = () => {
    if (place && dataset.theme) frame.contentWindow.postMessage({...place, theme: dataset.theme}, "*");
  };
  const receive = (/** @type {MessageEvent} */ {source, data}) => {
    if (source !== frame.contentWindow || typeof data?.hash !== "string") return;
    place = data;
    if (data.opened && dataset.theme !== data.theme) follow();  // it has changed while the frame was loading
    if (data.moved) address.replace(data.hash.replace(/^#/, ""));
  };
  addEventListener("message", receive);
  const unwatch = watchTheme(follow);

  const list = make("nav", {class: "scene-list", "aria-label": "scenes"}, make("ol", {}, ...scenes.map((entry) =>
    make("li", {}, make("a", {href: writePath("scene", entry.id), "aria-current": entry === scene ? "page" : null}, bdi(titleOf(entry)))))));
  root.replaceChildren(make("h1", {class: "unseen"}, titleOf(scene)), make("div", {class: "scene-page"}, ...scenes.length > 1 ? [list] : [], frame));
  list.querySelector("[aria-current]")?.scrollIntoView({block: "nearest"});
  // The script of the scene draws for the size of the frame, which another process learns with a frame of the screen.
  await Promise.race([new Promise(requestAnimationFrame), new Promise((resolve) => setTimeout(resolve, WAIT))]);
  frame.srcdoc = text;
  return {close() {
    removeEventListener("message", receive);
    unwatch();
    address.close();
    stop.abort();
  }};
}
