// SPDX-License-Identifier: Apache-2.0
//
// The editor: computes an edited scene again and shows its steps in place of the original ones.

/** Steps that a change of the scale or the mask adds or removes. */
const OPTIONAL = ["scaled_scores", "masked_scores"];

/**
 * The state of the editor, from the first use on: the original scene with literal arrays, its steps,
 * and the edited scene.
 * @type {{author: any, original: any, before: Map<string, any>, edit: Edit, computed: any,
 *   words: string[][], scaleText: string, summary: string, on: boolean}}
 */
let editor = null;

/** Returns the numbers of a step as nested arrays, or tokens. */
function readStep(name) {
  if (name.endsWith("tokens")) {
    const ids = (name === "tokens" ? data.tokens : data.source).map((item) => item.map(Number));
    return ids.length > 1 ? ids : ids[0];
  }
  const step = steps.get(name);
  return step.shape.reduceRight((list, extent) => count(list.length / extent, (i) =>
    list.slice(i * extent, (i + 1) * extent)), [...step.values])[0];
}
function startEditor() {
  if (editor) return;
  const author = JSON.parse(byId("scene-json").textContent);
  const original = literalScene(author, readStep), computed = computeScene(original);
  const before = new Map(computed.steps.map((step) => [step.name, step]));
  // Words as the page shows them, in which invisible characters are replaced.
  editor = {author, original, before, edit: startEdit(original), computed, words: data.tokens, scaleText: data.score.scaleText,
    summary: document.querySelector(".kind").textContent, on: false};
  all("section.step").forEach(keepFormulas);
}
const editInAddress = () => editor ? encodeEdit(editor.original, editor.edit) : "";

// ---- Steps

const isSoftmaxPart = (name) => /^(shifted_scores|exponential)/.test(name);
/** Returns the scale as its formula shows it. */
function writtenScale() {
  const scale = scaleOf(editor.edit.scene);
  if (scale === scaleOf(editor.original)) return editor.scaleText;
  return typeof scale === "number" && Number(brief(scale)) === scale ? brief(scale) : String(scale);
}
/** Replaces the steps of the page by computed ones, and derives what depends on them. */
function setSteps({steps: computed, visible, scale, single}) {
  const names = computed.map(({name}) => name).filter((name) => !isSoftmaxPart(name));
  for (const name of steps.keys()) if (!names.includes(name)) steps.delete(name);
  const hides = visible.includes(0);
  for (const step of computed) {
    if (isSoftmaxPart(step.name)) continue;
    const base = baseName(step.name);
    const old = steps.get(step.name) ??
        {name: step.name, base, title: text(`step.${base}.title`), rows: "q", cols: "k"};
    steps.set(step.name, Object.assign(old, step,
        stepFormat(base, step.values, data.precision, single, step.others),
        {digits: 17, single, maskable: hides && (base === "weights" || base === "masked_scores")}));
  }
  const {edit, words} = editor, now = wordsOf(edit.scene);
  data.tokens = words.map((item, i) => i > 0 ? item
      : edit.origin.map((from, n) => from < 0 ? String(now[n]) : item[from]));
  data.mask = hides ? new Uint8Array(Math.ceil(visible.length / 8)) : null;
  if (hides) visible.forEach((sees, i) => { if (!sees) data.mask[i >> 3] |= 1 << (i & 7); });
  Object.assign(data.score, {scale, scaleText: writtenScale()});
  derive();
}
/** Returns whether a number is not that of the original. Those of new words are not. */
function differs({step, item, head, row, col}, x) {
  const old = editor?.before.get(step.name), from = (axis, i) =>
      axis === "q" || (axis === "k" && !data.source) ? editor.edit.origin[i] : i;
  if (!old || x === undefined) return false;
  const r = from(step.rows, row), c = from(step.cols, col);
  if (r < 0 || c < 0) return true;
  const before = at(old, item, head, 0, r, c);
  return before !== x && !Object.is(before, x);
}

// ---- Sections, boxes and formulas of steps that come and go

const stagesShown = () => STAGES.filter((name) => steps.has(name));
const sectionOf = (name) => byId(`step-${name}`);
/** @type {(name: string) => any} */
const boxOf = (name) => document.querySelector(`#flow a[data-step="${name}"]`)?.closest("li");

function formulaOf(name, focus = "") {
  const template = byId("formulas");
  const formula = template.content.querySelector(`[data-step="${focus}${name}"]`).cloneNode(true);
  formula.removeAttribute("data-step");
  if (name === "scaled_scores") formula.querySelector("mn").textContent = writtenScale();
  return formula;
}
/** Remembers the original formulas of scores, in the order of their steps. */
function keepFormulas(section) {
  const names = section.dataset.step.split(" ").map(plain).filter((name) => STAGES.includes(name));
  if (names.length) section.formulas = new Map(names.map((name, i) => [name, all(".formulas > p", section)[i]]));
}
function showFormulas(section, names, focus) {
  const same = scaleOf(editor.edit.scene) === scaleOf(editor.original);
  section.querySelector(".formulas").replaceChildren(...names.map((name) =>
    name === "scaled_scores" && !same ? formulaOf(name, focus)
        : section.formulas?.get(name) ?? formulaOf(name, focus)));
}
/** Makes the section of a step from that of the scores. */
function makeSection(name) {
  const section = sectionOf("scores").cloneNode(true);
  section.id = `step-${name}`;
  section.dataset.step = name;
  section.querySelector(".title").textContent = text(`step.${name}.title`);
  section.querySelector(".reading").textContent = text(`step.${name}.reading`);
  all(".note, .tools", section).forEach((node) => node.remove());
  all("figure.map", section).forEach((figure) => { figure.dataset.step = name; });
  return section;
}
function makeBox(name) {
  const box = boxOf("scores").cloneNode(true), link = box.querySelector("a");
  link.dataset.step = name;
  link.setAttribute("href", `#step-${name}`);
  link.querySelector("b").textContent = text(`step.${name}.title`);
  return box;
}
const away = new Map();  // sections and boxes of steps that the edited scene does not have
function showStages() {
  const stages = stagesShown();
  for (const name of OPTIONAL) {
    const here = sectionOf(name), wanted = stages.includes(name);
    if (here && !wanted) {
      away.set(name, [here, boxOf(name)]);
      here.remove();
      boxOf(name).remove();
    } else if (!here && wanted) {
      const [section, box] = away.get(name) ?? [makeSection(name), makeBox(name)];
      const previous = stages[stages.indexOf(name) - 1];
      sectionOf(previous).after(section);
      boxOf(previous).after(box);
      if (!section.querySelector(".tools")) setUpTools(section);
    }
    if (wanted) showFormulas(sectionOf(name), [name], "");
  }
  const story = byId("story-scores");
  if (story) {
    showFormulas(story, stages, "focus.");
    const others = story.dataset.step.split(" ").filter((name) => !STAGES.includes(plain(name)));
    for (const head of all("thead tr", story)) {
      all("th[data-step]", head).forEach((node) => node.remove());
      head.lastElementChild.before(...stages.map((name) =>
        make("th", {scope: "col", "data-step": `focus.${name}`}, text(`column.${name}`))));
      all(".rest td", head.closest("table")).forEach((cell) => { cell.colSpan = head.cells.length - 1; });
    }
    // The table of softmax begins with the last scores.
    for (const head of all(".tale[data-kind=weights] thead th[data-step$=scores]:not([data-step*=shifted])")) {
      head.dataset.step = `focus.${last}`;
    }
    story.dataset.step = [...others, ...stages.map((name) => `focus.${name}`)].join(" ");
  }
  all("section.step .number").forEach((node, i) => { node.textContent = i + 1; });
}

/** Explains the sign of masked cells where it is first. */
function showLegend() {
  all(".legend").forEach((node) => node.remove());
  if (data.mask === null) return;
  const legend = make("p", {class: "small legend"}, text("remark.masked")), story = byId("story-scores");
  if (!story) all("section.step").find((node) => steps.get(node.dataset.step.split(" ")[0])?.maskable).querySelector(".maps").after(legend);
  else if (steps.has("masked_scores")) story.querySelector(".scale-remark").before(legend);
  else byId("story-weights").append(legend);
}

// ---- Everything else that shows the scene

function showWords() {
  const words = data.tokens[0], detail = document.querySelector('#flow a[data-step="tokens"] .words');
  fillChips(document.querySelector(".chips"));
  for (const list of all("#step-tokens .word-list")) {
    list.replaceChildren(...data.tokens[Number(list.dataset.item)].map((name) => make("li", {}, bdi(name))));
  }
  detail?.replaceChildren(...words.slice(0, 6).flatMap((name, i) => [i > 0 ? ", " : "", bdi(name)]),
      words.length > 6 ? ", \u2026" : "");
  // The sizes in the formulas of words and of the matrices with one row per word.
  const sizes = (name) => all(".formulas mn", sectionOf(name));
  sizes("tokens")[1].textContent = queries - 1;
  for (const name of stepsByWord(editor.edit.scene)) sizes(name)[0].textContent = queries;
}
function showShapes() {
  for (const box of all("#flow a")) {
    const name = box.dataset.step, step = steps.get(name), shape = box.parentNode.querySelector(".shape");
    const extents = step ? step.shape
        : name === "tokens" ? [...editor.computed.batched ? [data.tokens.length] : [], queries] : null;
    if (extents) shape.textContent = extents.join(" \u00d7 ") || "1";
  }
}
function showRemarks() {
  const section = sectionOf("weights"), [list] = all(".remarks", section);
  const items = allRemarks().map(({item, head, remark}) => make("li", {"data-item": item, "data-head": head,
    "data-heads": data.heads > 1 ? data.heads : null}, remark));
  list?.remove();
  if (items.length) section.append(make("ul", {class: "remarks"}, ...items));
  for (const node of all("section.step > p[data-step]")) {
    const sums = steps.get(node.dataset.step);
    node.textContent = text("table.largest_sum", {n: show(sums, sums.largest)});
  }
}
/** Says what belongs to the original only. */
function showEdited(edited) {
  document.querySelector(".kind").textContent =
      edited ? summaryOf(editor.edit.scene, editor.computed) : editor.summary;
  root.classList.toggle("edited", edited);
  const checks = byId("checks");
  let note = byId("checks-edited");
  if (checks && !note) {
    note = make("p", {id: "checks-edited", class: "note"}, text("edit.checks"));
    checks.querySelector(".reading").before(note);
  }
  if (note) note.hidden = !edited;
  for (const node of all(".drawn")) {
    const name = node.closest("section").dataset.step.split(" ")[0], before = editor.before.get(name);
    node.hidden = String(before?.values) !== String(steps.get(name).values);
  }
}
/** Computes the edited scene and shows it. The figure in which the reader types stays as it is. */
function recompute(typing = null) {
  const {edit, original} = editor, words = data.tokens[0].join("\0");
  editor.computed = computeScene(edit.scene);
  setSteps(editor.computed);
  const edited = state.edited = encodeEdit(original, edit) !== "";
  state.query = Math.min(state.query, queries - 1);
  // First, while the layout is still known: reading it later would compute it twice.
  drawArcs();
  forget();
  showStages();
  showLegend();
  if (data.tokens[0].join("\0") !== words) showWords();
  showShapes();
  showRemarks();
  showEdited(edited);
  for (const figure of all("figure.map")) {
    if (steps.has(figure.dataset.step) && figure !== typing) fillMatrix(figure, editor.on && isInput(figure.dataset.step));
  }
  update({retell: true, still: true});
  markStep(state.step);
  showControls(edited);
  sayLater(() => edited ? text("edit.changed", {n: all(".changed").length}) : text("edit.unchanged"));
}
const isInput = (name) => Object.values(inputsOf(editor.edit.scene)).includes(name);
