// SPDX-License-Identifier: Apache-2.0
//
// Scenes as JSON (docs/scene.md): literal arrays for drawn ones, changes of words and mask, and the
// text of a scene and of a NumPy program that computes it. Nothing here depends on the page.

const isDrawing = (part) => typeof part?.draw === "string";
const isObject = (part) => typeof part === "object" && part !== null && !Array.isArray(part);

/**
 * Returns the author's scene with literal arrays for drawn ones, and without a seed.
 * @param {object} author
 * @param {(step: string) => any} read returns the numbers of a step as nested arrays
 */
function literalScene(author, read) {
  const scene = structuredClone(author), heads = scene.heads ?? 1, kvHeads = scene.kv_heads ?? heads;
  const joined = (parts) => parts[0].map((_, row) => parts.flatMap((part) => part[row]));
  /** Returns a step that is shown by head as [(batch,) length, columns]. */
  const whole = (name, parts) => {
    const nested = read(name);
    if (heads === 1) return nested;
    return Array.isArray(nested[0][0][0]) ? nested.map(joined) : joined(nested);
  };
  if (isDrawing(scene.tokens)) scene.tokens = read("tokens");
  if (isDrawing(scene.embeddings)) scene.embeddings = read("embeddings");
  if (isDrawing(scene.source?.tokens)) scene.source.tokens = read("source_tokens");
  if (isDrawing(scene.source?.embeddings)) scene.source.embeddings = read("source_embeddings");
  for (const name of ["query", "key", "value"]) {
    if (isDrawing(scene[name])) scene[name] = whole(name);
  }
  if (isObject(scene.projections)) {
    const all = isDrawing(scene.projections), given = all ? {} : scene.projections;
    for (const name of ["query", "key", "value"]) {
      if (all || isDrawing(given[name])) given[name] = read(`${name}_weights`);
    }
    scene.projections = given;
  }
  delete scene.seed;
  delete scene.order;
  return scene;
}

/** Returns the words of a scene with one sentence. */
function wordsOf({tokens, text}) {
  if (tokens) return Array.isArray(tokens[0]) ? tokens[0] : tokens;
  return text.split(/[\t-\r\x85\p{Zs}\p{Zl}\p{Zp}]+/u).filter(Boolean);
}

/** Returns the name of the part of a scene that depends on its number of words, if there is one. */
function wordsFixedBy({tokens, mask, score, alignment, learn, questions}) {
  const positional = (rules) => isObject(rules) ? Object.keys(rules).find((key) =>
    ["key_lengths", "documents", "dense"].includes(key) ||
    (["all", "any"].includes(key) && rules[key].some(positional))) : undefined;
  if (Array.isArray(tokens?.[0]) && tokens.length > 1) return "batch";
  if (positional(mask)) return "mask";
  if (score?.bias) return "bias";
  if (Number.isInteger([alignment].flat()[0])) return "alignment";
  return learn ? "learn" : questions ? "questions" : "";
}

/** Calls change(rows) for each list that has one row per word, and replaces the list by the result. */
function changeRows(scene, change) {
  const own = scene.embeddings ? ["embeddings"] : scene.source ? ["query"] : ["query", "key", "value"];
  for (const name of own) {
    const nested = Array.isArray(scene[name][0][0]);
    scene[name] = nested ? [change(scene[name][0])] : change(scene[name]);
  }
}
function setWords(scene, words) {
  if (scene.text !== undefined && words.every((word) => !/\s/.test(word))) scene.text = words.join(" ");
  else scene.tokens = Array.isArray(scene.tokens?.[0]) ? [words] : words;
  if (scene.tokens) delete scene.text;
}
/** Adds a word. Its row is that of the same word, or else the mean of all rows. */
function addWord(scene, word, decimals) {
  const words = wordsOf(scene), same = words.indexOf(word);
  changeRows(scene, (rows) => [...rows, rows[0].map((_, column) => same >= 0 ? rows[same][column]
      : Number((rows.reduce((sum, row) => sum + row[column], 0) / rows.length).toFixed(decimals)))]);
  setWords(scene, [...words, word]);
}
function removeWord(scene, index) {
  const others = (list) => list.filter((_, i) => i !== index);
  changeRows(scene, others);
  setWords(scene, others(wordsOf(scene)));
}

const isCausal = ({mask}) => mask === "causal" || mask?.causal === true;
function setCausal(scene, causal) {
  if (!isObject(scene.mask)) scene.mask = causal ? "causal" : "none";
  else if (causal) scene.mask.causal = true;
  else delete scene.mask.causal;
}
const scaleOf = ({score}) => score?.scale ?? "1/sqrt(head_dim)";
function setScale(scene, scale) {
  if (!isObject(scene.score)) scene.score = {kind: "dot"};
  scene.score.scale = scale;
}

/** Returns JSON with one line per row of numbers. */
function sceneText(value, indent = "") {
  if (typeof value !== "object" || value === null) return Object.is(value, -0) ? "-0" : JSON.stringify(value);
  const list = Array.isArray(value), parts = list ? value : Object.values(value);
  const hasArray = (part) => Array.isArray(part) || (isObject(part) && Object.values(part).some(hasArray));
  const flat = list ? parts.every((part) => typeof part !== "object")
      : !parts.some(hasArray) && JSON.stringify(value).length <= 80;
  const lines = Object.keys(value).map((key, i) =>
    (list ? "" : JSON.stringify(key) + ": ") + sceneText(parts[i], indent + "  "));
  const [open, close] = list ? "[]" : "{}";
  return flat ? open + lines.join(", ") + close
      : `${open}\n${indent}  ${lines.join(`,\n${indent}  `)}\n${indent}${close}`;
}

/**
 * Returns a program that prints the steps of a scene; it needs only NumPy.
 * @param {object} scene all of whose arrays are literal
 * @param {ReturnType<typeof computeScene>} computed
 */
function numpyProgram(scene, computed, precision) {
  const find = (name) => computed.steps.find((step) => step.name === name);
  const heads = scene.heads ?? 1, kvHeads = scene.kv_heads ?? heads;
  const score = isObject(scene.score) ? scene.score : {}, single = scene.dtype === "float32";
  const [, , , queries, keys] = find("scores").dims, lines = [], shown = ["words"];
  const write = (x) => Array.isArray(x) ? `[${x.map(write).join(", ")}]`
      : Number.isFinite(number(x)) ? String(x) : special(number(x)).replace(/[a-z]+/, "np.$&");
  const array = (nested, type = single ? "np.float32" : "") => {
    const deep = Array.isArray(nested[0]);
    const text = deep ? `[\n    ${nested.map(write).join(",\n    ")},\n]` : write(nested);
    return `np.array(${text}${type && `, ${type}`})`;
  };
  const say = (line, ...names) => {
    lines.push(line);
    shown.push(...names);
  };
  const nest = (values, shape) => shape.length === 0 ? values : shape.reduceRight((list, extent) =>
    Array.from({length: list.length / extent}, (_, i) => list.slice(i * extent, (i + 1) * extent)),
  Array.from(values))[0];

  say(`words = ${JSON.stringify(scene.tokens ?? wordsOf(scene))}`);
  if (scene.source) say(`source = ${JSON.stringify(scene.source.tokens ?? wordsOf(scene.source))}`, "source");
  if (scene.embeddings) {
    const projected = isObject(scene.projections), from = scene.source ? "Y" : "X";
    say(`X = ${array(scene.embeddings)}`, "X");
    if (scene.source) say(`Y = ${array(scene.source.embeddings)}`, "Y");
    if (projected) {
      for (const [name, step] of [["W_Q", "query"], ["W_K", "key"], ["W_V", "value"]]) {
        say(`${name} = ${array(scene.projections[step])}`, name);
      }
      say(`q, k, v = X @ W_Q, ${from} @ W_K, ${from} @ W_V`);
    } else {
      say(`q, k, v = X, ${from}, ${from}`);
    }
  } else {
    for (const name of ["query", "key", "value"]) say(`${name[0]} = ${array(scene[name])}`);
  }
  if (heads > 1) {
    say("\n\ndef split(x, heads):  # the columns divided among heads: [..., heads, words, columns]");
    say("    return np.swapaxes(x.reshape(*x.shape[:-1], heads, -1), -3, -2)\n\n");
    say(`q, k, v = split(q, ${heads}), split(k, ${kvHeads}), split(v, ${kvHeads})`);
    if (kvHeads < heads) {
      say(`k, v = np.repeat(k, ${heads / kvHeads}, axis=-3), np.repeat(v, ${heads / kvHeads}, axis=-3)`);
    }
  }
  shown.push("q", "k", "v");

  say("scores = q @ np.swapaxes(k, -1, -2)", "scores");
  const last = () => shown[shown.length - 1];  // the scores so far
  if (find("scaled_scores")) {
    const factor = typeof score.scale === "number" ? `* ${write(score.scale)}` : "/ np.sqrt(q.shape[-1])";
    say(`scaled = scores ${single && /np/.test(factor) ? "/ np.float32(np.sqrt(q.shape[-1]))" : factor}`,
        "scaled");
  }
  if (score.softcap) say(`capped = ${score.softcap} * np.tanh(${last()} / ${score.softcap})`, "capped");
  // [batch, heads, queries, keys] without the dimensions that the scene does not have
  const shape = [...find("scores").shape];
  if (find("biased_scores")) {
    say(`bias = ${array(nest(computed.biases, shape))}`);
    say(`biased = ${last()} + bias`, "biased");
  }
  const seen = nest(computed.visible, shape);
  const hides = computed.visible.includes(0);
  if (hides) {
    const triangle = computed.visible.every((sees, i) =>
      sees === Number(i % keys <= Math.floor(i / keys) % queries));
    say(`visible = ${triangle ? `np.tri(${queries}, ${keys}, dtype=bool)` : array(seen, "bool")}`);
    say(`masked = np.where(visible, ${last()}, -np.inf)`, "masked");
  }
  const blind = computed.visible.some((_, i) => i % keys === 0 &&
      !computed.visible.subarray(i, i + keys).includes(1));
  if (blind) say("blind = ~visible.any(axis=-1)  # words that may see nothing");
  const kind = (scene.normalizations ?? ["softmax"]).at(-1), final = last();
  if (kind === "sum") {
    say(hides ? `parts = np.where(visible, ${final}, 0)` : `parts = ${final}`);
  } else if (kind === "softmax") {
    const axis = "axis=-1, keepdims=True";
    say(`largest = ${final}.max(${axis})`);
    if (score.sinks) say(`sinks = ${array(score.sinks)}${heads > 1 ? "[:, None, None]" : ""}`);
    if (score.sinks) say("largest = np.maximum(largest, sinks)");
    if (blind) say("largest[blind] = 0");
    say(`parts = np.exp(${final} - largest)`);
  } else {
    if (score.sinks) say(`sinks = ${array(score.sinks)}${heads > 1 ? "[:, None, None]" : ""}`);
    say(`parts = np.exp(${final})`);
  }
  const sink = score.sinks ? ` + np.exp(sinks${kind === "softmax" ? " - largest" : ""})` : "";
  say(`total = parts.sum(axis=-1, keepdims=True)${sink}`);
  if (blind) say("total[blind] = 1");
  // The total of an unshifted softmax or a sum can be 0 or infinite; a masked weight is 0 even then.
  const safe = !hides || kind === "softmax";
  say(safe ? "weights = parts / total" : "weights = np.where(visible, parts / total, 0)", "weights");
  say("context = weights @ v", "context");
  if (heads > 1) {
    say("merged = np.swapaxes(context, -3, -2)");
    say("merged = merged.reshape(*merged.shape[:-2], -1)", "merged");
  }
  const pairs = shown.map((name) => `("${name}", ${name})`).join(", ");
  return `import numpy as np\n\nnp.set_printoptions(precision=${precision}, suppress=True, linewidth=120)\n` +
      `${lines.join("\n")}\nfor name, values in (${pairs}):\n    print(name, values, sep="\\n")\n`;
}
