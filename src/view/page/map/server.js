// SPDX-License-Identifier: Apache-2.0
//
// What a map has to do with its server: the pass over all rows, a server that is gone, and a file that
// has changed.

import {inWords} from "../shared/api.js";
import {writePath} from "../shared/address.js";
import {headIn} from "../shared/entry.js";
import {PassLine} from "./pass.js";
import {cache} from "../canvas/tiles.js";
import {CALM, QUICK, Watch, notice} from "../shared/watch.js";

/** @typedef {import("./page.js").MapPage} MapPage */

export class MapServer {
  /** @param {MapPage} page */
  constructor(page) {
    this.page = page;
    this.pass = new PassLine({
      stop: () => this.#request(() => page.of.api.stopPass()),
      leave: () => page.focus(),
      resume: () => this.#request(() => page.of.api.startPass(...page.of.view.visible().queries)),
    });
    const soon = page.of.status.pass.state === "running";
    this.watch = new Watch(() => this.#look(), () => this.#turned(), soon ? QUICK : CALM);
  }

  /** Asks how far the pass is; returns whether it runs. */
  async #look() {
    const {of} = this.page, {state} = of.status.pass;
    await of.follow();
    if (of !== this.page.of) return true;
    const {pass, blocks} = of.status;
    if (pass.state !== state) this.page.redraw();
    this.pass.update(pass, blocks);
    return pass.state === "running";
  }

  async #request(/** @type {() => Promise<unknown>} */ request) {
    try {
      await request();
    } catch (error) {
      this.watch.failed(error);
    }
    this.watch.ask();
  }

  /** The rows in view come first while a pass runs. */
  firstRows() {
    const {view, status, api} = this.page.of, {queries: [begin, end]} = view.visible();
    if (status.pass.state !== "running" || end <= begin) return;
    this.#request(() => api.startPass(begin, end));
  }

  #turned() {
    const {page} = this, node = notice(this.watch, page.of.entry, {
      adopt: (token) => {
        page.context.api.adopt(token);
        this.watch.ask();
      },
      reopen: () => this.#reopen(),
    });
    const old = page.notes.querySelector(".notice");
    if (old?.contains(document.activeElement)) page.focus();
    old?.remove();
    if (node) page.notes.prepend(node);
    if (this.watch.health !== "well") {
      page.of.tiles.pause();
      return;
    }
    page.of.tiles.resume();
    page.context.announce("The server responds again.");
    page.update();
  }

  async #reopen() {
    const {page} = this, old = page.of.entry;
    try {
      const entry = await page.context.api.reopen(old.id);
      cache.dropAll(old.id + "/");
      const layer = entry.layers.find(({label}) => label === page.of.layer.label) ?? entry.layers[0];
      const head = headIn(layer, page.of.head);
      const {inputs} = page.context;
      inputs.splice(inputs.findIndex(({id}) => id === old.id), 1, entry);
      await page.show(entry, layer, head);
      history.replaceState(null, "", writePath("map", entry.id, `${layer.label}.${head}`));
      page.save();
    } catch (error) {
      page.warn(inWords(error));
    }
    this.watch.ask();
  }
}
