// SPDX-License-Identifier: Apache-2.0
//
// Selection of a word; the bar with words, batch item and walk (walk.js); the theme button.

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
  }
  if (weights && !still) drawArcs();
}
function choose(item, query) {
  const moved = item !== state.item;
  Object.assign(state, {item, query});
  update({retell: true});
  if (moved) paintAll();
  placeChanged();
}

// ---- The bar

/** Fills a list of words with buttons that choose them, and while editing, remove them. */
function fillChips(list) {
  const item = Number(list.dataset.item);
  list.replaceChildren(...data.tokens[item].map((name, i) => make("li", {},
      button({title: name, onclick: () => choose(item, i)}, bdi(name)), ...removeButtons(name, i))));
}
function setUpBar() {
  const bar = document.getElementById("bar");
  for (const list of all(".chips")) {
    list.setAttribute("aria-label", text("bar.choose"));
    fillChips(list);
  }
  if (data.tokens.length > 1) {
    bar.append(make("label", {class: "controls"}, make("select", {"aria-label": text("bar.item"),
      onchange: (event) => choose(Number(event.target.value), state.query)},
    ...data.tokens.map((_, i) => make("option", {value: i, selected: i === state.item ? "" : null},
        text("place.item", {n: i + 1, count: data.tokens.length}))))));
  }
  document.querySelector(".banner").append(button({class: "plain", title: text("bar.theme"),
    "aria-label": text("bar.theme"), onclick: () => {
      const dark = (root.dataset.theme ?? getComputedStyle(root).colorScheme) === "dark";
      root.dataset.theme = dark ? "light" : "dark";
      paintAll();
    }}, "\u25d0"));

  setUpWalk(bar);
  setUpEditing(bar);
  new ResizeObserver(() => root.style.setProperty("--bar", bar.offsetHeight + "px")).observe(bar);
}
