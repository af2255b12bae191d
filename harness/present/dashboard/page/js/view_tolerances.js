// Numerical error of passing cases, in ULP per operator and dtype, backends side by side.
(function () {
  "use strict";
  const { el, fill, words, load, grid, controls, address, names, charts, download } = Conformance;

  Conformance.views.tolerances = {
    title: "Tolerances",
    async create(main, { index, run }) {
      const data = await load.get(`tolerances/${run}`);
      // −1 stands for an infinite error, which JSON lacks.
      for (const row of [...data.rows, ...data.ordinary])
        for (const at of [6, 7, 8, 9, 10]) if (row[at] === -1) row[at] = Infinity;
      const view = new View(main, index, run, data);
      return { update: (asked) => view.update(asked), leave: () => view.table && view.table.destroy() };
    },
  };

  class View {
    constructor(main, index, run, data) {
      Object.assign(this, { index, data, table: null, shown: [] });
      this.columns = [...new Set(data.rows.map((row) => row[1]))].sort((a, b) => a - b);
      this.every = gather(data.rows);
      this.ordinary = gather(data.ordinary);
      this.filters = el("div");
      this.chart = el("section.panel", { "aria-label": "Distribution" });
      this.count = el("p.quiet.small", { "aria-live": "polite" });
      this.box = el("div");
      main.append(
        el(
          "div.stack",
          controls.heading(
            "Tolerances",
            [
              "Errors of passing cases, in units in the last place of PyTorch's result, from the run of ",
              words.when(index.runs[run].started),
            ],
            download.menu(
              "tolerances",
              () => this.flat(),
              run === index.shown ? download.all("tolerances") : [],
            ),
          ),
          this.filters,
          this.chart,
          this.count,
          this.box,
        ),
      );
    }

    update(asked) {
      const get = (name) => asked.params.get(name) || "";
      const { index } = this;
      const match = names.matcher(get("q"));
      // What users meet comes first; extreme values have errors of any size.
      this.pairs = get("cases") === "all" ? this.every : this.ordinary;
      this.shown = this.pairs.filter(
        (pair) =>
          match(index.operators[pair.operator]) &&
          (!get("dtype") || index.dtypes[pair.dtype] === get("dtype")) &&
          (!get("beyond") || [...pair.by.values()].some(beyond)),
      );
      this.bar(asked.params);
      const pairs = words.count(this.shown.length, "operator and dtype pair");
      this.count.textContent = `${pairs}, largest errors first; choose a row to see its distribution`;
      const chosen = this.shown.find((pair) => pair.id === get("row")) || this.shown[0];
      this.draw(chosen);
      this.chosen = chosen ? chosen.id : "";
      if (this.table) this.table.built.then(() => this.table.replaceData(this.shown));
      else this.build();
    }

    bar(params) {
      if (controls.typing(this.filters)) return;
      const set = (name) => (value) => address.change({ [name]: value, row: "" });
      const used = new Set(this.pairs.map((pair) => pair.dtype));
      const dtypes = this.index.dtypeOrder.filter((d) => used.has(d)).map((d) => this.index.dtypes[d]);
      fill(
        this.filters,
        controls.filters(
          controls.search("Search operators", params.get("q") || "", set("q")),
          controls.select(
            "dtype",
            params.get("dtype") || "",
            [["", "all"], ...dtypes.map((d) => [d, d])],
            set("dtype"),
          ),
          controls.select(
            "cases",
            params.get("cases") || "",
            [
              ["", "ordinary use"],
              ["all", "all"],
            ],
            set("cases"),
          ),
          controls.check(
            "above the default tolerance",
            Boolean(params.get("beyond")),
            (on) => set("beyond")(on ? "1" : ""),
            "Needs a larger rtol or atol than the default of torch.testing for the dtype. Its worst case says which rule accepts it.",
          ),
        ),
      );
    }

    draw(pair) {
      if (!pair) return fill(this.chart, el("p.quiet", "Nothing matches."));
      const { index, data } = this;
      const name = index.operators[pair.operator];
      const rows = [...pair.by.entries()].sort(([a], [b]) => a - b);
      fill(
        this.chart,
        el(
          "div.row.between",
          el("h2", controls.operator("mono", name, name), ` in ${index.dtypes[pair.dtype]}`),
          el(
            "div.chips",
            rows.map(([column, row]) =>
              controls.operator(
                "chip",
                name,
                `${words.arrow(index.columns[column])}: worst case ${row[13]}`,
                { case: row[13] },
              ),
            ),
          ),
        ),
        charts.distribution(
          data.bins,
          rows.map(([column, row]) => ({ name: words.arrow(index.columns[column]), counts: row[14] })),
          "Bars: share of passing cases by error; the table below has median, 99th percentile and maximum.",
        ),
      );
    }

    build() {
      const { index } = this;
      const name = (pair) => index.operators[pair.operator];
      const dtype = (pair) => index.dtypes[pair.dtype];
      const choose = (pair) => address.change({ row: pair.id });
      const narrow = window.innerWidth < 720;
      const first = [
        grid.column({
          title: "operator",
          field: "operator",
          cell: (p) =>
            el(
              "button.fold",
              { type: "button", tabindex: "-1", onclick: () => choose(p), title: name(p) },
              el("span.op", words.short(name(p))),
            ),
          sort: name,
          frozen: true,
          width: narrow ? 116 : 260,
        }),
        grid.column({ title: "dtype", field: "dtype", cell: dtype, sort: dtype, width: 92 }),
      ];
      const number = (title, column, at, width) =>
        grid.column({
          title,
          field: `${column}/${at}`,
          number: true,
          cell: (p) => words.few(p.by.get(column)?.[at]),
          sort: (p) => p.by.get(column)?.[at],
          width: width || 78,
        });
      const worst = (column) =>
        grid.column({
          title: "worst case",
          field: `${column}/case`,
          cell: (p) =>
            p.by.has(column)
              ? controls.operator(
                  "link.mono",
                  name(p),
                  p.by.get(column)[13],
                  { case: p.by.get(column)[13] },
                  { tabindex: "-1" },
                )
              : "",
          width: 122,
        });
      const numbers = (column) => [
        [number("cases", column, 4, 66), number("wrong", column, 5, 66)],
        [number("median", column, 6), number("p99", column, 7), number("max", column, 8, 84)],
        [number("rtol", column, 9), number("atol", column, 10)],
        [worst(column)],
      ];
      // A phone shows the first: the largest error, and the tolerance that it needs.
      const order = narrow ? ([counts, errors, needed, last]) => [errors.reverse(), needed, counts, last] : (all) => all;
      const groups = this.columns.map((column) =>
        grid.group(words.arrow(index.columns[column]), order(numbers(column)).flat()),
      );
      this.table = grid.grid(this.box, {
        data: this.shown,
        index: "id",
        height: grid.height(this.box, 420),
        layout: "fitDataStretch",
        columns: [...first, ...groups],
        rowFormatter: grid.marking("chosen", (pair) => pair.id === this.chosen),
      });
    }

    flat() {
      const { index } = this;
      return this.shown.flatMap((pair) =>
        [...pair.by.values()].map((row) => ({
          overload: index.operators[row[0]],
          converter: index.columns[row[1]][0],
          backend: index.columns[row[1]][1],
          dtype: index.dtypes[row[2]],
          shape_mode: row[3],
          cases: row[4],
          wrong: row[5],
          median_ulp: row[6],
          p99_ulp: row[7],
          max_ulp: row[8],
          rtol: row[9],
          atol: row[10],
          worst_case: row[13],
        })),
      );
    }
  }

  const beyond = (row) => (row[9] || 0) > (row[11] || 0) || (row[10] || 0) > (row[12] || 0);

  // Rows by operator and dtype, with one row per column: of static and dynamic shapes the worse.
  function gather(rows) {
    const found = new Map();
    for (const row of rows) {
      const id = `${row[0]}-${row[2]}`;
      if (!found.has(id)) found.set(id, { id, operator: row[0], dtype: row[2], by: new Map() });
      const by = found.get(id).by;
      if (!by.has(row[1])) by.set(row[1], row);
    }
    return [...found.values()];
  }
})();
