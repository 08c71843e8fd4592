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
  const size = (x) => x >= -Infinity ? x : -Infinity;
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
  const {item, query} = state, products = figure.querySelector("th.terms"), foot = figure.querySelector("tfoot");
  const list = all("th[data-step]", figure).map((th) => steps.get(plain(th.dataset.step)));
  const main = list[list.length - 1], number = (step, key) => at(step, item, head, 0, query, key);
  // In the table of weights, all numbers of a masked key are hidden.
  const hidden = (step, key) => (step.maskable || foot) && masked(item, head, query, key);
  const axis = count(keys, (k) => k).some((key) => !hidden(main, key) && number(main, key) < 0 &&
      number(main, key) > -Infinity);
  fillKeys(figure, head, (key) => {
    const cells = products ? [make("td", {class: "terms"},
        sumOf(scoreTerms(item, head, query, key)) + " =")] : [];
    for (const step of list) {
      const x = number(step, key);
      cells.push(hidden(step, key) ? maskedCell() : make("td", {class: x === undefined ? "asked" : null}, show(step, x)));
    }
    const x = number(main, key), v = Math.abs(x) / (main.largest || 1);
    const kind = "bar-cell" + (x < 0 ? " n" : "") + (main === weights ? " share" : "") + (axis ? " axis" : "");
    cells.push(!hidden(main, key) && Number.isFinite(x) && (axis || x !== 0) ? make("td", {class: kind,
      style: `--v:${fixed(v, 3)}`}, make("i", {}, "\u00a0")) : make("td"));
    return cells;
  });
  foot?.replaceChildren(...softmaxTotals(list, head));
}
/** Returns the rows of the sink, the maximum and the sums below the weights, and remarks. */
function softmaxTotals(list, head) {
  const {item, query} = state, [scores] = list, main = list[list.length - 1];
  const kinds = list.filter((step) => step.base === "weights").map(kindOf);
  const seen = count(keys, (k) => k).filter((key) => !masked(item, head, query, key));
  const number = (step, key) => known(step, item, head, 0, query, key);
  const sink = data.score.sinks ? [sinksOf(scores)[head]] : [];
  const most = [...sink, ...seen.map((key) => number(scores, key))]
      .reduce((max, x) => max === undefined || !(x <= max) ? x : max, undefined);
  const open = seen.some((key) => at(scores, item, head, 0, query, key) === undefined && number(scores, key) === most);
  const sumOfRow = (base, of) => at(steps.get(of.name.replace(of.base, base)), item, head, 0, query, 0);
  /** The sink's number in a column. */
  const sinkIn = (step) => {
    const shifted = kindOf(step) === "softmax" && step !== scores ? sink[0] - most : sink[0];
    return step === scores || step.base === "shifted_scores" ? shifted
        : Math.exp(shifted) / (step.base === "weights" ? sumOfRow("exponential_sums", step) : 1);
  };
  const total = (step) => {
    const base = {exponentials: "exponential_sums", weights: "row_sums"}[step.base];
    if (base) return [steps.get(step.name.replace(step.base, base)),
      sumOfRow(base, step) + (base === "row_sums" && sink.length ? sinkIn(step) : 0)];
    return step === scores && kinds.includes("sum")
        ? [scores, seen.reduce((sum, key) => sum + number(scores, key), 0)] : null;
  };
  const row = (name, cells) => make("tr", {"data-total": name},
      make("th", {scope: "row"}, text("softmax." + name)), ...cells, make("td"));
  const remark = (words) => make("tr", {class: "remark"}, make("td", {colspan: list.length + 2}, words));
  const rows = [];
  if (sink.length) rows.push(row("sink", list.map((step) => make("td", {}, show(step, sinkIn(step))))));
  if (kinds.includes("softmax") && most !== undefined) {
    rows.push(row("max", list.map((step) => make("td", {}, step === scores ? show(step, open ? undefined : most) : ""))));
  }
  rows.push(row("sum", list.map((step) => {
    const [of, sum] = total(step) ?? [];
    return of ? make("td", {"data-step": of === scores ? null : "focus." + of.name}, show(of, sum)) : make("td");
  })));
  if (sink.length) {
    rows.push(remark(text("remark.sink_share", {words: show(main, sumOfRow("row_sums", main)),
      sink: show(main, sinkIn(main))})));
  }
  const naive = list.find((step) => step.base === "exponentials" && kindOf(step) === "softmax_unshifted");
  const fault = naive && naiveFault(scores, naive, seen.map((key) => [number(scores, key), number(naive, key)]),
      sumOfRow("exponential_sums", naive));
  return fault ? [...rows, remark(fault)] : rows;
}
/** Returns why the naive softmax has no proper weights, or "". */
function naiveFault(scores, naive, pairs, sum) {
  const finite = pairs.map(([x]) => x).filter(Number.isFinite);
  if (pairs.some(([x, power]) => power === Infinity && Number.isFinite(x))) {
    return text("remark.overflow", {score: show(scores, Math.max(...finite)),
      type: naive.single ? "float32" : "float64", largest: naive.single ? "3.4e+38" : "1.8e+308"});
  }
  return pairs.length === 0 ? "" : sum === Infinity ? text("remark.sum_overflow")
      : sum === 0 ? text("remark.underflow") : "";
}
/** Writes the scale of the scores, and the key that changes it. */
function tellScale() {
  const {scale, scaleText, general, v} = data.score, size = operand("query", 0, 0, 0).numbers.length;
  const said = scaleText === brief(scale) ? scaleText : `${scaleText} = ${brief(scale)}`;
  const words = steps.has("scaled_scores") ? text("remark.scaled", {scale: said})
      : size === 1 || general || v ? "" : text("remark.not_scaled", {n: size, scale: brief(1 / Math.sqrt(size))});
  all(".scale-remark").forEach((node) => { node.textContent = words; });
}
function fillContext(figure, head) {
  const {item, query} = state, context = steps.get("context");
  fillKeys(figure, head, (key) => {
    if (masked(item, head, query, key)) return null;
    const value = operand("value", item, head, key);
    return [make("td", {class: "weight"}, show(weights, weightOf(head, key))),
      make("td", {class: "times"}, "\u00b7"), ...heatCells(value.step, value.numbers)];
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
