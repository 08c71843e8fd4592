const bytes = Uint8Array.from(atob(map.cells), c => c.charCodeAt(0));
const cells = new DataView(bytes.buffer);
const svg = document.querySelector("svg"), plot = document.getElementById("plot");
const told = document.getElementById("told");
const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
mark.setAttribute("class", "mark");
mark.style.display = "none";
svg.append(mark);

/** @returns {[number, number]} the begin and end of part i of a range */
function part([begin, end], i, parts) {
  const cut = k => begin + Math.floor(k * (end - begin) / parts);
  return [cut(i), cut(i + 1)];
}

function name(kind, [begin, end], first, tokens) {
  const of = i => tokens.length ? `${i} “${tokens[i - first]}”` : `${i}`;
  return end - begin === 1 ? `${kind} ${of(begin)}` : `${kind} ${of(begin)} to ${of(end - 1)}`;
}

function hide() {
  told.style.display = mark.style.display = "none";
}

svg.addEventListener("pointermove", event => {
  const box = plot.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / box.width * map.columns);
  const row = Math.floor((event.clientY - box.top) / box.height * map.rows);
  if (column < 0 || column >= map.columns || row < 0 || row >= map.rows) return hide();
  const weight = cells.getFloat32(4 * (row * map.columns + column), true);
  const queries = part(map.queries, row, map.rows), keys = part(map.keys, column, map.columns);
  const one = queries[1] - queries[0] === 1 && keys[1] - keys[0] === 1;
  const says = weight < 0 ? "masked" : Number.isNaN(weight) ? "nan" : weight.toPrecision(4);
  const [down, across, value] = map.names;
  told.textContent = `${name(down, queries, map.queries[0], map.queryTokens)}\n` +
    `${name(across, keys, map.keys[0], map.keyTokens)}\n${one ? value : map.pool}: ${says}`;
  told.style.display = "block";
  const room = told.getBoundingClientRect();
  told.style.left = `${Math.min(event.clientX + 14, innerWidth - room.width - 8)}px`;
  told.style.top = `${Math.min(event.clientY + 14, innerHeight - room.height - 8)}px`;
  const at = i => plot[i].baseVal.value;
  const sides = {x: at("x") + at("width") * column / map.columns, y: at("y") + at("height") * row / map.rows,
    width: at("width") / map.columns, height: at("height") / map.rows};
  for (const [side, value] of Object.entries(sides)) mark.setAttribute(side, value);
  mark.style.display = "block";
});
svg.addEventListener("pointerleave", hide);
