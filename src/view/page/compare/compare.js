// SPDX-License-Identifier: Apache-2.0
//
// Two heads side by side and their difference: one view, one cursor, three maps.

import {Address, readFragment, readPath, word, writeFragment, writePath} from "../shared/address.js";
import {inWords, isAbort, number} from "../shared/api.js";
import {colorLookup, WHOLE_RANGE} from "../shared/colors.js";
import {CompareTools, Legends, MOSTS} from "./tools.js";
import {ComparePane} from "./pane.js";
import {whyNot} from "./comparable.js";
import {DifferenceTiles} from "./difference.js";
import {make, whole} from "../shared/dom.js";
import {headName, headOf} from "../shared/entry.js";
import {HeadView} from "../canvas/head_view.js";
import {FIELDS as MAP_FIELDS} from "../map/state.js";
import {tilesInView} from "../canvas/painter.js";
import {PageBar} from "../shared/page_bar.js";
import {isDark, themeColor, watchTheme} from "../shared/theme.js";
import {label} from "../shared/tokens.js";
import {visible} from "../shared/visible.js";

/** @typedef {import("../shared/entry.js").Context} Context */
/** @typedef {import("./comparable.js").Place} Place */
/** @typedef {{query: number, key: number}} Pair */

const AGAIN = 250;  // milliseconds until tiles that are not exact are looked at again
const {at, scale, tone, query, key} = MAP_FIELDS;
const FIELDS = {at, scale, tone, query, key, most: word(MOSTS)};
const REST = 80, ZOOM = 1.5;  // milliseconds until the numbers of a cell are requested; factor of a key

const HELP = {keys: [
  {keys: ["←", "→", "↑", "↓"], text: "move the cursor by a cell"},
  {keys: ["Shift + arrows"], text: "pan by a tenth of the view"},
  {keys: ["+", "−"], text: "zoom at the cursor"},
  {keys: ["0"], text: "show the whole matrix"},
  {keys: ["Enter"], text: "lock the cell of the cursor"},
  {keys: ["Esc"], text: "unlock"},
], pointer: "Mouse: drag to pan, turn the wheel to zoom, click to lock a cell."};

export class ComparePage {
  help = HELP;
  /**
   * @param {HTMLElement} root
   * @param {Context} context
   * @param {[Place, Place]} places
   * @param {import("../shared/api.js").HeadStatus[]} statuses
   */
  constructor(root, context, places, statuses) {
    this.context = context;
    this.places = places;
    this.state = readFragment(location.hash, FIELDS);
    this.address = new Address();
    const events = {arrived: () => this.redraw(), failed: (/** @type {unknown} */ error) => {
      if (!isAbort(error)) context.error(inWords(error));
    }};
    const [a, b] = places;
    this.first = new HeadView(context.api, a.entry, a.layer, a.head, statuses[0], events);
    this.second = new HeadView(context.api, b.entry, b.layer, b.head, statuses[1], events, this.first);
    this.view = this.first.view;
    this.view.tokens = a.layer.query_tokens || a.layer.key_tokens;
    this.difference = new DifferenceTiles(this.first.tiles, this.second.tiles);
    /** @type {Pair | null} */
    this.cursor = null;
    this.level = 0;
    this.missing = 1;  // tiles that the last drawing lacked
    this.frame = 0;
    this.rest = 0;
    this.later = 0;
    this.stop = new AbortController();
    const names = places.map(({entry, layer, head}) => (a.entry === b.entry ? "" : `${visible(entry.name)}, `) + headName(layer, head));
    this.panes = [new ComparePane(this, names[0], this.first.tiles), new ComparePane(this, names[1], this.second.tiles),
      new ComparePane(this, "Difference", this.difference)];
    this.told = make("p", {class: "compare-told"});
    this.legends = new Legends();
    this.tools = new CompareTools(context, places, this.state, {change: (change) => this.change(change), fragment: () => this.fragment()});
    root.replaceChildren(make("div", {class: "compare-page"}, make("h1", {class: "unseen"}, `${names[0]} and ${names[1]} compared`), this.tools.node,
        make("div", {class: "compare-maps"}, ...this.panes.map(({node}) => node)), make("footer", {class: "compare-foot"}, this.told, this.legends.node)));
    new PageBar(context.bar, a.entry, "compare").show(a.layer, a.head);
    document.title = `${names[0]} and ${names[1]}`;
    this.onKey = (/** @type {KeyboardEvent} */ event) => this.key(event);
    document.addEventListener("keydown", this.onKey);
    this.unwatch = watchTheme(() => this.setTheme());
    this.observer = new ResizeObserver(() => this.resize());
    this.setTheme();
    this.restore();
    this.observer.observe(this.panes[0].stage);
  }

  setTheme() {
    const theme = {paper: "", loading: "", hatch: "", line: "", ink: "", soft: "", plum: ""};
    for (const name of Object.keys(theme)) theme[/** @type {"paper"} */ (name)] = themeColor(`--${name}`);
    this.theme = theme;
    for (const pane of this.panes) pane.setTheme(theme);
    this.setColors();
    this.redraw();
  }
  setColors() {
    const {state} = this, most = Number(state.most), ramp = isDark() ? "dark_difference" : "difference";
    this.difference.setLook(most, ramp);
    this.legends.show(state.tone, most, ramp);
  }
  /** Shows what the address selects. */
  restore() {
    this.state = readFragment(location.hash, FIELDS);
    const {state, view} = this;
    if (state.at.length === 2 || state.scale > 0) {
      view.moveTo(state.at[0] ?? view.queries / 2, state.at[1] ?? view.keys / 2, state.scale || view.fitScale());
      view.settle();
    } else {
      view.fit();
    }
    this.change({});
  }
  resize() {
    const {width, height} = this.panes[0].stage.getBoundingClientRect();
    if (width < 10 || height < 10) return;
    for (const pane of this.panes) pane.resize(width, height);
    this.view.resize(width, height);
    this.draw();
  }
  fragment() {
    const rounded = this.view.rounded();
    return writeFragment({...this.state, at: rounded ? [rounded.query, rounded.key] : [], scale: rounded?.scale ?? 0}, FIELDS);
  }
  /** Changes the appearance or the locked pair. */
  change(/** @type {Partial<typeof this.state>} */ change) {
    Object.assign(this.state, change);
    const {state, view} = this;
    if (state.query >= view.queries || state.key >= view.keys || state.query < 0 || state.key < 0) Object.assign(state, {query: -1, key: -1});
    this.lookup = colorLookup("viridis", state.tone, WHOLE_RANGE);
    this.setColors();
    this.tools.show(state);
    this.tell();
    this.moved();
  }
  /** The view has moved. */
  moved() {
    this.address.replace(this.fragment());
    this.redraw();
  }

  get views() {
    return [this.first, this.second];
  }
  get locked() {
    return this.state.query >= 0 ? {query: this.state.query, key: this.state.key} : null;
  }
  /** The pair whose numbers are shown. */
  get focus() {
    return this.locked ?? this.cursor;
  }
  point(/** @type {Pair | null} */ pair) {
    if (pair?.query === this.cursor?.query && pair?.key === this.cursor?.key) return;
    this.cursor = pair;
    this.redraw();
    if (!this.locked) this.tell();
  }
  click(/** @type {Pair | null} */ pair) {
    const {locked} = this, same = pair && locked?.query === pair.query && locked.key === pair.key;
    this.change(pair && !same ? pair : {query: -1, key: -1});
  }

  /** Shows the numbers of a pair, which are requested when the pointer rests. */
  tell() {
    clearTimeout(this.rest);
    this.stop.abort();
    const {focus} = this;
    if (!focus) {
      this.told.textContent = "Point at a cell of one of the maps. Drag to move, turn the wheel to zoom, click to lock.";
      return;
    }
    this.rest = setTimeout(async () => {
      const stop = this.stop = new AbortController();
      try {
        const cells = await Promise.all(this.views.map(({api}) => api.cell(focus.query, focus.key, stop.signal)));
        if (!stop.signal.aborted) this.show(cells);
      } catch (error) {
        if (!isAbort(error)) this.told.textContent = inWords(error);
      }
    }, REST);
  }
  show(/** @type {import("../shared/api.js").Cell[]} */ cells) {
    const [{query: q, key: k, query_token: from, key_token: to}] = cells;
    const name = (/** @type {string} */ side, /** @type {number} */ i, /** @type {string | null} */ token) => [`${side} ${whole(i)} `, ...token === null ? [] : ["\u201c", make("bdi", {}, label(token)), "\u201d"]];
    const texts = cells.map(({hidden, weight}) => hidden ? "hidden" : String(Number(number(weight).toPrecision(6))));
    const [one, other] = cells.map(({hidden, weight}) => hidden ? 0 : number(weight)), difference = one - other;
    const shown = `${difference > 0 ? "+" : ""}${Number(difference.toPrecision(6))}`;
    this.told.replaceChildren(...name("query", q, from), ", ", ...name("key", k, to), ": ", make("b", {class: "one"}, texts[0]), " \u2212 ", make("b", {class: "other"}, texts[1]),
        " = ", make("b", {class: "difference"}, shown), this.locked ? " (locked, Esc unlocks)" : "");
    this.context.announce(this.told.textContent ?? "");
  }

  redraw() {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }
  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const {view, first, second, panes, lookup} = this;
    if (!lookup || view.width < 10) return;
    panes[0].axes.layOut();
    this.level = view.level(first.status.levels);
    const tiles = tilesInView(view, "max", this.level);
    first.tiles.want(tiles);
    second.tiles.want(tiles);
    let loading = 0, unfinished = 0;
    for (const pane of panes) {
      const {absent, partial} = pane.draw(tiles, pane.tiles === this.difference ? this.difference.lookup : lookup, first.status.levels);
      loading += absent;
      unfinished += partial;
    }
    if (unfinished) this.follow();
    this.missing = loading + unfinished;
    this.panes[2].note.textContent = this.level > 0 ? `of the largest weights of ${2 ** this.level} \u00d7 ${2 ** this.level} pairs` : "";
    this.tools.busy.textContent = unfinished ? this.unfinished() : loading ? "The weights are being computed." : "";
  }

  /** Says what cells that are not exact show. */
  unfinished() {
    const stopped = this.views.find(({status}) => status.pass.state === "paused");
    return `Dotted cells are not computed yet. In previews, one query stands for ${whole(this.first.status.row_block)}.` +
        (stopped ? ` The pass of ${headName(stopped.layer, stopped.head)} was stopped, and can be resumed on its map.` : "");
  }

  /** Requests tiles that are not exact again while their pass goes on. */
  follow() {
    this.later ||= setTimeout(async () => {
      await Promise.all(this.views.map((one) => one.follow())).catch((error) => this.first.tiles.events.failed(error));
      if (!this.later) return;  // closed meanwhile
      this.later = 0;
      this.redraw();
    }, AGAIN);
  }

  key(/** @type {KeyboardEvent} */ event) {
    const {view} = this, target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea")) return;
    const way = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    const onMap = this.panes.some(({canvas}) => canvas === target) || target === document.body;
    if (way && onMap) {
      if (event.shiftKey) view.pan(way[1] * view.width / 10, way[0] * view.height / 10);
      else this.step(way);
    } else if (event.key === "+" || event.key === "=" || event.key === "-") {
      const from = this.focus, x = from ? view.x(from.key + 0.5) : view.width / 2, y = from ? view.y(from.query + 0.5) : view.height / 2;
      view.zoomAt(x, y, event.key === "-" ? ZOOM : 1 / ZOOM);
    } else if (event.key === "0") {
      view.fit();
    } else if (event.key === "Enter" && onMap && this.cursor) {
      return this.click(this.cursor);
    } else if (event.key === "Escape") {
      return this.click(null);
    } else {
      return;
    }
    event.preventDefault();
    this.moved();
  }
  /** Moves the cursor by a cell. */
  step(/** @type {number[]} */ [down, right]) {
    const {view} = this, size = 2 ** this.level, cut = (/** @type {number} */ i, /** @type {number} */ most) => Math.min(most - 1, Math.max(0, Math.floor(i)));
    const from = this.cursor ?? {query: cut(view.query, view.queries), key: cut(view.key, view.keys)};
    const to = this.cursor ? {query: cut(from.query + down * size, view.queries), key: cut(from.key + right * size, view.keys)} : from;
    this.point(to);
    view.reveal(to.query, to.key);
  }

  close() {
    document.removeEventListener("keydown", this.onKey);
    this.unwatch();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.rest);
    clearTimeout(this.later);
    this.later = 0;
    this.stop.abort();
    this.address.close();
    this.first.tiles.close();
    this.second.tiles.close();
  }
}

/** What programs may read of a comparison (tests). Nothing can be set. */
function expose(/** @type {ComparePage} */ page) {
  const reader = {
    get state() {
      const {view, state, level, cursor, locked, missing} = page;
      return structuredClone({at: [view.query, view.key], scale: view.scale, level, tone: state.tone, most: Number(state.most), cursor, locked, missing});
    },
    /** The pixel of each canvas at the middle of a pair. */
    pixelOf: (/** @type {number} */ query, /** @type {number} */ key) => [page.view.x(key + 0.5), page.view.y(query + 0.5)],
    get idle() {
      return new Promise((resolve) => {
        const check = () => page.frame === 0 && page.missing === 0 ? resolve(true) : setTimeout(check, 16);
        setTimeout(check, 16);
      });
    },
  };
  Object.defineProperty(window, "fovea", {value: Object.freeze(reader), configurable: true});
}

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export async function open(root, context) {
  const [, ...parts] = readPath(location.pathname);
  /** @type {(Place | null)[]} */
  const found = [0, 2].map((i) => {
    const entry = context.inputs.find(({id}) => id === parts[i]), place = entry && headOf(entry, parts[i + 1] ?? "");
    return entry && place ? {entry, ...place} : null;
  });
  const [a, b] = found;
  if (!a || !b) {
    context.error(`No open input has the head ${visible(parts.slice(a ? 2 : 0, a ? 4 : 2).join("/"))}.`);
    return {close() {}};
  }
  const why = await whyNot(context.api, a, b);
  if (why) {
    document.title = "Comparison";
    const tools = new CompareTools(context, [a, b], {tone: "log", most: MOSTS[0]}, {change() {}, fragment: () => ""});
    root.replaceChildren(make("div", {class: "compare-page"}, make("h1", {class: "unseen"}, "Two heads that cannot be compared"), tools.node, make("p", {class: "why-not", role: "status"}, why),
        make("p", {class: "why-not"}, make("a", {href: writePath("map", a.entry.id, `${a.layer.label}.${a.head}`)}, "Map of the first"), " \u00b7 ",
            make("a", {href: writePath("map", b.entry.id, `${b.layer.label}.${b.head}`)}, "Map of the second"))));
    new PageBar(context.bar, a.entry, "compare").show(a.layer, a.head);
    return {close() {}};
  }
  const statuses = await Promise.all([a, b].map(({entry, layer, head}) => context.api.head(entry.id, `${layer.label}.${head}`).status()));
  const page = new ComparePage(root, context, [a, b], statuses);
  expose(page);
  return page;
}
