// Boxes that scroll take the focus, so that the keyboard scrolls them; the theme's search dialog gets a name.
const scrolling = ".md-typeset pre > code, .md-typeset__scrollwrap";

function focusable() {
  for (const box of document.querySelectorAll(scrolling)) {
    if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0");
    else box.removeAttribute("tabindex");
  }
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
}

window.addEventListener("load", focusable);
window.addEventListener("resize", focusable);

// A filter above the tables of ops: part of a name, and whether to show exceptions alone.
const ordinary = new Set(["yes", "-"]);

function opRows() {
  const rows = [];
  for (const table of document.querySelectorAll(".md-typeset table")) {
    if (table.querySelector("th")?.textContent !== "op") continue;
    for (const row of table.querySelectorAll("tbody tr")) rows.push(row);
  }
  return rows;
}

function addOpFilter() {
  const place = document.querySelector(".op-filter");
  if (!place) return;
  place.innerHTML =
    '<label>Filter ops by name <input type="search"></label> ' +
    '<label><input type="checkbox"> exceptions only</label> <output></output>';
  const [name, only] = place.querySelectorAll("input");
  const rows = opRows();
  function apply() {
    let shown = 0;
    for (const row of rows) {
      const [op, ...cells] = [...row.cells].map((cell) => cell.textContent.trim());
      const fits = op.toLowerCase().includes(name.value.trim().toLowerCase());
      row.hidden = !fits || (only.checked && cells.every((cell) => ordinary.has(cell)));
      shown += !row.hidden;
    }
    place.querySelector("output").textContent = `${shown} of ${rows.length} rows`;
  }
  name.addEventListener("input", apply);
  only.addEventListener("change", apply);
  apply();
}

window.addEventListener("load", addOpFilter);
