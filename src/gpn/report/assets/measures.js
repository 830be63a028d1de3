"use strict";
// Calibration, risk, OOD scores and entropies of whole tables.
(() => {
  const { data, color, plot, axis, draw, byId, safe, percent, number } = report;
  const regression = data.kind === "regression";
  const share = (title) => axis(title, { tickformat: ".2~%", range: [0, 1.02] });

  const coverage = () => {
    const c = data.coverage;
    const edge = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", x: c.levels };
    plot("plot-coverage", [
      { ...edge, y: c.low, showlegend: false },
      { ...edge, y: c.high, fill: "tonexty", fillcolor: report.faint(color("pool"), 0.25), name: "sampling error" },
      {
        x: c.levels, y: c.shares, mode: "lines+markers", name: "labels inside",
        line: { color: color("labeled") }, hovertemplate: "level %{x:.0%}: %{y:.1%} inside<extra></extra>",
      },
    ], {
      xaxis: share("level of the interval"),
      yaxis: share("share of labels inside"),
      shapes: [report.diagonal(1)],
    });
  };

  const errorByStd = () => {
    const c = data.calibration;
    const high = 1.08 * Math.max(...c.predicted, ...c.rmse);
    const dots = {
      x: c.predicted, y: c.rmse, text: c.rows.map((n) => `${n} rows`), mode: "lines+markers",
      marker: { size: 9, color: color("labeled") }, line: { color: color("labeled"), width: 1 },
      hovertemplate: "predicted %{x:.3~g}, RMSE %{y:.3~g}, %{text}<extra></extra>",
    };
    plot("plot-calibration", [dots], {
      xaxis: axis("predicted standard deviation", { range: [0, high], nticks: 6 }),
      yaxis: axis("root mean square error", { range: [0, high], nticks: 6 }),
      shapes: [report.diagonal(high)],
    });
  };

  const reliability = () => {
    const c = data.calibration;
    const largest = Math.max(...c.rows);
    const dots = {
      x: c.confidence, y: c.accuracy, text: c.rows.map((n) => `${n} rows`), mode: "markers",
      marker: { size: c.rows.map((n) => 7 + 16 * Math.sqrt(n / largest)), color: color("labeled"), opacity: 0.85 },
      cliponaxis: false, hovertemplate: "predicted %{x:.0%}, correct %{y:.0%}, %{text}<extra></extra>",
    };
    plot("plot-calibration", [dots], {
      xaxis: share("predicted probability"),
      yaxis: share("share correct"),
      shapes: [report.diagonal(1)],
    });
  };

  const risk = () => {
    const traces = Object.entries(data.risk.lines).map(([name, y], i) => ({
      x: data.risk.coverage, y, name, mode: "lines",
      line: name === "best possible" ? { color: color("quiet"), dash: "dot" } : report.line(i),
      hovertemplate: regression ? "%{x:.0%} answered: %{y:.3~g}" : "%{x:.0%} answered: %{y:.1%} wrong",
    }));
    plot("plot-risk", traces, {
      xaxis: share("share of rows answered"),
      yaxis: axis(regression ? "root mean square error" : "share wrong", { tickformat: regression ? "" : ".2~%", rangemode: "tozero", nticks: 6 }),
    });
  };

  const steps = (histogram) => Object.entries(histogram.shares).map(([name, shares]) => ({
    x: histogram.edges, y: [...shares, shares[shares.length - 1]], name: `${name} rows`,
    mode: "lines", fill: "tozeroy", fillcolor: report.faint(color(name), 0.2),
    line: { shape: "hv", color: color(name), width: 2 },
    hovertemplate: "%{x:.3~g}: %{y:.1%}",
  }));

  // 1, 2 and 5 of every power of ten.
  const logTicks = (edges) => {
    const [first, last] = [edges[0], edges[edges.length - 1]].map((v) => Math.floor(Math.log10(v)));
    const powers = Array.from({ length: last - first + 1 }, (_, i) => first + i);
    const tickvals = powers.flatMap((p) => [1, 2, 5].map((d) => Number(`${d}e${p}`)));
    return powers.length > 5 ? {} : { tickvals, ticktext: tickvals.map(number) };
  };

  const ood = () => {
    const scale = byId("ood-scale").value, rate = Number(byId("ood-rate").value);
    const { thresholds, shares } = data.ood.flags, threshold = thresholds[rate - 1];
    byId("ood-rate-text").textContent = `${rate} %`;
    const flagged = Object.entries(shares).map(([name, list]) => `${percent(list[rate - 1])} of ${name} rows`);
    byId("ood-summary").textContent = `Flagged (score above ${number(threshold)}): ${flagged.join(", ")}.`;
    plot("plot-ood", steps(data.ood[scale]), {
      xaxis: report.scores("OOD score", { type: scale, ...(scale === "log" ? logTicks(data.ood.log.edges) : { nticks: 8 }) }),
      yaxis: axis("share of rows", { tickformat: ".2~%", rangemode: "tozero" }),
      shapes: [report.vertical(threshold, { color: color("ink"), width: 1.5 })],
    });
  };

  const entropy = () => {
    const uniform = Math.log(data.classes.length);
    plot("plot-entropy", steps(data.entropy), {
      xaxis: axis("entropy (nats)", { range: [-0.02 * uniform, 1.05 * uniform] }),
      yaxis: axis("share of rows", { tickformat: ".2~%", rangemode: "tozero" }),
      shapes: [report.vertical(uniform, { color: color("quiet"), dash: "dash", width: 1.5 })],
    });
  };

  const boxes = () => {
    const row = Number(byId("boxes-row").value);
    const traces = data.classes.map((name, i) => {
      const [low, q1, median, q3, high] = report.slice(data.boxes.quantiles, row, i).map((v) => [v]);
      return {
        type: "box", y: [report.short(name, 18)], orientation: "h", name: safe(name), showlegend: false,
        lowerfence: low, q1, median, q3, upperfence: high,
        line: { color: report.line(i).color }, fillcolor: report.faint(report.line(i).color, 0.25),
      };
    });
    plot("plot-boxes", traces, {
      height: Math.max(240, 90 + (data.classes.length > 12 ? 20 : 34) * data.classes.length),
      xaxis: axis("probability", { range: [-0.02, 1.02], tickformat: ".2~%" }),
      yaxis: axis("", { type: "category", autorange: "reversed" }),
    });
  };

  if (data.labels) {
    if (regression) draw("plot-coverage", coverage);
    draw("plot-calibration", regression ? errorByStd : reliability);
    draw("plot-risk", risk);
  }
  byId("ood-scale").value = data.ood.scale;
  draw("plot-ood", ood);
  byId("ood-rate").addEventListener("input", ood);
  byId("ood-scale").addEventListener("change", ood);
  if (!regression) {
    report.options(byId("boxes-row"), data.boxes.rows);
    draw("plot-boxes", boxes);
    byId("boxes-row").addEventListener("change", boxes);
    draw("plot-entropy", entropy);
  }
})();
