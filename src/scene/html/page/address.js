// SPDX-License-Identifier: Apache-2.0
//
// The address of what is shown, such as #step=4&word=one: read at the start and when it changes, kept
// while the reader moves. In the frame of a notebook there is no address to keep.

const MOST_EDITS = 2000;  // characters; longer edits are left out of addresses
let keeping = null;  // the timer of the next change

/** Returns a word for the address; its position, if the sentence has it twice. */
function wordInAddress(item, i) {
  const words = data.tokens[item], name = words[i];
  const once = words.indexOf(name) === words.lastIndexOf(name) && !name.startsWith("@");
  return once ? name : `@${i}`;
}
function fragment(most = MOST_EDITS) {
  const {item, query, step} = state, edits = editInAddress();
  const parts = {step: step + 1, word: wordInAddress(item, query),
    ...data.tokens.length > 1 && {item}};
  return "#" + Object.entries(parts).map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&") +
      (edits && edits.length <= most ? `&edit=${edits}` : "");  // already safe, and readable so
}
/** Keeps an address; browsers limit how often it may change. */
function keepAddress(hash) {
  clearTimeout(keeping);
  keeping = setTimeout(() => {
    try {
      history.replaceState(null, "", hash());
    } catch {  // a page in a frame without an address
    }
  }, 300);
}
function placeChanged() {
  if (pane) sendPlace();
  else if (state.moved) keepAddress(fragment);
}

/** Goes to the place of the address. Other fragments are those of the links to steps. */
function readAddress(hash = location.hash) {
  const given = new Map(hash.slice(1).split("&").map((part) => {
    const [key, value = ""] = part.split("=");
    try {
      return [key, key === "edit" ? value : decodeURIComponent(value)];
    } catch {
      return [key, ""];
    }
  }));
  const whole = (key, most) => /^\d+$/.test(given.get(key) ?? "") && Number(given.get(key)) < most
      ? Number(given.get(key)) : undefined;
  readEdit(given.get("edit"));
  const item = whole("item", data.tokens.length) ?? state.item, name = given.get("word");
  const position = /^@\d+$/.test(name) ? Number(name.slice(1)) : data.tokens[item].indexOf(name);
  const query = data.tokens[item][position] === undefined ? state.query : position;
  if (item !== state.item || query !== state.query) choose(item, query);
  const step = whole("step", sections().length + 1);
  if (step && step - 1 !== state.step) goTo(step - 1);
  if (given.has("compare") && editInAddress()) compareEdits();
}

function setUpAddress() {
  readAddress(root.dataset.hash);
  addEventListener("hashchange", () => readAddress());
  // What the page does at its start is no move of the reader.
  for (const kind of ["wheel", "touchstart", "pointerdown", "keydown"]) {
    addEventListener(kind, () => { state.moved = true; }, {passive: true, capture: true});
  }
}
