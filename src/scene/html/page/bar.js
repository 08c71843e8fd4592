// SPDX-License-Identifier: Apache-2.0
//
// Selection of a word; the bar with words, batch item and walk; the theme button.

/** @param {{retell?: boolean}} options */
function update({retell} = {}) {
  const {item, query} = state;
  for (const node of all("[data-item]")) {
    node.hidden = Number(node.dataset.item) >= 0 && Number(node.dataset.item) !== item;
  }
  for (const node of all("[data-plane] + [data-plane], [data-plane]:not(:last-child)")) {
    node.hidden ||= Number(node.dataset.plane) !== query;
  }
  for (const list of all(".chips")) {
    all("button", list).forEach((chip, i) => {
      chip.setAttribute("aria-pressed", i === query);
      if (i !== query || list.hidden) return;
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
  if (weights) drawArcs();
}
function choose(item, query) {
  const moved = item !== state.item;
  Object.assign(state, {item, query});
  update({retell: true});
  if (moved) paintAll();
}

// ---- The bar

function setUpBar() {
  const bar = document.getElementById("bar");
  for (const list of all(".chips")) {
    list.setAttribute("aria-label", text("bar.choose"));
    all("li", list).forEach((place, i) => place.append(button({title: place.textContent,
      onclick: () => choose(Number(list.dataset.item), i)}, ...place.childNodes)));
  }
  if (data.tokens.length > 1) {
    bar.append(make("label", {class: "controls"}, text("bar.item"), make("select", {
      onchange: (event) => choose(Number(event.target.value), state.query)},
    ...data.tokens.map((_, i) => make("option", {value: i, selected: i === state.item ? "" : null},
        String(i))))));
  }
  document.querySelector(".banner").append(button({class: "plain", title: text("bar.theme"),
    "aria-label": text("bar.theme"), onclick: () => {
      const dark = (root.dataset.theme ?? getComputedStyle(root).colorScheme) === "dark";
      root.dataset.theme = dark ? "light" : "dark";
      paintAll();
    }}, "\u25d0"));

  const sections = all("section.step"), output = make("output");
  const slider = make("input", {type: "range", min: 0, max: sections.length - 1, value: 0,
    "aria-label": text("bar.walk_through"), oninput: () => {
      jumped = Date.now();
      mark(Number(slider.value));
      sections[slider.value].scrollIntoView();
    }});
  let jumped = 0;
  const mark = (i) => {
    const names = sections[i].dataset.step.split(" ").map(plain);
    const title = `${i + 1}  ${sections[i].querySelector(".title").textContent}`;
    slider.value = i;
    slider.setAttribute("aria-valuetext", title);
    output.textContent = title;
    for (const box of all("#flow a")) {
      if (names.includes(box.dataset.step)) box.setAttribute("aria-current", "step");
      else box.removeAttribute("aria-current");
    }
  };
  addEventListener("scroll", () => {
    if (Date.now() - jumped < 900) return;  // still scrolling to the slider's section
    const above = sections.filter((one) => one.getBoundingClientRect().top < innerHeight * 0.4);
    mark(Math.max(0, above.length - 1));
  }, {passive: true});
  bar.append(make("div", {class: "controls walk"}, make("label", {}, text("bar.walk"), slider), output));
  mark(0);
  new ResizeObserver(() => root.style.setProperty("--bar", bar.offsetHeight + "px")).observe(bar);
}
