"use strict";
// The layer table (search, filters, order, pages, links to rows), colours and copying.
// The page is complete without it: then all rows stand there in graph order.
const byId = (id) => document.getElementById(id);
const say = (words) => { byId("said").textContent = words; };
const many = (number) => number.toLocaleString("en-US"); // as the rest of the page has it

const PAGE = 100;
const table = byId("layer-table");
const tableBody = table.tBodies[0];
const rows = Array.from(tableBody.rows);
let words = null; // of each row, when somebody searches
const tools = byId("layer-tools");
const search = byId("layer-search");
const selects = Array.from(tools.querySelectorAll("select"));
const pager = byId("layer-pager");
let order = rows.slice(); // as sorted
let found = rows.slice(); // of these, as filtered
let page = 0, whole = false, extra = null; // extra: only this segment

function fits(row, i, wanted) {
  if (extra !== null && Number(row.cells[4].dataset.value) !== extra) return false;
  for (const select of selects) {
    const has = row.dataset[select.dataset.filter].split("\n");
    if (select.value && !has.includes(select.value)) return false;
  }
  if (!wanted.length) return true;
  words = words || rows.map((row) => row.textContent.toLowerCase());
  return wanted.every((word) => words[i].includes(word));
}

const weight = (row) => Number(row.dataset.weight);

function draw() {
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  page = Math.min(page, pages - 1);
  const first = whole ? 0 : page * PAGE, last = whole ? found.length : first + PAGE;
  const shown = new Set(found.slice(first, last)), kept = new Set(found);
  for (const row of rows) {
    row.hidden = !kept.has(row); // not on paper either
    row.classList.toggle("off", !shown.has(row)); // on paper, not on the screen
  }
  // paper has the heaviest of what is found: all of a large network would be dozens of pages
  const light = found.slice().sort((a, b) => weight(b) - weight(a)).slice(PAGE);
  for (const row of rows) row.classList.remove("light");
  for (const row of light) row.classList.add("light");
  byId("layer-light").hidden = !light.length;
  byId("layer-left").textContent = many(light.length);
  pager.hidden = found.length <= PAGE;
  byId("layer-page").textContent = whole ? "all rows" : "page " + many(page + 1) + " of " + many(pages);
  pager.querySelector("[data-page=back]").disabled = whole || page === 0;
  pager.querySelector("[data-page=on]").disabled = whole || page === pages - 1;
  pager.querySelector("[data-page=all]").textContent = whole ? "By pages" : "Show all";
}

function filter() {
  const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = new Set(rows.filter((row, i) => fits(row, i, wanted)));
  found = order.filter((row) => fitting.has(row));
  page = 0;
  byId("layer-found").textContent = many(found.length) + " of " + many(rows.length) + " layers"
    + (extra === null ? "" : " (segment " + extra + ")");
  draw();
}

function clearFilters() {
  extra = null;
  search.value = "";
  for (const select of selects) select.value = "";
  filter();
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
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  const keys = new Map(rows.map((row) => [row, key(row, column)]));
  order = rows.slice().sort((a, b) => {
    const x = keys.get(a), y = keys.get(b);
    return (typeof x === "number" ? x - y : compare(x, y)) * (down ? -1 : 1);
  });
  tableBody.append(...order);
  filter();
}

// A link to a layer shows its row, whatever is filtered; one to a segment opens their table.
function showRow(number, move) {
  const row = byId("layer-" + number);
  if (!row) return;
  if (!found.includes(row)) clearFilters();
  if (!whole) page = Math.floor(found.indexOf(row) / PAGE);
  draw();
  for (const other of table.querySelectorAll(".meant")) other.classList.remove("meant");
  row.classList.add("meant");
  if (!move) return;
  row.querySelector("a").focus({ preventScroll: true });
  row.scrollIntoView({ block: "center" });
}

function follow() {
  const layer = /^#layer-(\d+)$/.exec(location.hash);
  if (layer) {
    showRow(Number(layer[1]), true);
    document.dispatchEvent(new CustomEvent("layer", { detail: Number(layer[1]) }));
  } else if (/^#segment-\d+$/.test(location.hash)) {
    byId("segments").open = true;
    const row = byId(location.hash.slice(1));
    if (row) row.scrollIntoView({ block: "center" });
  }
}

function go(hash) {
  if (location.hash === hash) follow();
  else location.hash = hash;
}

for (const header of table.tHead.rows[0].cells) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = header.textContent;
  header.replaceChildren(button);
  button.addEventListener("click", () => sort(header));
}
search.addEventListener("input", filter);
for (const select of selects) select.addEventListener("change", filter);
tools.addEventListener("submit", (event) => event.preventDefault());
tools.addEventListener("reset", (event) => { event.preventDefault(); clearFilters(); });
pager.addEventListener("click", (event) => {
  const step = event.target.dataset.page;
  if (!step) return;
  if (step === "all") whole = !whole;
  else page += step === "on" ? 1 : -1;
  draw();
  if (step !== "all") table.scrollIntoView({ block: "start" });
  say("Layer table: " + byId("layer-page").textContent);
});
document.addEventListener("click", (event) => {
  const segment = event.target.closest("[data-segment]");
  if (!segment) return;
  clearFilters();
  extra = Number(segment.dataset.segment);
  filter();
  byId("layers").scrollIntoView();
  search.focus({ preventScroll: true });
});
document.addEventListener("click", (event) => {
  const rule = event.target.closest("[data-rule]:is(button)");
  if (!rule) return;
  clearFilters();
  byId("layer-rule").value = rule.dataset.rule;
  filter();
  byId("layers").scrollIntoView();
  search.focus({ preventScroll: true });
});
const skyline = byId("skyline");
if (skyline) skyline.addEventListener("click", (event) => {
  const box = skyline.getBoundingClientRect();
  const place = Math.floor((event.clientX - box.left) / box.width * rows.length);
  go("#layer-" + key(rows[Math.min(Math.max(place, 0), rows.length - 1)], 0));
});
addEventListener("hashchange", follow);
filter();
document.documentElement.classList.add("ready");
follow();

// Colours: system setting, light, dark.
const themes = { Auto: "", Light: "light", Dark: "dark" };
const themeButton = byId("theme");
function showTheme() {
  const chosen = document.documentElement.dataset.theme || "";
  const name = Object.keys(themes).find((one) => themes[one] === chosen);
  themeButton.textContent = name;
  themeButton.setAttribute("aria-label", "Colours: " + (chosen || "system setting"));
  return name;
}
themeButton.addEventListener("click", () => {
  const names = Object.keys(themes);
  const next = themes[names[(names.indexOf(showTheme()) + 1) % names.length]];
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("edgekit-theme", next); } catch { /* not kept then */ }
  showTheme();
});
showTheme();

for (const button of document.querySelectorAll("[data-copy-of]")) {
  button.addEventListener("click", async () => {
    const source = byId(button.dataset.copyOf);
    try {
      await navigator.clipboard.writeText(source.textContent);
      say("Copied");
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source); // the reader copies what is selected
      say("Selected; copy it with the keyboard");
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

// On paper everything is open.
let closed = [];
addEventListener("beforeprint", () => {
  closed = Array.from(document.querySelectorAll("details:not([open])"));
  for (const one of closed) one.open = true;
});
addEventListener("afterprint", () => { for (const one of closed) one.open = false; });

// tables that are wider than their room say that they scroll; those in closed parts have none
const wider = new ResizeObserver((seen) => requestAnimationFrame(() => {
  for (const { target } of seen) {
    const box = target.closest(".scroll");
    box.toggleAttribute("data-more", box.scrollWidth > box.clientWidth);
  }
}));
for (const one of document.querySelectorAll(".scroll, .scroll > *")) wider.observe(one);

// the strip of sections says that it goes on until its end is reached
const strip = document.querySelector("nav ul");
const goesOn = () => strip.parentElement.toggleAttribute("data-more",
  strip.scrollLeft + strip.clientWidth < strip.scrollWidth - 1);
strip.addEventListener("scroll", goesOn, { passive: true });
new ResizeObserver(() => requestAnimationFrame(goesOn)).observe(strip);
