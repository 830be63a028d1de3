"use strict";
// The rows with the highest OOD scores: a table, and one of them against a labeled row.
(() => {
  const { data, byId, number } = report;
  const rows = data.ood_rows;
  const rowSelect = byId("ood-row"), neighbourSelect = byId("ood-neighbour"); // absent without labeled rows

  const element = (tag, ...content) => {
    const made = document.createElement(tag);
    made.append(...content);
    return made;
  };
  const cell = (content, kind = "") => Object.assign(element("td", content), { className: kind });

  // A long name may break where its words end.
  const name = (text) => element("span", ...text.split(/(?<=[_ .-])/).flatMap((word) => [word, element("wbr")]));

  const tableRow = (row, i) => {
    const title = `${row.source} ${row.number}${row.name === null ? "" : `: ${row.name}`}`;
    const rest = [cell(number(row.score), "number"), cell(row.prediction), cell(row.truth ?? "", "wide")];
    if (!rowSelect) return element("tr", cell(title), ...rest);
    const button = Object.assign(element("button", title), { type: "button" });
    button.addEventListener("click", () => {
      rowSelect.value = i;
      rowChanged();
    });
    const nearest = row.neighbours[0];
    return element("tr", cell(button), ...rest, cell(number(nearest.distance), "number wide"),
      cell(name(nearest.features[0]?.name ?? "nothing")));
  };

  const rowChanged = () => {
    listNeighbours();
    compare();
  };

  const listNeighbours = () => {
    report.options(neighbourSelect, rows[rowSelect.value].neighbours.map(
      (near, i) => `labeled row ${i + 1}: target ${near.target}, distance ${number(near.distance)}`));
    byId("ood-table").querySelectorAll("tbody tr").forEach(
      (tr, i) => tr.setAttribute("aria-selected", String(i === Number(rowSelect.value))));
  };

  const compare = () => {
    const { features } = rows[rowSelect.value].neighbours[neighbourSelect.value];
    byId("ood-features").tBodies[0].replaceChildren(...features.map(
      (f) => element("tr", cell(name(f.name)), cell(f.here, "number"), cell(f.there, "number"))));
    const width = byId("plot-difference").clientWidth;
    const bars = {
      type: "bar", orientation: "h", x: features.map((f) => f.units), y: features.map((_, i) => i),
      marker: { color: features.map((f) => report.color(f.units < 0 ? "labeled" : "test")) },
      hovertemplate: "%{x:.2f} standard deviations<extra></extra>",
    };
    const reach = 1.1 * Math.max(0.1, ...features.map((f) => Math.abs(f.units)));
    report.plot("plot-difference", [bars], {
      height: 110 + 30 * Math.max(3, features.length),
      xaxis: report.axis("standard deviations", { range: [-reach, reach], zeroline: true, zerolinecolor: report.color("quiet"), nticks: 5, tickangle: 0 }),
      yaxis: report.axis("", {
        autorange: "reversed", tickvals: features.map((_, i) => i),
        ticktext: features.map((f) => report.short(f.name, width < 420 ? 18 : 28)),
      }),
    });
  };

  byId("ood-table").tBodies[0].replaceChildren(...rows.map(tableRow));
  if (!rowSelect) return;
  report.options(rowSelect, rows.map((row) => row.label));
  rowSelect.addEventListener("change", rowChanged);
  neighbourSelect.addEventListener("change", compare);
  listNeighbours();
  report.draw("plot-difference", compare);
})();
