// SPDX-License-Identifier: Apache-2.0
//
// Questions: their numbers are hidden until the reader has found them or
// asks to see them. Answers are kept in the browser's storage, where there is one. An edited scene has
// other numbers, so its questions are neither asked nor hidden.

const familyOf = (step) => /scores$/.test(step.base) ? "scores" : step.base === "merged_context" ? "context" : step.base;
/** Returns the place in `there` of a number of `here`. */
function counterpart(here, there, [item, head, plane, row, col]) {
  const width = Math.min(here.dims[4], there.dims[4]);
  if (here.base === there.base || familyOf(here) !== "context") return [item, head, plane, row, col];
  return there.base === "context" ? [item, Math.floor(col / width), plane, row, col % width]
      : [item, 0, plane, row, head * width + col];
}
/**
 * Returns all cells with the answer. Other steps repeat it, as masked scores do with the scores; and where
 * queries are keys, the score of two words is that of the same words the other way round.
 */
function cellsOf(step, place) {
  const answer = known(step, ...place), [item, head, plane, row, col] = place;
  const mirrored = familyOf(step) === "scores" && !steps.has("query") && !data.source;
  return [place, ...mirrored ? [[item, head, plane, col, row]] : []].flatMap((from) => [...steps.values()]
      .filter((other) => familyOf(other) === familyOf(step)).map((other) => {
        const there = counterpart(step, other, from);
        return {name: other.name, i: indexOf(other, ...there), x: known(other, ...there)};
      })).filter(({x}) => Object.is(x, answer) || Math.abs(x - answer) <= 1e-6 * Math.abs(answer));
}

/** Reads a number as people write it: 0.5, .5, 0,5, 5e-1, 1/2, with any minus sign. */
function readAnswer(written) {
  const parts = written.trim().replace(/[\u2212\u2013]/g, "-").replace(/,/g, ".").split("/").map((part) =>
    /^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(part) ? Number(part) : NaN);
  return parts.length === 1 ? parts[0] : parts.length === 2 ? parts[0] / parts[1] : NaN;
}
/** Returns the largest allowed error, as Tolerance::allowed in C++. */
function allowedError({digits, significant, atol = 0, rtol = 0}, answer, guess) {
  const half = 0.5 + 1e-9;
  if (digits !== undefined) return half * 10 ** -digits;
  if (significant === undefined) return atol + rtol * Math.abs(answer);
  const size = Math.min(Math.abs(answer), Math.abs(guess));
  return size === 0 ? 0 : half * 10 ** (Math.floor(Math.log10(size)) - significant + 1);
}

const KEPT = `fovea ${document.title} ${JSON.stringify(data.questions)}`;
/** The numbers of answered questions, with how they were answered: "right" or "shown". */
let answered = {};
try {
  answered = JSON.parse(localStorage.getItem(KEPT)) ?? {};
} catch {  // no storage, or not ours
}
function keepAnswers() {
  try {
    localStorage.setItem(KEPT, JSON.stringify(answered));
  } catch {  // such as in a notebook's frame
  }
}

const questions = data.questions.filter(({step}) => steps.has(step)).map(({step, place, tolerance}, i) => {
  const of = steps.get(step), answer = known(of, ...place);
  return {n: i + 1, of, answer, shown: show(of, answer), tolerance, cells: cellsOf(of, place), box: byId(`question-${i + 1}`)};
});
const isOpen = ({n}) => !answered[n];

/** Hides the numbers of open questions, and draws again what shows numbers of questions. */
function hideAnswers() {
  asked.clear();
  for (const {n, cells} of questions.filter(isOpen)) {
    for (const {name, i} of cells) asked.set(name, (asked.get(name) ?? new Map()).set(i, n));
  }
  const names = questions.flatMap(({cells}) => cells.map(({name}) => name));
  for (const figure of all("figure.map")) {
    if (names.includes(figure.dataset.step)) fillMatrix(figure, editor?.on && isInput(figure.dataset.step));
  }
  const weighed = questions.filter((question) => isOpen(question) && question.of.base === "weights");
  for (const line of all(".remarks li")) {
    line.classList.toggle("secret", weighed.some(({shown}) => line.textContent.includes(shown)));
  }
}

/** Replaces the hint and the answer of a question by a form. */
function ask(question) {
  const {n, answer, shown, tolerance, box} = question, id = (part) => `question-${n}-${part}`;
  const words = [...box.querySelector(".ask").childNodes], hint = box.querySelector(".hint");
  const input = make("input", {id: id("input"), autocomplete: "off", spellcheck: "false",
    "aria-describedby": id("said")});
  const said = make("p", {id: id("said"), class: "result", role: "status"});
  const clue = hint && make("p", {class: "hint", hidden: "hidden"}, text("question.hint") + ": ", ...hint.childNodes);
  const control = (key, onclick) => button({class: "plain", onclick}, text(`question.${key}`));
  const tools = make("div", {class: "controls"}, input, make("button", {class: "check"}, text("question.check")),
      ...clue ? [control("hint", () => { clue.hidden = !clue.hidden; })] : [], control("show", () => settle("shown")));
  const again = make("div", {class: "controls"}, control("again", () => {
    settle();
    input.value = "";
    input.focus();
  }));
  /** Shows what the question's state is. */
  const tellState = () => {
    const how = answered[n];
    tools.hidden = Boolean(how);
    again.hidden = !how;
    if (clue && how) clue.hidden = true;
    said.className = `result ${how ?? ""}`;
    said.textContent = how ? text(`question.${how}`, {answer: shown}) : "";
  };
  const settle = (/** @type {string} */ how = undefined) => {
    const inside = box.contains(document.activeElement);
    if (how) answered[n] = how;
    else delete answered[n];
    keepAnswers();
    tellState();
    hideAnswers();
    update({retell: true});
    if (how && inside) again.firstElementChild.focus();
  };
  const check = (event) => {
    event.preventDefault();
    const guess = readAnswer(input.value), error = Math.abs(guess - answer);
    if (guess === answer || error <= allowedError(tolerance, answer, guess)) return settle("right");
    said.className = "result wrong";
    said.textContent = Number.isFinite(guess) ? text(guess > answer ? "question.large" : "question.small", {guess: input.value.trim()})
        : text("question.number");
    input.select();
  };
  box.replaceChildren(make("form", {novalidate: "", onsubmit: check}, make("label", {for: input.id}, ...words), tools, said,
      ...clue ? [clue] : [], again));
  tellState();
}
function setUpQuestions() {
  if (!questions.length) return;
  questions.forEach(ask);
  hideAnswers();
  update({retell: true, still: true});
}
