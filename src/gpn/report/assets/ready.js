"use strict";
// When to draw again, and when the page is there.
(() => {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", report.redrawAll);
  addEventListener("beforeprint", report.drawAll);

  // Labels are cut to the width there is: once that has changed, cut them anew.
  let width = innerWidth, timer = 0;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (innerWidth !== width) report.redrawAll();
      width = innerWidth;
    }, 150);
  });

  // Milliseconds until the plots on the screen were drawn: what is near is, by the end of a frame.
  requestAnimationFrame(() => setTimeout(() => {
    document.documentElement.dataset.ready = performance.now();
  }));
})();
