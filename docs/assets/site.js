// Boxes that scroll take the focus, so that the keyboard scrolls them; the theme's search dialog gets a name.
const scrolling = ".md-typeset pre > code, .md-typeset__scrollwrap, .model-chart .drawing";

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

// The chart of the benchmarks, drawn from the table below it: a row for each model, a mark for each column.
const marks = [
  (x, y) => `M${x - 4},${y + 4}L${x},${y - 4}L${x + 4},${y + 4}Z`,
  (x, y) => `M${x - 4},${y}a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z`,
  (x, y) => `M${x - 4},${y - 4}h8v8h-8Z`,
];
const rowHeight = 18, left = 190, plotWidth = 430, above = 30;

function modelRows(table) {
  const rows = [...table.querySelectorAll("tbody tr")].filter((row) => !row.querySelector("strong"));
  return rows.map((row) => {
    const [model, ...speeds] = [...row.cells].map((cell) => cell.textContent.trim());
    return { model, speeds: speeds.map((speed) => Number.parseFloat(speed)) };
  });
}

function chart(models, names, shown, sortedBy) {
  const by = (row) => row.speeds[sortedBy] || 0;
  const rows = [...models].sort((a, b) => by(b) - by(a));
  const ticks = [0.5, 1, 2, 5, 10, 20, 50];
  const at = (speed) => left + (plotWidth * Math.log(speed / 0.5)) / Math.log(140);
  const height = above + rowHeight * rows.length + 10;
  const grid = ticks.map((tick) => {
    const kind = tick === 1 ? ' class="equal"' : "";
    return `<line${kind} x1="${at(tick)}" x2="${at(tick)}" y1="${above - 8}" y2="${height - 8}"/>` +
      `<text text-anchor="middle" x="${at(tick)}" y="${above - 14}">${tick}x</text>`;
  });
  const lines = rows.map((row, k) => {
    const y = above + rowHeight * (k + 0.5);
    const drawn = row.speeds.map((speed, route) => shown[route] && speed > 0
      ? `<path class="route-${route}" d="${marks[route](at(speed), y)}">` +
        `<title>${row.model}, ${names[route]}: ${speed}x</title></path>` : "");
    return `<text text-anchor="end" x="${left - 14}" y="${y + 4}">${row.model}</text>${drawn.join("")}`;
  });
  return `<svg role="img" viewBox="0 0 ${left + plotWidth + 10} ${height}" ` +
    'aria-label="Speed of each model as a multiple of PyTensor; the table below has the numbers">' +
    `${grid.join("")}${lines.join("")}</svg>`;
}

function addModelChart() {
  const place = document.querySelector(".model-chart");
  const table = [...document.querySelectorAll(".md-typeset table")]
    .find((t) => place && place.compareDocumentPosition(t) & Node.DOCUMENT_POSITION_FOLLOWING);
  if (!table) return;
  const names = [...table.querySelectorAll("thead th")].slice(1).map((head) => head.textContent);
  const models = modelRows(table);
  const boxes = names.map((name, route) =>
    `<label><input type="checkbox" checked> <svg class="mark" aria-hidden="true" viewBox="0 0 12 12">` +
    `<path class="route-${route}" d="${marks[route](6, 6)}"></path></svg> ${name}</label>`);
  place.innerHTML = `<p><strong>Right is faster</strong> than PyTensor. ${boxes.join(" ")} ` +
    `<label>sorted by <select>${names.map((name) => `<option>${name}</option>`)}</select></label></p>` +
    '<div class="drawing"></div>';
  const draw = () => {
    const shown = [...place.querySelectorAll("input")].map((box) => box.checked);
    place.querySelector(".drawing").innerHTML =
      chart(models, names, shown, place.querySelector("select").selectedIndex);
    focusable();
  };
  for (const control of place.querySelectorAll("input, select")) control.addEventListener("change", draw);
  draw();
}

window.addEventListener("load", addModelChart);
