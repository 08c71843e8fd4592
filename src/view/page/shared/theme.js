// SPDX-License-Identifier: Apache-2.0
//
// Light and dark: the system's setting, which a button overrides for this origin.

import {button} from "./dom.js";

const KEY = "fovea-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
/** @type {Set<() => void>} */
const watchers = new Set();

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";

/** Applies the stored choice, once at the start. */
export function startTheme() {
  const chosen = stored();
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  dark.addEventListener("change", () => watchers.forEach((watcher) => watcher()));
}

/** Calls `change` after each change of the colours of the page; returns a function that ends this. */
export function watchTheme(/** @type {() => void} */ change) {
  watchers.add(change);
  return () => watchers.delete(change);
}

/** Returns a colour of the page's style: themeColor("--paper"). */
export const themeColor = (/** @type {string} */ name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Returns the button that switches between light and dark. */
export function themeButton() {
  const node = button({class: "plain icon", onclick: () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem(KEY, next);
    } catch { /* lasts until the page is closed */ }
    tell();
    watchers.forEach((watcher) => watcher());
  }}, "\u25d0");
  const tell = () => {
    const words = isDark() ? "Light colours" : "Dark colours";
    node.setAttribute("aria-label", words);
    node.title = words;
  };
  tell();
  dark.addEventListener("change", tell);
  return node;
}
