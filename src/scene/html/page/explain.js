// SPDX-License-Identifier: Apache-2.0
//
// Explains how a number was computed, and from which cells.

/** Returns the row of a query, key or value for one query head, and its location on the page. */
function operand(name, item, head, i) {
  const isKey = name !== "query", own = steps.get(name);
  const h = isKey ? Math.floor(head * data.kvHeads / data.heads) : head;
  const step = own || steps.get(isKey && data.source ? "source_embeddings" : "embeddings");
  const size = own ? step.dims[4] : step.dims[4] / (isKey ? data.kvHeads : data.heads);
  const first = own ? 0 : h * size;
  return {step, numbers: count(size, (d) => at(step, item, h, 0, i, first + d)),
    light: {step: step.name, item, head: own ? h : 0, row: i, first, size}};
}

/** @returns {Products} */
function scoreTerms(item, head, query, key) {
  const {v, general} = data.score, right = steps.get("hidden");
  if (v) return {pairs: v.map((x, d) => [x, at(right, item, head, query, key, d)]), right};
  const q = operand("query", item, head, query), k = operand("key", item, head, key);
  const moved = general && k.numbers.map((_, e) =>
      q.numbers.reduce((sum, x, d) => sum + x * general[d * k.numbers.length + e], 0));
  return {pairs: k.numbers.map((x, d) => [(moved || q.numbers)[d], x]),
    left: moved ? null : q.step, right: k.step};
}

/** Returns what the softmax of a row is made of; `shift` is the largest score, or 0 if none is subtracted. */
function softmaxRow(item, head, row, how) {
  const scores = steps.get(last), seen = count(keys, (k) => k).filter((k) => !masked(item, head, row, k));
  const sink = data.score.sinks ? [sinksOf(scores)[head]] : [];
  const others = seen.map((k) => known(scores, item, head, 0, row, k)).concat(sink);
  const shift = how === "softmax" ? Math.max(...others) : 0, largest = seen[others.indexOf(shift)];
  const part = how === "sum" ? (x) => x : (x) => Math.exp(x - shift);
  const minus = show(scores, largest === undefined ? shift : at(scores, item, head, 0, row, largest));
  return {scores, seen, sink, others, part, sum: others.reduce((total, x) => total + part(x), 0),
    lessMax: how !== "softmax" ? "" : ` \u2212 ${shift < 0 ? `(${minus})` : minus}`};
}

/** Explains the largest score or the sum of the scores of a row, or the sink's number in a column of softmax. */
function explainTotal({step, item, head, row, total}, shown, result) {
  const {scores, seen, sink, part, sum, lessMax} = softmaxRow(item, head, row, kindOf(step));
  const lights = [{step: last, item, head, row}];
  if (total !== "sink") {
    const few = seen.slice(0, 16).map((k) => show(scores, at(scores, item, head, 0, row, k)));
    const all = [...few, ...seen.length > 16 ? ["\u2026"] : [], ...sink.map((x) => show(scores, x))];
    return [[`${total === "max" ? `max(${all.join(", ")})` : all.join(" + ")} ${result}`,
      sink.length ? text("explain.with_sink") : null], lights];
  }
  const power = show(scores, sink[0]) + lessMax, share = factor(part(sink[0]));
  return [[{scores: text("explain.given", {value: shown}), shifted_scores: `${power} ${result}`,
    exponentials: `exp(${power}) ${result}`,
    weights: `${share} / ${factor(sum)} ${result}`}[step === scores ? "scores" : step.base]], lights];
}

/**
 * Returns lines that explain how a cell was computed, and the cells that were its inputs.
 * @param {any} place
 * @param {string} shown the number as the cell shows it
 */
function explain(place, shown = show(place.step, at(place.step, place.item, place.head, place.plane, place.row, place.col))) {
  const {step, item, head, plane, row, col} = place, base = step.base, result = /^[<>]/.test(shown) ? shown : `= ${shown}`;
  if (place.total) return explainTotal(place, shown, result);
  const light = (name, r, c) => ({step: name, item, head, plane, row: r, col: c});
  if (step.maskable && masked(item, head, row, col)) {
    return [[text("explain.masked")], []];
  }
  const projection = steps.get(base + "_weights");
  if (projection) {
    const from = steps.get(base !== "query" && data.source ? "source_embeddings" : "embeddings");
    const column = head * step.dims[4] + col;
    const pairs = count(from.dims[4], (d) =>
        [at(from, item, 0, 0, row, d), at(projection, 0, 0, 0, d, column)]);
    return [[`${sumOf({pairs, left: from, right: projection})} = ${shown}`],
      [{step: from.name, item, head: 0, row}, {step: projection.name, head: 0, col: column}]];
  }
  if (base === "hidden") {
    return [[`tanh(q W + k U) = ${shown}`],
      [operand("query", item, head, plane).light, operand("key", item, head, row).light]];
  }
  if (base === "scores") {
    const lights = data.score.v ? [{step: "hidden", item, head, plane: row, row: col}]
        : [operand("query", item, head, row).light, operand("key", item, head, col).light];
    return [[`${sumOf(scoreTerms(item, head, row, col))} = ${shown}`], lights];
  }
  const stage = STAGES.indexOf(base);
  if (stage > 0) {
    const before = steps.get(STAGES.slice(0, stage).filter((name) => steps.has(name)).pop());
    if (!before) return [[shown], []];
    const x = at(before, item, head, 0, row, col), old = show(before, x);
    const cap = factor(data.score.softcap);
    const how = {scaled_scores: `${old} \u00b7 ${factor(data.score.scale)}`,
      softcapped_scores: `${cap} \u00b7 tanh(${old} / ${cap})`,
      biased_scores: `${old} + ${factor(known(step, item, head, 0, row, col) - known(before, item, head, 0, row, col))}`,
      masked_scores: text("explain.visible")}[base];
    return [[`${how} = ${shown}`], [light(before.name, row, col)]];
  }
  if (last && /^(weights|shifted_scores|exponential)/.test(base)) {
    const how = kindOf(step), {scores, sink, others, part, sum, lessMax} = softmaxRow(item, head, row, how);
    const s = known(scores, item, head, 0, row, col), lights = [light(last, row)];
    const power = show(scores, at(scores, item, head, 0, row, col)) + lessMax;
    if (base === "shifted_scores") return [[`${power} ${result}`, text("explain.largest")], lights];
    if (base === "exponentials") return [[`exp(${power}) ${result}`], [light(last, row, col)]];
    if (base === "exponential_sums") {
      const parts = others.length > 16 ? text("explain.all_exponentials", {n: others.length})
          : others.map((x) => factor(part(x))).join(" + ");
      return [[`${parts} ${result}`, sink.length ? text("explain.with_sink") : null], lights];
    }
    return [[how === "sum" ? null : `exp(${power}) = ${factor(part(s))}`,
      `${factor(part(s))} / ${factor(sum)} ${result}`,
      `(${text(sink.length ? "explain.sum_sink" : "explain.sum", {sum: factor(sum)})})`], lights];
  }
  if (base === "row_sums") {
    const from = steps.get(step.name.replace(base, "weights"));
    const parts = keys > 16 ? text("explain.all_weights", {n: keys})
        : count(keys, (k) => show(from, at(from, item, head, 0, row, k))).join(" + ");
    return [[`${parts} = ${shown}`], [light(from.name, row)]];
  }
  if (base === "context" && weights) {
    const seen = count(keys, (k) => k).filter((k) => !masked(item, head, row, k));
    const {step: right, light: from} = operand("value", item, head, 0);
    const pairs = seen.map((k) => [at(weights, item, head, 0, row, k),
      operand("value", item, head, k).numbers[col]]);
    return [[`${sumOf({pairs, left: weights, right})} = ${shown}`], [light("weights", row),
      {step: right.name, item, head: from.head, col: from.first + col}]];
  }
  if (base === "merged_context") {
    const size = step.dims[4] / data.heads, h = Math.floor(col / size), c = col % size;
    return [[text("explain.merged", {n: c, head: h, value: shown})], [{step: "context", item, head: h, row, col: c}]];
  }
  return [[text("explain.given", {value: shown})], []];
}
