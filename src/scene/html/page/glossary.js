// SPDX-License-Identifier: Apache-2.0
//
// The glossary: in each part of the page, the first occurrence of a word that a newcomer does not know has
// an explanation, which appears in the tooltip. "glossary.query" is an explanation, and
// "glossary.query.words" lists the forms of the word, separated by "|".

/** @type {Map<string, string>} */
const terms = new Map();  // the keys of explanations by the forms of their words
for (const key of Object.keys(texts).filter((one) => /^glossary\..*\.words$/.test(one))) {
  for (const form of text(key).toLowerCase().split("|")) terms.set(form, key.replace(".words", ""));
}
function tellTerm(node) {
  forget();
  const box = node.getBoundingClientRect();
  bubble.replaceChildren(make("p", {class: "what"}, node.textContent), make("p", {}, text(terms.get(node.textContent.toLowerCase()))));
  bubble.hidden = false;
  placeBubble(box, box);
}

/** Makes a button that wraps like the text around it. */
const termButton = (form) => make("span", {class: "term", role: "button", tabindex: 0,
  onclick: ({currentTarget}) => tellTerm(currentTarget), onkeydown: (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    tellTerm(event.currentTarget);
  }}, form);

function setUpGlossary() {
  const forms = [...terms.keys()].sort((a, b) => b.length - a.length);
  // Chinese has no spaces between words.
  const ends = /\p{Script=Han}/u.test(forms.join()) ? ["", ""] : ["(?<![\\p{L}\\p{N}_])", "(?![\\p{L}\\p{N}_])"];
  const pattern = new RegExp(ends.join(`(?:${forms.join("|")})`), "giu");
  let seen = new Set();
  const mark = (node) => {
    const parts = [];
    let end = 0;
    for (const {0: form, index} of node.data.matchAll(pattern)) {
      const key = terms.get(form.toLowerCase());
      if (seen.has(key)) continue;
      seen.add(key);
      parts.push(node.data.slice(end, index), termButton(form));
      end = index + form.length;
    }
    if (parts.length) node.replaceWith(...parts, node.data.slice(end));
  };
  for (const node of all("main > h2, :is(.banner, #glance, .step) :is(.kind, .note, .title, .reading)")) {
    if (node.localName === "h2") seen = new Set();
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) if (!walker.currentNode.parentElement.closest("h2, bdi")) found.push(walker.currentNode);
    found.forEach(mark);
  }
}
