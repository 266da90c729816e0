"use strict";
// Draws the figures in the page's own colours; without this script the tables remain.
(() => {
  const page = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const hidden = new Set();

  function coloured(value, styles) {
    if (typeof value === "string") {
      return value.replace(/^var\((--[a-z0-9-]+)\)$/, (_, name) => styles.getPropertyValue(name).trim());
    }
    if (Array.isArray(value)) return value.map((one) => coloured(one, styles));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, styles)]));
    }
    return value;
  }

  function drawOne(box, width) {
    const styles = getComputedStyle(page);
    const { data, layout } = coloured(figures[box.dataset.figure], styles);
    for (const trace of data) trace.visible = !hidden.has(trace.meta);
    const ink = styles.getPropertyValue("--ink-soft").trim();
    const room = width || box.clientWidth;
    const axis = {
      gridcolor: styles.getPropertyValue("--grid").trim(),
      zeroline: false,
      linecolor: styles.getPropertyValue("--axis").trim(),
      ticks: "outside",
      tickcolor: styles.getPropertyValue("--axis").trim(),
      ticklen: 4,
      fixedrange: true,
      automargin: true,
      exponentformat: "none",
      separatethousands: true,
    };
    const whole = {
      ...layout,
      xaxis: { ...axis, showgrid: false, ...layout.xaxis },
      yaxis: { ...axis, ...layout.yaxis },
      width: room,
      height: Math.round(Math.min(340, Math.max(250, room * 0.62))),
      margin: { l: 52, r: 14, t: 10, b: 44 },
      showlegend: false,
      hovermode: "closest",
      dragmode: false,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: room < 420 ? 11 : 12, color: ink },
      hoverlabel: {
        bgcolor: styles.getPropertyValue("--card").trim(),
        bordercolor: styles.getPropertyValue("--axis").trim(),
        font: { color: styles.getPropertyValue("--ink").trim() },
        align: "left",
      },
    };
    Plotly.react(box, data, whole, { displayModeBar: false, responsive: false, showSendToCloud: false });
    box.classList.add("drawn");
  }

  function draw(width) {
    for (const box of document.querySelectorAll("[data-figure]")) drawOne(box, width);
  }

  for (const box of document.querySelectorAll("input[data-configuration]")) {
    box.addEventListener("change", () => {
      const number = Number(box.dataset.configuration);
      if (box.checked) hidden.delete(number);
      else hidden.add(number);
      draw();
    });
  }

  // Where the system's choice of colours does not suit, the button overrides it.
  const toggle = document.getElementById("theme");
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    const now = page.dataset.theme || (dark.matches ? "dark" : "light");
    page.dataset.theme = now === "dark" ? "light" : "dark";
    draw();
  });
  dark.addEventListener("change", () => draw());

  let wide = window.innerWidth;
  let waiting = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === wide) return;
    wide = window.innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => draw());
  });

  // Paper is white and narrow, and folds nothing.
  let before;
  window.addEventListener("beforeprint", () => {
    const closed = [...document.querySelectorAll("details:not([open])")];
    before = { theme: page.dataset.theme, closed };
    for (const one of closed) one.open = true;
    page.dataset.theme = "light";
    draw(330);
  });
  window.addEventListener("afterprint", () => {
    if (before.theme) page.dataset.theme = before.theme;
    else delete page.dataset.theme;
    for (const one of before.closed) one.open = false;
    draw();
  });

  page.classList.add("scripted");
  draw();
  page.dataset.drawn = "yes";
})();
