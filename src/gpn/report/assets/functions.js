"use strict";
// Functions along a feature, and the plane of two code axes that moves one of them.
(() => {
  const { data, byId, color, axis, slice, safe } = report;
  const f = data.functions;
  if (!f) return;
  const classes = data.classes, isClass = data.kind === "classification";
  const rowSelect = byId("functions-row"), featureSelect = byId("functions-feature");
  const classSelect = byId("functions-class");
  const points = f.at.shape[1];
  const MAX_LINES = 8;
  const state = { code: [1, 1], moved: [] };
  report.state = state; // read by the tests

  // Seconds of a date become milliseconds, which is what a date axis takes.
  const isDate = () => f.times[Number(featureSelect.value)] === "date";
  const along = (values) => (isDate() ? values.map((v) => 1000 * v) : values);
  const where = () => (isDate() ? "%{x|%Y-%m-%d}" : "%{x:.4~g}");
  const here = (grid) => slice(grid, Number(rowSelect.value), Number(featureSelect.value));
  const column = (values, i, width) => values.filter((_, j) => j % width === i);

  // b + A z at every point: (points, outputs).
  const generated = ([first, second]) => {
    const base = here(f.base), loadings = here(f.loadings);
    return base.map((b, i) => b + loadings[2 * i] * first + loadings[2 * i + 1] * second);
  };

  const softmax = (logits) => {
    const top = Math.max(...logits);
    const powers = logits.map((v) => Math.exp(v - top));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((v) => v / sum);
  };

  // The function at the code, one list per line.
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
    return order.slice(0, MAX_LINES).sort((a, b) => a - b);
  };

  const band = (x, low, high, shade) => {
    const edge = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
    return [{ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: report.faint(shade, Number(color("band"))) }];
  };

  // All draws as one line with gaps.
  const drawn = (x, draws, count) => {
    const xs = [], ys = [];
    for (let s = 0; s < count; s++) {
      xs.push(...x, null);
      ys.push(...column(draws, s, count), null);
    }
    return { x: xs, y: ys, mode: "lines", name: "random draws", line: { color: color("quiet"), width: 1 }, opacity: 0.55, hoverinfo: "skip" };
  };

  const rug = () => {
    const x = along(slice(f.rug, Number(featureSelect.value)));
    return {
      x, y: x.map(() => 0.02), yaxis: "y2", mode: "markers", showlegend: false, hoverinfo: "skip",
      marker: { symbol: "line-ns-open", size: 9, color: color("quiet"), line: { width: 1 } },
    };
  };

  const valueTraces = (x) => {
    const mean = here(f.mean), std = here(f.std), shade = color("labeled");
    const end = (sign, noise) => mean.map((m, i) => m + sign * 1.96 * Math.hypot(std[i], noise));
    const dashed = { x, mode: "lines", line: { color: shade, width: 1, dash: "dot" }, hoverinfo: "skip" };
    const labels = f.noise_std > 0
      ? [{ ...dashed, y: end(-1, f.noise_std), name: "95 % of new labels" }, { ...dashed, y: end(1, f.noise_std), showlegend: false }]
      : [];
    return [
      ...band(x, end(-1, 0), end(1, 0), shade),
      ...labels,
      drawn(x, here(f.draws), f.draws.shape[3]),
      { x, y: mean, mode: "lines", name: "mean", line: { color: shade, width: 2.5 }, hovertemplate: `${where()}: %{y:.4~g}<extra></extra>` },
    ];
  };

  const oneClass = (x, c, of) => {
    const count = f.draws.shape[4];
    const draws = here(f.draws).filter((_, j) => Math.floor(j / count) % classes.length === c);
    return [...band(x, of(f.low, c), of(f.high, c), report.line(c).color), drawn(x, draws, count)];
  };

  const classTraces = (x) => {
    const shown = shownClasses(), of = (grid, c) => column(here(grid), c, classes.length);
    const single = shown.length === 1 ? oneClass(x, shown[0], of) : [];
    return single.concat(shown.map((c) => ({
      x, y: of(f.mean, c), mode: "lines", name: f.plane ? "mean" : safe(classes[c]), showlegend: !f.plane,
      line: { ...report.line(c), ...(f.plane ? { dash: "dot" } : {}), width: f.plane ? 1.5 : 2.5 },
      hovertemplate: `${where()}: %{y:.0%}<extra></extra>`,
    })));
  };

  const movedTraces = (x) => movedLines().map((y, i) => ({
    x, y, mode: "lines", hoverinfo: "skip",
    name: isClass ? safe(classes[shownClasses()[i]]) : "at the code",
    line: isClass ? { ...report.line(shownClasses()[i]), width: 3 } : { color: color("test"), width: 3 },
  }));

  // Fixed while the pointer moves, and wide enough for every code.
  const range = (traces) => {
    if (isClass) return [-0.02, 1.02];
    const corners = f.plane ? [[3, 3], [3, -3], [-3, 3], [-3, -3]] : [];
    const all = traces.flatMap((t) => t.y).filter((v) => v !== null).concat(corners.flatMap(generated));
    const low = Math.min(...all), high = Math.max(...all), margin = 0.04 * (high - low || 1);
    return [low - 2 * margin, high + margin];
  };

  const draw = () => {
    const x = along(slice(f.at, Number(featureSelect.value))), fixed = isClass ? classTraces(x) : valueTraces(x);
    const moved = f.plane ? movedTraces(x) : [];
    state.moved = moved.map((_, i) => fixed.length + 1 + i);
    const [value] = along([slice(f.values, Number(rowSelect.value))[Number(featureSelect.value)]]);
    const width = byId("plot-functions").clientWidth;
    report.plot("plot-functions", [...fixed, rug(), ...moved], {
      height: width < 500 ? 320 : 470,
      xaxis: axis(report.short(f.features[featureSelect.value], Math.floor(width / 10)), isDate() ? { type: "date" } : { type: "linear" }),
      yaxis: axis(isClass ? "probability" : report.short(data.fit.target, 34), { range: range(fixed), tickformat: isClass ? ".2~%" : "" }),
      yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
      shapes: [report.vertical(value, { color: color("ink"), width: 1, dash: "dash" })],
      annotations: [{ x: value, yref: "paper", y: 1, text: "this row", showarrow: false, xanchor: "auto", yanchor: "bottom", font: { size: 12, color: color("quiet") } }],
      legend: { orientation: "h", x: 0, y: 1.07, yanchor: "bottom" },
    });
  };

  report.options(rowSelect, f.rows);
  report.options(featureSelect, f.features);
  [rowSelect.value, featureSelect.value] = f.initial;
  if (classSelect) {
    classSelect.append(new Option("all", "all"), ...classes.map((name, i) => new Option(name, i)));
    classSelect.addEventListener("change", draw);
  }
  rowSelect.addEventListener("change", draw);
  featureSelect.addEventListener("change", draw);
  report.draw("plot-functions", draw);

  // The code plane: pointer, finger or arrow keys choose z, and the function follows.
  const surface = byId("plane");
  if (!surface) return;
  const MARGIN = { l: 44, r: 10, t: 10, b: 42 };
  const EDGE = 3, STEP = 0.1;
  let waiting = false;

  // The circles around 0 that hold these shares of N(0, I).
  const circles = [0.5, 0.8, 0.95].map((share) => [share, Math.sqrt(-2 * Math.log(1 - share))]);
  const side = (title) => axis(title, {
    range: [-EDGE, EDGE], automargin: false, tickvals: [-3, -2, -1, 0, 1, 2, 3], zeroline: true, zerolinecolor: color("line"),
  });

  const drawPlane = () => {
    const marker = { size: 15, color: color("test"), line: { color: color("paper"), width: 2 } };
    const [x, y] = state.code.map((v) => [v]);
    report.plot("plot-plane", [{ x, y, mode: "markers", marker, hoverinfo: "skip" }], {
      height: byId("plot-plane").clientWidth + MARGIN.t + MARGIN.b - MARGIN.l - MARGIN.r,
      margin: MARGIN, showlegend: false, xaxis: side("z₁"), yaxis: side("z₂"),
      shapes: circles.map(([, r]) => ({
        type: "circle", x0: -r, x1: r, y0: -r, y1: r, layer: "below",
        line: { color: color("quiet"), width: 1 }, fillcolor: report.faint(color("labeled"), 0.08),
      })),
      annotations: circles.map(([share, r]) => ({
        x: 0, y: r, text: `${100 * share} %`, showarrow: false, yanchor: "bottom", font: { size: 11, color: color("quiet") },
      })),
    });
    Object.assign(surface.style, {
      left: `${MARGIN.l}px`, right: `${MARGIN.r}px`, top: `${MARGIN.t}px`, bottom: `${MARGIN.b}px`,
    });
    showCode();
  };

  const showCode = () => {
    const [first, second] = state.code.map((v) => v.toFixed(2).replace("-", "−"));
    byId("plane-code").textContent = `z₁ = ${first}, z₂ = ${second}`;
  };

  const update = () => {
    waiting = false;
    if (state.moved.length === 0) return; // the plot is not drawn yet: it will start at this code
    Plotly.restyle("plot-functions", { y: movedLines() }, state.moved);
    Plotly.restyle("plot-plane", { x: [[state.code[0]]], y: [[state.code[1]]] }, [0]);
    showCode();
  };

  const move = (first, second) => {
    state.code = [first, second].map((v) => Math.min(EDGE, Math.max(-EDGE, v)));
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(update);
  };

  const follow = (event) => {
    const box = surface.getBoundingClientRect();
    const across = (event.clientX - box.left) / box.width, down = (event.clientY - box.top) / box.height;
    move(EDGE * (2 * across - 1), EDGE * (1 - 2 * down));
  };

  const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const press = (event) => {
    const way = KEYS[event.key];
    if (!way) return;
    event.preventDefault();
    const step = event.shiftKey ? 5 * STEP : STEP;
    move(state.code[0] + step * way[0], state.code[1] + step * way[1]);
  };

  const [first, second] = f.plane.shares.map(report.percent);
  byId("plane-text").textContent =
    "Each point is one posterior function, drawn bold; the circles hold 50 %, 80 % and 95 % of them. " +
    "Move the pointer, drag a finger or press the arrow keys. " +
    `The axes are the two of ${f.plane.size} code directions that change the functions most ` +
    `(${first} and ${second} of their variance); the others stay at 0.`;
  surface.addEventListener("pointermove", follow);
  surface.addEventListener("pointerdown", follow);
  surface.addEventListener("keydown", press);
  byId("plane-reset").addEventListener("click", () => move(0, 0));
  report.draw("plot-plane", drawPlane);
})();
