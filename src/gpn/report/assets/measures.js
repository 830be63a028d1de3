"use strict";
// Calibration, risk, OOD scores, entropies: what is measured on whole tables.
(() => {
  const { data, color, plot, axis, draw, byId, safe, percent, number } = report;
  const GROUPS = { labeled: "labeled", test: "test", pool: "pool" };

  const coverage = () => {
    const c = data.coverage;
    const ends = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", x: c.levels };
    const traces = [
      { ...ends, y: c.low, showlegend: false },
      { ...ends, y: c.high, fill: "tonexty", fillcolor: report.faint(color("pool"), 0.25), name: "chance alone" },
      {
        x: c.levels, y: c.shares, mode: "lines+markers", name: "labels inside",
        line: { color: color("accent") }, hovertemplate: "level %{x:.0%}: %{y:.1%} inside<extra></extra>",
      },
    ];
    plot("plot-coverage", traces, {
      xaxis: axis("level of the interval", { tickformat: ".0%", range: [0, 1.02] }),
      yaxis: axis("share of labels inside", { tickformat: ".0%", range: [0, 1.02] }),
      shapes: [report.diagonal(0, 1)],
    });
  };

  const spread = () => {
    const c = data.calibration;
    const most = 1.08 * Math.max(...c.predicted, ...c.found);
    const dots = {
      x: c.predicted, y: c.found, text: c.rows.map((n) => `${n} rows`), mode: "lines+markers",
      marker: { size: 9, color: color("accent") }, line: { color: color("accent"), width: 1 },
      hovertemplate: "predicted %{x:.3~g}, found %{y:.3~g}, %{text}<extra></extra>",
    };
    plot("plot-calibration", [dots], {
      xaxis: axis("standard deviation predicted", { range: [0, most], nticks: 6 }),
      yaxis: axis("error found (root mean square)", { range: [0, most], nticks: 6 }),
      shapes: [report.diagonal(0, most)],
    });
  };

  const reliability = () => {
    const c = data.calibration;
    const most = Math.max(...c.rows);
    const sizes = c.rows.map((n) => 7 + 16 * Math.sqrt(n / most));
    const dots = {
      x: c.said, y: c.found, text: c.rows.map((n) => `${n} rows`), mode: "markers",
      marker: { size: sizes, color: color("accent"), opacity: 0.85 }, cliponaxis: false,
      hovertemplate: "said %{x:.0%}, right %{y:.0%}, %{text}<extra></extra>",
    };
    plot("plot-calibration", [dots], {
      xaxis: axis("probability given", { tickformat: ".0%", range: [0, 1.02] }),
      yaxis: axis("share that is right", { tickformat: ".0%", range: [0, 1.02] }),
      shapes: [report.diagonal(0, 1)],
    });
  };

  const risk = () => {
    const numbers = data.kind === "numbers";
    const traces = Object.entries(data.risk.lines).map(([name, y], i) => ({
      x: data.risk.kept, y, name, mode: "lines",
      line: name === "best possible" ? { color: color("quiet"), dash: "dot" } : report.line(i),
      hovertemplate: numbers ? "%{x:.0%} answered: %{y:.3~g}" : "%{x:.0%} answered: %{y:.1%} wrong",
    }));
    plot("plot-risk", traces, {
      xaxis: axis("share of rows answered", { tickformat: ".0%", range: [0, 1.02] }),
      yaxis: axis(numbers ? "error" : "share wrong", { tickformat: numbers ? "" : ".0%", rangemode: "tozero", nticks: 6 }),
    });
  };

  // Steps over common bins, one filled line per table.
  const steps = (histogram) => Object.entries(histogram.shares).map(([name, shares]) => ({
    x: histogram.edges, y: [...shares, shares[shares.length - 1]], name: `${GROUPS[name]} rows`,
    mode: "lines", fill: "tozeroy", fillcolor: report.faint(color(name), 0.2),
    line: { shape: "hv", color: color(name), width: 2 },
    hovertemplate: "%{x:.3~g}: %{y:.1%}",
  }));

  // 1, 2 and 5 of every power of ten.
  const logTicks = (edges) => {
    const ends = [edges[0], edges[edges.length - 1]].map((v) => Math.floor(Math.log10(v)));
    const powers = Array.from({ length: ends[1] - ends[0] + 1 }, (_, i) => ends[0] + i);
    const tickvals = powers.flatMap((p) => [1, 2, 5].map((d) => Number(`${d}e${p}`)));
    return powers.length > 5 ? {} : { tickvals, ticktext: tickvals.map(number) };
  };

  const ood = () => {
    const scale = byId("ood-scale").value, rate = Number(byId("ood-rate").value);
    const flags = data.ood.flags, limit = flags.limits[rate - 1];
    byId("ood-rate-text").textContent = `${rate} %`;
    const shares = Object.entries(flags.shares).map(
      ([name, list]) => `${percent(list[rate - 1])} of ${GROUPS[name]} rows`);
    byId("ood-said").textContent =
      `Above a score of ${number(limit)} a row is flagged: ${shares.join(", ")}.`;
    const line = { color: color("ink"), width: 1.5 };
    plot("plot-ood", steps(data.ood[scale]), {
      xaxis: axis("OOD score", { type: scale, ...(scale === "log" ? logTicks(data.ood.log.edges) : { nticks: 8 }) }),
      yaxis: axis("share of rows", { tickformat: ".0%", rangemode: "tozero" }),
      shapes: [{ type: "line", x0: limit, x1: limit, yref: "paper", y0: 0, y1: 1, line }],
    });
  };

  const entropy = () => {
    const most = Math.log(data.classes.length);
    const line = { color: color("quiet"), dash: "dash", width: 1.5 };
    plot("plot-entropy", steps(data.entropy), {
      xaxis: axis("entropy (nats)", { range: [-0.02 * most, 1.05 * most] }),
      yaxis: axis("share of rows", { tickformat: ".0%", rangemode: "tozero" }),
      shapes: [{ type: "line", x0: most, x1: most, yref: "paper", y0: 0, y1: 1, line }],
    });
  };

  const boxes = () => {
    const row = Number(byId("boxes-row").value);
    const traces = data.classes.map((name, i) => {
      const [low, q1, median, q3, high] = report.part(data.boxes.quantiles, row, i).map((v) => [v]);
      return {
        type: "box", y: [report.short(name, 18)], orientation: "h", name: safe(name), showlegend: false,
        lowerfence: low, q1, median, q3, upperfence: high,
        line: { color: report.line(i).color }, fillcolor: report.faint(report.line(i).color, 0.25),
      };
    });
    plot("plot-boxes", traces, {
      height: Math.max(240, 90 + (data.classes.length > 12 ? 20 : 34) * data.classes.length),
      xaxis: axis("probability", { range: [-0.02, 1.02], tickformat: ".0%" }),
      yaxis: axis("", { type: "category", autorange: "reversed" }),
    });
  };

  if (data.labels) {
    if (data.kind === "numbers") draw("plot-coverage", coverage);
    draw("plot-calibration", data.kind === "numbers" ? spread : reliability);
    draw("plot-risk", risk);
  }
  byId("ood-scale").value = data.ood.first;
  draw("plot-ood", ood);
  byId("ood-rate").addEventListener("input", ood);
  byId("ood-scale").addEventListener("change", ood);
  if (data.kind === "classes") {
    report.options(byId("boxes-row"), data.boxes.rows);
    draw("plot-boxes", boxes);
    byId("boxes-row").addEventListener("change", boxes);
    draw("plot-entropy", entropy);
  }
})();
