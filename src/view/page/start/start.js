// SPDX-License-Identifier: Apache-2.0
//
// The start page: the open inputs as cards, with links to everything that can be done with them.

import {inWords} from "../shared/api.js";
import {bdi, button, counted, make} from "../shared/dom.js";
import {factsOf, headAddress, headCount, titleOf} from "../shared/entry.js";
import {visible} from "../shared/visible.js";

/** @typedef {import("../shared/entry.js").Entry} Entry */
/** @typedef {import("../shared/entry.js").Context} Context */

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
  const heads = [`/heads/${encodeURIComponent(entry.id)}`, "Heads"], map = [headAddress("map", entry, layer, layer.heads[0]), "Map"];
  const links = headCount(entry) > 1 ? [heads, map] : [map, heads];
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
  return make("p", {class: "changed", role: "status"}, `${visible(entry.changed ?? "")} has changed since it was opened. `, again);
}

function cardOf(/** @type {Entry} */ entry, /** @type {Context} */ context) {
  const links = linksOf(entry), [title] = links, name = bdi(titleOf(entry));
  const card = make("li", {class: `card ${entry.kind}`});
  card.append(make("h3", {}, title && !entry.changed ? make("a", {href: title[0]}, name) : name));
  if (entry.title && entry.path) card.append(make("p", {class: "file"}, bdi(visible(entry.name))));
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

/** What to type to open files. */
function howToOpen(/** @type {string} */ title) {
  const line = (/** @type {string} */ command, /** @type {string} */ why) => [make("dt", {}, make("code", {}, command)), make("dd", {}, why)];
  return make("section", {class: "empty"}, make("h2", {}, title),
      make("p", {}, "Name files when you start the viewer:"),
      make("dl", {},
          ...line("fovea view run.safetensors", "a recording of your model on your text"),
          ...line("fovea view layer.npz --causal", "tensors named query and key, with their mask"),
          ...line("fovea view scene.json", "a worked example")));
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
  const examples = inputs.every(({path}) => !path);  // embedded in the program
  if (inputs.length === 0) page.append(howToOpen("Nothing is open yet"));
  else page.append(make("p", {class: "kind"}, `${counted(inputs.length, examples ? "example" : "input")} open in Fovea ${given.version}.`));
  for (const [kind, title] of Object.entries(KINDS)) {
    const found = inputs.filter((entry) => entry.kind === kind);
    if (found.length === 0) continue;
    page.append(make("section", {"aria-labelledby": `open-${kind}`}, make("h2", {id: `open-${kind}`}, title),
        make("p", {class: "small"}, ABOUT[/** @type {keyof typeof ABOUT} */ (kind)]),
        make("ul", {class: `cards of-${kind}`}, ...found.map((entry) => cardOf(entry, context)))));
  }
  if (inputs.length > 0 && examples) page.append(howToOpen("Your own attention"));
  root.replaceChildren(page);
  return {close() {}};
}
