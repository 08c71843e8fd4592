// SPDX-License-Identifier: Apache-2.0
//
// The heads of an input: a grid of thumbnails or a scatter plot, with the panel of one head.

import {Address, integer, list, readFragment, readPath, text, word, writeFragment} from "../shared/address.js";
import {inWords} from "../shared/api.js";
import {toneWords} from "../shared/colors.js";
import {button, choice, counted, make} from "../shared/dom.js";
import {headCount} from "../shared/entry.js";
import {HeadGrid, rowsInOrder, rowsOfLayers} from "./grid.js";
import {HeadPanel} from "./panel.js";
import {HeadStore} from "./store.js";
import {PageBar} from "../shared/page_bar.js";
import {HEAD_NAMES, numberLabel, numberMeaning} from "./words.js";
import {Scatter} from "./scatter.js";
import {visible} from "../shared/visible.js";

/** @typedef {import("../shared/entry.js").Context} Context */
/** @typedef {import("./store.js").Head} Head */

const FIELDS = {
  view: word(/** @type {const} */ (["grid", "scatter"])),
  layer: text(), head: integer(-1, -1),
  number: text(), sort: word(/** @type {const} */ (["layer", "largest", "smallest"])),
  name: text(), from: text(24), to: text(24), x: text(), y: text(),
  tone: word(/** @type {const} */ (["sqrt", "log"])), panel: word(/** @type {const} */ (["matrix", "arcs"])), tokens: list(1e9, 8),
};
const SIDES = [128, 96, 64], AROUND = 12, LABEL_COLUMN = 110;  // pixels of a thumbnail, around it, and of the label of a row
const SLOW = 700;  // milliseconds
const ALL = "", NONE = "none";  // filters by name

const HELP = {keys: [
  {keys: ["←", "→", "↑", "↓"], text: "go to the next head"},
  {keys: ["Home", "End"], text: "go to the first, last head of a row"},
  {keys: ["Enter"], text: "open the head"},
  {keys: ["Esc"], text: "close the head, from its panel"},
], pointer: "Mouse: click a head to open it; point at a head of the scatter plot to see it."};

class HeadsPage {
  help = HELP;
  /** @param {HTMLElement} root @param {Context} context @param {import("../shared/entry.js").Entry} entry */
  constructor(root, context, entry) {
    this.context = context;
    this.entry = entry;
    this.state = readFragment(location.hash, FIELDS);
    this.address = new Address();
    this.store = new HeadStore(context.api, entry);
    const open = (/** @type {Head} */ head) => this.open(head);
    this.grid = new HeadGrid(this.store, {open, failed: (error) => context.error(inWords(error)), loaded: () => this.loaded(),
      waits: (pending) => this.waits(pending)});
    this.scatter = new Scatter(this.store, {open, announce: context.announce});
    this.panel = new HeadPanel(context, this.store, {close: () => this.closeHead(), change: (view) => this.change(view)});
    this.bar = new PageBar(context.bar, entry, "heads");
    this.tools = make("div", {class: "tools-row"});
    this.status = make("p", {class: "small", role: "status"});
    this.wait = make("p", {class: "small", role: "status"});
    this.slow = 0;
    this.body = make("div", {class: "heads-body"});
    root.replaceChildren(make("div", {class: "heads"}, make("h1", {class: "unseen"}, `Heads of ${visible(entry.name)}`), this.tools, this.status, this.wait,
        make("div", {class: "heads-main"}, this.body, this.panel.node)));
    /** @type {Promise<void> | undefined} */
    this.asking = undefined;
    this.drawn = "";  // what the grid shows
    this.width = 0;
    this.resized = new ResizeObserver(() => {
      if (Math.abs(this.body.clientWidth - this.width) > 30 && this.state.view === "grid") this.showBody();
    });
    this.resized.observe(this.body);
    this.show();
  }

  /** Shows what the address selects. */
  restore() {
    const {layer, head} = this.state;
    Object.assign(this.state, readFragment(location.hash, FIELDS));
    this.show();
    if (this.state.head < 0 && head >= 0 && this.state.view === "grid") this.grid.setFocus(`${layer}.${head}`);
  }

  get chosen() {
    return this.state.head < 0 ? "" : `${this.state.layer}.${this.state.head}`;
  }
  /** The number that is shown: the chosen one, or the first. */
  get number() {
    const {names} = this.store;
    return names.includes(this.state.number) ? this.state.number : names[0] ?? "";
  }
  /** The numbers along the axes of the plot. */
  get axes() {
    const {names} = this.store, known = (/** @type {string} */ name, /** @type {string} */ otherwise) =>
      names.includes(name) ? name : names.includes(otherwise) ? otherwise : names[0] ?? "";
    return [known(this.state.x, "entropy"), known(this.state.y, "mean_distance")];
  }
  /** Returns whether the filters accept a head; one whose numbers are unknown is shown. */
  accepts(/** @type {Head} */ head) {
    const {name, from, to} = this.state;
    if (head.name === undefined) return true;
    if (name !== ALL && (head.name || NONE) !== name) return false;
    const value = this.store.number(head, this.number);
    return !(from !== "" && !(value >= Number(from))) && !(to !== "" && !(value <= Number(to)));
  }
  get filters() {
    const {name, from, to} = this.state;
    return name !== ALL || from !== "" || to !== "";
  }

  /** Changes the state, without a new entry of the history. */
  change(/** @type {Partial<typeof this.state>} */ change) {
    Object.assign(this.state, change);
    this.address.replace(writeFragment(this.state, FIELDS));
    this.show();
  }
  open(/** @type {Head} */ head) {
    Object.assign(this.state, {layer: head.layer.label, head: head.head, tokens: []});
    this.address.push(writeFragment(this.state, FIELDS));
    this.show();
    this.context.announce(`opened ${this.panel.title.textContent}`);
  }
  closeHead() {
    const key = this.chosen;
    Object.assign(this.state, {layer: "", head: -1, tokens: []});
    this.address.push(writeFragment(this.state, FIELDS));
    this.show();
    if (this.state.view === "grid") this.grid.setFocus(key);
    else this.scatter.stage.focus();
  }

  /** Requests the numbers of all heads, if the order, a filter or the plot needs them. */
  needNumbers() {
    if (this.store.complete || (this.state.view === "grid" && this.state.sort === "layer" && !this.filters)) return false;
    if (!this.asking) {
      let done = 0;
      const {layers} = this.entry;
      this.asking = this.store.everyNumber(() => {
        this.status.textContent = ++done < layers.length ? `Numbers of ${done} of ${counted(layers.length, "layer")}` : "";
      }).then(() => this.show(), (error) => {
        if (!this.store.stop.signal.aborted) this.context.error(inWords(error));
      }).finally(() => { this.asking = undefined; });
    }
    return true;
  }
  /** Shows what has arrived: names of numbers appear with the first answer. */
  loaded() {
    if (!this.tools.dataset.names && this.store.names.length > 0) {
      this.showTools();
      this.grid.restyle({number: this.number, tone: this.state.tone, chosen: this.chosen, places: false});
    }
    this.panel.update();
  }
  /** Says that thumbnails are being computed, if that takes a while. */
  waits(/** @type {boolean} */ pending) {
    if (pending) {
      this.slow ||= setTimeout(() => {
        this.wait.textContent = "The heads are being computed. The map of a head shows at once what is known of it.";
      }, SLOW);
    } else {
      clearTimeout(this.slow);
      this.slow = 0;
      this.wait.textContent = "";
    }
  }
  show() {
    this.showTools();
    this.showBody();
    const head = this.store.heads.get(this.chosen);
    if (head) {
      this.store.numbers(head.layer).then(() => this.panel.update(), () => {});
      this.panel.show(head, this.state);
      this.bar.show(head.layer, head.head);
    } else {
      this.panel.hide();
      this.bar.show(this.store.list[0].layer, this.store.list[0].head);
    }
  }
  /** The side of a thumbnail: larger if there are few heads. */
  get side() {
    const {layers} = this.entry, most = Math.max(...layers.map(({heads}) => heads.length)), room = this.width - LABEL_COLUMN;
    return SIDES.find((side) => most * (side + AROUND) < room * 0.8 && layers.length * (side + 60) < 2 * this.body.clientHeight) ?? SIDES[2];
  }
  showBody() {
    const {view, sort, tone} = this.state, {store} = this, waits = this.needNumbers();
    const accepts = (/** @type {Head} */ head) => this.accepts(head);
    if (view === "scatter") {
      if (this.body.firstChild !== this.scatter.node) this.body.replaceChildren(this.scatter.node);
      const [x, y] = this.axes;
      this.scatter.show({x, y, tone, chosen: this.chosen, shown: accepts});
      return;
    }
    if (this.body.firstChild !== this.grid.node) this.body.replaceChildren(this.grid.node);
    this.width = this.body.clientWidth;
    const side = this.side, across = Math.max(1, Math.floor((this.width - LABEL_COLUMN) / (side + AROUND)));
    this.grid.node.style.setProperty("--side", `${side}px`);
    // The order is that of the layers until all numbers are known.
    const ordered = sort !== "layer" && !waits;
    const look = {number: this.number, tone, chosen: this.chosen, places: ordered};
    const {columns, rows} = ordered ? {columns: [], rows: rowsInOrder(store, accepts, this.number, sort === "smallest", across)} : rowsOfLayers(store, accepts);
    const drawn = JSON.stringify([ordered, rows.map(({heads}) => heads.map((head) => head?.key ?? ""))]);
    if (drawn === this.drawn) return this.grid.restyle(look);
    this.drawn = drawn;
    this.grid.show(rows, columns, look);
    if (rows.length === 0) this.grid.node.append(make("p", {class: "nothing"}, "No head fits these filters."));
  }

  showTools() {
    const {state, store, entry} = this, {names} = store, focused = document.activeElement?.getAttribute("data-tool");
    const numbers = /** @type {[string, string][]} */ (names.map((name) => [name, numberLabel(name)]));
    const set = (/** @type {string} */ field) => (/** @type {string} */ value) => this.change({[field]: value});
    const views = make("span", {class: "tabs", role: "group", "aria-label": "view"}, .../** @type {const} */ (["grid", "scatter"]).map((view) =>
      button({"aria-pressed": String(state.view === view), "data-tool": view, onclick: () => this.change({view})}, view === "grid" ? "Grid" : "Scatter plot")));
    const parts = [views];
    const number = (/** @type {string} */ label, /** @type {string} */ chosen, /** @type {string} */ field) =>
      names.length > 0 ? [choice(label, numbers, chosen, set(field))] : [];
    if (state.view === "scatter") {
      const [x, y] = this.axes;
      parts.push(...number("Across", x, "x"), ...number("Up", y, "y"));
    } else {
      parts.push(...number("Number", this.number, "number"),
          choice("Order", [["layer", "by layer"], ["largest", "largest first"], ["smallest", "smallest first"]], state.sort, set("sort")));
    }
    const count = (/** @type {string} */ name) => store.complete ? ` (${store.list.filter((head) => (head.name || NONE) === name).length})` : "";
    parts.push(choice("Name", [[ALL, "all"], .../** @type {[string, string][]} */ ([...HEAD_NAMES, NONE].map((name) => [name, (name === NONE ? "no name" : name) + count(name)]))],
        state.name, set("name")));
    const limit = (/** @type {"from" | "to"} */ field, /** @type {string} */ words) => make("input", {type: "text", inputmode: "decimal", size: 5, value: state[field],
      "aria-label": `${numberLabel(this.number)} ${words}`, placeholder: words, "data-tool": field, onchange: (/** @type {any} */ {target}) => {
        const right = target.value.trim() === "" || Number.isFinite(Number(target.value));
        target.toggleAttribute("aria-invalid", !right);
        if (right) this.change({[field]: target.value.trim()});
      }});
    if (this.number) parts.push(make("span", {class: "choice", title: numberMeaning(this.number)}, numberLabel(this.number), limit("from", "from"), limit("to", "to")));
    parts.push(choice("Tone", toneWords(["sqrt", "log"]), state.tone, set("tone")),
        make("span", {class: "thumb-legend"}, state.tone === "sqrt" ? "0" : "\u2264 0.0001", make("i", {class: "ramp"}), "1"));
    for (const label of parts.filter((part) => part.matches("label"))) label.querySelector("select").dataset.tool = label.firstChild.textContent;
    this.tools.replaceChildren(...parts);
    this.tools.dataset.names = names.length > 0 ? "known" : "";
    if (focused) this.tools.querySelector(`[data-tool="${focused}"]`)?.focus();
    document.title = `Heads of ${entry.name}`;
  }
  close() {
    clearTimeout(this.slow);
    this.resized.disconnect();
    this.address.close();
    this.store.close();
    this.grid.close();
    this.scatter.close();
    this.panel.close();
  }
}

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export async function open(root, context) {
  const [, id] = readPath(location.pathname), entry = context.inputs.find((input) => input.id === id);
  if (!entry || headCount(entry) === 0) {
    context.error(entry ? `${entry.name} is a scene, which has no heads of its own.` : "No open input has this address.");
    return {close() {}};
  }
  return new HeadsPage(root, context, entry);
}
