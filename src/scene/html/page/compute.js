// SPDX-License-Identifier: Apache-2.0
//
// Computes every step of a dot-product scene in the browser, in the order of src/reference: each sum
// runs from first to last, and each operation is rounded to the scene's type. Nothing here depends
// on the page.

/**
 * Numbers in C order.
 * @typedef {{shape: number[], values: ArrayLike<number>}} Numbers
 *
 * A step. `shape` is the displayed shape, as in JSON output; `dims` is [batch, heads, planes, rows,
 * columns], with 1 for missing dimensions; `others` are numbers of sinks that are shown in the same format.
 * @typedef {{name: string, shape: number[], dims: number[], values: Float64Array, others: number[]}} ComputedStep
 *
 * @typedef {{item: number, head: number, query: number, key: number, offset: number}} Position
 *
 * A mask: what it shows, its text as in C++, and the number of keys without padding of a batch item
 * if all rules must hold. `null` is the mask without rules.
 * @typedef {{sees: (at: Position) => boolean, text: string,
 *   length: (item: number) => number | undefined}} Mask
 */

const SPECIAL = {inf: Infinity, "-inf": -Infinity, nan: NaN};
/** Returns a number of JSON, where infinities and NaN are strings. */
const number = (x) => typeof x === "number" ? x : SPECIAL[x];

/** @returns {Numbers} nested arrays as numbers */
function flatten(nested) {
  const shape = [];
  for (let part = nested; Array.isArray(part); part = part[0]) shape.push(part.length);
  return {shape, values: [nested].flat(Infinity).map((x) => typeof x === "boolean" ? x : number(x))};
}

/** Returns the element at [item, head, query, key] of numbers that broadcast from the right. */
function broadcastAt({shape, values}, {item, head, query, key}) {
  const full = [item, head, query, key].slice(4 - shape.length);
  return values[shape.reduce((i, extent, dim) => i * extent + (extent === 1 ? 0 : full[dim]), 0)];
}

/** @returns {Mask | null} the mask of a scene's JSON */
function readMask(json) {
  const rule = (sees, text, length = () => undefined) => ({sees, text, length});
  const both = (a, b) => !a ? b : !b ? a
      : rule((at) => a.sees(at) && b.sees(at), `${a.text} & ${b.text}`, (item) => {
        const [x, y] = [a.length(item), b.length(item)];
        return x === undefined ? y : y === undefined ? x : Math.min(x, y);
      });
  const either = (a, b) => a && b
      ? rule((at) => a.sees(at) || b.sees(at), `(${a.text} | ${b.text})`) : null;
  const CAUSAL = rule(({query, offset, key}) => key <= query + offset, "causal()");
  if (json === undefined || json === "none") return null;
  if (json === "causal") return CAUSAL;

  let mask = json.causal ? CAUSAL : null;
  if (json.prefix !== undefined) {
    const prefix = rule(({key}) => key < json.prefix, `prefix(${json.prefix})`);
    mask = mask ? either(mask, prefix) : prefix;
  }
  if (json.window) {
    const [left, right] = json.window;
    mask = both(mask, rule(({query, offset, key}) => (left < 0 || key >= query + offset - left) &&
        (right < 0 || key <= query + offset + right), `window(${left}, ${right})`));
  }
  if (json.key_lengths !== undefined) {
    const lengths = [json.key_lengths].flat();
    const length = (item) => lengths[lengths.length === 1 ? 0 : item];
    mask = both(mask, rule(({item, key}) => key < length(item),
        `key_lengths(${lengths.join(", ")})`, length));
  }
  if (json.documents) {
    const {query: asks = json.documents, key: answers = json.documents} = json.documents;
    const id = (list, item, i) => Array.isArray(list[0]) ? list[item][i] : list[i];
    mask = both(mask, rule(({item, query, key}) => id(asks, item, query) === id(answers, item, key),
        "documents(ids)"));
  }
  if (json.dense) {
    const dense = flatten(json.dense);
    mask = both(mask, rule((at) => broadcastAt(dense, at), `dense([${dense.shape.join(", ")}])`));
  }
  if (json.all) mask = both(mask, json.all.map(readMask).reduce(both));
  if (json.any) mask = both(mask, json.any.map(readMask).reduce(either));
  return mask;
}

/** The slopes of the ALiBi paper. */
function alibiSlopes(heads) {
  const power = 2 ** Math.floor(Math.log2(heads));
  const slope = (n, of) => 2 ** (-8 * n / of);
  return Array.from({length: heads}, (_, head) =>
    head < power ? slope(head + 1, power) : slope(2 * (head - power) + 1, 2 * power));
}

/** T5's bucket of a relative position (key position minus query position). */
function relativeBucket(position, {table, bidirectional = true, max_distance: most = 128}) {
  const buckets = bidirectional ? Math.floor(table.length / 2) : table.length;
  const first = bidirectional && position > 0 ? buckets : 0;
  const distance = bidirectional ? Math.abs(position) : Math.max(-position, 0);
  const exact = Math.floor(buckets / 2), single = Math.fround;
  if (distance < exact) return first + distance;
  const ratio = single(single(Math.log(single(distance / exact))) / single(Math.log(most / exact)));
  return first + Math.min(exact + Math.trunc(single(ratio * (buckets - exact))), buckets - 1);
}

/**
 * Returns the parts of the weights of a normalization: shifted scores (-Infinity where masked), the
 * numbers that are divided by their sum (exponentials, or scores for "sum"), and the sums of the rows;
 * and the same numbers of the sinks, one per row.
 * @param {{kind: string, final: ArrayLike<number>, visible: ArrayLike<any>, keys: number,
 *   heads: number, queries: number, sinks?: number[], round: (x: number) => number}} scores
 */
function softmaxParts({kind, final, visible, keys, heads, queries, sinks, round}) {
  const shifted = new Float64Array(final.length).fill(-Infinity), parts = new Float64Array(final.length);
  /** @type {{shifted: number[], parts: number[]}} */
  const ofSinks = {shifted: [], parts: []};
  const sums = new Float64Array(final.length / keys);
  for (let row = 0; row < sums.length; ++row) {
    const seen = [], sink = sinks ? sinks[Math.floor(row / queries) % heads] : -Infinity;
    for (let n = row * keys; n < (row + 1) * keys; ++n) if (visible[n]) seen.push(n);
    let shift = 0;
    if (kind === "softmax") {
      shift = seen.length === 0 ? sink : final[seen[0]];
      for (const n of seen) if (!(final[n] <= shift)) shift = final[n];
      if (sink > shift) shift = sink;
    }
    for (const n of seen) {
      shifted[n] = round(final[n] - shift);
      parts[n] = kind === "sum" ? final[n] : round(Math.exp(shifted[n]));
      sums[row] = round(sums[row] + parts[n]);
    }
    if (!sinks) continue;
    ofSinks.shifted.push(round(sink - shift));
    ofSinks.parts.push(round(Math.exp(ofSinks.shifted[row])));
    sums[row] = round(sums[row] + ofSinks.parts[row]);
  }
  return {shifted, parts, sums, ofSinks};
}

/**
 * Computes a scene of docs/scene.md whose score is "dot" and whose arrays are all literal.
 * @returns {{steps: ComputedStep[], visible: Uint8Array, biases: Float64Array | null,
 *   mask: Mask | null, scale: number, unpadded: number[], batched: boolean, single: boolean}} the steps in
 *   order; `visible` and `biases`, the sums of all biases, are [batch, heads, queries, keys]; `unpadded` has
 *   the number of keys without padding of each batch item
 */
function computeScene(scene) {
  const round = scene.dtype === "float32" ? Math.fround : (x) => x;
  const score = typeof scene.score === "object" ? scene.score : {};
  const heads = scene.heads ?? 1, kvHeads = scene.kv_heads ?? heads;
  const normalizations = (scene.normalizations ?? ["softmax"]).map((name) =>
    name === "naive" ? "softmax_unshifted" : name);
  /** @type {ComputedStep[]} */
  const steps = [];

  // ---- Inputs: [batch, length, columns]

  const rounded = (nested) => {
    const {shape, values} = flatten(nested);
    return {shape, values: Float64Array.from(values, round)};
  };
  const batched = flatten(scene.embeddings ?? scene.query).shape.length === 3;
  const rows = (nested) => {
    const {shape, values} = rounded(nested);
    return {shape: shape.length === 2 ? [1, ...shape] : shape, values};
  };
  /** Adds a step with values [batch, heads, rows, columns]. */
  const add = (name, values, /** @type {number[]} */ [batch, inHeads, length, columns],
      {split = false, flat = false, others = /** @type {number[]} */ ([])} = {}) => {
    const shape = [...batched && batch ? [batch] : [], ...split && heads > 1 ? [inHeads] : [],
      length, ...flat ? [] : [columns]];
    steps.push({name, shape, dims: [batch || 1, inHeads, 1, length, flat ? 1 : columns], values, others});
  };
  /**
   * Returns x W: [batch, length, columns of W].
   * @type {(x: Numbers, w: Numbers) => Numbers}
   */
  const project = ({shape: [batch, length, dim], values}, {shape: [, columns], values: w}) => {
    const result = new Float64Array(batch * length * columns);
    for (let row = 0; row < batch * length; ++row) {
      for (let d = 0; d < dim; ++d) {
        for (let c = 0; c < columns; ++c) {
          const i = row * columns + c;
          result[i] = round(result[i] + round(values[row * dim + d] * w[d * columns + c]));
        }
      }
    }
    return {shape: [batch, length, columns], values: result};
  };
  /**
   * Converts [batch, length, heads * dim] to [batch, heads, length, dim].
   * @type {(x: Numbers, parts: number) => Numbers}
   */
  const splitHeads = ({shape: [batch, length, columns], values}, parts) => {
    const dim = columns / parts, result = new Float64Array(values.length);
    for (let i = 0; i < result.length; ++i) {
      const d = i % dim, rest = (i - d) / dim, row = rest % length, b = Math.floor(rest / length / parts);
      result[i] = values[(b * length + row) * columns + (Math.floor(rest / length) % parts) * dim + d];
    }
    return {shape: [batch, parts, length, dim], values: result};
  };

  let query, key, value;
  if (scene.embeddings) {
    query = key = value = rows(scene.embeddings);
    const whole = (name, /** @type {Numbers} */ {shape: [batch, length, columns], values}) =>
      add(name, values, [batch, 1, length, columns]);
    whole("embeddings", query);
    if (scene.source) {
      key = value = rows(scene.source.embeddings);
      whole("source_embeddings", key);
    }
    if (typeof scene.projections === "object") {
      const [q, k, v] = ["query", "key", "value"].map((name) => {
        const weights = rounded(scene.projections[name]);
        add(`${name}_weights`, weights.values, [0, 1, ...weights.shape]);
        return weights;
      });
      [query, key, value] = [project(query, q), project(key, k), project(value, v)];
    }
  } else {
    [query, key, value] = [rows(scene.query), rows(scene.key), rows(scene.value)];
  }
  const q = splitHeads(query, heads), k = splitHeads(key, kvHeads), v = splitHeads(value, kvHeads);
  if (!scene.embeddings || typeof scene.projections === "object") {
    for (const [name, part] of Object.entries({query: q, key: k, value: v})) {
      add(name, part.values, part.shape, {split: true});
    }
  }

  // ---- Scores, one row at a time

  const [batch, , queries, dim] = q.shape, [, , keys, valueDim] = v.shape;
  const scale = typeof score.scale === "number" ? score.scale : 1 / Math.sqrt(dim);
  const cap = round(score.softcap ?? 0), factor = round(scale);
  const bias = score.bias && flatten(score.bias), {relative} = score;
  const slopes = score.alibi && (score.alibi === true ? alibiSlopes(heads) : score.alibi);
  const mask = readMask(scene.mask);
  const alignment = [scene.alignment ?? "bottom-right"].flat();
  const unpadded = Array.from({length: batch}, (_, item) => Math.min(mask?.length(item) ?? keys, keys));
  const offsetOf = (item) => alignment[0] === "top-left" ? 0
      : alignment[0] === "bottom-right" ? unpadded[item] - queries
      : alignment[alignment.length === 1 ? 0 : item];
  const all = batch * heads * queries * keys;
  const visible = new Uint8Array(all);
  const pairs = (present) => present ? new Float64Array(all) : null;
  const stages = {scores: pairs(true), scaled_scores: pairs(scale !== 1),
    softcapped_scores: pairs(cap > 0), biased_scores: pairs(bias || slopes || relative),
    masked_scores: pairs(mask)};

  /** Returns the sum of all biases, or -Infinity if one of them is -inf. */
  const biasAt = (at) => {
    const distance = at.key - at.query - at.offset, terms = [];
    if (bias) terms.push(round(broadcastAt(bias, at)));
    if (slopes) terms.push(round(-round(slopes[at.head]) * Math.abs(distance)));
    if (relative) terms.push(round(number(relative.table[relativeBucket(distance, relative)][at.head])));
    return terms.includes(-Infinity) ? -Infinity : terms.reduce((sum, x) => round(sum + x), 0);
  };
  const forEachRow = (visit) => {
    for (let item = 0, row = 0; item < batch; ++item) {
      for (let head = 0; head < heads; ++head) {
        const first = (item * kvHeads + Math.floor(head * kvHeads / heads)) * keys;
        for (let i = 0; i < queries; ++i, ++row) visit({item, head, i, row, first});
      }
    }
  };
  const final = pairs(true), biases = pairs(stages.biased_scores);
  forEachRow(({item, head, i, row, first}) => {
    const offset = offsetOf(item);
    for (let j = 0; j < keys; ++j) {
      const n = row * keys + j, at = {item, head, query: i, key: j, offset};
      let x = 0;
      for (let d = 0; d < dim; ++d) x = round(x + round(q.values[row * dim + d] * k.values[(first + j) * dim + d]));
      stages.scores[n] = x;
      if (stages.scaled_scores) stages.scaled_scores[n] = x = round(x * factor);
      if (cap > 0) stages.softcapped_scores[n] = x = round(cap * round(Math.tanh(round(x / cap))));
      if (stages.biased_scores) {
        const extra = biases[n] = biasAt(at);
        stages.biased_scores[n] = x = [x, extra].includes(-Infinity) ? -Infinity : round(x + extra);
      }
      visible[n] = Number((!mask || mask.sees(at)) && x !== -Infinity);
      final[n] = visible[n] ? x : -Infinity;
      if (mask) stages.masked_scores[n] = final[n];
    }
  });
  const perPair = [batch, heads, queries, keys], options = {split: true};
  const sinks = score.sinks?.map((x) => round(number(x)));
  const shown = Object.entries(stages).filter(([, values]) => values);
  shown.forEach(([name, values], i) =>
    add(name, values, perPair, {...options, others: i + 1 === shown.length ? sinks ?? [] : []}));

  // ---- Weights; the context uses the last ones

  let weights;
  normalizations.forEach((kind, i) => {
    const variant = i + 1 < normalizations.length ? `[${kind}]` : "";
    const {shifted, parts, sums, ofSinks} = softmaxParts({kind, final, visible, keys, heads, queries, sinks, round});
    const rowSums = new Float64Array(sums.length);
    weights = pairs(true);
    for (let n = 0; n < all; ++n) {
      if (!visible[n]) continue;
      const row = Math.floor(n / keys);
      weights[n] = round(parts[n] / sums[row]);
      rowSums[row] = round(rowSums[row] + weights[n]);
    }
    const perRow = [batch, heads, queries, 1], flat = {split: true, flat: true};
    if (kind === "softmax") add("shifted_scores" + variant, shifted, perPair, {...options, others: ofSinks.shifted});
    if (kind !== "sum") {
      add("exponentials" + variant, parts, perPair, {...options, others: ofSinks.parts});
      add("exponential_sums" + variant, sums, perRow, flat);
    }
    add("weights" + variant, weights, perPair, options);
    add("row_sums" + variant, rowSums, perRow, flat);
  });

  const context = new Float64Array(batch * heads * queries * valueDim);
  forEachRow(({row, first}) => {
    for (let j = 0; j < keys; ++j) {
      if (!visible[row * keys + j]) continue;
      for (let d = 0; d < valueDim; ++d) {
        const n = row * valueDim + d;
        context[n] = round(context[n] + round(weights[row * keys + j] * v.values[(first + j) * valueDim + d]));
      }
    }
  });
  add("context", context, [batch, heads, queries, valueDim], options);
  if (heads > 1) {
    // [batch, heads, queries, dim] becomes [batch, queries, heads * dim], the inverse of splitHeads.
    const merged = new Float64Array(context.length), columns = heads * valueDim;
    forEachRow(({item, head, i, row}) => {
      for (let d = 0; d < valueDim; ++d) {
        merged[(item * queries + i) * columns + head * valueDim + d] = context[row * valueDim + d];
      }
    });
    add("merged_context", merged, [batch, 1, queries, columns]);
  }
  return {steps, visible, biases, mask, scale, unpadded, batched, single: scene.dtype === "float32"};
}
