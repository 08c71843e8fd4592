// SPDX-License-Identifier: Apache-2.0
//
// Arcs between two copies of the sentence, or two sentences.

const glance = document.getElementById("glance");

function shorten(name) {
  const letters = [...name];
  return letters.length > 18 ? letters.slice(0, 12).join("") + "\u2026" + letters.slice(-4).join("") : name;
}

function drawArcs() {
  const old = document.getElementById("arcs"), width = old.parentElement.clientWidth;
  const {item, query} = state;
  // If there are many words, only the strongest links of the selected one, in sentence order.
  const indices = many ? [[query], listed([...state.heads], 24, 24).sort((a, b) => a - b)]
      : [count(queries, (i) => i), count(keys, (i) => i)];
  const names = indices.map((list, side) => list.map((i) =>
      shorten(placed(side ? "k" : "q", item, i))));

  // Words are laid out horizontally if they fit, otherwise vertically.
  const pen = document.createElement("canvas").getContext("2d"), gap = 26, line = 26;
  pen.font = "700 17px " + getComputedStyle(glance.querySelector("h2")).fontFamily;
  const sizes = names.map((list) => list.map((name) => pen.measureText(name).width + gap));
  const sums = sizes.map((list) => list.reduce((a, b) => a + b, 0));
  const flat = Math.max(...sums) <= width, across = flat ? width : Math.min(width, 620);
  const widest = sizes.map((list) => Math.max(...list));
  const longest = Math.max(...names.map((list) => list.length));
  const places = sizes.map((list, side) => {
    const room = Math.min(1.8, width / sums[side]), slot = line * longest / list.length;
    let x = (width - sums[side] * room) / 2;
    return list.map((size, i) => flat ? (x += size * room) - size * room / 2 : slot * (i + 0.5) + 8);
  });
  const height = flat ? 250 : line * longest + 16;
  const [from, to] = flat ? [34, height - 34] : [widest[0] - 10, across - widest[1] + 10];
  const svg = make("svg", {id: "arcs", role: "img", viewBox: `0 0 ${across} ${height}`,
    style: `max-width:${across}px`});

  const thick = 13 / Math.max(weights.largest, 0.3), arcs = [];
  for (const head of state.heads) {
    const aside = (head - (data.heads - 1) / 2) * (flat ? 5 : 3);
    indices[0].forEach((q, i) => indices[1].forEach((k, j) => {
      const w = at(weights, item, head, 0, q, k), m = (from + to) / 2;
      if (!(w > 0 && w >= state.least) || masked(item, head, q, k)) return;
      const a = places[0][i] + aside, b = places[1][j] + aside;
      const d = flat ? `M${a} ${from}C${a} ${m} ${b} ${m} ${b} ${to}`
          : `M${from} ${a}C${m} ${a} ${m} ${b} ${to} ${b}`;
      arcs.push({q, k, w, arc: make("path", {d, stroke: HEADS[head % HEADS.length],
        "stroke-width": Math.max(0.4, w * thick).toFixed(2),
        "stroke-dasharray": head >= HEADS.length ? "6 3" : null},
      make("title", {}, `${names[0][i]} \u2192 ${names[1][j]}: ${show(weights, w)}`))});
    }));
  }
  const group = make("g", {}, ...arcs.map(({arc}) => arc));
  svg.append(group);
  const light = (test) => arcs.forEach((one) => {
    one.arc.setAttribute("stroke-opacity", test(one) ? 0.85 : 0.12);
    if (test(one)) group.append(one.arc);  // the last element is drawn on top
  });
  const chosen = ({q}) => q === query;
  names.forEach((list, side) => list.forEach((name, n) => {
    const i = indices[side][n], place = places[side][n];
    svg.append(make("text", {
      "text-anchor": flat ? "middle" : side ? "start" : "end",
      class: side ? null : i === query ? "ask on" : "ask",
      x: flat ? place : side ? to + 6 : from - 6,
      y: flat ? (side ? to + 22 : from - 10) : place + 5,
      onmouseenter: () => light(({q, k}) => (side ? k : q) === i),
      onmouseleave: () => light(chosen),
      onclick: () => { if (!side) choose(item, i); }}, name));
  }));
  light(chosen);
  const told = arcs.filter(chosen).sort((a, b) => b.w - a.w).slice(0, 8)
      .map(({arc}) => arc.textContent).join("; ");
  svg.setAttribute("aria-label", text("arcs.label", {strongest: told}));
  old.replaceWith(svg);
}

function setUpArcs() {
  glance.hidden = false;
  const output = make("output", {}, text("arcs.all")), controls = make("div", {class: "controls"},
      make("label", {}, text("arcs.from"), make("input", {type: "range", min: 0, max: 100, value: 0,
        oninput: (event) => {
          state.least = weights.largest * Number(event.target.value) / 100;
          output.textContent = state.least ? fixed(state.least, 3) : text("arcs.all");
          drawArcs();
        }}), output));
  for (let head = 0; head < data.heads; ++head) {
    state.heads.add(head);
    if (data.heads > 1) {
      controls.append(button({class: "plain", "aria-pressed": true, onclick: (event) => {
        const on = !state.heads.delete(head);
        if (on) state.heads.add(head);
        event.currentTarget.setAttribute("aria-pressed", on);
        drawArcs();
      }}, make("span", {class: "swatch", style: `background:${HEADS[head % HEADS.length]}`}),
      text("place.head", {n: head})));
    }
  }
  glance.append(make("p", {class: "reading"}, 
      text(data.source ? "arcs.reading_two" : "arcs.reading")),
  controls, make("div", {}, make("svg", {id: "arcs"})));
}
