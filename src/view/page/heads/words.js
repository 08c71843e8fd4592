// SPDX-License-Identifier: Apache-2.0
//
// Names and numbers of heads: the colours of the names and what the numbers mean (`fovea heads --help`).

// The colours of `fovea heads --output heads.html`, most of them by Okabe and Ito (2008), who chose
// them to be distinct for all kinds of colour vision.
/** @type {Record<string, string>} */
const NAME_COLORS = {
  "previous token": "#56b4e9",
  "own token": "#009e73",
  "next token": "#f0e442",
  "sink": "#e69f00",
  "local blocks": "#0072b2",
  "one key": "#d55e00",
  "induction": "#cc79a7",
  "duplicate token": "#8a5ad6",
  "uniform": "#999999",
};
/** @type {Record<string, string>} */
const NAME_MEANINGS = {
  "previous token": "attends to the token before",
  "own token": "attends to the token itself",
  "next token": "attends to the token after",
  "sink": "attends to the first token",
  "local blocks": "attends to the block around the token",
  "one key": "each query attends to a single key",
  "induction": "attends to what followed the same token before",
  "duplicate token": "attends to earlier occurrences of the same token",
  "uniform": "attends equally to all tokens",
};
/** @type {Record<string, [label: string, meaning: string]>} */
const NUMBERS = {
  entropy: ["entropy", "entropy of the weights, in nats"],
  even_entropy: ["even entropy", "entropy of equal weights on all visible keys, in nats"],
  even: ["even", "entropy divided by that of equal weights"],
  mean_distance: ["distance", "weighted distance from key to query; positive if the key comes first"],
  distance: ["distance", "weighted distance from key to query; positive if the key comes first"],
  maximum: ["largest", "largest weight of a row"],
  largest: ["largest", "largest weight of a row"],
  first_key: ["first", "weight of the first key"],
  first: ["first", "weight of the first key"],
  previous_key: ["prev", "weight of the key before the query's position"],
  prev: ["prev", "weight of the key before the query's position"],
  own_key: ["own", "weight of the key at the query's position"],
  own: ["own", "weight of the key at the query's position"],
  next_key: ["next", "weight of the key after the query's position"],
  next: ["next", "weight of the key after the query's position"],
  block_diagonal: ["block", "weight of the block of keys around the query's position"],
  block: ["block", "weight of the block of keys around the query's position"],
  induction: ["induction", "weight of the keys after earlier occurrences of the query's token"],
  duplicate: ["duplicate", "weight of earlier occurrences of the query's token"],
};

/** @type {Record<string, string>} */
const CAPTIONS = {"previous token": "previous", "own token": "own", "next token": "next", "local blocks": "blocks", "duplicate token": "duplicate"};

export const HEAD_NAMES = Object.keys(NAME_COLORS);
/** Returns the colour of a head's name; grey lines mark heads without one. */
export const nameColor = (/** @type {string} */ name) => NAME_COLORS[name] ?? "var(--line)";
/** Returns a name of at most nine letters, for the grid. */
export const nameCaption = (/** @type {string} */ name) => CAPTIONS[name] ?? name;
/** Returns what a head with this name does, or "". */
export const nameMeaning = (/** @type {string} */ name) => NAME_MEANINGS[name] ?? "";
/** Returns the column of `fovea heads` that shows a number: "prev". */
export const numberLabel = (/** @type {string} */ name) => NUMBERS[name]?.[0] ?? name.replaceAll("_", " ");
/** Returns what a number is, in words. */
export const numberMeaning = (/** @type {string} */ name) => NUMBERS[name]?.[1] ?? numberLabel(name);

/** Returns a number of a head with three significant digits; the server sends nan and inf as words. */
export function numberText(/** @type {number | string | null | undefined} */ x) {
  if (typeof x !== "number") return x ?? "nan";
  if (x === 0) return "0";
  if (Math.abs(x) < 0.0005) return x.toExponential(1);
  return Math.abs(x) >= 1000 ? String(Math.round(x)) : Math.abs(x) >= 1 ? String(Number(x.toPrecision(4))) : x.toFixed(3);
}
