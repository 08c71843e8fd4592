// SPDX-License-Identifier: Apache-2.0
//
// Selection of a word; the bar with words, batch item and walk (walk.js); the theme button.

/** Where not all sections of a group fit side by side, each has its texts beside its matrices. */
function arrange() {
  const groups = all(".group");
  groups.forEach((group) => group.classList.remove("stacked"));
  const tops = groups.map((group) => new Set([...group.children].map((section) => section.offsetTop)).size);
  groups.forEach((group, i) => group.classList.toggle("stacked", group.children.length === 1 || tops[i] > 1));
}

/** Returns whether what is shown is the word in focus, with the numbers that the author's notes are about. */
const inFocus = () => data.focus !== null && state.item === data.focus[0] && state.query === data.focus[1] &&
    !root.classList.contains("edited");

/**
 * Shows the selected word everywhere. `still` leaves out what depends on the layout.
 * @param {{retell?: boolean, still?: boolean}} options
 */
function update({retell, still} = {}) {
  const {item, query} = state;
  for (const node of all("[data-item]")) {
    node.hidden = Number(node.dataset.item) >= 0 && Number(node.dataset.item) !== item;
  }
  for (const node of all("[data-plane] + [data-plane], [data-plane]:not(:last-child)")) {
    node.hidden ||= Number(node.dataset.plane) !== query;
  }
  for (const node of all("[data-heads]")) {
    const {head, heads} = node.dataset, shown = Math.floor(state.head * heads / data.heads);
    node.hidden = (node.dataset.item !== undefined && node.hidden) ||
        (state.head !== null && Number(head) !== shown);
  }
  if (byId("item")) byId("item").value = item;
  for (const note of all(".note[data-focus]")) note.hidden = !inFocus();
  for (const node of all("[data-arcs]")) node.setAttribute("aria-pressed", state.heads.has(Number(node.dataset.arcs)));
  for (const list of all(".chips")) {
    all("button:first-child", list).forEach((chip, i) => {
      chip.setAttribute("aria-pressed", i === query);
      if (i !== query || list.hidden || still) return;
      list.scrollTop = chip.offsetTop - list.offsetTop - list.clientHeight / 2 + 16;
      list.scrollLeft = chip.offsetLeft - list.offsetLeft - list.clientWidth / 2 + 30;
    });
  }
  all("tr.q").forEach((line) => line.classList.remove("q"));
  for (const figure of all("figure.map")) {
    if (placeOf(figure).step?.rows === "q") {
      figure.querySelector("tbody")?.rows[query].classList.add("q");
    }
  }
  if (whole && retell) {
    all(".focus-word").forEach((node) => node.replaceChildren(bdi(word("q", item, query))));
    all(".tale").forEach((tale) => FILL[tale.dataset.kind](tale, Number(tale.dataset.head)));
    tellScale();
    all(".tale table").forEach(setUpTable);
  }
  if (still) return;
  arrange();
  if (weights) drawArcs();
}
function choose(item, query) {
  const moved = item !== state.item;
  Object.assign(state, {item, query});
  update({retell: true});
  if (moved) paintAll();
  placeChanged();
}

/** Chooses one head, or all of them for null. */
function chooseHead(head) {
  state.head = head;
  state.heads = new Set(head === null ? count(data.heads, (i) => i) : [head]);
}
function showHead(head) {
  chooseHead(head);
  byId("head").value = head ?? "";
  update();
  paintAll();
  placeChanged();
}

// ---- The bar

/** Fills a list of words with buttons that choose them, and while editing, remove them. */
function fillChips(list) {
  const item = Number(list.dataset.item);
  list.replaceChildren(...data.tokens[item].map((name, i) => make("li", {},
      button({title: name, onclick: () => choose(item, i)}, bdi(name)), ...removeButtons(name, i))));
}

const MOST_AT_ONCE = 4;  // of more heads, only one is shown
function setUpHeads(bar) {
  const few = data.heads <= MOST_AT_ONCE;
  // Two matrices are side by side, except on a phone. Questions may ask about any head.
  chooseHead(data.heads === 1 || (data.heads === 2 && innerWidth > 700) || (few && data.questions.length) ? null : 0);
  if (data.heads === 1) return;
  const option = (value, name) => make("option", {value, selected: value === state.head ? "" : null}, name);
  bar.append(make("label", {class: "controls"}, make("select", {id: "head", "aria-label": text("bar.head"),
    onchange: ({target}) => showHead(target.value === "" ? null : Number(target.value))}, ...few ? [make("option", {value: "", selected: state.head === null ? "" : null}, text("bar.all_heads"))] : [],
  ...count(data.heads, (i) => option(i, text("place.head", {n: i}))))));
}

function setUpBar() {
  const bar = document.getElementById("bar");
  for (const list of all(".chips")) {
    list.setAttribute("aria-label", text("bar.choose"));
    fillChips(list);
  }
  if (data.tokens.length > 1) {
    bar.append(make("label", {class: "controls"}, make("select", {id: "item", "aria-label": text("bar.item"),
      onchange: (event) => choose(Number(event.target.value), state.query)},
    ...data.tokens.map((_, i) => make("option", {value: i, selected: i === state.item ? "" : null},
        text("place.item", {n: i + 1, count: data.tokens.length}))))));
  }
  setUpHeads(bar);
  document.querySelector(".banner").append(make("p", {class: "small"}, text("bar.hint")), button({class: "plain", title: text("bar.theme"),
    "aria-label": text("bar.theme"), onclick: () => {
      const dark = (root.dataset.theme ?? getComputedStyle(root).colorScheme) === "dark";
      root.dataset.theme = dark ? "light" : "dark";
      paintAll();
      placeChanged();
    }}, "\u25d0"));

  setUpWalk(bar);
  setUpEditing(bar);
  new ResizeObserver(() => root.style.setProperty("--bar", bar.offsetHeight + "px")).observe(bar);
}
