// A chart of the library in the page's colours: drawn again when these or its width change.
(function () {
  "use strict";
  const { el } = Conformance;
  const live = new Set();

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    return {
      ink: of("ink"),
      soft: of("soft"),
      line: of("line"),
      paper: of("paper"),
      accent: of("accent"),
      whole: of("s-whole"),
      part: of("s-part"),
      none: of("s-none"),
      unjudged: of("s-unjudged"),
      missing: of("s-missing"),
      // Letters on the bars.
      on:
        document.documentElement.dataset.theme === "dark"
          ? { whole: "#0b1722", part: "#ffffff", none: "#1f0e02", unjudged: "#ffffff", missing: "#170d26" }
          : { whole: "#ffffff", part: "#1b2027", none: "#ffffff", unjudged: "#1b2027", missing: "#ffffff" },
      // Okabe and Ito's colours, which people with any colour blindness can distinguish, with shapes and dashes beside them.
      series:
        document.documentElement.dataset.theme === "dark"
          ? ["#56b4e9", "#e69f00", "#2dc79b", "#e58bbd", "#f0e442", "#ef8036", "#9db8ff", "#c9ced6"]
          : ["#0072b2", "#c47f00", "#00805c", "#b0568c", "#7a6a00", "#c4540c", "#4057a8", "#5b626c"],
      symbols: [
        "circle",
        "rect",
        "triangle",
        "diamond",
        "emptyCircle",
        "emptyRect",
        "emptyTriangle",
        "emptyDiamond",
      ],
    };
  }

  // `option(colours, width)` is asked for whenever it is drawn. `label` says what a reader who cannot see it gets.
  function chart(height, label, option, click) {
    const box = el("div.chart", { role: "img", "aria-label": label });
    box.style.height = `${height}px`;
    let drawn = null;
    let width = 0;
    const entry = { draw, stop };

    function draw() {
      if (!drawn || !box.isConnected) return;
      const c = colours();
      const base = {
        animation: false,
        textStyle: { color: c.soft, fontFamily: "system-ui, sans-serif", fontSize: 12 },
        tooltip: {
          // Drawn on the canvas: words of a run never become HTML.
          renderMode: "richText",
          confine: true,
          backgroundColor: c.paper,
          borderColor: c.line,
          textStyle: { color: c.ink, fontSize: 12 },
        },
      };
      const own = option(c, width);
      drawn.setOption({ ...base, ...own, tooltip: { ...base.tooltip, ...own.tooltip } }, true);
    }

    function stop() {
      observer.disconnect();
      live.delete(entry);
      if (drawn) drawn.dispose();
      drawn = null;
    }

    const observer = new ResizeObserver(function () {
      if (!box.isConnected || !box.clientWidth || box.clientWidth === width) return;
      width = box.clientWidth;
      if (!drawn) {
        drawn = window.echarts.init(box, null, { renderer: "canvas" });
        if (click) drawn.on("click", click);
        live.add(entry);
      } else {
        drawn.resize();
      }
      draw();
    });
    observer.observe(box);
    box.stop = stop;
    return box;
  }

  function axis(c, more) {
    return {
      axisLine: { lineStyle: { color: c.line } },
      axisTick: { show: false },
      axisLabel: { color: c.soft, fontSize: 12 },
      splitLine: { lineStyle: { color: c.line } },
      nameTextStyle: { color: c.soft },
      ...more,
    };
  }

  document.addEventListener("themechange", () => live.forEach((entry) => entry.draw()));

  // Charts of a view that is left are let go.
  function stopAll() {
    [...live].forEach((entry) => entry.stop());
  }

  Conformance.chart = { chart, axis, stopAll };
})();
