// SPDX-License-Identifier: Apache-2.0
//
// The controls and legends of a comparison: which two heads, and the colours.

import {writePath} from "../shared/address.js";
import {TONES, WHOLE_RANGE, brief, css, heatOf, rampColor, roundWeights, toneWords} from "../shared/colors.js";
import {button, choice, list, make} from "../shared/dom.js";
import {headIn, layerName} from "../shared/entry.js";
import {visible} from "../shared/visible.js";

/** @typedef {import("./comparable.js").Place} Place */
/** @typedef {import("../shared/colors.js").DifferenceRamp} DifferenceRamp */
/** @typedef {import("../shared/colors.js").ToneName} ToneName */

/** Differences with the strongest colour; the first is the default. */
export const MOSTS = /** @type {const} */ (["0.5", "1", "0.2", "0.1", "0.05", "0.02", "0.01", "0.001"]);

export class CompareTools {
  /**
   * @param {import("../shared/entry.js").Context} context
   * @param {[Place, Place]} places
   * @param {{tone: ToneName, most: string}} state
   * @param {{change: (change: any) => void, fragment: () => string}} calls
   */
  constructor(context, places, state, calls) {
    this.context = context;
    this.places = places;
    this.calls = calls;
    this.busy = make("span", {class: "small", role: "status"});
    const sorted = [...MOSTS].sort((a, b) => Number(b) - Number(a));
    this.tone = choice("Tone", toneWords(TONES), state.tone, (tone) => calls.change({tone}));
    this.most = choice("Difference up to", sorted.map((most) => [most, most]), state.most, (most) => calls.change({most}));
    this.node = make("div", {class: "tools-row"}, this.chooser(0), button({class: "plain icon", "aria-label": "Exchange the two heads", title: "Exchange the two heads",
      onclick: () => this.go([places[1], places[0]])}, "\u21c4"), this.chooser(1), this.tone, this.most, this.busy);
  }
  show(/** @type {{tone: ToneName, most: string}} */ {tone, most}) {
    this.tone.querySelector("select").value = tone;
    this.most.querySelector("select").value = most;
  }

  /** Lists of inputs, layers and heads of a side. */
  chooser(/** @type {0 | 1} */ side) {
    const {entry, layer, head} = this.places[side], which = side ? "second" : "first";
    const inputs = this.context.inputs.filter(({layers}) => layers.length > 0);
    const put = (/** @type {Place} */ place) => this.go(side ? [this.places[0], place] : [place, this.places[1]]);
    /** The same layer and head in another input or layer, if it has them. */
    const nearest = (/** @type {import("../shared/entry.js").Entry} */ to, /** @type {string} */ label) => {
      const found = to.layers.find((one) => one.label === label) ?? to.layers[0];
      return {entry: to, layer: found, head: headIn(found, head)};
    };
    return make("span", {class: "compare-choice", role: "group", "aria-label": `the ${which} head`},
        ...inputs.length > 1 ? [list(`input of the ${which}`, inputs.map(({id, name}) => [id, visible(name)]), entry.id, (id) => {
          const to = inputs.find((one) => one.id === id);
          if (to) put(nearest(to, layer.label));
        })] : [],
        list(`layer of the ${which}`, entry.layers.map((one) => [one.label, layerName(one)]), layer.label, (label) => put(nearest(entry, label))),
        list(`head of the ${which}`, layer.heads.map((n) => [String(n), `head ${n}`]), String(head), (n) => put({entry, layer, head: Number(n)})));
  }
  go(/** @type {Place[]} */ [a, b]) {
    this.context.navigate(writePath("compare", a.entry.id, `${a.layer.label}.${a.head}`, b.entry.id, `${b.layer.label}.${b.head}`), this.calls.fragment());
  }
}

/** Returns a strip of colours with texts below it. */
function legendOf(/** @type {string} */ title, /** @type {string} */ colors, /** @type {[at: number, text: string][]} */ ticks) {
  const stops = Array.from({length: 21}, (_, i) => css(rampColor(colors, i / 20)));
  return make("div", {class: "compare-legend"}, make("span", {}, title), make("div", {class: "strip", style: `background:linear-gradient(to right, ${stops})`}),
      make("div", {class: "ticks"}, ...ticks.map(([at, text]) => make("span", {style: `left:${(100 * at).toFixed(1)}%`}, text))));
}
export class Legends {
  constructor() {
    this.node = make("div", {class: "compare-legends"});
  }
  show(/** @type {ToneName} */ tone, /** @type {number} */ most, /** @type {DifferenceRamp} */ ramp) {
    const weights = roundWeights(tone, WHOLE_RANGE, 5);
    this.node.replaceChildren(legendOf("weight", "viridis", weights.map((weight) => [heatOf(tone, WHOLE_RANGE, weight), brief(weight)])),
        legendOf("difference", ramp, [-1, -0.5, 0, 0.5, 1].map((part) => [(part + 1) / 2, `${part > 0 ? "+" : ""}${Number((part * most).toPrecision(3))}`])));
  }
}
