// SPDX-License-Identifier: Apache-2.0
//
// Elements of the page. Strings become text nodes, so that words of an input can never become markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "circle", "line", "rect", "text", "title"]);

/**
 * Creates an element with attributes, listeners (on...) and children. An attribute that is null,
 * undefined or false is left out; true is an empty one.
 * @param {string} tag
 * @param {Record<string, any>} attributes
 * @param {...(Node | string)} children
 * @returns {any} an element of the tag's type
 */
export function make(tag, attributes = {}, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Returns a button in the style of the pages. */
export const button = (/** @type {Record<string, any>} */ attributes, /** @type {(Node | string)[]} */ ...children) =>
  make("button", {type: "button", class: "plain", ...attributes}, ...children);

/** Returns a word whose direction does not affect its surroundings. */
export const bdi = (/** @type {string} */ word) => make("bdi", {}, word);

/** Returns a list of choices, of which `chosen` is selected. */
export function list(/** @type {string} */ name, /** @type {[value: string, text: string][]} */ options,
    /** @type {string} */ chosen, /** @type {(value: string) => void} */ change) {
  const select = make("select", {"aria-label": name, onchange: () => change(select.value)},
      ...options.map(([value, text]) => make("option", {value, selected: value === chosen}, text)));
  return select;
}

/** Returns a label with such a list. */
export const choice = (/** @type {Parameters<typeof list>} */ ...[label, options, chosen, change]) =>
  make("label", {class: "choice"}, label, list(label, options, chosen, change));  // else it would be named after its value as well

/** Returns an integer with separators: "131,072". */
export const whole = (/** @type {number} */ n) => n.toLocaleString("en");

/** Returns "1 head" or "12 heads". */
export const counted = (/** @type {number} */ n, /** @type {string} */ noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;
