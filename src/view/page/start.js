// SPDX-License-Identifier: Apache-2.0
//
// The start page: the open inputs as cards, with links to everything that can be done with them.

import {inWords} from "./api.js";
import {bdi, button, counted, make} from "./dom.js";
import {factsOf, headAddress} from "./entry.js";
import {visible} from "./visible.js";

/** @typedef {import("./entry.js").Entry} Entry */
/** @typedef {import("./entry.js").Context} Context */

const KINDS = {recording: "Recordings", tensors: "Tensors", scene: "Scenes"};
const ABOUT = {
  recording: "The attention of a model on a text, recorded with fovea.record.",
  tensors: "Queries and keys from files of arrays.",
  scene: "Worked examples: every number from the words to the result, step by step.",
};

/** What can be done with an input: pairs of an address and its name. The first is that of the title. */
function linksOf(/** @type {Entry} */ entry) {
  if (entry.kind === "scene") return [[`/scene/${encodeURIComponent(entry.id)}`, "Open"]];
  const layer = entry.layers[0];
  if (!layer) return [];
  const links = [[`/heads/${encodeURIComponent(entry.id)}`, "Heads"], [headAddress("map", entry, layer, layer.heads[0]), "Map"]];
  if (layer.query_tokens || layer.key_tokens) links.push([headAddress("text", entry, layer, layer.heads[0]), "Text"]);
  return links;
}

/** A notice that the file has changed, in place of the links. */
function changedNotice(/** @type {Entry} */ entry, /** @type {Context} */ context, /** @type {(entry: Entry) => void} */ done) {
  const again = button({onclick: async () => {
    again.disabled = true;
    try {
      done(await context.api.reopen(entry.id));
      context.announce(`${entry.name} was read again`);
    } catch (error) {
      again.disabled = false;
      context.error(`${entry.name} cannot be read again: ${inWords(error)}`);
    }
  }}, "Read again");
  return make("p", {class: "changed", role: "status"}, "This file has changed since it was opened. ", again);
}

function cardOf(/** @type {Entry} */ entry, /** @type {Context} */ context) {
  const links = linksOf(entry), [title] = links, name = bdi(visible(entry.name));
  const card = make("li", {class: `card ${entry.kind}`});
  card.append(make("h3", {}, title && !entry.changed ? make("a", {href: title[0]}, name) : name));
  if (entry.model) card.append(make("p", {class: "model"}, visible(entry.model)));
  if (entry.source) card.append(make("p", {class: "source"}, bdi(visible(entry.source))));
  if (entry.kind !== "scene") {
    card.append(make("dl", {class: "facts"}, ...factsOf(entry).map(([term, value]) =>
      make("div", {}, make("dt", {}, term), make("dd", {}, value)))));
  }
  if (entry.changed) {
    card.append(changedNotice(entry, context, (fresh) => {
      Object.assign(entry, fresh);
      card.replaceWith(cardOf(entry, context));
    }));
  } else if (entry.kind !== "scene") {
    card.append(make("nav", {class: "links", "aria-label": entry.name}, ...links.map(([href, text]) => make("a", {href}, text))));
  }
  return card;
}

/** What to type if nothing is open. */
function emptyState() {
  const line = (/** @type {string} */ command, /** @type {string} */ why) => [make("dt", {}, make("code", {}, command)), make("dd", {}, why)];
  return make("section", {class: "empty"}, make("h2", {}, "Nothing is open yet"),
      make("p", {}, "Name files when you start the viewer:"),
      make("dl", {},
          ...line("fovea view run.safetensors", "a recording of your model on your text"),
          ...line("fovea view layer.npz --causal", "tensors named query and key, with their mask"),
          ...line("fovea view scene.json", "a worked example"),
          ...line("fovea view", "the examples in the program")));
}

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export async function open(root, context) {
  document.title = "Fovea";
  const given = await context.api.inputs();
  /** @type {Entry[]} */
  const inputs = given.inputs;
  const page = make("div", {class: "start"}, make("h1", {}, "Look inside attention"));
  if (inputs.length === 0) page.append(emptyState());
  else page.append(make("p", {class: "kind"}, `${counted(inputs.length, "input")} open in Fovea ${given.version}.`));
  for (const [kind, title] of Object.entries(KINDS)) {
    const found = inputs.filter((entry) => entry.kind === kind);
    if (found.length === 0) continue;
    page.append(make("section", {"aria-labelledby": `open-${kind}`}, make("h2", {id: `open-${kind}`}, title),
        make("p", {class: "small"}, ABOUT[/** @type {keyof typeof ABOUT} */ (kind)]),
        make("ul", {class: `cards of-${kind}`}, ...found.map((entry) => cardOf(entry, context)))));
  }
  root.replaceChildren(page);
  return {close() {}};
}
