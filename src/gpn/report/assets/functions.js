"use strict";
// Functions along a feature, and the plane of two code axes that moves one of them.
(() => {
  const { data, byId, color, axis, part, safe } = report;
  const f = data.functions;
  if (!f) return;
  const classes = data.classes, isClass = data.kind === "classes";
  const rowSelect = byId("functions-row"), featureSelect = byId("functions-feature");
  const classSelect = byId("functions-class");
  const points = f.at.shape[1];
  const MARGIN = { l: 44, r: 10, t: 10, b: 42 };
  const MOST_LINES = 8;
  const state = { code: [1, 1], moved: [] };
  report.state = state; // what a test looks at

  const here = (grid) => part(grid, Number(rowSelect.value), Number(featureSelect.value));
  const at = () => part(f.at, Number(featureSelect.value));
  const column = (values, i, width) => values.filter((_, j) => j % width === i);

  // b + A z at every point: (points, outputs).
  const generated = ([first, second]) => {
    const base = here(f.base), slopes = here(f.slopes);
    return base.map((b, i) => b + slopes[2 * i] * first + slopes[2 * i + 1] * second);
  };

  const softmax = (logits) => {
    const top = Math.max(...logits);
    const powers = logits.map((v) => Math.exp(v - top));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((v) => v / sum);
  };

  // What the code says, one list per line that is drawn.
  const movedLines = () => {
    const values = generated(state.code);
    if (!isClass) return [values];
    const width = classes.length;
    const rows = Array.from({ length: points }, (_, i) => softmax(values.slice(i * width, (i + 1) * width)));
    return shownClasses().map((c) => rows.map((row) => row[c]));
  };

  const shownClasses = () => {
    if (classSelect.value !== "all") return [Number(classSelect.value)];
    const mean = here(f.mean);
    const peaks = classes.map((_, c) => Math.max(...column(mean, c, classes.length)));
    const order = classes.map((_, c) => c).sort((a, b) => peaks[b] - peaks[a]);
    return order.slice(0, MOST_LINES).sort((a, b) => a - b);
  };

  const band = (x, low, high, fill) => [
    { x, y: low, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false },
    { x, y: high, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, fill: "tonexty", fillcolor: fill },
  ];

  // All draws as one line with gaps.
  const drawn = (x, draws, count, shade) => {
    const xs = [], ys = [];
    for (let s = 0; s < count; s++) {
      xs.push(...x, null);
      ys.push(...column(draws, s, count), null);
    }
    return { x: xs, y: ys, mode: "lines", name: "drawn at random", line: { color: shade, width: 1 }, opacity: 0.55, hoverinfo: "skip" };
  };

  const rug = () => {
    const x = part(f.rug, Number(featureSelect.value));
    return {
      x, y: x.map(() => 0.02), yaxis: "y2", mode: "markers", showlegend: false, hoverinfo: "skip",
      marker: { symbol: "line-ns-open", size: 9, color: color("quiet"), line: { width: 1 } },
    };
  };

  const valueTraces = (x) => {
    const mean = here(f.mean), std = here(f.std), shade = color("labeled");
    const ends = (sign, noise) => mean.map((m, i) => m + sign * 1.96 * Math.hypot(std[i], noise));
    const dashed = { x, mode: "lines", line: { color: shade, width: 1, dash: "dot" }, hoverinfo: "skip" };
    const label = f.noise > 0
      ? [{ ...dashed, y: ends(-1, f.noise), name: "95 % of new labels" }, { ...dashed, y: ends(1, f.noise), showlegend: false }]
      : [];
    return [
      ...band(x, ends(-1, 0), ends(1, 0), report.faint(shade, Number(color("band")))),
      ...label,
      drawn(x, here(f.draws), f.draws.shape[3], color("quiet")),
      { x, y: mean, mode: "lines", name: "mean", line: { color: shade, width: 2.5 }, hovertemplate: "%{x:.4~g}: %{y:.4~g}<extra></extra>" },
    ];
  };

  const oneClass = (x, c, of) => {
    const count = f.draws.shape[4], shade = report.faint(report.line(c).color, Number(color("band")));
    const own = here(f.draws).filter((_, j) => Math.floor(j / count) % classes.length === c);
    return [...band(x, of(f.low, c), of(f.high, c), shade), drawn(x, own, count, color("quiet"))];
  };

  const classTraces = (x) => {
    const width = classes.length, shown = shownClasses();
    const of = (grid, c) => column(here(grid), c, width);
    const single = shown.length === 1 ? oneClass(x, shown[0], of) : [];
    return single.concat(shown.map((c) => ({
      x, y: of(f.mean, c), mode: "lines", name: f.plane ? "mean" : safe(classes[c]), showlegend: !f.plane,
      line: { ...report.line(c), ...(f.plane ? { dash: "dot" } : {}), width: f.plane ? 1.5 : 2.5 },
      hovertemplate: "%{x:.4~g}: %{y:.0%}<extra></extra>",
    })));
  };

  const movedTraces = (x) => movedLines().map((y, i) => ({
    x, y, mode: "lines", hoverinfo: "skip",
    name: isClass ? safe(classes[shownClasses()[i]]) : "at the code",
    line: isClass ? { ...report.line(shownClasses()[i]), width: 3 } : { color: color("test"), width: 3 },
  }));

  // Fixed while the pointer moves, and wide enough for wherever it goes.
  const range = (traces) => {
    if (isClass) return [-0.02, 1.02];
    const corners = f.plane ? [[3, 3], [3, -3], [-3, 3], [-3, -3]] : [];
    const reach = corners.flatMap(generated);
    const all = traces.flatMap((t) => t.y).filter((v) => v !== null).concat(reach);
    const low = Math.min(...all), high = Math.max(...all), edge = 0.04 * (high - low || 1);
    return [low - 2 * edge, high + edge];
  };

  const draw = () => {
    const x = at(), fixed = isClass ? classTraces(x) : valueTraces(x);
    const moved = f.plane ? movedTraces(x) : [];
    state.moved = moved.map((_, i) => fixed.length + 1 + i);
    const value = part(f.values, Number(rowSelect.value))[Number(featureSelect.value)];
    const feature = f.features[featureSelect.value];
    const most = Math.floor(byId("plot-functions").clientWidth / 10);
    report.plot("plot-functions", [...fixed, rug(), ...moved], {
      height: byId("plot-functions").clientWidth < 500 ? 320 : 470,
      xaxis: axis(report.short(feature, most)),
      yaxis: axis(isClass ? "probability" : report.short(data.fit.target, 34), { range: range(fixed), tickformat: isClass ? ".0%" : "" }),
      yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
      shapes: [{ type: "line", x0: value, x1: value, yref: "paper", y0: 0, y1: 1, line: { color: color("ink"), width: 1, dash: "dash" } }],
      annotations: [{ x: value, yref: "paper", y: 1, text: "this row", showarrow: false, xanchor: "auto", yanchor: "bottom", font: { size: 12, color: color("quiet") } }],
      legend: { orientation: "h", x: 0, y: 1.07, yanchor: "bottom" },
    });
  };

  report.options(rowSelect, f.rows);
  report.options(featureSelect, f.features);
  [rowSelect.value, featureSelect.value] = f.first;
  if (classSelect) {
    classSelect.append(new Option("all", "all"), ...classes.map((name, i) => new Option(name, i)));
    classSelect.addEventListener("change", draw);
  }
  rowSelect.addEventListener("change", draw);
  featureSelect.addEventListener("change", draw);
  report.draw("plot-functions", draw);
  report.functions = { state, movedLines, MARGIN };
})();
