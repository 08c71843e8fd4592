// SPDX-License-Identifier: Apache-2.0
//
// Two panes that show the same word, head and step: a scene before and after its edits, or two scenes. A pane is a
// whole page in a frame. In a notebook frames may not reach into one another, so they send messages.

const pane = root.dataset.pane;  // of a page in a pane: "before", "after" or "scene"
let leads = root.dataset.leads !== undefined;  // whether the other pane follows this one
let sending = 0;  // the frame that sends the place
// What panes are made of, before the scripts change it: two scenes, or this page.
const scenes = all("body > .pane");
const markup = (nodes) => nodes.map((node) => node.outerHTML).join("");
const contents = scenes.length ? scenes.map((node) => markup([...node.children, byId("texts"), document.currentScript]))
    : data.editable && !pane ? [markup([...document.body.children])] : [];

/**
 * @typedef {{title: string, kind: string, content: string, hash: string, edit: string}} Pane
 *   `edit` names the pane's edits in the address of the comparison
 */
/** @type {(pane: Pane, lead: boolean) => any} */
function makeFrame({title, kind, content, hash}, lead) {
  const page = /** @type {HTMLElement} */ (root.cloneNode());
  page.className = "";
  Object.assign(page.dataset, {pane: kind, hash}, lead && {leads: ""});
  page.append(document.head.cloneNode(true));
  // HTML parsers add content after </html> to the body.
  return make("iframe", {title, srcdoc: "<!DOCTYPE html>" + page.outerHTML + content});
}
/**
 * Shows two panes in place of the page, and the chosen one of them on a phone. `close` ends the comparison, with the
 * address of the chosen one.
 * @param {Pane[]} panes
 * @param {number} chosen
 * @param {((hash: string) => void)=} close
 */
function openPanes(panes, chosen, close) {
  const frames = panes.map((one, i) => makeFrame(one, i === chosen));
  const hashes = panes.map(({hash}) => hash), editOf = (hash) => /&edit=([^&]*)/.exec(hash)?.[1] ?? "";
  let last = null;
  const end = () => {
    removeEventListener("message", receive);
    byId("panes").remove();
    root.classList.remove("compared");
    close(hashes[chosen]);
  };
  const receive = ({source, data: place}) => {
    const from = frames.findIndex((frame) => frame.contentWindow === source);
    if (from < 0) return;
    if (place.end) return end();
    if (place.hash === undefined) return;  // from another script
    hashes[from] = place.hash;
    if (place.leads) {
      last = place;
      frames.forEach((frame, i) => { if (i !== from) frame.contentWindow.postMessage(place, "*"); });
      if (place.theme) root.dataset.theme = place.theme;
    } else if (place.opened && last) {
      source.postMessage(last, "*");
    }
    if (last?.moved) {
      keepAddress(() => hashes[chosen].replace(/&edit=.*/, "") + (close ? "&compare" : "") + panes.map(({edit}, i) => {
        const code = editOf(hashes[i]);
        return code && code.length <= MOST_EDITS ? `&${edit}=${code}` : "";
      }).join(""));
    }
  };
  const tabs = panes.map(({title}, i) => button({"aria-pressed": i === chosen, onclick: () => {
    tabs.forEach((tab, n) => tab.setAttribute("aria-pressed", String(n === i)));
    frames.forEach((frame, n) => frame.parentNode.classList.toggle("chosen", n === i));
  }}, bdi(title)));
  addEventListener("message", receive);
  root.classList.add("compared");
  document.body.append(make("main", {id: "panes"},
      make("div", {class: "tabs"},
          make("span", {class: "chips", role: "group", "aria-label": text("compare.choose")}, ...tabs),
          ...close ? [button({class: "plain", title: text("compare.close"), "aria-label": text("compare.close"), onclick: end}, "\u00d7")] : []),
      ...panes.map(({title}, i) => make("section", {"aria-label": title, class: i === chosen ? "chosen" : null},
          make("h2", {}, bdi(title)), frames[i]))));
}
/** Compares the edited scene with the original. */
function compareEdits() {
  const hash = fragment(Infinity), [content] = contents;
  openPanes([
    {title: text("compare.before"), kind: "before", content, hash: hash.replace(/&edit=.*/, ""), edit: ""},
    {title: text("compare.after"), kind: "after", content, hash, edit: "edit"},
  ], 1, (after) => {
    readAddress(after);
    placeChanged();
    all(".compare").find((node) => node.checkVisibility())?.focus();
  });
}
function compareScenes() {
  const parts = location.hash.slice(1).split("&"), place = parts.filter((part) => !part.startsWith("edit"));
  openPanes(scenes.map((node, i) => {
    const edit = ["edit", "edit2"][i], given = parts.find((part) => part.startsWith(edit + "="));
    return {title: node.dataset.title, kind: "scene", content: contents[i], edit,
      hash: "#" + [...place, ...given ? [given.replace(edit, "edit")] : []].join("&")};
  }), 0);
}
const compareSwitch = () => pane === "scene" ? "" : button({class: "plain reset compare", role: "switch",
  "aria-checked": pane === "after", onclick: () => pane ? parent.postMessage({end: true}, "*") : compareEdits()},
text("compare.switch"));

// ---- In a pane

/** Sends the place, once per frame of the screen. */
function sendPlace() {
  if (pane && !sending) sending = requestAnimationFrame(() => sendNow());
}
function sendNow(opened = false) {
  sending = 0;
  const {item, query, head, step, moved} = state, section = sections()[step];
  const {top, height} = section.getBoundingClientRect();
  // Scrolling to a step may take its time; the other pane goes there at once.
  const below = Date.now() - jumped < JUMP_MS ? 16 : top - byId("bar").offsetHeight;
  parent.postMessage({opened, leads, moved, item, query, word: data.tokens[item][query], head: data.heads > 1 ? head : undefined,
    section: section.id, below: below < 0 ? below / height : below,  // pixels above a step, or a part of it
    theme: root.dataset.theme, hash: fragment(Infinity)}, "*");
}
/** Goes to the place of the other pane, as far as this scene has it. */
function follow(place) {
  leads = false;
  if (place.theme && place.theme !== root.dataset.theme) {
    root.dataset.theme = place.theme;
    paintAll();
  }
  const {head} = place, item = Math.min(place.item, data.tokens.length - 1), words = data.tokens[item];
  if (data.heads > 1 && head !== state.head && (head === null ? data.heads <= MOST_AT_ONCE : head < data.heads)) showHead(head);
  const named = words[place.query] === place.word ? place.query : words.indexOf(place.word);
  const query = named >= 0 ? named : place.query < words.length ? place.query : state.query;
  if (item !== state.item || query !== state.query) choose(item, query);
  const found = sections().findIndex(({id}) => id === place.section);
  if (found < 0) return;
  jumped = Date.now();
  markStep(found);
  const {top, height} = sections()[found].getBoundingClientRect(), {below} = place;
  scrollBy({top: top - byId("bar").offsetHeight - (below < 0 ? below * height : below), behavior: /** @type {any} */ ("instant")});
}
function setUpPane() {
  if (!pane) return;
  for (const kind of ["wheel", "touchstart", "pointermove", "pointerdown", "keydown", "click", "input", "change"]) {
    addEventListener(kind, () => { leads = true; }, {passive: true, capture: true});
  }
  addEventListener("scroll", () => { if (leads) sendPlace(); }, {passive: true});
  addEventListener("message", ({source, data: place}) => {
    if (source === parent && place.hash !== undefined) follow(place);
  });
  sendNow(true);
}
