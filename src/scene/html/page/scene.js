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
  const scene = structuredClone(author), heads = scene.heads ?? 1;
  const joined = (parts) => parts[0].map((_, row) => parts.flatMap((part) => part[row]));
  /** Returns a step that is shown by head as [(batch,) length, columns]. */
  const whole = (name) => {
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

const MOST_WORDS = 40;  // a sentence is edited only as long as it fits a table
/** Returns the name of the part of a scene that depends on its number of words, or "". */
function wordsFixedBy(scene) {
  const {tokens, source, mask, score, alignment, learn, questions} = scene;
  const positional = (rules) => isObject(rules) ? Object.keys(rules).find((key) =>
    ["key_lengths", "documents", "dense"].includes(key) ||
    (["all", "any"].includes(key) && rules[key].some(positional))) : undefined;
  if (Array.isArray(tokens?.[0]) && tokens.length > 1) return "batch";
  if (positional(mask)) return "mask";
  if (score?.bias) return "bias";
  if (Number.isInteger([alignment].flat()[0])) return "alignment";
  if (learn || questions) return learn ? "learn" : "questions";
  return [scene, ...source ? [source] : []].some((one) => wordsOf(one).length > MOST_WORDS) ? "many" : "";
}

/** The steps that are inputs of a scene, each with a letter for addresses. */
function inputsOf({embeddings, source, projections}) {
  if (!embeddings) return {q: "query", k: "key", v: "value"};
  return {e: "embeddings", ...source && {s: "source_embeddings"},
    ...isObject(projections) && {q: "query_weights", k: "key_weights", v: "value_weights"}};
}
/** Returns the rows of an input: those of one batch item, if there are several. */
function inputRows(scene, step, item = 0) {
  const nested = step === "source_embeddings" ? scene.source.embeddings
      : step.endsWith("_weights") ? scene.projections[step.replace("_weights", "")] : scene[step];
  return Array.isArray(nested[0][0]) ? nested[item] : nested;
}

/**
 * An edited scene. `origin` has the original position of each word, or -1 for a new word.
 * @typedef {{scene: object, origin: number[]}} Edit
 */
/** @returns {Edit} */
const startEdit = (original) => ({scene: structuredClone(original), origin: wordsOf(original).map((_, i) => i)});
/** Returns the steps with one row for each word of the scene. */
const stepsByWord = (scene) =>
  scene.embeddings ? ["embeddings"] : scene.source ? ["query"] : ["query", "key", "value"];

/** Replaces the words. `rowOf(rows, origin)` returns the row of a new word. */
function setWords({scene, origin}, words, kept, rowOf) {
  for (const step of stepsByWord(scene)) {
    const rows = inputRows(scene, step);
    rows.splice(0, rows.length, ...kept.map((i) => i < 0 ? rowOf(rows) : rows[i]));
  }
  origin.splice(0, origin.length, ...kept.map((i) => i < 0 ? -1 : origin[i]));
  if (Array.isArray(scene.tokens?.[0])) scene.tokens = [words];
  else scene.tokens = words;
  delete scene.text;
}
/** Adds a word. Its row is that of the same word if there is one, otherwise the mean of all rows. */
function addWord(edit, word, decimals) {
  const words = wordsOf(edit.scene), same = words.indexOf(word);
  const mean = (rows, column) => rows.reduce((sum, row) => sum + row[column], 0) / rows.length;
  setWords(edit, [...words, word], [...words.keys(), -1], (rows) => same >= 0 ? [...rows[same]]
      : rows[0].map((_, column) => Number(mean(rows, column).toFixed(decimals))));
}
function removeWord(edit, index) {
  const words = wordsOf(edit.scene), kept = [...words.keys()].filter((i) => i !== index);
  setWords(edit, kept.map((i) => words[i]), kept, () => []);
}

/** Returns the difference of an edited scene and its original as text for an address. */
function encodeEdit(original, {scene, origin}) {
  const parts = [], batch = scene.tokens && Array.isArray(scene.tokens[0]) ? scene.tokens.length : 1;
  const words = wordsOf(scene);
  if (origin.length !== wordsOf(original).length || origin.some((from, i) => from !== i)) {
    parts.push("w" + origin.map((from, i) => from < 0 ? "+" + encodeURIComponent(words[i]) : from).join(","));
  }
  if (scaleOf(scene) !== scaleOf(original)) parts.push("x" + scaleOf(scene));
  if (isCausal(scene) !== isCausal(original)) parts.push(isCausal(scene) ? "c1" : "c0");
  for (const [letter, step] of Object.entries(inputsOf(scene))) {
    const byWord = stepsByWord(scene).includes(step);
    for (let item = 0; item < (step.endsWith("_weights") ? 1 : batch); ++item) {
      const before = inputRows(original, step, item);
      inputRows(scene, step, item).forEach((row, r) => row.forEach((x, c) => {
        const from = byWord && batch === 1 ? origin[r] : r;
        if (x !== (from < 0 ? 0 : before[from][c])) parts.push([letter + item, r, c, x].join(","));
      }));
    }
  }
  return parts.join(";");
}
/** Returns the edit of encodeEdit, or throws. @returns {Edit} */
function decodeEdit(original, text) {
  const edit = startEdit(original), {scene} = edit, inputs = inputsOf(scene);
  const finite = (x) => {
    if (x.trim() === "" || !Number.isFinite(Number(x))) throw new RangeError(x);
    return Number(x);
  };
  for (const part of text.split(";").filter(Boolean)) {
    const values = part.slice(1).split(",");
    if (part[0] === "w") {
      const words = wordsOf(scene);
      if (wordsFixedBy(scene) || values.length > 1024) throw new RangeError(part);
      const kept = values.map((one) => one[0] === "+" ? -1 : words.indexOf(words[finite(one)]) < 0 ? NaN : Number(one));
      if (kept.some(Number.isNaN)) throw new RangeError(part);
      setWords(edit, values.map((one, i) => kept[i] < 0 ? asToken(scene, decodeURIComponent(one.slice(1))) : words[kept[i]]),
          kept, (rows) => rows[0].map(() => 0));
    } else if (part[0] === "x") {
      setScale(scene, values[0] === "1/sqrt(head_dim)" ? values[0] : finite(values[0]));
    } else if (part[0] === "c") {
      setCausal(scene, values[0] === "1");
    } else {
      const [item, row, column, x] = values.map(finite), cells = inputRows(scene, inputs[part[0]], item)[row];
      if (cells[column] === undefined) throw new RangeError(part);
      cells[column] = x;
    }
  }
  return edit;
}

/** Returns a word as a token of the scene, which may have integers. Throws if it cannot be one. */
function asToken(scene, word) {
  if (typeof wordsOf(scene)[0] === "string") {
    if (word === "") throw new RangeError("expected a word");
    return word;
  }
  if (!/^-?\d{1,15}$/.test(word)) throw new RangeError("expected a whole number");
  return Number(word);
}

/**
 * Returns the scene to take away: without the parts that belong to the original numbers, if they
 * have changed, and without the notes of another word in focus.
 * @param {object} original
 * @param {Edit} edit
 * @param {number} item
 * @param {number} query the selected word
 * @param {boolean} moved whether another word than the original one is selected
 */
function takeAway(original, edit, item, query, moved) {
  const scene = structuredClone(edit.scene), edited = encodeEdit(original, edit) !== "";
  if (edited) delete scene.expect;
  if ((edited || moved) && scene.notes) {
    for (const name of Object.keys(scene.notes)) if (name.startsWith("focus.")) delete scene.notes[name];
  }
  // A new word can make a word in focus ambiguous, and a removed one can shift positions.
  if (moved || (edited && scene.focus !== null && scene.focus !== undefined)) {
    scene.focus = Array.isArray(scene.tokens?.[0]) ? [item, query] : query;
  }
  return scene;
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
  if (typeof value !== "object" || value === null) return Object.is(value, -0) ? "-0.0" : JSON.stringify(value);
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
