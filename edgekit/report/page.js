"use strict";
// Searching and sorting the layer table; the page is complete without it.
document.documentElement.classList.add("scripted");
const table = document.getElementById("layer-table");
const body = table.tBodies[0];
const rows = Array.from(body.rows);
const words = rows.map((row) => row.textContent.toLowerCase());
const search = document.getElementById("layer-search");
const found = document.getElementById("layer-found");

function filter() {
  const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, i) => {
    row.hidden = !wanted.every((word) => words[i].includes(word));
    shown += row.hidden ? 0 : 1;
  });
  found.textContent = shown + " of " + rows.length + " layers";
}

function key(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
}

function sort(header) {
  const column = header.cellIndex;
  const down = header.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const ordered = rows.slice().sort((a, b) => {
    const x = key(a, column), y = key(b, column);
    const order = typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true });
    return down ? -order : order;
  });
  body.append(...ordered);
}

for (const header of table.tHead.rows[0].cells) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = header.textContent;
  header.replaceChildren(button);
  button.addEventListener("click", () => sort(header));
}
search.addEventListener("input", filter);
filter();
