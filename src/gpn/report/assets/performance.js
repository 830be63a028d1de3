"use strict";
// Predictions against labels, the confusion matrix, and what each column matters.
(() => {
  const { data, color, plot, axis, draw, safe, short, byId } = report;

  // Known and flagged rows as two sets of dots with their own colours.
  const sets = (p) => [["known rows", 0, "labeled"], ["flagged rows", 1, "test"]]
    .map(([name, flag, shade]) => ({ name, shade, rows: p.true.map((_, i) => i).filter((i) => p.flagged[i] === flag) }))
    .filter((set) => set.rows.length);
  const pick = (values, rows) => rows.map((i) => values[i]);
  const ends = (values) => {
    const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
    const margin = 0.04 * (high - low || 1);
    return [low - margin, high + margin];
  };
  const dots = (set, p, y, more) => ({
    x: more.x, y, name: set.name, mode: "markers", text: pick(p.names, set.rows).map(safe),
    marker: { size: 5, color: color(set.shade), opacity: 0.75 }, ...more,
  });

  const points = () => {
    const p = data.points, known = p.true.map((_, i) => i).filter((i) => !p.flagged[i]);
    const range = ends([...p.true, ...p.predicted, ...pick(p.low, known), ...pick(p.high, known)]);
    const bars = p.true.length <= 300 ? 0.45 : 0.15;
    const traces = sets(p).flatMap((set) => {
      const x = [], y = [];
      set.rows.forEach((i) => { x.push(p.true[i], p.true[i], null); y.push(p.low[i], p.high[i], null); });
      const line = { color: report.faint(color(set.shade), bars), width: 1 };
      return [
        { x, y, mode: "lines", line, hoverinfo: "skip", showlegend: false },
        dots(set, p, pick(p.predicted, set.rows), {
          x: pick(p.true, set.rows), hovertemplate: "%{text}: true %{x:.4~g}, predicted %{y:.4~g}<extra></extra>",
        }),
      ];
    });
    plot("plot-points", traces, {
      xaxis: axis("true value", { range, nticks: 6 }),
      yaxis: axis("predicted value", { range, nticks: 6 }),
      shapes: [{ ...report.diagonal(range[1]), x0: range[0], y0: range[0] }],
    });
  };

  const residuals = () => {
    const p = data.points;
    const traces = sets(p).map((set) => dots(set, p, set.rows.map((i) => p.true[i] - p.predicted[i]), {
      x: pick(p.predicted, set.rows), hovertemplate: "%{text}: predicted %{x:.4~g}, residual %{y:.4~g}<extra></extra>",
    }));
    plot("plot-residuals", traces, {
      xaxis: axis("predicted value", { nticks: 6 }),
      yaxis: axis("true − predicted", { nticks: 6, zeroline: true, zerolinecolor: color("quiet") }),
    });
  };

  const confusion = () => {
    const n = data.classes.length, width = byId("plot-confusion").clientWidth;
    const counts = data.classes.map((_, i) => report.slice(data.confusion, i));
    const shares = counts.map((row) => { const sum = row.reduce((a, b) => a + b, 0) || 1; return row.map((v) => v / sum); });
    const at = data.classes.map((_, i) => i), names = data.classes.map((name) => short(name, width < 500 ? 10 : 18));
    const ticks = { tickvals: at, ticktext: names, showgrid: false };
    const trace = {
      type: "heatmap", x: at, y: at, z: shares, zmin: 0, zmax: 1, showscale: false, xgap: 1, ygap: 1,
      colorscale: [[0, color("ground")], [1, color("labeled")]],
      customdata: counts, hovertemplate: "%{customdata} rows, %{z:.0%} of the true class<extra></extra>",
    };
    const text = (i, j) => ({
      x: j, y: i, text: String(counts[i][j]), showarrow: false,
      font: { size: n > 8 ? 11 : 13, color: shares[i][j] > 0.6 ? color("paper") : color("ink") },
    });
    plot("plot-confusion", [trace], {
      height: Math.min(620, 120 + Math.max(3, n) * (n > 12 ? 26 : 44)),
      xaxis: axis("predicted class", ticks),
      yaxis: axis("true class", { ...ticks, autorange: "reversed" }),
      annotations: n <= 15 ? at.flatMap((i) => at.filter((j) => counts[i][j] > 0).map((j) => text(i, j))) : [],
    });
  };

  const bars = (name, list, title, valueAxis = axis) => () => {
    const width = byId(name).clientWidth;
    plot(name, [{
      type: "bar", orientation: "h", x: list.map((c) => c.value), y: list.map((_, i) => i),
      marker: { color: color("labeled") }, hovertemplate: "%{x:.3~g}<extra></extra>",
    }], {
      height: 90 + 26 * Math.max(3, list.length),
      xaxis: valueAxis(width < 420 ? "change" : title, { nticks: 5, rangemode: "tozero", tickangle: 0 }),
      yaxis: axis("", {
        autorange: "reversed", tickvals: list.map((_, i) => i),
        ticktext: list.map((c) => short(c.name, width < 420 ? 16 : 26)),
      }),
    });
  };

  if (data.points) {
    draw("plot-points", points);
    draw("plot-residuals", residuals);
  }
  if (data.confusion) draw("plot-confusion", confusion);
  const { error, score } = data.importance;
  const what = data.kind === "regression" ? "rise of the root mean square error" : "rise of the negative log likelihood";
  if (error.length) draw("plot-error-importance", bars("plot-error-importance", error, what));
  draw("plot-score-importance", bars("plot-score-importance", score, "mean change of the OOD score", report.scores));
})();
