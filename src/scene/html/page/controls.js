// SPDX-License-Identifier: Apache-2.0
//
// The controls of the editor: the switch in the bar, and a section with scale, mask, words and copies.

const SCALE_BITS = 6;  // the slider goes from 2^-6 to 2^6
let saying = null;  // the timer of the next announcement, or of the end of the last one

/** Announces something to the reader. */
function sayNow(message) {
  clearTimeout(saying);
  byId("said").textContent = message;
  saying = setTimeout(() => { byId("said").textContent = ""; }, 6000);
}
/** Announces the result of an edit, when the slider or the keys rest. */
function sayLater(message) {
  clearTimeout(saying);
  saying = setTimeout(() => sayNow(message()), 500);
}

function removeButtons(name, i) {
  const words = editor?.on && !fixedWords() ? data.tokens[0].length : 0;
  return words < 2 ? [] : [button({class: "remove", "aria-label": text("edit.remove", {word: name}),
    title: text("edit.remove", {word: name}), onclick: () => {
      removeWord(editor.edit, i);
      if (i < state.query) state.query -= 1;
      recompute();
      all(".remove")[Math.min(i, data.tokens[0].length - 1)]?.focus();
    }}, "\u00d7")];
}
/** Returns the text of a reason why words cannot be added or removed, or "". */
function fixedWords() {
  const part = wordsFixedBy(editor.original);
  return part && text(`edit.fixed.${part}`);
}
function addTyped(field) {
  const name = field.value.normalize().replace(/\p{Cc}/gu, "").trim();
  try {
    addWord(editor.edit, asToken(editor.edit.scene, name), data.precision);
  } catch {
    field.setAttribute("aria-invalid", true);
    return sayNow(text(typeof wordsOf(editor.edit.scene)[0] === "number" ? "edit.whole" : "edit.empty"));
  }
  field.removeAttribute("aria-invalid");
  field.value = "";
  state.query = editor.edit.origin.length - 1;
  recompute();
  update();
  field.focus();
}
function changeScale(scale) {
  const field = byId("scale");
  if (Number.isNaN(scale)) {
    field.setAttribute("aria-invalid", true);
    return sayNow(text("edit.invalid", {text: field.value}));
  }
  field.removeAttribute("aria-invalid");
  if (scale === editor.computed.scale) return;
  setScale(editor.edit.scene, scale);
  recompute();
}
/** Shows the state of the edited scene in the controls, except in the one that has the focus. */
function showControls(edited) {
  const {scale} = editor.computed, here = document.activeElement;
  const set = (id, value) => {
    const node = byId(id);
    if (node && node !== here) node.value = value;
  };
  set("scale", factorText(scale));
  set("scale-slider", scale > 0 ? clamp(Math.log2(scale), -SCALE_BITS, SCALE_BITS) : -SCALE_BITS);
  byId("temperature").textContent = text("edit.temperature", {n: factor(1 / scale)});
  byId("causal").checked = isCausal(editor.edit.scene);
  for (const node of all(".reset")) node.hidden = !edited;
  const full = queries >= MOST_WORDS;
  for (const node of all("#add-word input, #add-word button")) node.disabled = full;
  byId("too-long").hidden = editInAddress().length <= MOST_EDITS;
  placeChanged();
}
const factorText = (x) => String(Number(x.toPrecision(6)));

/** Replaces the edit. The selected word stays, if it is still there. */
function useEdit(edit) {
  const from = editor.edit.origin[state.query];
  editor.edit = edit;
  if (data.tokens.length === 1) state.query = Math.max(edit.origin.indexOf(from < 0 ? data.focus?.[1] : from), 0);
}
function resetEdits() {
  useEdit(startEdit(editor.original));
  recompute();
  sayNow(text("edit.was_reset"));
}
function copiedScene() {
  const {item, query} = state, [homeItem, home] = data.focus ?? [0, 0];
  const moved = item !== homeItem || editor.edit.origin[query] !== home;
  return takeAway(editor.original, editor.edit, item, query, moved);
}

function makePanel() {
  const fixed = fixedWords(), copies = (key, content) => button({class: "plain",
    onclick: (event) => copy(content(), event.currentTarget)}, text(key));
  const field = make("input", {type: "text", size: 10, autocomplete: "off", "aria-label": text("edit.word")});
  const words = fixed ? make("p", {class: "small"}, fixed)
      : make("form", {id: "add-word", class: "controls", onsubmit: (event) => {
        event.preventDefault();
        addTyped(field);
      }}, make("label", {}, text("edit.word"), field), make("button", {class: "plain"}, text("edit.add")),
      make("span", {class: "small"}, text("edit.row")));
  const number = (event) => changeScale(parseNumber(event.target.value));
  return make("section", {id: "edit", "aria-labelledby": "edit-title", hidden: "hidden"},
      make("h2", {id: "edit-title"}, text("edit.title")),
      make("p", {class: "reading"}, text("edit.reading")),
      make("div", {class: "controls"},
          make("label", {}, text("edit.scale"), make("input", {id: "scale-slider", type: "range", step: 0.05,
            min: -SCALE_BITS, max: SCALE_BITS, "aria-label": text("edit.scale_slider"), oninput: (event) => {
              changeScale(Number((2 ** event.target.value).toPrecision(3)));
              event.target.setAttribute("aria-valuetext", factorText(editor.computed.scale));
            }})),
          make("input", {id: "scale", size: 8, autocomplete: "off", "aria-label": text("edit.scale"), oninput: number,
            onchange: number}),
          make("output", {id: "temperature"})),
      make("div", {class: "controls"}, make("label", {}, make("input", {id: "causal", type: "checkbox",
        onchange: (event) => {
          setCausal(editor.edit.scene, event.target.checked);
          recompute();
        }}), text("edit.causal"))),
      words,
      make("div", {class: "controls"},
          button({class: "plain reset", onclick: resetEdits}, text("edit.reset")), compareSwitch(),
          copies("edit.copy_scene", () => sceneText(copiedScene()) + "\n"),
          copies("edit.copy_numpy", () => numpyProgram(editor.edit.scene, editor.computed, data.precision))),
      make("p", {id: "too-long", class: "small", hidden: "hidden"}, text("edit.too_long")));
}

function switchEditing(on) {
  startEditor();
  if (!byId("edit")) {
    byId("steps").prepend(makePanel());
    setUpInputs();
  }
  editor.on = on;
  byId("edit").hidden = !on;
  byId("edit-switch").setAttribute("aria-checked", String(on));
  root.classList.toggle("editing", on);
  fillChips(document.querySelector(".chips"));
  recompute();
}
/** Applies the edit of an address; "" or undefined is none. Says so if it does not fit the scene. */
function readEdit(code = "") {
  if (!data.editable || code === editInAddress()) return;
  startEditor();
  let edit;
  try {
    edit = decodeEdit(editor.original, code);
  } catch {
    return sayNow(text("edit.bad_address"));
  }
  useEdit(edit);
  switchEditing(true);
}
function setUpEditing(bar) {
  if (!data.editable) return;
  bar.querySelector(".walk").append(button({id: "edit-switch", class: "plain", role: "switch", "aria-checked": false,
    onclick: () => switchEditing(!editor?.on)}, text("edit.switch")));
  document.body.append(make("p", {id: "said", role: "status"}));
  document.querySelector(".banner").append(make("p", {id: "edited"}, text("edit.edited") + " ",
      button({class: "plain reset", onclick: resetEdits}, text("edit.reset")), " ", compareSwitch()));
}
