// SPDX-License-Identifier: Apache-2.0
//
// Watches the server: how far the pass over the rows is, whether the server responds, whether it is
// still the one that the page came from, and whether the file has changed. Requests end while the page
// is not visible.

import {ApiError, inWords, isAbort, tokenIn} from "./api.js";
import {button, make} from "./dom.js";
import {visible} from "./visible.js";

// Milliseconds between requests: at the start of a pass, which may be short, later in it, and without one.
export const QUICK = 40, CALM = 1000;
const BUSY = 250;

/**
 * @typedef {"well" | "gone" | "stranger" | "changed"} Health `stranger`: a server that does not know
 *   the token
 */

/** Asks the server again and again. */
export class Watch {
  /** @type {Health} */
  health = "well";
  words = "";  // why it is not well
  #timer = 0;
  #pause = QUICK;
  #asking = false;
  #closed = false;
  #shown = () => this.ask();

  /**
   * @param {() => Promise<boolean>} look asks the server; returns whether to ask again soon
   * @param {(watch: Watch) => void} turned called when the health has changed
   * @param {number} wait milliseconds until it is asked first
   */
  constructor(look, turned, wait = 0) {
    this.look = look;
    this.turned = turned;
    document.addEventListener("visibilitychange", this.#shown);
    if (wait) this.#timer = setTimeout(() => this.ask(), wait);
    else this.ask();
  }

  /** Asks now, such as after another request has failed. */
  async ask() {
    if (this.#asking || this.#closed || document.hidden) return;
    this.#asking = true;
    clearTimeout(this.#timer);
    let soon = false;
    try {
      soon = await this.look();
      this.#turn("well");
    } catch (error) {
      if (isAbort(error)) return;
      this.words = inWords(error);
      this.#turn(healthOf(error) ?? "well");
    } finally {
      this.#asking = false;
      this.#pause = soon ? Math.min(BUSY, 1.5 * this.#pause) : QUICK;
      if (!this.#closed) this.#timer = setTimeout(() => this.ask(), soon ? this.#pause : CALM);
    }
  }

  /** Takes note of the failure of another request. */
  failed(/** @type {unknown} */ error) {
    const health = healthOf(error);
    if (health && health !== this.health) this.ask();
  }

  #turn(/** @type {Health} */ health) {
    if (health === this.health || this.#closed) return;
    this.health = health;
    this.turned(this);
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#shown);
  }
}

/** @returns {Health | null} null if the failure says nothing about the server */
function healthOf(/** @type {unknown} */ error) {
  if (!(error instanceof ApiError)) return null;
  if (error.status === 0) return "gone";
  if (error.status === 401) return "stranger";
  return error.code === "changed" ? "changed" : null;
}

/**
 * A notice about the health of the server, with what to do about it; null if it is well.
 * @param {{health: Health, words: string}} watch
 * @param {{path: string}} entry
 * @param {{adopt: (token: string) => void, reopen: () => void}} actions
 */
export function notice({health, words}, entry, actions) {
  if (health === "well") return null;
  if (health === "changed") {
    return make("div", {class: "notice", role: "alert"},
        make("p", {}, visible(words)),
        button({class: "plain strong", onclick: actions.reopen}, "Read again"));
  }
  const field = make("input", {type: "text", "aria-label": "Address that the server printed", placeholder: "http://127.0.0.1:\u2026/#token=\u2026",
    autocomplete: "off", spellcheck: "false", oninput: () => {
      const token = tokenIn(field.value);
      if (token) actions.adopt(token);
    }});
  if (health === "stranger") {
    return make("div", {class: "notice", role: "alert"},
        make("p", {}, "The server was started again. Open the address that it printed, or paste it here to go on:"), field);
  }
  const command = `fovea view${entry.path ? " " + quotedPath(entry.path) : ""} --port ${location.port}`;
  return make("div", {class: "notice", role: "alert"},
      make("p", {}, "The server does not respond. What is shown stays. To start it again, with the same options as before:"),
      make("code", {}, command), make("p", {}, "Then open the address that it prints, or paste it here:"), field);
}

/** Returns a path as a word of a shell. */
const quotedPath = (/** @type {string} */ path) => /^[\w./+-]+$/.test(path) ? path : `'${visible(path).replace(/'/g, "'\\''")}'`;
