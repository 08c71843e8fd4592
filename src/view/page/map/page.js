// SPDX-License-Identifier: Apache-2.0
//
// The page of a map. MapPage holds its state; its parts draw it, show its numbers, and change it. What
// is in view, how it is coloured, and what is locked and open are in the address.

import {Address, readFragment, readHead, readPath, writeFragment, writePath} from "../shared/address.js";
import {WHOLE_RANGE, colorLookup} from "../shared/colors.js";
import {openExport, openGoTo, openTable} from "./dialogs.js";
import {button, make, whole} from "../shared/dom.js";
import {headIn, headName} from "../shared/entry.js";
import {handleKey} from "./keys.js";
import {Legend, histogramOf} from "./legend.js";
import {HeadView} from "../canvas/head_view.js";
import {MapServer} from "./server.js";
import {FIELDS} from "./state.js";
import {MapBar} from "./bar.js";
import {Overview} from "./overview.js";
import {Panel} from "./panel.js";
import {Pointer} from "../canvas/pointer.js";
import {Search} from "./search.js";
import {Selection} from "./selection.js";
import {Surface} from "./surface.js";
import {watchTheme} from "../shared/theme.js";
import {visible} from "../shared/visible.js";

/** @typedef {import("../shared/api.js").InputEntry} InputEntry */
/** @typedef {import("../shared/api.js").LayerEntry} LayerEntry */
/** @typedef {import("../shared/colors.js").Range} Range */
/** @typedef {import("./state.js").State} State */

const REST = 250;    // milliseconds after a movement until it counts as the last one
const COUNT = 120;   // milliseconds after a change of the picture until its cells are counted

export class MapPage {
  /** The level that is drawn, and how its cells were reduced. */
  level = 0;
  reduce = /** @type {"max" | "mean"} */ ("max");
  /** The pixel of each code. */
  lookup = new Uint32Array(0);
  /**
   * The weight that the legend marks.
   * @type {number | null}
   */
  shownWeight = null;
  #lookupOf = "";
  #rest = 0;
  #count = 0;
  /** @type {HTMLDialogElement | null} */
  #table = null;
  #tableOpens = false;
  #warned = "";

  /**
   * @param {HTMLElement} root
   * @param {import("../shared/entry.js").Context} context
   * @param {InputEntry} entry
   * @param {LayerEntry} layer
   * @param {number} head
   * @param {import("../shared/api.js").HeadStatus} status
   * @param {string} absent the input of the link if it is not open; otherwise ""
   */
  constructor(root, context, entry, layer, head, status, absent) {
    this.context = context;
    this.absent = absent;
    /** @type {State} */
    this.state = readFragment(location.hash, FIELDS);
    this.address = new Address();
    this.events = {arrived: () => this.surface.arrived(), failed: (/** @type {unknown} */ error) => this.failed(error)};
    this.of = new HeadView(context.api, entry, layer, head, status, this.events);
    this.selection = new Selection(this);
    this.search = new Search(this);
    this.overview = new Overview(this);
    this.surface = new Surface(this);
    this.legend = new Legend(this);
    this.panel = new Panel(this);
    this.heading = make("h1", {class: "unseen"});
    this.notes = make("div", {class: "notes"});
    this.bar = new MapBar(this, {export: () => openExport(this), goTo: () => openGoTo(this), table: () => this.setPanel("table")});
    this.server = new MapServer(this);
    root.replaceChildren(make("div", {class: "mappage"},
        make("div", {class: "stage"}, this.heading, this.notes, this.surface.node, this.server.pass.node),
        make("aside", {class: "side"}, this.overview.node, this.panel.node, this.legend.node)));
    context.bar.append(this.bar.node);
    this.pointer = new Pointer(this);
    this.onKey = (/** @type {KeyboardEvent} */ event) => handleKey(this, event);
    document.addEventListener("keydown", this.onKey);
    this.unwatchTheme = watchTheme(() => {
      this.surface.setTheme();
      this.legend.update();
    });
    this.surface.measure();
    this.#restore();
    this.surface.start();
    this.server.firstRows();
  }

  // Addresses

  #fragment() {
    const rounded = this.of.view.rounded();
    return writeFragment({...this.state, at: rounded ? [rounded.query, rounded.key] : [], scale: rounded?.scale ?? 0, input: ""}, FIELDS);
  }

  /** Applies the state of the address. */
  #restore() {
    const {at, scale, input} = this.state, {view, entry} = this.of;
    if (at.length === 2 || scale > 0) {
      view.moveTo(at[0] ?? view.queries / 2, at[1] ?? view.keys / 2, scale || view.fitScale());
      view.settle();
    } else {
      view.fit();
    }
    if (this.absent) {
      this.warn(`This link was made for another input, ${this.absent}, which is not open. Shown is ${visible(entry.name)}.`);
    } else if (input && !entry.fingerprint.startsWith(input)) {
      this.warn(`This link was made for another input (fingerprint ${visible(input)}). Shown is ${visible(entry.name)} (${entry.fingerprint.slice(0, 8)}).`);
    }
    this.update();
    this.#updateTable();
  }

  /** Goes where the address is, after Back or Forward. Returns false if that is not this page. */
  arrive() {
    const [page, id, name] = readPath(location.pathname), place = readHead(name ?? "");
    const {entry, layer: shown, head} = this.of, layer = entry.layers.find(({label}) => label === place?.label);
    if (page !== "map" || id !== entry.id || !place || !layer?.heads.includes(place.head)) return false;
    this.address.close();
    this.state = readFragment(location.hash, FIELDS);
    if (layer === shown && place.head === head) this.#restore();
    else this.show(entry, layer, place.head).then(() => this.#restore(), (error) => this.failed(error));
    return true;
  }

  /** Shows another head. The view stays if the sizes are the same. */
  async show(/** @type {InputEntry} */ entry, /** @type {LayerEntry} */ layer, /** @type {number} */ head) {
    const status = await this.context.api.head(entry.id, `${layer.label}.${head}`).status();
    this.of.tiles.close();
    this.of = new HeadView(this.context.api, entry, layer, head, status, this.events, this.of);
    if (!this.of.fits) this.selection.cursor = null;
    this.surface.show();
    this.update();
    this.server.watch.ask();
  }

  /** Shows another head; a new entry of the history. */
  async setHead(/** @type {string} */ label, /** @type {number} */ head) {
    const {entry, layer: shown, head: before} = this.of, layer = entry.layers.find((one) => one.label === label) ?? shown;
    const chosen = headIn(layer, head);
    if (layer === shown && chosen === before) return;
    this.address.flush();
    try {
      await this.show(entry, layer, chosen);
    } catch (error) {
      this.failed(error);
      return;
    }
    this.address.push(this.#fragment(), writePath("map", entry.id, `${layer.label}.${chosen}`));
    this.context.announce(headName(layer, chosen));
  }
  stepHead(/** @type {1 | -1} */ by) {
    const {layer, head} = this.of, {heads} = layer;
    this.setHead(layer.label, heads[(heads.indexOf(head) + by + heads.length) % heads.length]);
  }
  stepLayer(/** @type {1 | -1} */ by) {
    const {entry: {layers}, layer, head} = this.of;
    this.setHead(layers[(layers.indexOf(layer) + by + layers.length) % layers.length].label, head);
  }

  save() {
    this.address.replace(this.#fragment());
  }

  /** Copies the address. The view takes the numbers of the address, so that the link shows the same pixels. */
  async copyLink() {
    this.of.view.settle();
    this.redraw();
    const fragment = [this.#fragment(), `input=${this.of.entry.fingerprint.slice(0, 8)}`].filter(Boolean).join("&");
    const link = `${location.origin}${location.pathname}#${fragment}`;
    try {
      await navigator.clipboard.writeText(link);
      this.bar.copied();
      this.context.announce("The link was copied.");
    } catch {
      this.warn("The browser does not allow copying. This is the link:", link);
    }
  }

  // Appearance

  /**
   * The weights at the ends of the colours.
   * @returns {Range}
   */
  range() {
    if (this.state.range) return [...this.state.range];
    // The weights of a row sum to 1, so that means of cells of 2^z keys are at most 2^-z, except in
    // partly hidden cells.
    const top = this.reduce === "mean" ? 2 ** -this.level : WHOLE_RANGE[1];
    return [WHOLE_RANGE[0] * top, top];
  }
  keepRange() {
    this.setAppearance({range: this.state.range ? null : this.range()});
  }
  setAppearance(/** @type {Partial<State>} */ change) {
    Object.assign(this.state, change);
    this.chooseLevel(true);
    this.redraw();
    this.save();
  }

  #setLookup() {
    const {colormap, tone} = this.state, range = this.range(), of = `${colormap}/${tone}/${range}`;
    if (of === this.#lookupOf) return;
    this.#lookupOf = of;
    this.lookup = colorLookup(colormap, tone, range);
  }

  /** Chooses the level to draw, and whether it has means, and shows what depends on them if they have changed. */
  chooseLevel(changed = false) {
    const {level, reduce, of: {view, status}} = this;
    this.level = view.level(status.levels);
    // The mean of one weight is the weight itself.
    this.reduce = this.state.reduce === "mean" && this.level > 0 && this.level < status.mean_levels ? "mean" : "max";
    if (!changed && level === this.level && reduce === this.reduce && this.#lookupOf) return;
    this.#setLookup();
    this.legend.update();
    this.panel.update();
  }

  /** Shows everything that may have changed. */
  update() {
    const {entry, layer, head, status} = this.of;
    this.heading.textContent = `Attention map: ${headName(layer, head)}`;
    document.title = `${headName(layer, head)} \u2013 ${visible(entry.name)}`;
    this.chooseLevel(true);
    this.bar.update();
    this.search.update();
    this.server.pass.update(status.pass, status.blocks);
    this.#describe();
    this.redraw();
  }

  redraw() {
    this.surface.redraw();
  }

  /** Gives the map the focus, such as from a button that goes away. */
  focus() {
    this.surface.canvas.focus({preventScroll: true});
  }

  /** Called after the matrix was drawn with these tiles. */
  drawn(/** @type {import("../canvas/tiles.js").TilePlace[]} */ places) {
    this.overview.draw();
    clearTimeout(this.#count);
    this.#count = setTimeout(() => {
      this.#count = 0;
      const frames = places.map((place) => this.of.tiles.get(place)?.frame), finished = this.of.status.pass.state === "done";
      this.legend.setHistogram(histogramOf(frames.map((frame) => frame?.codes ?? null)));
      // Coarser tiles, of which some cells may be unknown, stand in for those that are missing.
      this.legend.setUnknown(frames.some((frame) => frame ? frame.states : !finished));
      this.panel.update();
    }, COUNT);
  }

  /** Says what the map is, for those who do not see it. */
  #describe() {
    const {view, entry, layer, head} = this.of, {queries: [q0, q1], keys: [k0, k1]} = view.visible();
    this.surface.canvas.setAttribute("aria-label", `${visible(entry.name)}, ${headName(layer, head)}. ` +
      `In view: queries ${whole(q0)} to ${whole(q1 - 1)}, keys ${whole(k0)} to ${whole(k1 - 1)}. Press ? for all keys.`);
  }

  // Movements

  /** Called after each movement of the view. */
  moved() {
    this.redraw();
    this.save();
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => {
      this.#rest = 0;
      this.#describe();
      this.server.firstRows();
    }, REST);
  }

  showWhole() {
    this.of.view.fit();
    this.moved();
  }
  setScale(/** @type {number} */ scale) {
    const {query, key} = this.selection.focus ?? this.of.centre();
    this.of.view.moveTo(query + 0.5, key + 0.5, scale);
    this.moved();
  }
  /** Zooms at the cursor if it is in view, otherwise at the centre. */
  zoom(/** @type {number} */ factor) {
    const {view} = this.of, {left, top, right, bottom} = view.area(), at = this.selection.cursor ?? this.selection.locked;
    const x = at ? view.x(at.key + 0.5) : -1, y = at ? view.y(at.query + 0.5) : -1;
    if (x >= left && x <= right && y >= top && y <= bottom) view.zoomAt(x, y, factor);
    else view.zoomAt((left + right) / 2, (top + bottom) / 2, factor);
    this.moved();
  }
  panByTenth(/** @type {number} */ down, /** @type {number} */ across) {
    const {view} = this.of, {left, top, right, bottom} = view.area();
    view.pan(across * (right - left) / 10, down * (bottom - top) / 10);
    this.moved();
  }

  // Panels

  /** Opens a panel; a new entry of the history. */
  setPanel(/** @type {State["panel"]} */ panel) {
    if (panel === this.state.panel) return;
    this.address.flush();
    this.state.panel = panel;
    this.address.push(this.#fragment());
    this.panel.update();
    this.#updateTable();
  }
  togglePanel(/** @type {State["panel"]} */ panel) {
    this.setPanel(this.state.panel === panel ? "cell" : panel);
  }

  async #updateTable() {
    if (this.state.panel !== "table") {
      this.#table?.close();
      return;
    }
    if (this.#table || this.#tableOpens) return;
    this.#tableOpens = true;
    this.#table = await openTable(this, () => {
      this.#table = null;
      if (this.state.panel === "table") this.setPanel("cell");
    });
    this.#tableOpens = false;
    if (!this.#table.open) this.#table = null;
  }

  setSearch(/** @type {Partial<State>} */ change) {
    Object.assign(this.state, change);
    this.search.update();
    this.save();
  }

  failed(/** @type {unknown} */ error) {
    this.server.watch.failed(error);
  }

  /** Shows a sentence until it is dismissed, with a text to copy. */
  warn(/** @type {string} */ sentence, link = "") {
    if (this.#warned === sentence && !link) return;
    this.#warned = sentence;
    const before = document.activeElement;
    const node = make("div", {class: "warning", role: "status"}, make("p", {}, sentence),
        ...link ? [make("input", {value: link, readonly: true, "aria-label": "Link"})] : [],
        button({"aria-label": "Dismiss", class: "plain icon", onclick: () => {
          node.remove();
          if (before instanceof HTMLElement) before.focus();
        }}, "\u00d7"));
    this.notes.append(node);
    node.querySelector("input")?.select();
  }

  /** Whether nothing moves, waits or is requested, and tiles in view are exact, or the pass does not run. */
  get quiet() {
    const {missing} = this.surface, {state} = this.of.status.pass;
    return (!missing || state !== "running") && this.of.tiles.idle && this.surface.idle && this.panel.idle && this.search.idle && !this.#rest && !this.#count && !this.#tableOpens;
  }

  close() {
    document.removeEventListener("keydown", this.onKey);
    this.unwatchTheme();
    this.server.watch.close();
    this.server.pass.close();
    this.of.tiles.close();
    this.panel.close();
    this.search.close();
    this.surface.close();
    this.address.close();
    clearTimeout(this.#rest);
    clearTimeout(this.#count);
    this.state.panel = "cell";
    this.#table?.close();
  }
}
