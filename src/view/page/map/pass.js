// SPDX-License-Identifier: Apache-2.0
//
// The progress of the pass over all rows in words, with its button.

import {button, counted, make, whole} from "../shared/dom.js";
import {ROW} from "../shared/frame.js";

/** @typedef {import("../shared/api.js").PassProgress} PassProgress */

const DELAY = 300;  // milliseconds

/** Returns "3 min left". */
function left(/** @type {number | null} */ seconds) {
  if (seconds === null) return "";
  if (seconds < 1.5) return ", 1 s left";
  if (seconds < 90) return `, ${Math.round(seconds)} s left`;
  return seconds < 5400 ? `, ${Math.round(seconds / 60)} min left` : `, ${(seconds / 3600).toFixed(1)} h left`;
}

/**
 * Returns the progress in words; "" when all rows are known.
 * @param {PassProgress} pass
 * @param {string} known the state of each row block
 */
function passWords({state, done, total, seconds_left: seconds}, known) {
  const blocks = `${whole(done)} of ${whole(total)} blocks`, preview = [...known].filter((digit) => digit === String(ROW.PREVIEW)).length;
  if (state === "done") return "";
  const more = preview ? `, preview of ${whole(preview)}` : "";
  if (state === "paused") return `exact pass: stopped after ${blocks}${more}`;
  return `exact pass: ${blocks}${state === "running" ? left(seconds) : ""}${more}`;
}

/** What the map waits for. */
export class PassLine {
  /** @type {PassProgress} */
  #pass = {state: "done", done: 0, total: 0, seconds_left: null};
  #known = "";
  #absent = 0;
  #final = false;
  #timer = 0;

  /** @param {{stop: () => void, resume: () => void, leave: () => void}} actions `leave` takes the focus before the line goes */
  constructor(actions) {
    this.actions = actions;
    this.words = make("span", {});
    this.meter = make("progress", {"aria-label": "Exact pass", max: 1, value: 0});
    this.button = button({onclick: () => (this.#pass.state === "running" ? actions.stop() : actions.resume())}, "Stop");
    this.node = make("div", {class: "pass", hidden: true}, this.meter, this.words, this.button);
  }

  /** @param {PassProgress} pass @param {string} known the state of each row block */
  update(pass, known) {
    this.#pass = pass;
    this.#known = known;
    this.#show();
  }

  /** Says how many tiles in view are missing or not exact, if they do not arrive at once. */
  setMissing(/** @type {number} */ absent, /** @type {number} */ partial) {
    this.#absent = absent;
    this.#final = !absent && !partial;
    if (!absent && !partial) {
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
    const pass = this.#pass, working = pass.state !== "done", loading = this.#timer < 0;
    if (!working && this.node.contains(document.activeElement)) this.actions.leave();
    this.node.hidden = !working && !loading;
    const absent = loading && this.#absent ? `loading ${counted(this.#absent, "tile")}` : "";
    const final = working && this.#final ? "all in view is exact" : "";
    this.words.textContent = [passWords(pass, this.#known), absent, final].filter(Boolean).join(" \u00b7 ");
    this.meter.hidden = this.button.hidden = !working;
    this.meter.max = Math.max(1, pass.total);
    this.meter.value = pass.done;
    this.button.textContent = pass.state === "running" ? "Stop" : "Resume";
  }

  close() {
    clearTimeout(this.#timer);
  }
}
