"use strict";
// What all plots share: the numbers, the colours of the page, and how a plot is drawn.
const report = { redraws: [] };

report.decode = (text, shape) => {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return { values: new Float32Array(bytes.buffer), shape };
};

// Arrays travel as base64 float32; those of one axis become plain lists.
report.unpack = (value) => {
  if (Array.isArray(value)) return value.map(report.unpack);
  if (value === null || typeof value !== "object") return value;
  if ("f32" in value) {
    const grid = report.decode(value.f32, value.shape);
    return grid.shape.length === 1 ? Array.from(grid.values) : grid;
  }
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, report.unpack(v)]));
};

report.data = report.unpack(JSON.parse(document.getElementById("numbers").textContent));

// The part of a grid at the first axes' `indices`, as a plain list.
report.part = (grid, ...indices) => {
  let size = grid.values.length, start = 0;
  indices.forEach((index, axis) => {
    size /= grid.shape[axis];
    start += index * size;
  });
  return Array.from(grid.values.subarray(start, start + size));
};

report.byId = (name) => document.getElementById(name);

// plotly reads a few tags in texts: whatever comes from the data must not look like one.
report.safe = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
report.short = (text, most) =>
  report.safe(text.length > most ? text.slice(0, Math.max(1, most - 1)) + "…" : text);
report.number = (value) =>
  Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(2)
    : String(Number(value.toPrecision(3)));
report.percent = (share) => `${Number((100 * share).toPrecision(share < 0.1 ? 2 : 3))} %`;

report.isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
report.color = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
report.faint = (color, share) =>
  color + Math.round(255 * share).toString(16).padStart(2, "0");

// Okabe and Ito's palette; on a dark page its lighter half comes first.
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07a00", "#3a8fc0", "#6f6f6f", "#1c2126"];
const DARK = ["#56b4e9", "#e69f00", "#2fc79b", "#cc79a7", "#f0e442", "#e8794a", "#a8a8a8", "#e8eaec"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
report.line = (i) => {
  const palette = report.isDark() ? DARK : LIGHT;
  return { color: palette[i % palette.length], dash: DASHES[Math.floor(i / palette.length) % 4] };
};

report.axis = (title, more = {}) => ({
  title: { text: title, standoff: 8 },
  gridcolor: report.color("line"),
  linecolor: report.color("line"),
  zeroline: false,
  automargin: true,
  fixedrange: true,
  ...more,
});

report.layout = (more) => ({
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  font: { family: "system-ui, sans-serif", size: 13, color: report.color("ink") },
  margin: { l: 52, r: 14, t: 10, b: 44 },
  height: 330,
  dragmode: false,
  hovermode: "closest",
  hoverlabel: { bgcolor: report.color("paper"), font: { color: report.color("ink") } },
  legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
  ...more,
});

report.plot = (name, traces, layout) =>
  Plotly.react(name, traces, report.layout(layout), {
    displayModeBar: false,
    responsive: true,
  });

// A plot is drawn once it comes near the screen, so that the page opens quickly, and again
// whenever the page changes its colours or its width.
const waiting = new Map();
const begin = (plot) => {
  const redraw = waiting.get(plot);
  near.unobserve(plot);
  waiting.delete(plot);
  if (!redraw) return;
  report.redraws.push(redraw);
  redraw();
};
const near = new IntersectionObserver(
  (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => begin(e.target)),
  { rootMargin: "300px" });
report.draw = (name, redraw) => {
  const plot = report.byId(name);
  waiting.set(plot, redraw);
  near.observe(plot);
};
report.drawAll = () => [...waiting.keys()].forEach(begin);

report.diagonal = (low, high) => ({
  type: "line", x0: low, x1: high, y0: low, y1: high,
  line: { color: report.color("quiet"), dash: "dash", width: 1.5 },
});

report.options = (select, texts) => select.replaceChildren(...texts.map((t, i) => new Option(t, i)));
report.redrawAll = () => report.redraws.forEach((redraw) => redraw());
