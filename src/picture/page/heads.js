const svg = document.querySelector("svg"), drawn = document.querySelector("image");
const told = document.getElementById("told"), facts = document.getElementById("facts");
const canvas = document.querySelector("canvas"), pen = canvas.getContext("2d");
const picture = new Image();
picture.src = drawn.getAttribute("href");
const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
mark.setAttribute("class", "mark");
mark.style.display = "none";
drawn.parentNode.append(mark);

function hide() {
  told.style.display = mark.style.display = "none";
}

svg.addEventListener("pointermove", event => {
  const box = drawn.getBoundingClientRect();
  // The image has two pixels per unit of the drawing.
  const unit = 2 * drawn.width.baseVal.value / box.width;
  const x = (event.clientX - box.left) * unit - heads.left, y = (event.clientY - box.top) * unit - heads.top;
  const column = Math.floor(x / heads.stepX), row = Math.floor(y / heads.stepY);
  const lines = heads.facts[`${row},${column}`];
  if (!lines || x - column * heads.stepX >= heads.side) return hide();
  const left = heads.left + column * heads.stepX, top = heads.top + row * heads.stepY;
  pen.imageSmoothingEnabled = false;
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(picture, left, top, heads.side, heads.side, 0, 0, canvas.width, canvas.height);
  facts.textContent = lines.join("\n");
  told.style.display = "block";
  const room = told.getBoundingClientRect();
  const beside = event.clientX + 18 + room.width < innerWidth ? event.clientX + 18 : event.clientX - 18 - room.width;
  told.style.left = `${Math.max(8, beside)}px`;
  told.style.top = `${Math.max(8, Math.min(event.clientY + 14, innerHeight - room.height - 8))}px`;
  const sides = {x: left / 2 - 1, y: top / 2 - 1, width: heads.side / 2 + 2, height: heads.side / 2 + 2};
  for (const [side, value] of Object.entries(sides)) mark.setAttribute(side, `${value}`);
  mark.style.display = "block";
});
svg.addEventListener("pointerleave", hide);
