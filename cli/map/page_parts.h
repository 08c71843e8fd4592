// SPDX-License-Identifier: Apache-2.0
//
// Style and script of the pages and drawings that `fovea map` writes.

#pragma once

#include <string_view>

namespace fovea::cli {

inline constexpr std::string_view kSvgStyle = R"(
text{font:12px system-ui,sans-serif;fill:#1f2430}
.title{font-size:16px;font-weight:600}
.label{fill:#586173}.axis{font-size:13px}
.tick{stroke:#98a2b3;fill:none}.frame{stroke:#98a2b3}
.paper{fill:#fff}.ground{fill:#f1f2f5}.hatch{stroke:#d3d8e0;fill:none}
@media(prefers-color-scheme:dark){
text{fill:#e6e8ee}.label{fill:#a3abba}.tick,.frame{stroke:#5b6473}
.paper{fill:#14161b}.ground{fill:#1b1e25}.hatch{stroke:#343a46}}
)";

inline constexpr std::string_view kPageStyle = R"(
:root{color-scheme:light dark;--paper:#fff;--ink:#1f2430;--soft:#586173;--line:#d3d8e0}
@media(prefers-color-scheme:dark){:root{--paper:#14161b;--ink:#e6e8ee;--soft:#a3abba;--line:#343a46}}
body{font:15px/1.45 system-ui,sans-serif;margin:1.5rem auto;max-width:76rem;padding:0 1rem;
background:var(--paper);color:var(--ink)}
h1{font-size:1.25rem;margin:0 0 .4rem}p{margin:.1rem 0;color:var(--soft);overflow-wrap:anywhere}
figure{margin:1rem 0 0}svg{max-width:100%;height:auto}#plot{cursor:crosshair}
.mark{fill:none;stroke:#ff2d55;stroke-width:2;pointer-events:none}
#told{position:fixed;display:none;pointer-events:none;white-space:pre;padding:.4rem .6rem;
border:1px solid var(--line);border-radius:6px;background:var(--paper);color:var(--ink);
font-size:13px;box-shadow:0 2px 10px #0003}
)";

inline constexpr std::string_view kPageScript = R"(
const bytes = Uint8Array.from(atob(map.cells), c => c.charCodeAt(0));
const cells = new DataView(bytes.buffer);
const svg = document.querySelector("svg"), plot = document.getElementById("plot");
const told = document.getElementById("told");
const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
mark.setAttribute("class", "mark");
mark.style.display = "none";
svg.append(mark);

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
  told.textContent = `${name("query", queries, map.queries[0], map.queryTokens)}\n` +
    `${name("key", keys, map.keys[0], map.keyTokens)}\n${one ? "weight" : map.pool}: ${says}`;
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
)";

}  // namespace fovea::cli
