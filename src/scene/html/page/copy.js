// SPDX-License-Identifier: Apache-2.0
//
// Copying of numbers.

function nested(step, write) {
  let i = 0;
  const rounded = (x, digits) => Number(x.toPrecision(digits));
  // A float32 as its shortest text, of up to nine digits.
  const shortest = (x) => rounded(x, [6, 7, 8].find((n) => Math.fround(rounded(x, n)) === x) ?? 9);
  const exact = (x) => !Number.isFinite(x) ? write(x)
      : String(step.single ? shortest(x) : rounded(x, step.digits));
  const level = (/** @type {number[]} */ [extent, ...rest]) => extent === undefined ? exact(step.values[i++])
      : "[" + count(extent, () => level(rest)).join(", ") + "]";
  return level(step.shape);
}
const FORMATS = {
  NumPy: (step) => "np.array(" + nested(step, (x) => special(x).replace(/[a-z]+/, "np.$&")) + ")",
  JSON: (step) => nested(step, (x) => `"${special(x)}"`),
  LaTeX: (step) => {
    const [batch, heads, planes, rows, cols] = step.dims;
    const entry = (x) => Number.isFinite(x) ? show(step, x)
        : special(x).replace("inf", "\\infty").replace("nan", "\\mathrm{nan}");
    return count(batch * heads * planes, (m) => "\\begin{bmatrix}\n" + count(rows, (r) =>
      count(cols, (c) => entry(step.values[(m * rows + r) * cols + c])).join(" & ")).join(" \\\\\n") +
      "\n\\end{bmatrix}").join("\n");
  },
};

async function copy(content, node) {
  const name = node.textContent;
  try {
    await navigator.clipboard.writeText(content);
  } catch {  // the clipboard API is not permitted here
    const area = make("textarea");
    area.value = content;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  node.textContent = text("copy.copied");
  setTimeout(() => { node.textContent = name; }, 1200);
}

function setUpTools(section) {
  const name = section.dataset.step.split(" ")[0], step = steps.get(name);
  if (!step) return;
  section.querySelector("h3").append(make("span", {class: "tools"}, text("copy.as") + " ",
      ...Object.entries(FORMATS).map(([format, write]) => button({
        "aria-label": text("copy.step", {step: step.title, format}),
        onclick: (event) => copy(write(steps.get(name)), event.currentTarget)}, format))));
}
function setUpCopying() {
  all("section.step").forEach(setUpTools);
  const scene = document.getElementById("scene-json");
  scene?.before(button({class: "plain",
    onclick: (event) => copy(scene.textContent, event.currentTarget)}, text("copy.copy")));
  // A page in a frame has no address of its own.
  if (/^(file|https?):$/.test(location.protocol)) {
    document.getElementById("scene").append(button({class: "plain", onclick: (event) =>
      copy(location.href.replace(/#.*/, "") + fragment(), event.currentTarget)}, text("copy.link")));
  }
}
