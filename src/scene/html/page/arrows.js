// SPDX-License-Identifier: Apache-2.0
//
// Queries and keys of two numbers as arrows. The score of a key is the length of the query times the
// length of the shadow that the key casts on the query's line.

const MOST_ARROWS = 12, ARROW_PLANE = 250;  // keys; the longer side of the picture without its labels, in pixels

const arrowOf = (name, head, i) => operand(name, state.item, head, i).numbers;
const norm = (end) => Math.hypot(...end);
/** Returns whether every query and key of the scene is an arrow in the plane. */
const isPlanar = () => whole && !data.score.v && !data.score.general && Math.max(queries, keys) <= MOST_ARROWS &&
    ["query", "key"].every((name) => arrowOf(name, 0, 0).length === 2);

/** Returns the multiples of a round number between two bounds, at most six. */
function gridLines(low, high, span) {
  const power = 10 ** Math.floor(Math.log10(span / 5));
  const distance = [1, 2, 5, 10].map((x) => x * power).find((size) => span / size <= 5);
  const first = Math.ceil(low / distance - 1e-9);
  return count(Math.floor(high / distance + 1e-9) - first + 1, (i) => (first + i) * distance);
}

/** Draws the arrows of one head, and the shadow of the chosen key. */
function arrowPicture(head, chosen) {
  const {item, query} = state, own = arrowOf("query", head, query);
  const ends = [...count(queries, (i) => arrowOf("query", head, i)), ...count(keys, (k) => arrowOf("key", head, k))];
  // The same range for every word, so that the plane stays when another one is chosen.
  const [[left, right], [low, high]] = [0, 1].map((axis) => {
    const all = ends.map((end) => end[axis]).filter(Number.isFinite);
    return [Math.min(0, ...all), Math.max(0, ...all)];
  });
  const span = Math.max(right - left, high - low) || 1, unit = ARROW_PLANE / span;
  const place = ([x, y]) => [(x - left) * unit, (high - y) * unit];
  const rounded = (list) => list.map((x) => x.toFixed(1));
  const line = (a, b) => `M${rounded(place(a))}L${rounded(place(b))}`;
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "700 16px " + getComputedStyle(root).getPropertyValue("--serif");
  const bounds = {left: -16, top: -16, right: (right - left) * unit + 16, bottom: (high - low) * unit + 16};

  /** Writes text beside a point, and makes room for it. */
  const label = (end, words, anchor, [dx, dy], kind) => {
    const [x, y] = place(end), width = pen.measureText(words).width;
    const start = x + dx - {start: 0, middle: width / 2, end: width}[anchor];
    bounds.left = Math.min(bounds.left, start - 4);
    bounds.right = Math.max(bounds.right, start + width + 4);
    bounds.top = Math.min(bounds.top, y + dy - 16);
    bounds.bottom = Math.max(bounds.bottom, y + dy + 6);
    return make("text", {class: kind, x: x + dx, y: y + dy, "text-anchor": anchor}, words);
  };
  /** Draws an arrow from the origin, or a dot if it has no length. */
  const arrow = (end, kind) => {
    const size = norm(end), [x, y] = place(end), tip = Math.min(11, size * unit);
    if (size * unit < 1) return make("path", {class: kind + " tip", d: `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0`});
    const [ux, uy] = [end[0] / size, -end[1] / size];
    const point = (back, aside) => rounded([x - back * ux - aside * uy, y - back * uy + aside * ux]);
    return make("g", {class: kind}, make("path", {d: `M${rounded(place([0, 0]))}L${point(tip * 0.8, 0)}`}),
        make("path", {class: "tip", d: `M${rounded([x, y])}L${point(tip, 4.5)}L${point(tip, -4.5)}Z`}));
  };

  const [across, up] = [gridLines(left, right, span), gridLines(low, high, span)];
  const svg = make("svg", {role: "img"},
      make("path", {class: "grid", d: across.map((x) => line([x, low], [x, high])).join("") + up.map((y) => line([left, y], [right, y])).join("")}),
      make("path", {class: "axes", d: line([left, 0], [right, 0]) + line([0, low], [0, high])}),
      ...across.filter((x) => x).map((x) => label([x, 0], brief(x), "middle", [0, 15], "tick")),
      ...up.filter((y) => y).map((y) => label([0, y], brief(y), "end", [-6, 4], "tick")));
  // Words with the same arrow share a label.
  /** @type {Map<string, {end: number[], names: string[], seen: boolean, on: boolean}>} */
  const drawn = new Map();
  for (let k = 0; k < keys; ++k) {
    const end = arrowOf("key", head, k);
    if (!end.every(Number.isFinite)) continue;
    const one = drawn.get(String(end)) ?? {end, names: [], seen: false, on: false};
    one.names.push(shorten(word("k", item, k)));
    one.seen ||= !masked(item, head, query, k);
    one.on ||= k === chosen;
    drawn.set(String(end), one);
  }
  const list = [...drawn.values()], asks = own.every(Number.isFinite);
  const cast = list.find(({on}) => on);
  if (cast && asks && norm(own) > 0) {
    const share = (own[0] * cast.end[0] + own[1] * cast.end[1]) / norm(own) ** 2, foot = own.map((x) => x * share);
    svg.append(make("path", {class: share < 0 ? "shadow n" : "shadow", d: line([0, 0], foot)}), make("path", {class: "drop", d: line(cast.end, foot)}));
  }
  for (const {end, seen, on} of list) svg.append(arrow(end, `to${seen ? "" : " unseen"}${on ? " on" : ""}`));
  if (asks) svg.append(arrow(own, "ask"));
  for (const {end, names, on} of list) {
    const flat = Math.abs(end[0]) > Math.abs(end[1]) * 2, away = end[0] < 0 ? -1 : 1;
    svg.append(label(end, names.join(", "), !flat ? "middle" : away < 0 ? "end" : "start",
        flat ? [8 * away, -6] : [0, end[1] < 0 ? 20 : -9], on ? "on" : ""));
  }
  const width = bounds.right - bounds.left;
  svg.setAttribute("viewBox", rounded([bounds.left, bounds.top, width, bounds.bottom - bounds.top]).join(" "));
  svg.setAttribute("style", `max-width:${Math.ceil(width)}px`);
  const told = (name, end) => `${name} (${end.map((x) => Number.isFinite(x) ? brief(x) : "?").join(", ")})`;
  svg.setAttribute("aria-label", text("arrows.label", {query: told(word("q", item, query), own),
    keys: list.map(({end, names}) => told(names.join(", "), end)).join("; ")}));
  return svg;
}

/** Tells how the score of a key is made of two lengths. */
function arrowWords(head, key) {
  const {item, query} = state, scores = steps.get("scores"), score = at(scores, item, head, 0, query, key);
  const [own, end] = [arrowOf("query", head, query), arrowOf("key", head, key)], [length, reach] = [norm(own), norm(end)];
  const first = text("arrows.score", {query: word("q", item, query), key: word("k", item, key), score: show(scores, score)});
  if (!Number.isFinite(score) || !Number.isFinite(length * reach)) return [first];
  if (length * reach === 0) return [first, text("arrows.zero")];
  const shadow = (own[0] * end[0] + own[1] * end[1]) / length;
  return [first, text("arrows.shadow", {length: brief(length), shadow: brief(shadow)}),
    text("arrows.angle", {angle: fixed(Math.acos(clamp(shadow / reach, -1, 1)) * 180 / Math.PI, 0)})];
}

function fillArrows(figure, head) {
  const draw = (key) => {
    figure.querySelector("svg").replaceWith(arrowPicture(head, key));
    figure.querySelector(".made").replaceChildren(...arrowWords(head, key).map((line) => make("p", {}, line)));
  };
  // The key with the largest weight, if possible not the word itself.
  const others = count(keys, (k) => k).filter((k) => data.source || k !== state.query), list = others.length ? others : [0];
  figure.key = figure.key < keys && figure.query === state.query ? figure.key
      : list.reduce((a, b) => weightOf(head, b) > weightOf(head, a) ? b : a);
  figure.query = state.query;
  figure.replaceChildren(make("figcaption", {}, text("arrows.title", {word: word("q", state.item, state.query)})), make("svg"),
      make("div", {class: "controls", role: "group", "aria-label": text("arrows.key")}, ...count(keys, (k) => button({
        class: "plain", "aria-pressed": k === figure.key, onclick: ({currentTarget}) => {
          figure.key = k;
          all("button", figure).forEach((chip) => chip.setAttribute("aria-pressed", chip === currentTarget));
          draw(k);
        }, onmouseenter: () => draw(k), onmouseleave: () => draw(figure.key)}, bdi(word("k", state.item, k))))),
      make("div", {class: "made", "aria-live": "polite"}));
  draw(figure.key);
}
FILL.arrows = fillArrows;

function setUpArrows() {
  if (!steps.has("scores") || !isPlanar()) return;
  for (const tale of all("#story-scores .tale")) {
    const figure = make("figure", {class: "tale arrows", "data-kind": "arrows", "data-head": tale.dataset.head,
      "data-heads": tale.dataset.heads ?? null});
    tale.after(figure);
    fillArrows(figure, Number(tale.dataset.head));
  }
}
