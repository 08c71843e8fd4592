// SPDX-License-Identifier: Apache-2.0
//
// The router: every address has the same page, and the first segment of its path names the module
// that fills it.

import {Api, ApiError, findToken, inWords, takeToken, tokenIn} from "./shared/api.js";
import {helpButton, helpKey} from "./shared/dialog.js";
import {make} from "./shared/dom.js";
import {readPath, writePath} from "./shared/address.js";
import {follow} from "./shared/embed.js";
import {startTheme, themeButton} from "./shared/theme.js";
import {Watch, notice} from "./shared/watch.js";

/** @typedef {import("./shared/entry.js").Context} Context */
/**
 * A page that is open. After Back or Forward, restore() shows what the fragment selects. A page with several
 * paths has arrive() instead, which returns whether the address is a place of this page.
 * `watches`: it watches the server by itself. `help`: its keys.
 * @typedef {{close(): void, restore?(): void, arrive?(): boolean, watches?: boolean, help?: import("./shared/dialog.js").Help}} Page
 * @typedef {{open(root: HTMLElement, context: Context): Promise<Page>}} PageModule
 */

/**
 * The modules by the first segment of the path.
 * @type {Record<string, () => Promise<PageModule>>}
 */
const PAGES = {
  "": () => import("./start/start.js"),
  scene: () => import("./scene/scene.js"),
  heads: () => import("./heads/heads.js"),
  map: () => import("./map/map.js"),
  text: () => import("./text/text.js"),
  compare: () => import("./compare/compare.js"),
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
  const before = root.querySelector(".page-error");
  if (before?.textContent === text) return;  // screen readers would repeat it
  before?.remove();
  root.prepend(make("p", {class: "page-error", role: "alert"}, text));
}

/** @type {Watch | null} */
let watch = null;
const notes = make("div", {});
root.before(notes);

/** Watches the server for a page that does not do so by itself. */
function watchServer(/** @type {Omit<Context, "inputs">} */ base, /** @type {Api} */ api) {
  /** @type {import("./shared/api.js").InputEntry | undefined} */
  let entry;
  watch = new Watch(async () => {
    const [, id] = readPath(location.pathname), {inputs} = await api.inputs();
    entry = inputs.find((one) => one.id === id);
    if (entry?.changed) throw new ApiError(409, "changed", `${entry.changed} has changed since it was opened`);
    return false;
  }, (health) => {
    const told = notice(health, entry ?? {path: ""}, {
      adopt(token) {
        api.adopt(token);
        show(base, api);
      },
      async reopen() {
        const [kind, id, ...rest] = readPath(location.pathname);
        try {
          const fresh = await api.reopen(id);
          history.replaceState(null, "", writePath(kind, fresh.id, ...rest.map((part) => part === id ? fresh.id : part)) + location.hash);
          show(base, api);
        } catch (problem) {
          error(inWords(problem));
        }
      },
    });
    notes.replaceChildren(...told ? [told] : []);
  });
}

async function show(/** @type {Omit<Context, "inputs">} */ base, /** @type {Api} */ api) {
  const turn = ++opened;
  page?.close();
  page = null;
  watch?.close();
  watch = null;
  notes.replaceChildren();
  shown = location.pathname;
  bar.replaceChildren(make("a", {href: "/", class: "home"}, "Fovea"));
  root.replaceChildren();
  const theme = themeButton();
  try {
    const load = PAGES[kindOf(shown)];
    if (!load) throw new Error("There is no such page.");
    const [module, {inputs}] = await Promise.all([load(), api.inputs()]);
    const fresh = await module.open(root, {...base, inputs});
    if (turn === opened) {
      page = fresh;
      shown = location.pathname;
      if (!fresh.watches) watchServer(base, api);
    } else {
      fresh.close();
    }
  } catch (problem) {
    if (turn === opened) error(inWords(problem));
  }
  bar.append(make("span", {class: "bar-end"}, ...page?.help ? [helpButton(page.help)] : [], theme));
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
    } else if (location.pathname === shown) {
      page?.restore?.();
    } else {
      show(base, api);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (page?.help) helpKey(page.help, event);
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
  if (framed && (await api.inputs().catch(() => null))?.embed) {
    // Without history entries, which would be those of the notebook.
    follow(api, (path, fragment) => {
      const samePath = path === location.pathname;
      history.replaceState(null, "", path + (fragment ? `#${fragment}` : ""));
      if (samePath) dispatchEvent(new PopStateEvent("popstate", {state: null}));
      else show(base, api);
    });
  }
}

main();
