"use strict";
(() => {
  const held = document.getElementById("plots");
  const plots = held ? JSON.parse(held.textContent) : [];
  const places = [...document.querySelectorAll("[data-plot]")];
  const draw = (place) => {
    const { data, layout } = plots[Number(place.dataset.plot)];
    if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // a finger scrolls the page
    return Plotly.newPlot(place, data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  };
  // One at a time, so that a page of many plots can be read and scrolled while it draws.
  const drawNext = () => {
    const place = places.shift();
    if (!place) { document.body.dataset.drawn = "true"; return; }
    draw(place).then(() => setTimeout(drawNext));
  };
  drawNext();

  for (const slider of document.querySelectorAll(".slider")) {
    const input = slider.querySelector("input");
    const levels = [...slider.querySelectorAll(".level")];
    const show = () => {
      levels.forEach((level, index) => { level.hidden = index !== Number(input.value); });
      const sigma = levels[Number(input.value)].dataset.sigma;
      slider.querySelector("output").textContent = sigma;
      input.setAttribute("aria-valuetext", "σ = " + sigma);
    };
    input.addEventListener("input", show);
  }

  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const code = button.previousElementSibling;
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "selected";
      }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }

  // Plots have the width of the window, which paper cannot hold; by the time it is known, it is too late to draw.
  const forAll = (change) => document.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.relayout(plot, change(plot)));
  addEventListener("beforeprint", () => forAll((plot) => ({ width: Math.min(plot.clientWidth, plot.matches(".heat") ? 330 : 660) })));
  addEventListener("afterprint", () => forAll(() => ({ width: null, autosize: true })));
})();
