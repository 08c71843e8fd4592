// SPDX-License-Identifier: Apache-2.0
//
// Renders matrices as table.cc does, for steps that the editor has computed again.

const MOST_PLANES = 12, STRONGEST = 10, LONG_WORD = 12;  // as in table.h and table.cc

function heading(scope, name, attributes = {}) {
  const long = new TextEncoder().encode(name).length > LONG_WORD;
  return make("th", {scope, ...attributes, title: long ? name : null}, bdi(name));
}
/** @typedef {[attributes: Record<string, string | null>, content: string]} CellParts */
/** @type {() => CellParts} */
const maskedParts = () => [{class: "m", "aria-label": text("table.masked")}, "\u00d7"];
/** @type {(step: any, x: number) => CellParts} */
function heatParts(step, x) {
  if (!Number.isFinite(x)) return [{class: x === undefined ? "asked" : "odd"}, show(step, x)];
  const share = step.largest > 0 ? Math.abs(x) / step.largest : 0;
  return [{class: x < 0 ? "n" : null, style: `--v:${fixed(share, 2)}`}, show(step, x)];
}
const maskedCell = () => make("td", ...maskedParts());
const heatCell = (step, x) => make("td", ...heatParts(step, x));

function axisName(step, axis) {
  if (axis === "d") return text("axis.numbers");
  if (step.cols === "k") return text(axis === "k" ? "axis.keys" : "axis.queries");
  return text(data.source && axis === "k" ? "axis.source" : "axis.words");
}
/** Describes the dimensions of a matrix, such as "6 queries down, 6 keys across". */
function describe(step) {
  const [, , , rows, cols] = step.dims;
  return step.rows === "d" ? text("table.in_out", {rows, cols})
      : text("table.size", {rows, down: axisName(step, step.rows), cols, across: axisName(step, step.cols)});
}
function fitsTable({dims: [batch, heads, planes, rows, cols]}) {
  return rows <= data.limits.table && cols <= data.limits.cols &&
      batch * heads * Math.min(planes, MOST_PLANES) * rows * cols <= data.limits.cells;
}

/**
 * Returns the cells of a row of a matrix, with a mark on those that differ from the original.
 * @returns {CellParts[]}
 */
function rowParts({step, item, head, plane}, sums, row) {
  const cells = count(step.dims[4], (col) => {
    const x = at(step, item, head, plane, row, col);
    const [attributes, content] = step.maskable && masked(item, head, row, col) ? maskedParts() : heatParts(step, x);
    if (differs({step, item, head, row, col}, x)) {
      attributes.class = [attributes.class, "changed"].filter(Boolean).join(" ");
    }
    return /** @type {CellParts} */ ([attributes, content]);
  });
  return sums ? [...cells, [{class: "sum"}, show(sums, at(sums, item, head, 0, row, 0))]] : cells;
}
function matrixTable(place, sums) {
  const {step, item} = place, [, , , rows, cols] = step.dims;
  return make("table", {class: "heat" + (step.base === "weights" ? " share" : "")},
      make("caption", {}, describe(step)),
      make("thead", {}, make("tr", {}, make("td"),
          ...count(cols, (col) => heading("col", word(step.cols, item, col))),
          ...sums ? [heading("col", text("table.sum"), {"data-step": sums.name})] : [])),
      make("tbody", {}, ...count(rows, (row) => make("tr", {}, heading("row", word(step.rows, item, row)),
          ...rowParts(place, sums, row).map((parts) => make("td", ...parts))))));
}
/** Changes the cells of a table whose headings stay. */
function refreshTable(table, place, sums) {
  [...table.tBodies[0].rows].forEach((line, row) => rowParts(place, sums, row).forEach(([attributes, content], col) => {
    const cell = line.cells[col + 1];
    for (const name of ["class", "style", "aria-label"]) {
      const value = attributes[name] ?? null;
      if (value === cell.getAttribute(name)) continue;
      if (value === null) cell.removeAttribute(name);
      else cell.setAttribute(name, value);
    }
    const shown = /** @type {Text} */ (cell.firstChild);
    if (cell.childNodes.length === 1 && shown.data !== undefined) {
      if (shown.data !== content) shown.data = content;  // costs the layout less than another text node
    } else if (cell.textContent !== content) {
      cell.textContent = content;
    }
  }));
}

/** Lists the largest weights, because a picture shows no numbers. */
function strongest({step, item, head}) {
  const [, , , rows, cols] = step.dims, cells = [];
  for (let row = 0; row < rows; ++row) {
    for (let col = 0; col < cols; ++col) {
      const x = at(step, item, head, 0, row, col);
      if (!masked(item, head, row, col) && Number.isFinite(x)) cells.push({x, row, col});
    }
  }
  cells.sort((a, b) => b.x - a.x || a.row - b.row || a.col - b.col);
  if (cells.length === 0) return [];
  return [make("p", {class: "small"}, text("table.strongest")),
    make("ol", {class: "top"}, ...cells.slice(0, STRONGEST).map(({x, row, col}) =>
      make("li", {}, bdi(word("q", item, row)), ` \u00b7 ${row} \u2192 `, bdi(word("k", item, col)),
          ` \u00b7 ${col} `, make("b", {}, show(step, x)))))];
}
function matrixPicture(place) {
  const {step} = place, [, , , height, width] = step.dims, weighty = step.base === "weights";
  const about = text("table.picture", {step: step.title, size: describe(step)});
  return [make("div", {class: "scroll"}, make("canvas", {class: weighty ? "share" : "signed", width, height,
    role: "img", "aria-label": about}, `${about} (${text("table.script")})`)),
  make("p", {class: "small"}, describe(step)), ...weighty ? strongest(place) : []];
}

/** Fills the figure of a matrix, below its caption. `asTable` allows tables of any size. */
function fillMatrix(figure, asTable = false) {
  const place = placeOf(figure), {step, item} = place, caption = figure.querySelector("figcaption");
  const sums = step.base === "weights" ? steps.get(step.name.replace("weights", "row_sums")) : null;
  const names = (axis, extent) => axis === "d" ? extent : (axis === "k" && data.source || data.tokens)[item].join("\0");
  const tabular = asTable || fitsTable(step), old = figure.querySelector("table");
  const headings = [names(step.rows, step.dims[3]), names(step.cols, step.dims[4])].join("\0\0");
  if (tabular && old?.headings === headings) return refreshTable(old, place, sums);
  const table = tabular && Object.assign(matrixTable(place, sums), {headings});
  figure.replaceChildren(...caption ? [caption] : [],
      ...table ? [make("div", {class: "scroll"}, table)] : matrixPicture(place));
  if (table) setUpTable(table);
  all("canvas", figure).forEach((canvas) => {
    setUpPicture(canvas);
    paint(canvas);
  });
}
