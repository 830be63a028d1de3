"use strict";
// Shared by all plots: the data, the colours of the page, and how a plot is drawn.
const report = { redraws: [] };

// Arrays are base64 float32; those with one axis become plain lists.
report.unpack = (value) => {
  if (Array.isArray(value)) return value.map(report.unpack);
  if (value === null || typeof value !== "object") return value;
  if ("f32" in value) {
    const bytes = Uint8Array.from(atob(value.f32), (c) => c.charCodeAt(0));
    const values = new Float32Array(bytes.buffer);
    return value.shape.length === 1 ? Array.from(values) : { values, shape: value.shape };
  }
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, report.unpack(v)]));
};

report.byId = (name) => document.getElementById(name);
report.data = report.unpack(JSON.parse(report.byId("data").textContent));

// The slice of a grid at `indices` of its first axes, as a plain list.
report.slice = (grid, ...indices) => {
  let size = grid.values.length, start = 0;
  indices.forEach((index, axis) => {
    size /= grid.shape[axis];
    start += index * size;
  });
  return Array.from(grid.values.subarray(start, start + size));
};

// plotly interprets some tags in texts: text from the data must not look like one.
report.safe = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
report.short = (text, length) =>
  report.safe(text.length > length ? text.slice(0, Math.max(1, length - 1)) + "…" : text);
report.number = (value) =>
  Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(2)
    : String(Number(value.toPrecision(3)));
report.percent = (share) => `${Number((100 * share + 1e-5).toFixed(1))} %`; // as the key figures round

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

// An axis of scores, which may be tiny: 10⁻⁶ where plotly would write 1µ.
report.scores = (title, more = {}) => report.axis(title, { exponentformat: "power", ...more });

const HEIGHT = 330;
report.plot = (name, traces, layout) => {
  // plotly forgets the height of its box where the width of the page changes.
  report.byId(name).style.minHeight = `${layout.height ?? HEIGHT}px`;
  return Plotly.react(name, traces, {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: report.color("ink") },
    margin: { l: 52, r: 14, t: 10, b: 44 },
    height: HEIGHT,
    dragmode: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: report.color("paper"), font: { color: report.color("ink") } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    ...layout,
  }, { displayModeBar: false, responsive: true });
};

// A plot is drawn when it comes near the screen, so that the page opens quickly, and again
// when the page changes its colours or its width.
const pending = new Map();
const begin = (plot) => {
  const redraw = pending.get(plot);
  observer.unobserve(plot);
  pending.delete(plot);
  if (!redraw) return;
  report.redraws.push(redraw);
  redraw();
};
const observer = new IntersectionObserver(
  (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => begin(e.target)),
  { rootMargin: "300px" });
report.draw = (name, redraw) => {
  const plot = report.byId(name);
  pending.set(plot, redraw);
  observer.observe(plot);
};
report.drawAll = () => [...pending.keys()].forEach(begin);
report.redrawAll = () => report.redraws.forEach((redraw) => redraw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", report.redrawAll);
addEventListener("beforeprint", report.drawAll);

// Labels are cut to the width of the page: cut them again once it has changed.
let pageWidth = innerWidth, resizeTimer = 0;
addEventListener("resize", () => {
  clearTimeout(resizeTimer);
  resizeTimer = setTimeout(() => {
    if (innerWidth !== pageWidth) report.redrawAll();
    pageWidth = innerWidth;
  }, 150);
});

// Milliseconds until the plots on the screen were drawn, at the end of the first frame.
addEventListener("DOMContentLoaded", () => requestAnimationFrame(() => setTimeout(() => {
  document.documentElement.dataset.ready = performance.now();
})));

report.diagonal = (high) => ({
  type: "line", x0: 0, x1: high, y0: 0, y1: high,
  line: { color: report.color("quiet"), dash: "dash", width: 1.5 },
});
report.vertical = (x, line) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line });
report.options = (select, texts) => select.replaceChildren(...texts.map((t, i) => new Option(t, i)));
