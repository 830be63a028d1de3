"use strict";
// The most unknown rows: a table, and one of them beside a labeled row.
(() => {
  const { data, byId, number } = report;
  const rows = data.unknown;
  const rowSelect = byId("unknown-row"), nearSelect = byId("unknown-near");

  const cell = (content, kind = "") => {
    const made = document.createElement("td");
    made.className = kind;
    made.append(content);
    return made;
  };

  // A long name may break where its words end.
  const name = (text) => {
    const made = document.createElement("span");
    text.split(/(?<=[_ .-])/).forEach((word) => made.append(word, document.createElement("wbr")));
    return made;
  };

  const line = (row, i) => {
    const made = document.createElement("tr");
    let first = `${row.source} ${row.number}`;
    if (rowSelect) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = first;
      button.addEventListener("click", () => choose(i));
      first = button;
    }
    made.append(cell(first), cell(number(row.score), "number"), cell(row.prediction), cell(row.truth ?? "", "wide"));
    if (rowSelect) {
      const nearest = row.neighbours[0];
      made.append(cell(number(nearest.distance), "number wide"), cell(name(nearest.features[0]?.name ?? "nothing")));
    }
    return made;
  };

  const choose = (i) => {
    rowSelect.value = i;
    rowChanged();
  };

  const rowChanged = () => {
    listNear();
    compare();
  };

  const listNear = () => {
    const row = rows[rowSelect.value];
    report.options(nearSelect, row.neighbours.map(
      (near, i) => `labeled row ${i + 1}: target ${near.target}, distance ${number(near.distance)}`));
    byId("unknown-table").querySelectorAll("tbody tr").forEach(
      (tr, i) => tr.setAttribute("aria-selected", String(i === Number(rowSelect.value))));
  };

  const table = (features) => byId("unknown-features").tBodies[0].replaceChildren(
    ...features.map((feature) => {
      const made = document.createElement("tr");
      made.append(cell(name(feature.name)), cell(feature.here, "number"), cell(feature.there, "number"));
      return made;
    }));

  const compare = () => {
    const { features } = rows[rowSelect.value].neighbours[nearSelect.value];
    table(features);
    const width = byId("plot-unknown").clientWidth;
    const bars = {
      type: "bar", orientation: "h", x: features.map((f) => f.units), y: features.map((_, i) => i),
      marker: { color: features.map((f) => report.color(f.units < 0 ? "labeled" : "test")) },
      hovertemplate: "%{x:.2f} standard deviations<extra></extra>",
    };
    const most = 1.1 * Math.max(0.1, ...features.map((f) => Math.abs(f.units)));
    report.plot("plot-unknown", [bars], {
      height: 110 + 30 * Math.max(3, features.length),
      xaxis: report.axis("standard deviations", { range: [-most, most], zeroline: true, zerolinecolor: report.color("quiet"), nticks: 5, tickangle: 0 }),
      yaxis: report.axis("", {
        autorange: "reversed", tickvals: features.map((_, i) => i),
        ticktext: features.map((f) => report.short(f.name, width < 420 ? 18 : 28)),
      }),
    });
  };

  byId("unknown-table").tBodies[0].replaceChildren(...rows.map(line));
  if (!rowSelect) return;
  report.options(rowSelect, rows.map((row) => row.label));
  rowSelect.addEventListener("change", rowChanged);
  nearSelect.addEventListener("change", compare);
  listNear();
  report.draw("plot-unknown", compare);
})();
