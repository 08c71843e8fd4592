// SPDX-License-Identifier: Apache-2.0
//
// A head as text: the text coloured by the weights of the token under the pointer. Queries colour the
// keys that they attend to, keys the queries that attend to them.

import {Address, flag, integer, list as numbers, readFragment, readPath, word, writeFragment} from "../shared/address.js";
import {inWords, isAbort} from "../shared/api.js";
import {toneWords} from "../shared/colors.js";
import {choice, list, make, whole} from "../shared/dom.js";
import {headAddress, headIn, headName, headOf, layerName} from "../shared/entry.js";
import {PageBar, stepper} from "../shared/page_bar.js";
import {TextFlow} from "./flow.js";
import {TextPanel, strengthOf, toldToken, toldWeights, weightText} from "./panel.js";
import {Tokens} from "../shared/tokens.js";
import {visible} from "../shared/visible.js";

/** @typedef {import("../shared/entry.js").Context} Context */
/** @typedef {import("./panel.js").Side} Side */
/** @typedef {{side: Side, lines: number[]}} Source the tokens whose weights are shown */

const MOST_LINES = 256, KEPT = 48;  // selected tokens, and weights that are kept
const FIELDS = {
  query: numbers(1e9, MOST_LINES), key: numbers(1e9, MOST_LINES), by: word(/** @type {const} */ (["query", "key"])),
  hide: flag(), tone: word(/** @type {const} */ (["sqrt", "linear", "log"])), at: integer(0),
};
const HELP = {keys: [
  {keys: ["←", "→", "↑", "↓"], text: "go to the next token"},
  {keys: ["Home", "End"], text: "go to the first, last token"},
  {keys: ["Enter"], text: "lock the token, or unlock it"},
  {keys: ["Shift + arrows"], text: "add tokens, whose weights are averaged"},
  {keys: ["Alt"], text: "while held: the queries that attend to the token"},
  {keys: ["Esc"], text: "unlock"},
  {keys: ["h", "H"], text: "next, previous head"},
  {keys: ["l", "L"], text: "next, previous layer"},
], pointer: "Mouse: point at a token to see its weights, click to lock it, drag over several or Shift and click to add tokens."};
const FAINT = 0.004;  // colours below this strength cannot be told from none
const DEEP = 0.35;  // from this strength on, the colour of the letters depends on it

class TextPage {
  help = HELP;
  /**
   * @param {HTMLElement} root
   * @param {Context} context
   * @param {import("../shared/entry.js").Entry} entry
   * @param {{layer: import("../shared/entry.js").Layer, head: number}} place
   */
  constructor(root, context, entry, {layer, head}) {
    this.context = context;
    this.entry = entry;
    this.layer = layer;
    this.head = head;
    this.same = layer.same_tokens && layer.queries === layer.keys;
    this.state = readFragment(location.hash, FIELDS);
    this.address = new Address();
    this.requests = context.api.head(entry.id, `${layer.label}.${head}`);
    /** @type {Source | null} */
    this.source = null;  // what the colours show
    this.cursor = -1;  // of the keyboard
    /** @type {Side} */
    this.focused = "query";
    this.alt = false;
    /** @type {{text: Side, position: number, event: PointerEvent} | null} */
    this.told = null;  // the token under the pointer
    /** @type {{side: Side, from: number, to: number} | null} */
    this.drag = null;
    /** @type {Float32Array | null} */
    this.weights = null;
    this.most = 0;
    /** @type {Map<string, Float32Array>} */
    this.known = new Map();
    this.stop = new AbortController();

    /** @type {Map<Side, Tokens>} */
    this.tokens = new Map();
    this.panel = new TextPanel({go: (position) => this.flow(this.target).reveal(position, "center")});
    this.bubble = make("div", {class: "text-bubble", hidden: true, "aria-hidden": "true"});
    /** @type {Map<Side, TextFlow>} */
    this.flows = new Map((this.same ? ["query"] : ["query", "key"]).map((side) => [/** @type {Side} */ (side), this.makeFlow(/** @type {Side} */ (side))]));
    const texts = [...this.flows].map(([side, flow]) => make("section", {class: "text-side"}, ...this.same ? [] : [make("h2", {class: "side-name"}, side === "query" ? "Queries" : "Keys")], flow.node));
    this.node = make("div", {class: "text-page"}, make("h1", {class: "unseen"}, `${headName(layer, head)} of ${visible(entry.name)} as text`),
        this.tools(), make("div", {class: "text-main"}, make("div", {class: this.same ? "texts" : "texts two"}, ...texts), this.panel.node), this.bubble);
    root.replaceChildren(this.node);
    new PageBar(context.bar, entry, "text").show(layer, head);
    document.title = `${headName(layer, head)}, ${entry.name}`;

    this.listeners = /** @type {[string, (event: any) => void][]} */ ([
      ["keydown", (event) => this.turned(event)], ["keyup", (event) => this.turned(event)], ["blur", () => this.turn(false)],
      ["pointerup", () => this.dropped()]]);
    for (const [kind, listener] of this.listeners) addEventListener(kind, listener);
    this.restore();
    const {at, query: [query = -1], key: [key = -1]} = this.state;
    if (at > 0) this.flow("query").reveal(at, "start");
    else if (query >= 0) this.flow("query").reveal(query, "center");
    else if (key >= 0) this.flow("key").reveal(key, "center");
  }

  /** Returns the flow of a side; queries and keys with the same tokens have one. @returns {TextFlow} */
  flow(/** @type {Side} */ side) {
    return /** @type {TextFlow} */ (this.flows.get(side) ?? this.flows.get("query"));
  }
  /** The side whose tokens are coloured. @returns {Side} */
  get target() {
    return this.source?.side === "key" ? "query" : "key";
  }
  get locked() {
    return this.state.query.length > 0 || this.state.key.length > 0;
  }
  /** The position whose weight is left out of the colours; -1 if none is. */
  get skip() {
    return this.state.hide && this.target === "key" ? 0 : -1;
  }
  /** Returns the side of a token of a text: with one text, the chosen one, or with Alt the other. @returns {Side} */
  sideIn(/** @type {Side} */ text) {
    return !this.same ? text : (this.state.by === "key") !== this.alt ? "key" : "query";
  }
  nameOf(/** @type {Side} */ side, /** @type {number} */ position) {
    return toldToken(/** @type {Tokens} */ (this.tokens.get(this.same ? "query" : side)).at(position), position);
  }

  /** @returns {TextFlow} */
  makeFlow(/** @type {Side} */ side) {
    const {context, entry, layer} = this, known = side === "query" ? layer.query_tokens : layer.key_tokens;
    const tokens = new Tokens(context.api, entry.id, layer, side, () => this.update());
    this.tokens.set(side, tokens);
    const flow = new TextFlow({label: `${this.same ? "text" : side === "query" ? "queries" : "keys"} of ${visible(entry.name)}; arrow keys go to a token, Enter locks it`,
      length: tokens.length, load: known ? (position) => tokens.load(position) : null,
      paint: (span, position) => this.paint(span, position, side), failed: (error) => context.error(inWords(error))});
    const node = /** @type {HTMLElement} */ (flow.node);
    node.addEventListener("pointermove", (event) => this.hover(side, flow.positionOf(event), event));
    node.addEventListener("pointerleave", () => this.left());
    node.addEventListener("pointerdown", (event) => {
      const position = flow.positionOf(event);
      if (position !== null) this.pressed(side, position, event);
    });
    node.addEventListener("keydown", (event) => this.key(side, event));
    node.addEventListener("focus", () => { this.focused = side; });
    let timer = 0;
    node.addEventListener("scroll", () => {
      if (side !== "query") return;
      clearTimeout(timer);
      timer = setTimeout(() => this.change({at: flow.node.scrollTop > 0 ? flow.top : 0}), 200);
    }, {passive: true});
    return flow;
  }

  /** The row of controls. */
  tools() {
    const {entry, layer, head, state} = this, others = entry.layers.filter(({heads}) => heads.length > 0);
    const beside = (/** @type {any[]} */ all, /** @type {any} */ now, /** @type {1 | -1} */ by) => all[(all.indexOf(now) + by + all.length) % all.length];
    const goLayer = (/** @type {import("../shared/entry.js").Layer | undefined} */ to) => to && this.go(to, headIn(to, head));
    const stepHead = (/** @type {1 | -1} */ by) => this.go(layer, beside(layer.heads, head, by));
    const stepLayer = (/** @type {1 | -1} */ by) => goLayer(beside(others, layer, by));
    this.steps = {h: () => stepHead(1), H: () => stepHead(-1), l: () => stepLayer(1), L: () => stepLayer(-1)};
    const heads = list("Head", layer.heads.map((n) => [String(n), `head ${n}`]), String(head), (n) => this.go(layer, Number(n)));
    const layers = list("Layer", others.map((one) => [one.label, layerName(one)]), layer.label, (label) => goLayer(others.find((one) => one.label === label)));
    layers.disabled = others.length < 2;
    heads.disabled = layer.heads.length < 2;
    const ways = this.same ? [choice("Colours show", [["query", "keys it attends to"], ["key", "queries that attend to it"]], state.by, (by) => {
      this.change({by: /** @type {Side} */ (by)});
      this.settle();
    })] : [];
    return make("div", {class: "tools-row"},
        stepper("Layer", layers, stepLayer, "lL"), stepper("Head", heads, stepHead, "hH"),
        ...ways, choice("Tone", toneWords(/** @type {const} */ (["sqrt", "linear", "log"])), state.tone, (tone) => {
          this.change({tone: /** @type {any} */ (tone)});
          this.update();
        }),
        make("label", {class: "choice"}, make("input", {type: "checkbox", checked: state.hide, onchange: (/** @type {any} */ {target}) => {
          this.change({hide: target.checked});
          this.update();
        }}), "Without the first token"),
        ...this.same ? [] : [make("span", {class: "small"}, "queries and keys have different tokens")]);
  }
  /** Opens another head with the same selection. */
  go(/** @type {import("../shared/entry.js").Layer} */ layer, /** @type {number} */ head) {
    this.state.at = this.flow("query").node.scrollTop > 0 ? this.flow("query").top : 0;
    this.address.close();
    this.context.navigate(headAddress("text", this.entry, layer, head), writeFragment(this.state, FIELDS));
  }

  change(/** @type {Partial<typeof this.state>} */ change) {
    Object.assign(this.state, change);
    this.address.replace(writeFragment(this.state, FIELDS));
  }
  /** Shows what the address selects. */
  restore() {
    const {queries, keys} = this.layer;
    this.state = readFragment(location.hash, FIELDS);
    this.state.query = this.state.query.filter((i) => i < queries);
    this.state.key = this.state.key.filter((i) => i < keys);
    this.settle();
  }
  /** Shows the locked tokens, or nothing. */
  settle() {
    const {query, key} = this.state;
    if (query.length > 0) this.look({side: "query", lines: query});
    else if (key.length > 0) this.look({side: "key", lines: key});
    else this.look(null);
  }
  /** Locks tokens; none unlocks. */
  lock(/** @type {Side} */ side, /** @type {number[]} */ lines) {
    const kept = lines.slice(0, MOST_LINES);
    if (kept.length < lines.length) this.context.announce(`at most ${whole(MOST_LINES)} tokens are averaged`);
    this.change(side === "query" ? {query: kept, key: []} : {query: [], key: kept});
    this.settle();
  }
  unlock() {
    this.change({query: [], key: []});
    this.drag = null;
    this.settle();
  }

  /** Shows the weights of some tokens. */
  async look(/** @type {Source | null} */ source, announce = false) {
    const name = source && `${source.side} ${source.lines}`;
    if (source && this.source && name === `${this.source.side} ${this.source.lines}` && this.weights) return this.update(announce);
    this.source = source;
    this.stop.abort();
    this.weights = source && (this.known.get(/** @type {string} */ (name)) ?? null);
    if (!source) this.panel.invite(this.same);
    if (!source || this.weights) return this.update(announce);
    const stop = this.stop = new AbortController();
    this.node.dataset.weights = "loading";
    try {
      const weights = await this.requests.weights(source.side, source.lines, null, stop.signal);
      if (stop.signal.aborted) return;
      if (this.known.size >= KEPT) this.known.delete(/** @type {string} */ (this.known.keys().next().value));
      this.known.set(/** @type {string} */ (name), weights);
      this.weights = weights;
      this.update(announce);
    } catch (error) {
      if (!isAbort(error)) this.context.error(inWords(error));
    }
  }
  /** Shows the weights with the current tone. */
  update(announce = false) {
    const {source, weights, skip, state} = this;
    if (weights || !source) this.node.dataset.weights = "shown";
    this.most = 0;
    if (weights) weights.forEach((weight, i) => { if (i !== skip && weight > this.most) this.most = weight; });
    for (const flow of this.flows.values()) flow.repaint();
    if (this.told && !this.bubble.hidden) this.tell(this.told.text, this.told.position, this.told.event);
    if (!source) return;
    const name = (/** @type {Side} */ side, /** @type {number} */ i) => this.nameOf(side, i);
    this.panel.show({...source, locked: this.locked, name, weights, skip, most: this.most, tone: state.tone});
    if (announce && weights) {
      const lines = source.lines.length === 1 ? `${source.side} ${whole(source.lines[0])} '${name(source.side, source.lines[0])}'` : `${whole(source.lines.length)} tokens`;
      this.context.announce(`${lines}: ${toldWeights(weights, skip, (i) => name(this.target, i))}`);
    }
  }
  /** Sets the style of a token. */
  paint(/** @type {HTMLElement} */ span, /** @type {number} */ position, /** @type {Side} */ text) {
    const {source, weights, skip, state} = this, colored = weights && source && (this.same || text === this.target);
    const weight = colored ? weights[position] : 0, hidden = colored && weight === -1, strength = position === skip ? 0 : strengthOf(state.tone, weight, this.most);
    if (strength > FAINT) span.style.setProperty("--v", strength.toFixed(3));
    else if (span.style.length > 0) span.style.removeProperty("--v");
    const chosen = source && (this.same || text === source.side) && (this.drag ? position >= Math.min(this.drag.from, this.drag.to) &&
        position <= Math.max(this.drag.from, this.drag.to) : source.lines.includes(position));
    const wanted = `${span.classList.contains("gap") ? "token gap" : "token"}${strength > FAINT ? " tinted" : ""}${strength >= DEEP ? " deep" : ""}${hidden ? " hidden-token" : ""}` +
        `${colored && Number.isNaN(weight) ? " nan-token" : ""}${chosen ? " chosen-token" : ""}${position === this.cursor && text === this.focused ? " cursor" : ""}` +
        `${colored && position === skip ? " skipped" : ""}`;
    if (span.className !== wanted) span.className = wanted;
  }

  hover(/** @type {Side} */ text, /** @type {number | null} */ position, /** @type {PointerEvent} */ event) {
    if (this.drag && position !== null && this.drag.side === this.sideIn(text) && position !== this.drag.to) {
      this.drag.to = position;
      for (const flow of this.flows.values()) flow.repaint();
    }
    if (position === null || this.drag) return void (this.bubble.hidden = true);
    this.setAlt(event.altKey);
    if (!this.locked) this.look({side: this.sideIn(text), lines: [position]});
    this.tell(text, position, event);
  }
  /** Shows the number of the token under the pointer. */
  tell(/** @type {Side} */ text, /** @type {number} */ position, /** @type {PointerEvent} */ event) {
    this.told = {text, position, event};
    const {source, weights, bubble} = this, toldSide = this.same ? this.target : text;
    const own = this.locked && source && weights && (this.same || text === this.target);
    bubble.textContent = own ? `${toldSide} ${whole(position)}: ${weights[position] === -1 ? "hidden by the mask" : `weight ${weightText(weights[position])}`}`
        : `${this.sideIn(text)} ${whole(position)}`;
    bubble.hidden = false;
    const {offsetWidth: width} = bubble;
    bubble.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - width - 8))}px`;
    bubble.style.top = `${event.clientY + 20 > innerHeight - 40 ? event.clientY - 40 : event.clientY + 20}px`;
  }
  left() {
    this.bubble.hidden = true;
    if (!this.locked && !this.drag) this.settle();
  }
  pressed(/** @type {Side} */ text, /** @type {number} */ position, /** @type {PointerEvent} */ event) {
    if (event.button !== 0) return;
    this.setAlt(event.altKey);
    this.focused = text;
    this.cursor = position;
    const side = this.sideIn(text), before = side === "query" ? this.state.query : this.state.key;
    if (event.shiftKey && this.locked) {
      const lines = before.includes(position) ? before.filter((i) => i !== position) : [...before, position].sort((a, b) => a - b);
      return this.lock(side, lines);
    }
    this.drag = {side, from: position, to: position};
  }
  /** Ends dragging: a token is locked, or unlocked if it was locked alone; several are selected. */
  dropped() {
    const {drag} = this;
    if (!drag) return;
    this.drag = null;
    const {side} = drag, from = Math.min(drag.from, drag.to), to = Math.max(drag.from, drag.to);
    const before = side === "query" ? this.state.query : this.state.key;
    if (from === to && before.length === 1 && before[0] === from) return this.unlock();
    this.lock(side, Array.from({length: Math.min(to - from + 1, MOST_LINES + 1)}, (_, i) => from + i));
  }

  /** Follows the Alt key, which shows the other side while nothing is locked. */
  turned(/** @type {KeyboardEvent} */ event) {
    if (event.key === "Alt" && this.same) {
      if (!this.locked) event.preventDefault();
      this.turn(event.type === "keydown");
    }
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(/** @type {Element} */ (event.target).tagName ?? "");
    if (event.type !== "keydown" || event.ctrlKey || event.metaKey || event.altKey || typing) return;
    if (event.key === "Escape" && (this.locked || this.source)) this.unlock();
    else this.steps?.[/** @type {"h"} */ (event.key)]?.();
  }
  setAlt(/** @type {boolean} */ alt) {
    this.alt = alt && this.same;
  }
  turn(/** @type {boolean} */ alt) {
    if (this.alt === alt) return;
    this.setAlt(alt);
    if (!this.locked && this.source) this.look({side: this.sideIn("query"), lines: this.source.lines});
  }

  key(/** @type {Side} */ text, /** @type {KeyboardEvent} */ event) {
    if (event.ctrlKey || event.metaKey) return;
    const flow = this.flow(text), last = flow.length - 1, side = this.sideIn(text);
    if ((event.key === "Enter" || event.key === " ") && this.cursor >= 0) {
      event.preventDefault();
      const before = side === "query" ? this.state.query : this.state.key;
      return before.length === 1 && before[0] === this.cursor ? this.unlock() : this.lock(side, [this.cursor]);
    }
    const from = this.cursor < 0 ? flow.top : this.cursor;
    const to = {ArrowRight: this.cursor < 0 ? from : from + 1, ArrowLeft: from - 1, ArrowDown: flow.beside(from, 1) ?? from + 10, ArrowUp: flow.beside(from, -1) ?? from - 10,
      Home: 0, End: last}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.cursor = Math.min(last, Math.max(0, to));
    if (event.shiftKey) {
      const before = side === "query" ? this.state.query : this.state.key;
      this.lock(side, [...new Set([...before.length > 0 ? before : [Math.min(last, Math.max(0, from))], this.cursor])].sort((a, b) => a - b));
    } else if (!this.locked) {
      this.look({side, lines: [this.cursor]}, true);
    } else {
      const weight = this.weights && (this.same || text === this.target) ? `, weight ${weightText(this.weights[this.cursor])}` : "";
      this.context.announce(`${this.nameOf(text, this.cursor)}${weight}`);
      flow.repaint();
    }
    flow.reveal(this.cursor);
  }

  close() {
    for (const [kind, listener] of this.listeners) removeEventListener(kind, listener);
    this.stop.abort();
    this.address.close();
    for (const flow of this.flows.values()) flow.close();
  }
}

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export async function open(root, context) {
  const [, id, name = ""] = readPath(location.pathname), entry = context.inputs.find((input) => input.id === id);
  const place = entry && headOf(entry, name);
  if (!entry || !place) {
    context.error(entry ? `${entry.name} has no head ${name}.` : "No open input has this address.");
    return {close() {}};
  }
  return new TextPage(root, context, entry, place);
}
