// SPDX-License-Identifier: Apache-2.0
//
// Pictures of large matrices: one pixel per number, enlarged by the style sheet.

function paint(canvas) {
  const {step, item, head, plane} = placeOf(canvas.closest("figure"));
  const {width: cols, height: rows} = canvas, style = getComputedStyle(root);
  const rgb = (name) => style.getPropertyValue(name).trim().split(" ").map(Number);
  const paper = rgb("--paper-rgb"), above = rgb(step.base === "weights" ? "--green" : "--blue");
  const below = rgb("--orange");
  const pen = canvas.getContext("2d"), image = pen.createImageData(cols, rows);
  for (let i = 0; i < rows * cols; ++i) {
    const row = Math.floor(i / cols), x = at(step, item, head, plane, row, i % cols);
    const hidden = step.maskable && masked(item, head, row, i % cols);
    const share = Number.isFinite(x) ? Math.min(1, Math.abs(x) / (step.largest || 1)) : 0;
    // Most weights of a long row are small; the square root makes them visible.
    const v = step.base === "weights" ? Math.sqrt(share) : share, ink = x < 0 ? below : above;
    paper.forEach((c, k) => { image.data[4 * i + k] = c + (ink[k] - c) * v; });
    image.data[4 * i + 3] = hidden ? 0 : 255;
  }
  pen.putImageData(image, 0, 0);
}
const paintAll = () => all("figure.map:not([hidden]) canvas").forEach(paint);

const PICTURE = 440, WEIGHTS = 288;  // pixels; two matrices fit side by side, or three of weights

function setUpPicture(canvas) {
  const {width: cols, height: rows} = canvas;
  const figure = canvas.closest("figure"), {step} = placeOf(figure);
  if (!step) {
    canvas.replaceWith(make("p", {class: "small"}, text("picture.too_many")));
    return;
  }
  const size = step.base.endsWith("_weights") ? WEIGHTS : PICTURE;
  const enlarge = (n, most) => (n > size ? size : n * Math.min(Math.floor(size / n), most)) + "px";
  canvas.style.width = enlarge(cols, 24);
  canvas.style.height = cols === rows ? "auto" : enlarge(rows, 16);
  canvas.tabIndex = 0;
  let here = [0, 0];
  const point = (row, col) => {
    here = [clamp(row, 0, rows - 1), clamp(col, 0, cols - 1)];
    const box = canvas.getBoundingClientRect(), top = box.top + here[0] / rows * box.height;
    const left = box.left + here[1] / cols * box.width;
    tell({...placeOf(figure), row: here[0], col: here[1]},
        {left, right: left + box.width / cols, top, bottom: top + box.height / rows});
  };
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    point(Math.floor((event.clientY - box.top) / box.height * rows),
        Math.floor((event.clientX - box.left) / box.width * cols));
  });
  canvas.addEventListener("click", () => { if (step.rows === "q") choose(state.item, here[0]); });
  canvas.addEventListener("focus", () => point(...here));
  canvas.addEventListener("mouseleave", forget);
  canvas.addEventListener("blur", forget);
  canvas.addEventListener("keydown", (event) => {
    const [down, right] = ARROWS[event.key] || [];
    if (down === undefined) return;
    event.preventDefault();
    point(here[0] + down, here[1] + right);
  });
}
all("figure.map canvas").forEach(setUpPicture);
