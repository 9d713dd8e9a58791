"use strict";
// Draws the charts of a page, and draws them anew when their numbers, the room for them or the colours are others.
(() => {
  const HEIGHT = 180;
  const drawn = new Map();

  function colour(place) {
    const probe = document.createElement("span");
    probe.className = place;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  function options(content, width, place) {
    const quiet = colour("quiet");
    const relative = place.dataset.times === "relative";
    const zone = relative ? "UTC" : place.dataset.zoneOf;
    const last = content.points[0][content.points[0].length - 1];
    const minutes = (at) => { const ago = Math.round((last - at) / 60); return ago > 0 ? `−${ago} min` : "now"; };
    const clock = new Intl.DateTimeFormat("en-GB", { timeZone: zone, hour: "2-digit", minute: "2-digit" });
    const said = (at) => relative ? minutes(at) : clock.format(new Date(at * 1000));
    const axis = { stroke: quiet, grid: { stroke: quiet, width: 0.2 }, ticks: { stroke: quiet, width: 0.4 } };
    return {
      width, height: HEIGHT, legend: { show: false }, cursor: { y: false }, padding: [8, 20, 0, 0],
      scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      // Every ten minutes back from the last one, or by the clock.
      axes: [{
        ...axis, size: 34, values: (_plot, found) => found.map(said), space: 60,
        ...(relative ? { splits: (plot) => { const found = []; for (let at = last; at >= plot.scales.x.min; at -= 600) found.unshift(at); return found; } } : {}),
      }, { ...axis, size: 52 }],
      series: [{}, ...content.lines.map((name, place) => ({
        label: name, stroke: colour(`line-${place}`), width: 1.6, spanGaps: true, points: { show: false },
      }))],
    };
  }

  function draw(place, isAnew) {
    const source = document.getElementById(place.dataset.chart);
    const text = source?.dataset.content;
    const width = Math.floor(place.clientWidth);
    if (!text || width < 40) return;
    const known = drawn.get(place);
    if (known && !isAnew) {
      if (known.text !== text) known.plot.setData(JSON.parse(text).points);
      if (known.plot.width !== width) known.plot.setSize({ width, height: HEIGHT });
      known.text = text;
      return;
    }
    known?.plot.destroy();
    const content = JSON.parse(text);
    drawn.set(place, { text, plot: new uPlot(options(content, width, place), content.points, place) });
  }

  const all = (isAnew) => document.querySelectorAll("[data-chart]").forEach((place) => draw(place, isAnew));
  all(false);
  document.addEventListener("htmx:after:swap", () => all(false));
  window.addEventListener("resize", () => all(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all(true));
})();
