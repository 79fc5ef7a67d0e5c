"use strict";
(() => {
  // A click on a name in a legend hides its line, or shows it again.
  document.addEventListener("click", (event) => {
    const entry = event.target.closest("[data-legend]");
    if (!entry) return;
    const index = entry.dataset.legend;
    const parts = entry.closest("svg").querySelectorAll(`[data-series="${index}"], [data-legend="${index}"]`);
    parts.forEach((part) => part.classList.toggle("off"));
  });

  // What a point says appears beside it.
  const value = document.getElementById("value");
  document.addEventListener("mouseover", (event) => {
    value.textContent = event.target.dataset?.value ?? "";
    value.hidden = !value.textContent;
    if (value.hidden) return;
    const point = event.target.getBoundingClientRect();
    value.style.left = Math.max(4, Math.min(point.left, innerWidth - value.offsetWidth - 4)) + "px";
    value.style.top = point.bottom + 4 + "px";
  });

  for (const plot of document.querySelectorAll(".plot")) {
    plot.addEventListener("dblclick", (event) => {
      if (!event.target.closest("[data-legend]")) plot.classList.toggle("large");
    });
  }

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
})();
