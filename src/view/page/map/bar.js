// SPDX-License-Identifier: Apache-2.0
//
// The bar of a map: where the reader is, the way to other layers, heads and pages, and the tools.

import {button, make} from "../shared/dom.js";
import {layerName} from "../shared/entry.js";
import {PageBar, stepper} from "../shared/page_bar.js";

/** @typedef {import("./page.js").MapPage} MapPage */

export class MapBar {
  /** @param {MapPage} page @param {{export: () => void, goTo: () => void, table: () => void}} tools */
  constructor(page, tools) {
    this.page = page;
    this.layers = make("select", {"aria-label": "Layer", onchange: () => page.setHead(this.layers.value, page.of.head)});
    this.heads = make("select", {"aria-label": "Head", onchange: () => page.setHead(page.of.layer.label, Number(this.heads.value))});
    this.pages = new PageBar(page.context.bar, page.of.entry, "map");
    this.link = button({onclick: () => page.copyLink()}, "Copy link");
    this.node = make("div", {class: "mapbar"},
        stepper("Layer", this.layers, (by) => page.stepLayer(by), "lL"), stepper("Head", this.heads, (by) => page.stepHead(by), "hH"),
        make("span", {class: "strip"}, page.search.node, make("span", {class: "tools"},
            button({onclick: tools.goTo, title: "g"}, "Go to"), button({onclick: tools.table, title: "a"}, "Table"),
            this.link, button({onclick: tools.export, title: "e"}, "Export"))));
  }

  /** Says that the link is on the clipboard. */
  copied() {
    this.link.textContent = "Copied";
    setTimeout(() => { this.link.textContent = "Copy link"; }, 1200);
  }

  update() {
    const {page} = this, {entry, layer, head} = page.of;
    this.layers.replaceChildren(...entry.layers.map((one) => make("option", {value: one.label, selected: one === layer}, layerName(one))));
    this.heads.replaceChildren(...layer.heads.map((one) => make("option", {value: one, selected: one === head}, `head ${one}`)));
    this.layers.disabled = entry.layers.length < 2;
    this.heads.disabled = layer.heads.length < 2;
    this.pages.entry = entry;
    this.pages.show(layer, head);
  }
}
