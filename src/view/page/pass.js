// SPDX-License-Identifier: Apache-2.0
//
// The progress of the pass over all rows in words, with its button.

import {button, make, whole} from "./dom.js";

/** @typedef {import("./api.js").PassProgress} PassProgress */

const DELAY = 300;  // milliseconds

/** Returns "3 min left". */
export function left(/** @type {number | null} */ seconds) {
  if (seconds === null) return "";
  if (seconds < 1.5) return ", 1 s left";
  if (seconds < 90) return `, ${Math.round(seconds)} s left`;
  return seconds < 5400 ? `, ${Math.round(seconds / 60)} min left` : `, ${(seconds / 3600).toFixed(1)} h left`;
}

/** Returns the progress in words; "" when all rows are known. */
export function passWords(/** @type {PassProgress} */ {state, done, total, seconds_left: seconds}) {
  const blocks = `${whole(done)} of ${whole(total)} blocks`;
  if (state === "done") return "";
  if (state === "paused") return `exact pass: stopped after ${blocks}`;
  if (state === "idle") return `exact pass: ${blocks}`;
  return `exact pass: ${blocks}${left(seconds)}`;
}

/** What the map waits for. */
export class PassLine {
  /** @type {PassProgress} */
  #pass = {state: "done", done: 0, total: 0, seconds_left: null};
  #missing = 0;
  #timer = 0;

  /** @param {{stop: () => void, resume: () => void, leave: () => void}} actions `leave` takes the focus before the line goes */
  constructor(actions) {
    this.actions = actions;
    this.words = make("span", {});
    this.meter = make("progress", {"aria-label": "Exact pass", max: 1, value: 0});
    this.button = button({onclick: () => (this.#pass.state === "running" ? actions.stop() : actions.resume())}, "Stop");
    this.node = make("div", {class: "pass", hidden: true}, this.meter, this.words, this.button);
  }

  update(/** @type {PassProgress} */ pass) {
    this.#pass = pass;
    this.#show();
  }

  /** Says how many tiles in view are missing, if they do not arrive at once. */
  setLoading(/** @type {number} */ missing) {
    this.#missing = missing;
    if (!missing) {
      clearTimeout(this.#timer);
      this.#timer = 0;
      this.#show();
    } else if (!this.#timer) {
      this.#timer = setTimeout(() => {
        this.#timer = -1;
        this.#show();
      }, DELAY);
    } else if (this.#timer < 0) {
      this.#show();
    }
  }

  #show() {
    const pass = this.#pass, working = pass.state !== "done", loading = this.#missing > 0 && this.#timer < 0;
    if (!working && this.node.contains(document.activeElement)) this.actions.leave();
    this.node.hidden = !working && !loading;
    const tiles = `${this.#missing} ${this.#missing === 1 ? "tile" : "tiles"}`;
    const more = !loading ? "" : pass.state === "paused" ? `${tiles} missing` : `loading ${tiles}`;
    this.words.textContent = [passWords(pass), more].filter(Boolean).join(" \u00b7 ");
    this.meter.hidden = this.button.hidden = !working;
    this.meter.max = Math.max(1, pass.total);
    this.meter.value = pass.done;
    this.button.textContent = pass.state === "running" ? "Stop" : "Resume";
  }

  close() {
    clearTimeout(this.#timer);
  }
}
