"use strict";
// The code plane: pointer, finger or arrow keys choose z, and the function follows.
(() => {
  const { data, byId, color, axis } = report;
  const surface = byId("plane");
  if (!surface) return;
  const { state, movedLines, MARGIN } = report.functions;
  const EDGE = 3, STEP = 0.1;
  const SHARES = [0.5, 0.8, 0.95];
  let waiting = false;

  // The circle around 0 that holds this share of N(0, I) in the plane.
  const radius = (share) => Math.sqrt(-2 * Math.log(1 - share));

  const circles = () => SHARES.map((share) => {
    const r = radius(share);
    return {
      type: "circle", x0: -r, x1: r, y0: -r, y1: r, layer: "below",
      line: { color: color("quiet"), width: 1 }, fillcolor: report.faint(color("labeled"), 0.08),
    };
  });

  const labels = () => SHARES.map((share) => ({
    x: 0, y: radius(share), text: `${100 * share} %`, showarrow: false, yanchor: "bottom",
    font: { size: 11, color: color("quiet") },
  }));

  const side = (title) => axis(title, {
    range: [-EDGE, EDGE], automargin: false, tickvals: [-3, -2, -1, 0, 1, 2, 3], zeroline: true, zerolinecolor: color("line"),
  });

  const draw = () => {
    const width = byId("plot-plane").clientWidth;
    const marker = { size: 15, color: color("test"), line: { color: color("paper"), width: 2 } };
    report.plot("plot-plane", [{ x: [state.code[0]], y: [state.code[1]], mode: "markers", marker, hoverinfo: "skip" }], {
      height: width + MARGIN.t + MARGIN.b - MARGIN.l - MARGIN.r,
      margin: MARGIN, showlegend: false, shapes: circles(), annotations: labels(),
      xaxis: side("z₁"), yaxis: side("z₂"),
    });
    Object.assign(surface.style, {
      left: `${MARGIN.l}px`, right: `${MARGIN.r}px`, top: `${MARGIN.t}px`, bottom: `${MARGIN.b}px`,
    });
    tell();
  };

  const tell = () => {
    const [first, second] = state.code.map((v) => v.toFixed(2).replace("-", "−"));
    byId("plane-code").textContent = `z₁ = ${first}, z₂ = ${second}`;
  };

  const show = () => {
    waiting = false;
    if (state.moved.length === 0) return; // not drawn yet: it will be, at this code
    Plotly.restyle("plot-functions", { y: movedLines() }, state.moved);
    Plotly.restyle("plot-plane", { x: [[state.code[0]]], y: [[state.code[1]]] }, [0]);
    tell();
  };

  const move = (first, second) => {
    state.code = [first, second].map((v) => Math.min(EDGE, Math.max(-EDGE, v)));
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(show);
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

  const { shares, size } = data.functions.plane;
  byId("plane-said").textContent =
    `A point here is one function, drawn bold. Move the pointer, drag a finger or press the arrow keys. ` +
    `Most functions lie near the middle (circles hold 50 %, 80 % and 95 % of them). These axes are the two of ` +
    `${size} that move the functions most: they carry ${report.percent(shares[0])} and ${report.percent(shares[1])} ` +
    `of the functions' variance; the others stay at 0.`;
  surface.addEventListener("pointermove", follow);
  surface.addEventListener("pointerdown", follow);
  surface.addEventListener("keydown", press);
  byId("plane-reset").addEventListener("click", () => move(0, 0));
  report.draw("plot-plane", draw);
})();
