// SPDX-License-Identifier: Apache-2.0
//
// Dialogs: <dialog> elements, in which the focus stays; Esc closes them, and it returns to where it was.
// The help of a page is one of them.

import {button, make} from "./dom.js";

/** @typedef {{keys: {keys: string[], text: string}[], pointer: string}} Help the keys of a page, and what the mouse does */

/**
 * Opens a dialog; it is removed when it closes.
 * @param {string} title
 * @param {(Node | string)[]} content
 * @param {() => void} closed
 * @returns {HTMLDialogElement}
 */
export function openDialog(title, content, closed = () => {}, className = "") {
  const before = document.activeElement;
  const name = `dialog-${title.toLowerCase().replace(/\W+/g, "-")}`;
  /** @type {HTMLDialogElement} */
  const dialog = make("dialog", {class: className, "aria-labelledby": name},
      make("header", {}, make("h2", {id: name}, title), button({"aria-label": "Close", class: "plain icon", onclick: () => dialog.close()}, "\u00d7")),
      ...content);
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
  });
  // A click outside closes it.
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Shows all keys of a page. */
function openHelp(/** @type {Help} */ {keys, pointer}) {
  const rows = [...keys, {keys: ["?"], text: "all keys"}].map(({keys: names, text}) => make("tr", {}, make("th", {scope: "row"}, ...names.flatMap((name, i) =>
    i ? [" ", make("kbd", {}, name)] : [make("kbd", {}, name)])), make("td", {}, text)));
  openDialog("Keys", [make("table", {class: "keys"}, make("tbody", {}, ...rows)), make("p", {class: "small"}, pointer)]);
}

/** Returns the button that opens the help, as the key ? does. */
export const helpButton = (/** @type {Help} */ help) => button({title: "?", onclick: () => openHelp(help)}, "Help");

/** Opens the help if the key is ?, unless it is typed into a field. */
export function helpKey(/** @type {Help} */ help, /** @type {KeyboardEvent} */ event) {
  const target = /** @type {Element} */ (event.target);
  if (event.key !== "?" || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (target.closest("input, select, textarea") || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  openHelp(help);
}
