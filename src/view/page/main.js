// SPDX-License-Identifier: Apache-2.0
//
// The router: every address has the same page, and the first segment of its path names the module
// that fills it.

import {Api, findToken, inWords, takeToken, tokenIn} from "./api.js";
import {make} from "./dom.js";
import {startTheme, themeButton} from "./theme.js";

/** @typedef {import("./entry.js").Context} Context */
/**
 * A page that is open. arrive() goes where the address is, after Back or Forward, and returns whether
 * that is a place of this page.
 * @typedef {{close(): void, arrive?(): boolean}} Page
 * @typedef {{open(root: HTMLElement, context: Context): Promise<Page>}} PageModule
 */

/**
 * The modules by the first segment of the path.
 * @type {Record<string, () => Promise<PageModule>>}
 */
const PAGES = {
  "": () => import("./start.js"),
  scene: () => import("./scene.js"),
  heads: () => import("./heads.js"),
  map: () => import("./map.js"),
  text: () => import("./text.js"),
  compare: () => import("./compare.js"),
};

const root = /** @type {HTMLElement} */ (document.getElementById("view"));
const bar = /** @type {HTMLElement} */ (document.getElementById("bar"));
const live = /** @type {HTMLElement} */ (document.getElementById("live"));

const kindOf = (/** @type {string} */ path) => path.split("/")[1] ?? "";

/** @type {Page | null} */
let page = null;
let shown = "";   // the path of the page
let opened = 0;   // counts, so that a page that arrives late is not shown

function announce(/** @type {string} */ text) {
  live.textContent = text;
}

function error(/** @type {string} */ text) {
  root.querySelector(".page-error")?.remove();
  root.prepend(make("p", {class: "page-error", role: "alert"}, text));
}

async function show(/** @type {Omit<Context, "inputs">} */ base, /** @type {Api} */ api) {
  const turn = ++opened;
  page?.close();
  page = null;
  shown = location.pathname;
  bar.replaceChildren(make("a", {href: "/", class: "home"}, "Fovea"));
  root.replaceChildren();
  const theme = themeButton();
  try {
    const load = PAGES[kindOf(shown)];
    if (!load) throw new Error("There is no such page.");
    const [module, {inputs}] = await Promise.all([load(), api.inputs()]);
    const fresh = await module.open(root, {...base, inputs});
    if (turn === opened) page = fresh;
    else fresh.close();
  } catch (problem) {
    if (turn === opened) error(inWords(problem));
  }
  bar.append(theme);
}

async function main() {
  startTheme();
  const framed = window.parent !== window;
  const api = new Api(await findToken(framed));
  const base = {api, bar, announce, error, navigate(/** @type {string} */ path, fragment = "") {
    const samePath = path === location.pathname;
    history.pushState(null, "", path + (fragment ? `#${fragment.replace(/^#/, "")}` : ""));
    if (samePath) dispatchEvent(new PopStateEvent("popstate", {state: null}));
    else show(base, api);
  }};
  addEventListener("popstate", () => {
    if (tokenIn(location.hash)) {  // the address of a restarted server, typed over this one
      api.adopt(takeToken(framed));
      show(base, api);
    } else if (page?.arrive?.()) {
      shown = location.pathname;
    } else if (location.pathname !== shown) {
      show(base, api);
    }
  });
  // Links within the viewer keep the page and its script.
  document.addEventListener("click", (event) => {
    const link = /** @type {Element} */ (event.target).closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0 || event.metaKey ||
        event.ctrlKey || event.shiftKey || event.altKey || link.target || link.hasAttribute("download") ||
        link.origin !== location.origin || link.pathname === location.pathname || !(kindOf(link.pathname) in PAGES)) return;
    event.preventDefault();
    base.navigate(link.pathname + link.search, link.hash);
  });
  await show(base, api);
}

main();
