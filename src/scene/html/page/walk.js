// SPDX-License-Identifier: Apache-2.0
//
// The walk through the steps: a slider, previous, next and play, and the keys n and p.

const PLAY_MS = 4000;  // time for one screen
const JUMP_MS = 900;  // time in which the page scrolls to a step
let play = null;  // the timer while playing
let jumped = 0;  // when the walk last scrolled the page itself
const sections = () => all("section.step");

/** Marks a step as the current one, in the slider and in the flow. */
function markStep(i) {
  const list = sections(), slider = byId("walk");
  state.step = clamp(i, 0, list.length - 1);
  const names = list[state.step].dataset.step.split(" ").map(plain);
  const title = `${state.step + 1}  ${list[state.step].querySelector(".title").textContent}`;
  slider.max = String(list.length - 1);
  slider.value = String(state.step);
  slider.setAttribute("aria-valuetext", title);
  byId("walked").textContent = title;
  for (const box of all("#flow a")) {
    if (names.includes(box.dataset.step)) box.setAttribute("aria-current", "step");
    else box.removeAttribute("aria-current");
  }
  placeChanged();
}
function goTo(i) {
  jumped = Date.now();
  markStep(i);
  sections()[state.step].scrollIntoView();
}
/** Finds the step at the reader's eyes. */
function markSeen() {
  if (Date.now() - jumped < JUMP_MS) return;  // still scrolling to a step
  const tops = sections().map((one) => one.getBoundingClientRect().top);
  const seen = tops.filter((top) => top < innerHeight * 0.4).pop() ?? tops[0];
  // Of steps side by side, the current one stays, otherwise the first one is meant.
  if (tops[state.step] !== seen) markStep(tops.indexOf(seen));
}

function stopPlaying() {
  if (play === null) return;
  clearInterval(play);
  play = null;
  const node = byId("play");
  node.textContent = "\u25b6";
  node.setAttribute("aria-label", text("walk.play"));
}
/** Shows the next screen: the rest of a long step, or the next step. */
function playScreen() {
  const list = sections(), rest = list[state.step].getBoundingClientRect().bottom - innerHeight;
  if (rest > 40) scrollBy(0, Math.min(rest + 40, innerHeight * 0.7));
  else if (state.step + 1 < list.length) goTo(state.step + 1);
  else stopPlaying();
}
function togglePlaying() {
  if (play !== null) return stopPlaying();
  play = setInterval(playScreen, PLAY_MS);
  const node = byId("play");
  node.textContent = "\u23f8";
  node.setAttribute("aria-label", text("walk.pause"));
  goTo(state.step + 1 < sections().length ? state.step : 0);
}

/** Follows a link within the page, which in a frame without an address would open the page around it. */
function followLink(event) {
  const link = event.target.closest?.('a[href^="#"]'), goal = link && byId(link.getAttribute("href").slice(1));
  if (!goal || location.protocol !== "about:") return;
  event.preventDefault();
  const step = sections().indexOf(goal);
  if (step < 0) goal.scrollIntoView();
  else goTo(step);
}
function setUpWalk(bar) {
  const slider = make("input", {id: "walk", type: "range", min: 0, value: 0,
    "aria-label": text("bar.walk_through"), oninput: () => goTo(Number(slider.value))});
  const control = (id, sign, key, onclick) =>
    button({id, class: "plain", "aria-label": text(key), title: text(key), onclick}, sign);
  bar.append(make("div", {class: "controls walk"},
      make("label", {}, text("bar.walk"), slider),
      make("span", {class: "buttons"},
          control("previous", "\u2039", "walk.previous", () => goTo(state.step - 1)),
          control("play", "\u25b6", "walk.play", togglePlaying),
          control("next", "\u203a", "walk.next", () => goTo(state.step + 1))),
      make("output", {id: "walked"})));
  addEventListener("click", followLink);
  addEventListener("scroll", markSeen, {passive: true});
  for (const kind of ["wheel", "touchstart", "pointerdown", "keydown"]) {
    addEventListener(kind, ({target}) => { if (target !== byId("play")) stopPlaying(); }, {passive: true});
  }
  addEventListener("keydown", (event) => {
    const by = {n: 1, "]": 1, p: -1, "[": -1}[event.key];
    const typed = event.ctrlKey || event.metaKey || event.altKey;
    if (!by || (typed && !event.getModifierState("AltGraph")) ||
        /** @type {Element} */ (event.target).closest?.("input, textarea, select, [contenteditable]")) return;
    event.preventDefault();
    goTo(state.step + by);
  });
  markStep(0);
}
