// SPDX-License-Identifier: Apache-2.0
//
// What a map has to do with its server: the pass over all rows, a server that is gone, and a file that
// has changed.

import {inWords} from "./api.js";
import {writePath} from "./address.js";
import {PassLine} from "./pass.js";
import {cache} from "./tiles.js";
import {Watch, notice} from "./watch.js";

/** @typedef {import("./map_page.js").MapPage} MapPage */

export class MapServer {
  /** @param {MapPage} page */
  constructor(page) {
    this.page = page;
    this.pass = new PassLine({
      stop: () => this.#request(() => page.of.api.stopPass()),
      leave: () => page.focus(),
      resume: () => this.#request(() => page.of.api.startPass(...page.of.view.visible().queries)),
    });
    this.watch = new Watch(() => this.#look(), (health) => this.#turned(health));
  }

  /** Asks how far the pass is; returns whether it runs. */
  async #look() {
    const {of} = this.page, status = await of.api.status();
    if (of !== this.page.of) return true;
    const {state} = of.status.pass;
    of.status = status;
    if (status.pass.state !== state) this.page.redraw();
    this.pass.update(status.pass);
    return status.pass.state === "running";
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
    const {view, layer, status, api} = this.page.of, {queries: [begin, end]} = view.visible();
    if (status.pass.state !== "running" || end - begin >= layer.queries || end <= begin) return;
    this.#request(() => api.startPass(begin, end));
  }

  #turned(/** @type {import("./watch.js").Health} */ health) {
    const {page} = this, node = notice(health, page.of.entry, {
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
    if (health !== "well") {
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
      const head = layer.heads.includes(page.of.head) ? page.of.head : layer.heads[0];
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
