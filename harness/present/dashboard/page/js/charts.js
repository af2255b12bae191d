// The charts of the page: what each shows, for the library to draw.
(function () {
  "use strict";
  const { chart, words, cells } = Conformance;
  const KINDS = ["whole", "part", "none", "unjudged", "missing"];
  // Stripes tell the two apart that are hard to tell by colour, and mark what is missing.
  const STRIPES = {
    none: {
      symbol: "rect",
      dashArrayX: [1, 0],
      dashArrayY: [2, 5],
      rotation: -Math.PI / 4,
      color: "rgba(255,255,255,0.16)",
    },
    missing: {
      symbol: "rect",
      dashArrayX: [1, 0],
      dashArrayY: [3, 3],
      rotation: Math.PI / 4,
      color: "rgba(255,255,255,0.28)",
    },
  };

  // Bars of operators by how they stand. rows: [{name, counts: [whole, part, …]}], first on top.
  function standings(rows, label, click, dense) {
    const step = dense ? 21 : 30;
    // On a phone the legend takes two lines.
    const extra = (width, kinds) => (width < 130 * kinds ? 20 : 0);
    const height = step * rows.length + 44 + extra(window.innerWidth - 60, 3);
    const share = (row, i) => (dense ? (100 * row.counts[i]) / Math.max(1, sum(row)) : row.counts[i]);
    return chart.chart(
      height,
      label,
      function (c, width) {
        const kinds = KINDS.filter((_, i) => rows.some((row) => row.counts[i]));
        const room = Math.min(dense ? 170 : 260, Math.max(90, Math.round(width * 0.32)));
        return {
          grid: { left: 4, right: 18, top: 30 + extra(width, kinds.length), bottom: 4, containLabel: true },
          legend: {
            top: 0,
            left: 0,
            itemWidth: 12,
            itemHeight: 10,
            itemGap: 12,
            textStyle: { color: c.soft, fontSize: 12 },
            selectedMode: false,
            formatter: (name) => name,
            data: kinds.map((kind) => cells.NAMES[kind]),
          },
          tooltip: {
            trigger: "axis",
            axisPointer: { type: "shadow" },
            formatter(points) {
              const row = rows[rows.length - 1 - points[0].dataIndex];
              const total = sum(row);
              return [
                row.name,
                ...KINDS.map((kind, i) => [kind, row.counts[i]])
                  .filter(([, n]) => n)
                  .map(
                    ([kind, n]) =>
                      `${cells.GLYPHS[kind]} ${words.number(n)} ${cells.NAMES[kind]} (${words.percent(n, total)})`,
                  ),
              ].join("\n");
            },
          },
          xAxis: chart.axis(c, {
            type: "value",
            max: "dataMax",
            axisLabel: { show: false },
            splitLine: { show: false },
            axisLine: { show: false },
          }),
          yAxis: chart.axis(c, {
            type: "category",
            data: rows.map((row) => row.name).reverse(),
            axisLine: { show: false },
            axisLabel: { color: c.ink, width: room, overflow: "truncate", fontSize: 12.5 },
            triggerEvent: true,
          }),
          series: kinds.map((kind) => ({
            name: cells.NAMES[kind],
            type: "bar",
            stack: "all",
            barWidth: dense ? 15 : 20,
            cursor: click ? "pointer" : "default",
            itemStyle: { color: c[kind], decal: STRIPES[kind], borderColor: c.paper, borderWidth: 0.5 },
            label: {
              show: true,
              color: c.on[kind],
              fontSize: 11.5,
              formatter: (p) =>
                fits(p.data.count, p.value / (dense ? 100 : Math.max(...rows.map(sum))), width - room),
            },
            data: rows
              .map((row) => ({
                value: share(row, KINDS.indexOf(kind)),
                count: row.counts[KINDS.indexOf(kind)],
                kind,
                row: row.key,
              }))
              .reverse(),
          })),
        };
      },
      click &&
        ((event) =>
          click(
            event.data
              ? event.data.row
              : rows[rows.length - 1 - rows.findIndex((r) => r.name === event.value)]?.key,
            event.data && event.data.kind,
          )),
    );
  }

  const sum = (row) => row.counts.slice(0, 5).reduce((a, b) => a + b, 0);

  // A number, where its part of a bar has room for it.
  const fits = (count, part, width) =>
    count && part * width > 8 * String(count).length + 6 ? words.number(count) : "";

  // Lines over runs. series: [{name, values}] with null for a run that lacks it; marks: by run, what sets it
  // apart from the others, or "".
  function trend(names, series, marks, label, unit, click) {
    return chart.chart(
      280,
      label,
      function (c, width) {
        const values = series.flatMap((one) => one.values.filter((v) => v !== null));
        const low = Math.min(...values);
        const high = Math.max(...values);
        const step = high - low > 25 ? 10 : high - low > 6 ? 5 : 1;
        const [bottom, top] = [
          Math.floor((low - step / 3) / step) * step,
          Math.ceil((high + step / 3) / step) * step,
        ];
        return {
          grid: { left: 8, right: 18, top: series.length > 1 ? 44 : 20, bottom: 8, containLabel: true },
          legend: {
            show: series.length > 1,
            type: "scroll",
            top: 0,
            left: 0,
            icon: "roundRect",
            itemWidth: 16,
            itemHeight: 4,
            textStyle: { color: c.ink, fontSize: 12 },
            pageTextStyle: { color: c.soft },
          },
          tooltip: {
            trigger: "axis",
            formatter: (points) =>
              [
                [names[points[0].dataIndex], marks[points[0].dataIndex]].filter(Boolean).join(", "),
                ...points
                  .filter((p) => p.value !== undefined && p.value !== null && p.value !== "-")
                  .map((p) => `${p.seriesName}: ${words.few(p.value)}${unit}`),
              ].join("\n"),
          },
          xAxis: chart.axis(c, {
            type: "category",
            data: names,
            boundaryGap: false,
            splitLine: { show: false },
            axisLabel: {
              color: c.soft,
              fontSize: 11.5,
              hideOverlap: true,
              formatter: (v) => String(v).slice(0, width < 500 ? 10 : 16),
            },
          }),
          yAxis: chart.axis(c, {
            type: "value",
            min: Math.max(0, bottom),
            max: unit === "%" ? Math.min(100, top) : top,
            axisLabel: { color: c.soft, formatter: (v) => words.few(v) + unit },
          }),
          series: series.map((one, i) => ({
            name: one.name,
            type: "line",
            connectNulls: false,
            symbol: c.symbols[i % 4],
            cursor: click ? "pointer" : "default",
            triggerLineEvent: false,
            lineStyle: { width: 2, type: ["solid", "dashed", "dotted"][Math.floor(i / c.series.length) % 3] },
            color: c.series[i % c.series.length],
            data: one.values.map((value, at) =>
              marks[at] ? { value, symbol: "emptyCircle", symbolSize: 11 } : { value, symbolSize: 6 },
            ),
          })),
        };
      },
      click && ((event) => click(event.dataIndex)),
    );
  }

  // How many cases have how large an error, columns side by side. series: [{name, counts}]
  function distribution(bins, series, label) {
    const names = [
      "0",
      ...bins
        .slice(1)
        .map((end, i) => (bins[i] === 0 ? `≤ ${words.few(end)}` : `${words.few(bins[i])}–${words.few(end)}`)),
      `> ${words.few(bins[bins.length - 1])}`,
    ];
    return chart.chart(260, label, (c) => ({
      grid: { left: 8, right: 14, top: 48, bottom: 22, containLabel: true },
      legend: {
        type: "scroll",
        top: 0,
        left: 0,
        itemWidth: 12,
        itemHeight: 10,
        textStyle: { color: c.ink, fontSize: 12 },
      },
      tooltip: { trigger: "axis", axisPointer: { type: "shadow" } },
      xAxis: chart.axis(c, {
        type: "category",
        data: names,
        name: "largest error of a case, ULP",
        nameLocation: "middle",
        nameGap: 26,
        splitLine: { show: false },
        axisLabel: { color: c.soft, fontSize: 11, hideOverlap: true },
      }),
      yAxis: chart.axis(c, {
        type: "value",
        name: "% of passing cases",
        nameTextStyle: { color: c.soft, align: "left" },
        nameGap: 8,
        show: true,
        axisLabel: { color: c.soft, formatter: "{value}%" },
      }),
      series: series.map(function (one, i) {
        const total = one.counts.reduce((a, b) => a + b, 0) || 1;
        return {
          name: one.name,
          type: "bar",
          color: c.series[i % c.series.length],
          barMaxWidth: 26,
          itemStyle: {
            decal:
              i % 2
                ? {
                    dashArrayX: [1, 0],
                    dashArrayY: [2, 4],
                    rotation: Math.PI / 4,
                    color: "rgba(255,255,255,0.35)",
                  }
                : undefined,
          },
          data: one.counts.map((n) => Number(((100 * n) / total).toFixed(1))),
        };
      }),
    }));
  }

  Conformance.charts = { standings, trend, distribution, KINDS };
})();
