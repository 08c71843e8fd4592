// SPDX-License-Identifier: Apache-2.0
//
// Shows one slide at a time: keys, clicks, swipes, the address, and sizes that fit the window.

const root = document.documentElement;
const deck = document.getElementById("deck");
const slides = /** @type {HTMLElement[]} */ ([...deck.querySelectorAll(".slide")]);
const SWIPE = 50;  // pixels
let shown = 0;

/** Creates an element with attributes and text in the namespace of the page. */
function make(tag, attributes, text = "") {
  const node = /** @type {HTMLElement} */ (document.createElementNS(root.namespaceURI, tag));
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}
const position = make("output", {"aria-live": "polite"});
const progress = make("div", {class: "progress"});

const overflows = (node) => node.scrollWidth > node.clientWidth + 1;
/**
 * Chooses the largest matrices with which a slide fits, with the texts beside or above them. Texts become smaller
 * only if the matrices do. On a narrow window, slides may scroll downwards.
 */
function fit(slide, narrow) {
  const areas = [slide, ...slide.querySelectorAll(".scroll, .formulas p")];
  const fits = () => !areas.some(overflows) && (narrow || slide.scrollHeight <= slide.clientHeight + 1);
  const [largest, least] = narrow ? [1, 0.7] : [1.5, 0.4];
  let size = largest;
  search: for (; size > least; size *= 0.93) {
    slide.style.setProperty("--fit", size.toFixed(3));
    slide.style.setProperty("--text", (narrow ? 1 : Math.min(1, Math.max(0.6, size * 1.15))).toFixed(3));
    for (const side of narrow ? [false] : [true, false]) {
      slide.classList.toggle("side", side);
      if (fits()) break search;
    }
  }
  // Where long texts decided, there may be room left.
  for (; size > least && size < largest; size /= 0.93) {
    slide.style.setProperty("--fit", (size / 0.93).toFixed(3));
    if (!fits()) break;
  }
  // A slide that does not fit scrolls, at sizes that are legible.
  const scrolls = size <= least && !narrow;
  if (scrolls) slide.style.setProperty("--text", "0.8");
  slide.style.setProperty("--fit", scrolls ? "0.8" : Math.min(size, largest).toFixed(3));
  // What still scrolls is reachable with the keyboard.
  for (const area of areas) {
    if (overflows(area) || area.scrollHeight > area.clientHeight + 1) area.tabIndex = 0;
    else area.removeAttribute("tabindex");
  }
}
const narrow = () => innerWidth < 45 * 16;

function show(i) {
  shown = Math.min(slides.length - 1, Math.max(0, i));
  slides.forEach((slide, j) => slide.classList.toggle("current", j === shown));
  fit(slides[shown], narrow());
  slides[shown].scrollTop = 0;
  position.textContent = deck.dataset.position.replace("{n}", String(shown + 1)).replace("{count}", String(slides.length));
  progress.style.width = 100 * (shown + 1) / slides.length + "%";
  try {
    history.replaceState(null, "", "#" + (shown + 1));
  } catch {}  // a frame without an address
}
const addressed = () => show((Number(/^#(\d+)$/.exec(location.hash)?.[1]) || 1) - 1);

function turnButton(sign, label, onclick) {
  const node = make("button", {type: "button", class: "plain", "aria-label": label, title: label}, sign);
  node.addEventListener("click", onclick);
  return node;
}
function toggleTheme() {
  const dark = (root.dataset.theme ?? getComputedStyle(root).colorScheme) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
}

const KEYS = {ArrowRight: 1, PageDown: 1, Enter: 1, n: 1, ArrowLeft: -1, PageUp: -1, Backspace: -1, p: -1};
addEventListener("keydown", (event) => {
  const target = /** @type {Element} */ (event.target), slide = slides[shown];
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const onButton = target.closest("button, summary") !== null && (event.key === " " || event.key === "Enter");
  // A wide matrix or a long slide that has the focus scrolls.
  const sideways = event.key.startsWith("Arrow") && target !== slide && target.hasAttribute("tabindex");
  if (onButton || sideways) return;
  const scrolls = slide.scrollHeight > slide.clientHeight + 1;
  const to = event.key === "Home" ? 0 : event.key === "End" ? slides.length - 1
      : event.key === " " ? shown + (event.shiftKey ? -1 : 1)
      : !scrolls && event.key === "ArrowDown" ? shown + 1
      : !scrolls && event.key === "ArrowUp" ? shown - 1
      : event.key in KEYS ? shown + KEYS[event.key] : null;
  if (to === null) return;
  event.preventDefault();
  show(to);
});
deck.addEventListener("click", (event) => {
  if (/** @type {Element} */ (event.target).closest("button, summary") || !getSelection().isCollapsed) return;
  show(shown + (event.clientX < innerWidth / 4 ? -1 : 1));
});
/** @type {Touch | null} */
let touched = null;
deck.addEventListener("touchstart", ({touches, target}) => {
  const wide = [...deck.querySelectorAll(".scroll, .formulas p")].some(
      (area) => overflows(area) && area.contains(/** @type {Node} */ (target)));
  touched = touches.length === 1 && !wide ? touches[0] : null;
}, {passive: true});
deck.addEventListener("touchend", ({changedTouches}) => {
  if (touched === null) return;
  const x = changedTouches[0].clientX - touched.clientX, y = changedTouches[0].clientY - touched.clientY;
  if (Math.abs(x) > SWIPE && Math.abs(x) > 2 * Math.abs(y)) show(shown + (x < 0 ? 1 : -1));
  touched = null;
}, {passive: true});

root.classList.add("on");
const bar = make("nav", {class: "turn", "aria-label": deck.dataset.walk});
bar.append(progress, position, turnButton("\u25d0", deck.dataset.theme, toggleTheme),
    turnButton("\u2039", deck.dataset.previous, () => show(shown - 1)),
    turnButton("\u203a", deck.dataset.next, () => show(shown + 1)));
deck.after(bar);
addressed();
addEventListener("hashchange", addressed);
deck.addEventListener("toggle", () => fit(slides[shown], narrow()), true);
addEventListener("resize", () => fit(slides[shown], narrow()));
addEventListener("beforeprint", () => {
  root.classList.add("measure");
  slides.forEach((slide) => fit(slide, false));
  root.classList.remove("measure");
});
addEventListener("afterprint", () => fit(slides[shown], narrow()));
