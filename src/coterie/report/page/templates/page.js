"use strict";
// Draws the plots in the page's colours, again when the colours change, and offers the other colour scheme.
(() => {
  const root = document.documentElement;
  const canvases = [...document.querySelectorAll(".canvas")];
  const figures = canvases.map((canvas) => JSON.parse(canvas.querySelector("script").textContent));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const PRINTED_WIDTH = 620; // fits A4 and Letter with usual margins

  // The browser itself turns a name such as var(--blue) into the colour of the present scheme.
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = name;
    return getComputedStyle(probe).color;
  };
  const coloured = (value) => {
    if (typeof value === "string") return value.startsWith("var(--") ? colour(value) : value;
    if (Array.isArray(value)) return value.map(coloured);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, coloured(inner)]));
  };

  const draw = (width) => {
    for (const [index, canvas] of canvases.entries()) {
      const { data, layout } = coloured(figures[index]);
      const font = { family: getComputedStyle(document.body).fontFamily, size: 12, ...layout.font };
      const size = width ? { width, height: canvas.clientHeight, autosize: false } : { autosize: true };
      const options = { displayModeBar: false, responsive: !width, scrollZoom: false, doubleClick: "reset" };
      Plotly.react(canvas, data, { ...layout, ...size, font }, options);
    }
  };

  const shown = () => root.dataset.scheme || (dark.matches ? "dark" : "light");
  const button = document.getElementById("scheme");
  const label = () => { button.textContent = shown() === "dark" ? "Light colours" : "Dark colours"; };
  button.addEventListener("click", () => {
    root.dataset.scheme = shown() === "dark" ? "light" : "dark";
    label();
    draw();
  });
  dark.addEventListener("change", () => { label(); draw(); });

  // On paper: light colours, the sheet's width, and everything unfolded.
  let before = null;
  addEventListener("beforeprint", () => {
    if (before) return;
    const folded = [...document.querySelectorAll("details:not([open])")];
    before = { scheme: root.dataset.scheme, folded };
    root.dataset.scheme = "light";
    for (const details of folded) details.open = true;
    draw(PRINTED_WIDTH);
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    if (before.scheme) root.dataset.scheme = before.scheme;
    else delete root.dataset.scheme;
    for (const details of before.folded) details.open = false;
    before = null;
    draw();
  });

  button.hidden = false;
  label();
  draw();
  // A plot inside a folded part has no width until it is unfolded.
  for (const details of document.querySelectorAll("details")) {
    details.addEventListener("toggle", () => {
      for (const canvas of details.querySelectorAll(".canvas")) Plotly.Plots.resize(canvas);
    });
  }
})();
