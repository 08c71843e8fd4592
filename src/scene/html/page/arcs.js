// SPDX-License-Identifier: Apache-2.0
//
// Arcs between two copies of the sentence, or two sentences.

const glance = document.getElementById("glance");
const FAINTEST = 0.001;  // weaker arcs are not drawn
const BUNDLED = 12;  // of more keys, the weak arcs of a word are one band
const STRONG = 6;  // arcs of a word that are not weak

function shorten(name) {
  const letters = [...name];
  return letters.length > 18 ? letters.slice(0, 12).join("") + "\u2026" + letters.slice(-4).join("") : name;
}

/**
 * Returns the arcs from the words `from`: those to the words `to`, and for each word and head one
 * with k = -1 to the others. If there are many keys, only the strongest arcs of a word are apart.
 */
function linksOf(from, to) {
  const {item, heads} = state, least = Math.max(state.least, FAINTEST);
  return [...heads].flatMap((head) => from.flatMap((q) => {
    const links = count(keys, (k) => ({head, q, k, w: at(weights, item, head, 0, q, k), n: 1}))
        .filter(({k, w}) => w >= least && !masked(item, head, q, k));
    if (keys <= BUNDLED) return links;
    if (!many) links.sort((a, b) => b.w - a.w);
    const strong = links.filter(({k}, i) => many ? to.includes(k) : i < STRONG);
    const weak = links.filter((link) => !strong.includes(link));
    return weak.length === 0 ? strong : [...strong,
      {head, q, k: -1, w: weak.reduce((sum, {w}) => sum + w, 0), n: weak.length}];
  }));
}

function drawArcs() {
  const old = document.getElementById("arcs"), width = old.parentElement.clientWidth;
  const {item, query} = state;
  // If there are many words, only the strongest links of the selected one, in sentence order.
  const indices = many ? [[query], listed([...state.heads], 24, 24).sort((a, b) => a - b)]
      : [count(queries, (i) => i), count(keys, (i) => i)];
  const links = linksOf(...indices), bands = links.filter(({k}) => k < 0);
  if (bands.length > 0) indices[1].push(-1);
  const others = (q) => text("arcs.others", {n: Math.max(0, ...bands.filter((one) => one.q === q).map(({n}) => n))});
  const names = indices.map((list, side) => list.map((i) =>
      i < 0 ? others(query) : shorten(placed(side ? "k" : "q", item, i))));

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

  const thick = 13 / Math.max(weights.largest, 0.3), m = (from + to) / 2;
  const arcs = links.map(({head, q, k, w, n}) => {
    const aside = (head - (data.heads - 1) / 2) * (flat ? 5 : 3), i = indices[0].indexOf(q);
    const a = places[0][i] + aside, b = places[1][indices[1].indexOf(k)] + aside;
    const d = flat ? `M${a} ${from}C${a} ${m} ${b} ${m} ${b} ${to}`
        : `M${from} ${a}C${m} ${a} ${m} ${b} ${to} ${b}`;
    const name = k < 0 ? text("arcs.others", {n}) : shorten(placed("k", item, k));
    return {q, k, w, arc: make("path", {d, stroke: k < 0 ? "var(--soft)" : HEADS[head % HEADS.length],
      "stroke-width": clamp(w * thick, 0.4, 16).toFixed(2),
      "stroke-dasharray": head >= HEADS.length ? "6 3" : null},
    make("title", {}, `${names[0][i]} \u2192 ${name}: ${show(weights, w)}`))};
  });
  const group = make("g", {}, ...arcs.map(({arc}) => arc));
  svg.append(group);
  const light = (test) => arcs.forEach((one) => {
    const [here, elsewhere] = one.k < 0 ? [0.35, 0.015] : [0.85, 0.12];
    one.arc.setAttribute("stroke-opacity", test(one) ? here : elsewhere);
    if (test(one)) group.append(one.arc);  // the last element is drawn on top
  });
  const chosen = ({q}) => q === query;
  names.forEach((list, side) => list.forEach((name, n) => {
    const i = indices[side][n], place = places[side][n];
    svg.append(make("text", {
      "text-anchor": flat ? "middle" : side ? "start" : "end",
      class: side ? (i < 0 ? "others" : null) : i === query ? "ask on" : "ask",
      x: flat ? place : side ? to + 6 : from - 6,
      y: flat ? (side ? to + 22 : from - 10) : place + 5,
      onmouseenter: () => light(({q, k}) => (side ? k : q) === i),
      onmouseleave: () => light(chosen),
      onclick: () => { if (!side) choose(item, i); }}, name));
  }));
  light(chosen);
  const told = arcs.filter((one) => chosen(one) && one.k >= 0).sort((a, b) => b.w - a.w).slice(0, 8)
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
    if (data.heads > 1) {
      controls.append(button({class: "plain", "data-arcs": head, onclick: () => {
        if (!state.heads.delete(head)) state.heads.add(head);
        update();
      }}, make("span", {class: "swatch", style: `background:${HEADS[head % HEADS.length]}`}),
      text("place.head", {n: head})));
    }
  }
  glance.append(make("p", {class: "reading"}, 
      text(data.source ? "arcs.reading_two" : "arcs.reading")),
  controls, make("div", {}, make("svg", {id: "arcs"})));
}
