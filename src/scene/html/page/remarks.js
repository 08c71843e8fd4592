// SPDX-License-Identifier: Apache-2.0
//
// The remarks on the weights and the summary of an edited scene, as in scene/tell/remarks.cc.

// TIE: smaller differences of weights are rounding errors.
const MOST_REMARKED = 64, MOST_LISTED = 3, TIE = 1e-6;

/** Returns the remarks on the weights of one head and batch item. */
function remarksOn(item, head) {
  const [, , , rows, cols] = weights.dims, quoted = (axis, i) => text("list.quoted", {word: word(axis, item, i)});
  const query = (i) => quoted("q", i);
  // Without a source, the words of padded keys are queries too, and no word of the sentence.
  const told = data.source ? rows : editor.computed.unpadded[item];
  const facts = count(told, (i) => {
    const fact = {most: 0, where: -1, seen: 0, lookedAt: 0, entropy: 0, negative: false, nan: false, infinite: false};
    let sum = 0, logarithms = 0;
    for (let j = 0; j < cols; ++j) {
      if (masked(item, head, i, j)) continue;
      const x = at(weights, item, head, 0, i, j);
      fact.seen += 1;
      fact.nan ||= Number.isNaN(x);
      fact.infinite ||= Math.abs(x) === Infinity;
      fact.negative ||= x < 0;
      if (x > fact.most) Object.assign(fact, {most: x, where: j});
      if (x !== 0) fact.lookedAt += 1;
      if (x > 0) {
        sum += x;
        logarithms += x * Math.log(x);
      }
    }
    if (sum > 0) fact.entropy = Math.log(sum) - logarithms / sum;
    return fact;
  });
  const target = (i, j) => !data.source && j === i ? text("remark.itself") : quoted("k", j);
  const link = ([i, j]) => text("remark.link", {query: query(i), key: target(i, j)});
  const some = (list, name = query) => list.slice(0, MOST_LISTED).map((x, n) =>
      (n === 0 ? "" : text(n + 1 === list.length ? "list.and" : "list.comma")) + name(x)).join("") +
      (list.length > MOST_LISTED ? text("list.more", {n: list.length - MOST_LISTED}) : "");

  // In a naive softmax whose sum overflows, not even the sink has the weight that the words lack.
  const sums = data.score.sinks && steps.get("exponential_sums");
  const sinkTakesAll = (i) => sums && Number.isFinite(at(sums, item, head, 0, i, 0));
  const broken = [], infinite = [], blind = [], zero = [], sunk = [], single = [], several = [];
  facts.forEach((fact, i) => {
    const kind = fact.nan ? broken : fact.infinite ? infinite
        : fact.lookedAt === 0 ? (fact.seen === 0 ? blind : sinkTakesAll(i) ? sunk : zero) : fact.lookedAt === 1 ? single : several;
    kind.push(i);
  });
  const remarks = [[broken, "broken"], [infinite, "infinite"], [blind, "blind"],
    [zero, "zero"], [sunk, "sink"]].filter(([list]) => list.length > 0)
      .map(([list, kind]) => text(`remark.${kind}`, {queries: some(list)}));
  if (cols < 2) return remarks;
  const most = Math.max(0, ...several.map((i) => facts[i].most));
  const links = most === 0 ? [] : several.flatMap((i) => facts[i].most < most * (1 - TIE) ? []
      : count(cols, (j) => [i, j]).filter(([, j]) => !masked(item, head, i, j) &&
          at(weights, item, head, 0, i, j) >= most * (1 - TIE)));
  const oneOrOther = (list) => list.length === 1 ? "one" : "other";
  if (links.length) {
    remarks.push(text(`remark.strongest.${oneOrOther(links)}`, {links: some(links, link),
      weight: show(weights, facts[links[0][0]].most)}));
  }
  const shares = several.filter((i) => !facts[i].negative);
  const entropy = Math.max(...shares.map((i) => facts[i].entropy));
  const even = shares.filter((i) => facts[i].entropy >= entropy - TIE);
  if (even.length > 1 || even.length && rows > 1 && links.some(([i]) => i !== even[0])) {
    remarks.push(text(`remark.most_even.${oneOrOther(even)}`,
        {queries: some(even), n: fixed(Math.exp(facts[even[0]].entropy), 1)}));
  }
  if (single.length > 1) remarks.push(text("remark.single.other", {queries: some(single)}));
  else if (single.length) remarks.push(text("remark.single.one", {query: query(single[0]), key: target(single[0], facts[single[0]].where)}));
  return remarks;
}
/** Returns the remarks with their batch items and heads. */
function allRemarks() {
  const [batch, heads] = weights.dims;
  return count(Math.min(batch * heads, MOST_REMARKED), (i) => {
    const item = Math.floor(i / heads), head = i % heads;
    const places = [...batch > 1 ? [text("place.item", {n: item + 1, count: batch})] : [],
      ...data.heads > 1 ? [text("place.head", {n: head})] : []];
    const where = places.length ? places.join(text("list.comma")) + text("list.colon") : "";
    return remarksOn(item, head).map((remark) => ({item, head, remark: where + remark}));
  }).flat();
}

/** Writes a scale as C++ does: 1e-06, where JavaScript writes 0.000001. */
const scaleWords = (x) => typeof x !== "number" || x === 0 || Math.abs(x) >= 1e-4 ? x
    : x.toExponential().replace(/(\d+)$/, (power) => power.padStart(2, "0"));

/** Returns the summary of a scene with literal arrays. */
function summaryOf(scene, computed) {
  const score = isObject(scene.score) ? scene.score : {};
  const counted = (key, n) => text(`summary.${key}.${n === 1 ? "one" : "other"}`, {n});
  const groups = [[counted("words", queries)]];
  const add = (key, values = {}) => groups[groups.length - 1].push(text(`summary.${key}`, values));
  if (computed.batched) groups[0].push(counted("items", data.tokens.length));
  if (steps.has("embeddings")) groups[0].push(counted("numbers", steps.get("embeddings").dims[4]));
  if (data.source) groups[0].push(counted("source", keys));
  groups.push([]);
  add("dot");
  if (scaleOf(scene) === 1) add("not_scaled");
  else add("scaled", {scale: scaleWords(scaleOf(scene))});
  if (score.softcap) add("softcap", {cap: score.softcap});
  for (const key of ["bias", "alibi", "relative"]) if (score[key]) add(key);
  if (score.sinks) add("sink");
  if (data.heads > 1) groups[1].push(counted("heads", data.heads));
  if (data.kvHeads !== data.heads) groups[1].push(counted("kv_heads", data.kvHeads));
  add(!scene.embeddings ? "direct" : isObject(scene.projections) ? "given_weights" : "no_weights");
  if (computed.mask) groups.push([text("summary.mask", {mask: computed.mask.text})]);
  if (scene.dtype === "float32") groups.push(["float32"]);
  return groups.map((group) => group.join(text("list.comma"))).join(text("list.semicolon"));
}
