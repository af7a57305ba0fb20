// Draws the figures from the plain data beside them: one legend for all panels of a figure.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)");
  const DASHES = { solid: "solid", dash: "6px,3px", dot: "2px,3px" };
  const BLACK = "#000000";

  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const seen = (shade) => (shade === BLACK ? colour("ink") : shade);
  // Plotly reads a little HTML in its texts; what comes from a file is to be shown as it is.
  const plain = (text) =>
    text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%/g, "&#37;");

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  function button(label, pressed, press) {
    const node = make("button", { type: "button", "aria-pressed": pressed }, label);
    node.addEventListener("click", press);
    return node;
  }

  class Chart {
    constructor(place) {
      this.place = place;
      this.data = JSON.parse(place.querySelector("script").textContent);
      this.view = 0;
      this.log = { x: false, y: this.data.logY };
      this.shown = this.data.curves.map(() => true);
      this.panels = this.data.views[0].panels.map((_, index) => this.panel(index));
      place.append(this.choices(), this.legend(), make("div", { class: "panels" }, ...this.panels));
      for (const panel of this.panels) nearby.observe(panel);
    }

    choices() {
      const row = make("div", { class: "choices" });
      const { views } = this.data;
      const chosen = views.map(({ name }, index) =>
        button(name, index === 0, () => {
          this.view = index;
          chosen.forEach((each, k) => each.setAttribute("aria-pressed", k === index));
          this.draw();
        }),
      );
      if (views.length > 1) row.append(make("span", { role: "group" }, ...chosen));
      const axes = ["x", "y"].map((axis) => {
        const node = button(`log ${axis}`, this.log[axis], () => {
          this.log[axis] = !this.log[axis];
          node.setAttribute("aria-pressed", this.log[axis]);
          this.draw();
        });
        return node;
      });
      row.append(make("span", { role: "group" }, ...axes));
      return row;
    }

    legend() {
      const entries = this.data.curves.map((curve, index) => {
        const swatch = make("span", { class: `swatch ${curve.dash}` });
        swatch.style.setProperty(
          "--curve", curve.colour === BLACK ? "var(--ink)" : curve.colour,
        );
        const node = button("", true, () => {
          this.shown[index] = !this.shown[index];
          node.setAttribute("aria-pressed", this.shown[index]);
          this.draw();
        });
        node.append(swatch, curve.label);
        return node;
      });
      return make("div", { class: "legend", role: "group", "aria-label": "Curves" }, ...entries);
    }

    panel(index) {
      const { title } = this.data.views[0].panels[index];
      const plot = make("div", {
        class: "plot", role: "img", "aria-label": `${this.data.says}. This panel: ${title}`,
      });
      const node = make("div", { class: "panel" }, make("h4", {}, title), plot);
      node.chart = this;
      node.drawPanel = () => this.drawPanel(index, plot);
      return node;
    }

    draw() {
      for (const node of this.panels) if (node.dataset.drawn) node.drawPanel();
    }

    drawPanel(index, plot) {
      const panel = this.data.views[this.view].panels[index];
      const traces = [...this.bands(panel), ...this.lines(panel)];
      Plotly.react(plot, traces, this.layout(panel), {
        responsive: true, displaylogo: false, displayModeBar: false,
      });
      plot.parentNode.dataset.drawn = "true";
    }

    lines(panel) {
      return panel.lines.map((line, index) => {
        const { label, colour: shade, dash } = this.data.curves[index];
        const range = line.low && line.low.map((low, k) => [low, line.high[k]]);
        const ends = range ? " [%{customdata[0]:.4~g}, %{customdata[1]:.4~g}]" : "";
        return {
          x: line.x || panel.x, y: line.value, customdata: range, name: plain(label),
          mode: "lines", visible: this.shown[index],
          line: { color: seen(shade), dash: DASHES[dash], width: dash === "solid" ? 2 : 1.6 },
          hovertemplate: `<b>${plain(label)}</b><br>${this.data.x} %{x}<br>%{y:.4~g}${ends}<extra></extra>`,
        };
      });
    }

    bands(panel) {
      return panel.lines.flatMap((line, index) => {
        if (!line.low) return [];
        const known = line.value.map((_, k) => k).filter((k) => line.low[k] !== null && line.high[k] !== null);
        // On a log axis an interval that crosses zero has no end.
        const low = (k) => (this.log.y ? Math.max(line.low[k], line.value[k] / 10) : line.low[k]);
        const back = [...known].reverse();
        return [{
          x: [...known, ...back].map((k) => panel.x[k]),
          y: [...known.map((k) => line.high[k]), ...back.map(low)],
          mode: "lines", line: { width: 0 }, fill: "toself", hoverinfo: "skip",
          fillcolor: seen(this.data.curves[index].colour), opacity: 0.16, visible: this.shown[index],
        }];
      });
    }

    layout(panel) {
      const length = panel.x[panel.x.length - 1] - panel.x[0];
      const axis = (name) => ({
        title: { text: this.data[name], standoff: 8 }, type: this.log[name] ? "log" : "linear",
        gridcolor: colour("line"), linecolor: colour("quiet"), tickcolor: colour("quiet"),
        ticks: "outside", zeroline: false, automargin: true, exponentformat: "power",
        rangemode: "nonnegative",
      });
      return {
        height: 320, margin: { l: 56, r: 10, t: 6, b: 44 }, showlegend: false, hovermode: "closest",
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: "system-ui, sans-serif", size: 12, color: colour("ink") },
        hoverlabel: {
          bgcolor: colour("card"), bordercolor: colour("quiet"), font: { color: colour("ink") },
        },
        dragmode: coarse.matches ? false : "zoom",
        uirevision: `${this.view} ${this.log.x} ${this.log.y}`,
        xaxis: { ...axis("x"), ...(length < 8 && !this.log.x ? { dtick: 1 } : {}) }, yaxis: axis("y"),
      };
    }
  }

  // A panel is drawn when it comes near the window, for a page has many.
  const nearby = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        nearby.unobserve(target);
        target.drawPanel();
      }
    },
    { rootMargin: "500px" },
  );
  const charts = [...document.querySelectorAll(".chart")].map((place) => new Chart(place));
  const panels = () => charts.flatMap((chart) => chart.panels);
  addEventListener("beforeprint", () => panels().forEach((panel) => panel.drawPanel()));
  dark.addEventListener("change", () => charts.forEach((chart) => chart.draw()));
  for (const still of document.querySelectorAll("details.still")) still.open = false;
})();
