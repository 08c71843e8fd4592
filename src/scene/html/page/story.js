// SPDX-License-Identifier: Apache-2.0
//
// The story of a word, rebuilt for another word (story.cc renders the initial one).

function heatCells(step, numbers) {
  const cells = numbers.slice(0, data.limits.numbers).map((x) => heatCell(step, x));
  return numbers.length > cells.length ? [...cells, make("td", {}, "\u2026")] : cells;
}
const rowOf = (step, head, plane, row) =>
    count(step.dims[4], (d) => at(step, state.item, head, plane, row, d));
const weightOf = (head, key) => at(weights, state.item, head, 0, state.query, key);
/** Returns all keys, or if there are many, those with the largest weights in any of the heads. */
function listed(heads, few = data.limits.table, most = data.limits.keys) {
  const list = count(keys, (k) => k);
  const size = (x) => Number.isNaN(x) ? -Infinity : x;
  const rank = list.map((k) => Math.max(...heads.map((head) => size(weightOf(head, k)))));
  return keys <= few ? list : list.sort((a, b) => rank[b] - rank[a] || a - b).slice(0, most);
}

function fillKeys(figure, head, cells) {
  const body = figure.querySelector("tbody"), rest = all(".rest", body);
  const lines = listed([head]).map((key) => [key, cells(key)]).filter(([, line]) => line);
  body.replaceChildren(...lines.map(([key, line]) => {
    return make("tr", {}, heading("row", word("k", state.item, key)), ...line);
  }), ...rest);
  if (!body.rows.length) {
    body.append(make("tr", {}, make("th", {scope: "row"}, "\u2013"),
        make("td", {colspan: 3}, text("story.no_key"))));
  }
}
function fillWord(figure, head) {
  for (const line of all("tr[data-step]", figure)) {
    const name = plain(line.dataset.step), step = steps.get(name);
    line.replaceChildren(line.cells[0], ...heatCells(step, /embed|merged/.test(name)
        ? rowOf(step, head, 0, state.query) : operand(name, state.item, head, state.query).numbers));
  }
}
function fillList(figure, head) {
  const {item, query} = state, products = figure.querySelector("th.terms");
  const list = all("th[data-step]", figure).map((th) => steps.get(plain(th.dataset.step)));
  const main = list[list.length - 1];
  fillKeys(figure, head, (key) => {
    const cells = products ? [make("td", {class: "terms"},
        sumOf(scoreTerms(item, head, query, key)) + " =")] : [];
    for (const step of list) {
      cells.push(step.maskable && masked(item, head, query, key)
          ? maskedCell()
          : make("td", {}, show(step, at(step, item, head, 0, query, key))));
    }
    const x = at(main, item, head, 0, query, key), v = Math.abs(x) / (main.largest || 1);
    const kind = "bar-cell" + (x < 0 ? " n" : "") + (main === weights ? " share" : "");
    cells.push(Number.isFinite(x) && x !== 0 ? make("td", {class: kind,
      style: `--v:${fixed(v, 3)}`}, make("i", {}, "\u00a0")) : make("td"));
    return cells;
  });
  for (const cell of all("tfoot [data-step]", figure)) {
    const sum = steps.get(plain(cell.dataset.step));
    cell.textContent = show(sum, at(sum, item, head, 0, query, 0));
  }
}
function fillContext(figure, head) {
  const {item, query} = state, context = steps.get("context");
  fillKeys(figure, head, (key) => {
    if (masked(item, head, query, key)) return null;
    const value = operand("value", item, head, key);
    return [make("td", {class: "weight"}, show(weights, weightOf(head, key))),
      make("td", {class: "times"}, "\u00d7"), ...heatCells(value.step, value.numbers)];
  });
  const foot = figure.querySelector("tfoot tr");
  foot.replaceChildren(foot.cells[0], foot.cells[1],
      ...heatCells(context, rowOf(context, head, 0, query)));
}
function fillHidden(figure, head) {
  const hidden = steps.get("hidden");
  fillKeys(figure, head, (key) => heatCells(hidden, rowOf(hidden, head, state.query, key)));
}
const FILL = {word: fillWord, merged: fillWord, scores: fillList, weights: fillList,
  context: fillContext, hidden: fillHidden};
// If the size of the page required omitting or coarsely rounding numbers, the initial story stays.
const whole = weights && !weights.u8 &&
    all(".tale [data-step]").every((node) => steps.has(plain(node.dataset.step)));
