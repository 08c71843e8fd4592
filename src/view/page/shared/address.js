// SPDX-License-Identifier: Apache-2.0
//
// Addresses of the page (section "Addresses" of docs/view.md). The path selects the content, the
// fragment the view of it. A page describes its fragment by a list of fields; what equals its default
// is omitted, and what cannot be read is ignored.

/**
 * @template T
 * @typedef {{otherwise: T, read: (text: string) => T | undefined, write: (value: T) => string}} Field
 */

const LONGEST = 2000;
const INTERVAL = 250;  // milliseconds between two replacements of the address

/** @returns {Field<number>} a whole number in [least, most] */
export function integer(/** @type {number} */ otherwise, least = 0, most = Number.MAX_SAFE_INTEGER) {
  return {otherwise, write: String, read: (text) => {
    const value = Number(text);
    return /^-?\d{1,15}$/.test(text) && value >= least && value <= most ? value : undefined;
  }};
}

/** @returns {Field<number>} a finite number in [least, most], written with six digits */
export function real(/** @type {number} */ otherwise, least = -Infinity, most = Infinity) {
  return {otherwise, write: (value) => String(Number(value.toPrecision(6))), read: (text) => {
    const value = Number(text);
    return /^[-+.\de]{1,30}$/.test(text) && Number.isFinite(value) && value >= least && value <= most ? value : undefined;
  }};
}

/**
 * One of several words, of which the first is the default.
 * @template {string} T
 * @param {readonly T[]} words
 * @returns {Field<T>}
 */
export function word(words) {
  return {otherwise: words[0], write: String, read: (text) => words.find((known) => known === text)};
}

/** @returns {Field<string>} any text */
export function text(longest = 200) {
  return {otherwise: "", write: String, read: (given) => given.slice(0, longest)};
}

/** @returns {Field<boolean>} "1" or absent */
export function flag() {
  return {otherwise: false, write: (value) => value ? "1" : "", read: (given) => given === "1"};
}

/** @returns {Field<number[]>} whole numbers from 0, separated by commas */
export function list(/** @type {number} */ most, longest = 64) {
  const one = integer(0, 0, most);
  return {otherwise: [], write: (values) => values.join(","), read: (given) => {
    const values = given.split(",").map(one.read);
    return values.length <= longest && values.every((value) => value !== undefined) ? /** @type {number[]} */ (values) : undefined;
  }};
}

/** Returns the parameters of a fragment, of which the first of each name counts. */
function parameters(/** @type {string} */ fragment) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const part of fragment.replace(/^#/, "").slice(0, LONGEST).split("&")) {
    const [name, ...rest] = part.split("=");
    try {
      if (name && !found.has(name)) found.set(name, decodeURIComponent(rest.join("=")));
    } catch { /* not an encoded text: ignored */ }
  }
  return found;
}

/**
 * @template {Record<string, any>} State
 * @param {string} fragment
 * @param {{[Name in keyof State]: Field<State[Name]>}} fields
 * @returns {State}
 */
export function readFragment(fragment, fields) {
  const given = parameters(fragment);
  /** @type {any} */
  const state = {};
  for (const [name, field] of Object.entries(fields)) {
    const value = given.has(name) ? field.read(/** @type {string} */ (given.get(name))) : undefined;
    state[name] = value === undefined ? field.otherwise : value;
  }
  return state;
}

/**
 * Returns the fragment without "#". Commas and colons are not encoded.
 * @template {Record<string, any>} State
 * @param {State} state
 * @param {{[Name in keyof State]: Field<State[Name]>}} fields
 */
export function writeFragment(state, fields) {
  const parts = [];
  let length = 0;
  for (const [name, field] of Object.entries(fields)) {
    const written = field.write(state[name]);
    if (written === "" || written === field.write(field.otherwise)) continue;
    const part = `${name}=${encodeURIComponent(written).replace(/%2C/g, ",").replace(/%3A/g, ":")}`;
    length += part.length + 1;
    if (length < LONGEST) parts.push(part);
  }
  return parts.join("&");
}

/**
 * Returns the parts of a path: ["map", "run-1a2b3c4d", "13.2"]; ["start"] for "/".
 * @param {string} path
 */
export function readPath(path) {
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return parts.length ? parts : ["start"];
}

/** Returns "/map/run-1a2b3c4d/13.2". */
export const writePath = (/** @type {string[]} */ ...parts) => "/" + parts.map(encodeURIComponent).join("/");

/** Splits "13.2" or "cross-13-b1.2"; undefined if it is neither. @returns {{label: string, head: number} | undefined} */
export function readHead(/** @type {string} */ text) {
  const match = /^([\w-]+)\.(\d{1,6})$/.exec(text);
  return match ? {label: match[1], head: Number(match[2])} : undefined;
}

/** Keeps the fragment of the page's address, replaced at most four times a second. */
export class Address {
  #timer = 0;
  #last = -INTERVAL;
  #next = "";

  constructor() {
    // A page in a frame, which may have no storage, keeps its token in the fragment.
    this.kept = location.hash.slice(1).split("&").filter((part) => part.startsWith("token=")).join("&");
  }

  /** Replaces the fragment, soon. */
  replace(/** @type {string} */ fragment) {
    this.#next = fragment;
    if (this.#timer) return;
    const wait = Math.max(0, this.#last + INTERVAL - performance.now());
    this.#timer = setTimeout(() => this.flush(), wait);
  }

  /** Writes a fragment that waits. */
  flush() {
    if (!this.#timer) return;
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#last = performance.now();
    history.replaceState(history.state, "", location.pathname + this.#whole(this.#next));
  }

  /** Adds a history entry with this fragment, and another path if given. */
  push(/** @type {string} */ fragment, path = location.pathname) {
    this.close();
    history.pushState(null, "", path + this.#whole(fragment));
  }

  /** Forgets a fragment that waits. */
  close() {
    clearTimeout(this.#timer);
    this.#timer = 0;
  }

  #whole(/** @type {string} */ fragment) {
    const all = [fragment, this.kept].filter(Boolean).join("&");
    return all ? "#" + all : "";
  }
}
