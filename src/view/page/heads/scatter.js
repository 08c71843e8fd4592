// SPDX-License-Identifier: Apache-2.0
//
// Heads as points: any two of their numbers as axes. The thumbnail of the point under the pointer is
// shown, a click opens the head, and a table has the same content.

import {counted, make} from "../shared/dom.js";
import {headName} from "../shared/entry.js";
import {HEAD_NAMES, nameColor, numberLabel, numberMeaning, numberText} from "./words.js";
import {drawFrame} from "./thumb.js";

/** @typedef {import("./store.js").Head} Head */
/** @typedef {import("./store.js").HeadStore} HeadStore */
/** @typedef {import("./thumb.js").ThumbTone} ThumbTone */
/** @typedef {{x: string, y: string, tone: ThumbTone, chosen: string, shown: (head: Head) => boolean}} ScatterLook */
/** @typedef {{head: Head, x: number, y: number, node: SVGCircleElement}} Point */

const LEFT = 62, BOTTOM = 48, TOP = 14, RIGHT = 22;  // pixels around the plot
const RADIUS = 5.5, LABELS = 40, LABEL_HEIGHT = 14, LETTER = 7;

/** Returns round values in [low, high], about `n` of them. */
function roundTicks(/** @type {number} */ low, /** @type {number} */ high, /** @type {number} */ n) {
  const rough = (high - low) / n, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((digit) => digit * power >= rough) ?? 10), ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; ++i) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}
/** Returns the ends of an axis, a little outside the values. */
function ends(/** @type {number[]} */ values) {
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 && low < room * 4 ? -room / 3 : low - room, high + room];
}

export class Scatter {
  /**
   * @param {HeadStore} store
   * @param {{open: (head: Head) => void, announce: (text: string) => void}} calls
   */
  constructor(store, calls) {
    this.store = store;
    this.calls = calls;
    this.stage = make("div", {class: "scatter-stage", tabindex: 0, role: "application", "aria-roledescription": "scatter plot",
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event), onblur: () => this.point(null)});
    this.bubble = make("div", {class: "scatter-bubble", hidden: true, "aria-hidden": "true"}, make("canvas", {width: 1, height: 1}), make("p"));
    this.note = make("p", {class: "small note"});
    this.table = make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "heads as a table"});
    this.details = make("details", {ontoggle: () => this.fillTable()}, make("summary", {}, "As a table"), this.table);
    this.node = make("div", {class: "scatter"}, this.stage, this.note, this.details, this.bubble);
    /** @type {Point[]} */
    this.points = [];
    /** @type {Point | null} */
    this.under = null;
    /** @type {ScatterLook | null} */
    this.look = null;
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.stage);
  }
  show(/** @type {ScatterLook} */ look) {
    this.look = look;
    this.draw();
    this.fillTable();
  }

  draw() {
    const {look, store} = this, width = this.stage.clientWidth, height = this.stage.clientHeight;
    if (!look || width < 80 || height < 80) return;
    this.point(null);
    const shown = store.list.filter(look.shown).map((head) => ({head, x: store.number(head, look.x), y: store.number(head, look.y)}));
    const known = shown.filter(({x, y}) => !Number.isNaN(x) && !Number.isNaN(y));
    const missing = shown.length - known.length;
    const names = HEAD_NAMES.filter((name) => known.some(({head}) => head.name === name));
    this.note.replaceChildren(counted(known.length, "head") + (missing ? `; ${counted(missing, "head")} without these numbers not shown` : "") + "; labels: layer.head",
        ...names.flatMap((name) => [make("span", {class: "swatch", style: `background:${nameColor(name)}`}), name]));
    this.stage.setAttribute("aria-label", `${counted(known.length, "head")} by ${numberLabel(look.x)} and ${numberLabel(look.y)}; arrow keys go to the next head, Enter opens it`);
    if (known.length === 0) return this.stage.replaceChildren();
    const [x0, x1] = ends(known.map(({x}) => x)), [y0, y1] = ends(known.map(({y}) => y));
    const across = (/** @type {number} */ x) => LEFT + (x - x0) / (x1 - x0) * (width - LEFT - RIGHT);
    const up = (/** @type {number} */ y) => height - BOTTOM - (y - y0) / (y1 - y0) * (height - BOTTOM - TOP);
    this.points = known.map(({head, x, y}) => ({head, x: across(x), y: up(y), node: make("circle", {cx: across(x), cy: up(y), r: RADIUS,
      style: `--name:${nameColor(head.name ?? "")}`, class: head.key === look.chosen ? "chosen" : null,
      onpointerenter: () => this.point(this.points.find((point) => point.head === head) ?? null), onpointerleave: () => this.point(null),
      onclick: () => this.calls.open(head)})}));
    const axis = [];
    for (const x of roundTicks(x0, x1, Math.max(2, width / 110))) {
      axis.push(make("line", {x1: across(x), x2: across(x), y1: TOP, y2: height - BOTTOM}),
          make("text", {x: across(x), y: height - BOTTOM + 17, "text-anchor": "middle"}, String(x)));
    }
    for (const y of roundTicks(y0, y1, Math.max(2, height / 70))) {
      axis.push(make("line", {x1: LEFT, x2: width - RIGHT, y1: up(y), y2: up(y)}),
          make("text", {x: LEFT - 7, y: up(y) + 4, "text-anchor": "end"}, String(y)));
    }
    const middle = (TOP + height - BOTTOM) / 2;
    /** The meaning of a number, or its name if there is no room. */
    const title = (/** @type {string} */ name, /** @type {number} */ room) => LETTER * numberMeaning(name).length < room ? numberMeaning(name) : numberLabel(name);
    axis.push(make("text", {class: "axis-name", x: (LEFT + width - RIGHT) / 2, y: height - 8, "text-anchor": "middle"}, title(look.x, width)),
        make("text", {class: "axis-name", x: 0, y: 0, "text-anchor": "middle", transform: `translate(14 ${middle}) rotate(-90)`}, title(look.y, height)));
    this.stage.replaceChildren(make("svg", {width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true"}, make("g", {class: "axis"}, ...axis),
        make("g", {class: "points"}, ...this.points.map(({node}) => node)), make("g", {class: "labels"}, ...this.labels(width))));
  }
  /** Returns labels of points, as far as they do not overlap: first of those far from the others. */
  labels(/** @type {number} */ width) {
    const {points} = this, alone = points.map((point) => {
      const others = points.map(({x, y}) => Math.hypot(x - point.x, y - point.y)).sort((a, b) => a - b);
      return {point, room: others[Math.min(2, others.length - 1)]};
    }).sort((a, b) => b.room - a.room);
    const taken = points.map(({x, y}) => ({left: x - RADIUS, right: x + RADIUS, top: y - RADIUS, bottom: y + RADIUS}));
    const found = [];
    for (const {point} of alone) {
      if (found.length >= LABELS) break;
      const text = point.head.key, box = {left: point.x + RADIUS + 3, right: point.x + RADIUS + 3 + LETTER * text.length, top: point.y - LABEL_HEIGHT / 2, bottom: point.y + LABEL_HEIGHT / 2};
      if (box.right > width || taken.some((other) => box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom)) continue;
      taken.push(box);
      found.push(make("text", {x: box.left, y: point.y + 4}, text));
    }
    return found;
  }

  /** Shows the head of a point; null ends this. */
  point(/** @type {Point | null} */ point) {
    this.under?.node.classList.remove("under");
    this.under = point;
    this.bubble.hidden = !point;
    if (!point || !this.look) return;
    const {head} = point, {look, store, bubble} = this, [canvas, text] = bubble.children;
    point.node.classList.add("under");
    point.node.parentNode?.append(point.node);  // on top
    const told = [headName(head.layer, head.head), head.name || "no name fits",
      ...new Set([look.x, look.y].map((name) => `${numberLabel(name)} ${numberText(head.numbers?.[store.names.indexOf(name)])}`))];
    text.textContent = told.join("\n");
    const draw = () => {
      canvas.hidden = !head.frame;
      if (head.frame) drawFrame(canvas, head.frame, look.tone);
    };
    draw();
    if (!head.frame) store.thumbs(head.layer).then(() => { if (this.under === point) draw(); }, () => {});
    const room = this.node.getBoundingClientRect(), stage = this.stage.getBoundingClientRect();
    const left = stage.left - room.left + point.x, beside = left + 16 + 230 < room.width ? left + 16 : left - 16 - 230;
    bubble.style.left = `${Math.max(0, beside)}px`;
    bubble.style.top = `${Math.max(0, stage.top - room.top + Math.min(point.y - 40, stage.height - 130))}px`;
  }
  key(/** @type {KeyboardEvent} */ event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter" && this.under) return this.calls.open(this.under.head);
    if (event.key === "Escape" && this.under) {
      event.stopPropagation();
      return this.point(null);
    }
    const way = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]}[event.key];
    if (!way || this.points.length === 0) return;
    event.preventDefault();
    const next = this.under ? this.nextPoint(this.under, way) : this.points[0];
    this.point(next);
    this.calls.announce(this.bubble.children[1].textContent.replaceAll("\n", ", "));
  }
  /** Returns the nearest point in a direction, or the same one at the end. */
  nextPoint(/** @type {Point} */ from, /** @type {number[]} */ [right, down]) {
    let best = from, least = Infinity;
    for (const point of this.points) {
      const x = point.x - from.x, y = point.y - from.y, ahead = x * right + y * down, aside = Math.abs(x * down - y * right);
      const after = this.points.indexOf(point) > this.points.indexOf(from);
      // Points in the same place are visited in their order.
      const far = ahead > 0 ? ahead + 3 * aside : ahead === 0 && aside === 0 && point !== from && after === right + down > 0 ? 0 : Infinity;
      if (far < least) [best, least] = [point, far];
    }
    return best;
  }

  fillTable() {
    const {look, store} = this;
    if (!look || !this.details.open) return;
    const value = (/** @type {Head} */ head) => Number.isNaN(store.number(head, look.x)) ? -Infinity : store.number(head, look.x);
    const heads = store.list.filter(look.shown).sort((a, b) => value(b) - value(a));
    const heading = (/** @type {string} */ text, /** @type {string} */ title = "") => make("th", {scope: "col", title: title || null}, text);
    this.table.replaceChildren(make("table", {class: "numbers"}, make("caption", {}, `${counted(heads.length, "head")}, by ${numberLabel(look.x)}`),
        make("thead", {}, make("tr", {}, heading("head"), heading("name"), ...store.names.map((name) => heading(numberLabel(name), numberMeaning(name))))),
        make("tbody", {}, ...heads.map((head) => make("tr", {}, make("th", {scope: "row"}, make("button", {type: "button", class: "link",
          "aria-label": headName(head.layer, head.head), onclick: () => this.calls.open(head)}, head.key)), make("td", {class: "name"}, head.name || "\u2013"),
        ...store.names.map((_, i) => make("td", {}, head.numbers ? numberText(head.numbers[i]) : "")))))));
  }
  close() {
    this.resized.disconnect();
  }
}
