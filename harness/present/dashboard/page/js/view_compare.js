// Any two runs: what improved, regressed, is new or gone, where numbers moved, and what versions changed.
(function () {
  "use strict";
  const { el, fill, words, grid, controls, address, names, changes, download, failureCard, runs } =
    Conformance;
  const { ORDER, gather, worstFirst, ended, ulps, versions } = Conformance.compareParts;
  const { sideBySide } = Conformance;

  Conformance.views.compare = {
    title: "Compare",
    create(main, { index }) {
      const view = new View(main, index);
      return { update: (asked) => view.update(asked), leave: () => view.table && view.table.destroy() };
    },
  };

  class View {
    constructor(main, index) {
      Object.assign(this, { index, table: null, key: "" });
      this.heading = el("div");
      this.body = el("div.stack");
      main.append(el("div.stack", this.heading, this.body));
    }

    async update(asked) {
      const { index } = this;
      if (index.runs.length < 2)
        return fill(this.body, el("h1", "Compare"), el("p.panel", "Add a second run to compare."));
      const at = (name, otherwise) => {
        const found = runs.place(index, asked.params.get(name));
        return found >= 0 ? found : otherwise;
      };
      const b = at("b", runs.chosen(index, asked.params));
      const a = at("a", runs.other(index, b));
      const key = `${a}/${b}`;
      this.params = asked.params;
      if (key !== this.key) {
        this.key = key;
        this.result = null;
        this.a = a;
        this.b = b;
        fill(this.body, el("p.quiet", "Comparing …"));
        // Of different converters or backends neither is the other's expectation.
        const apart = sideBySide.isOf(index, a, b) ? await sideBySide.lines(index, a, b) : null;
        if (apart && this.key === key) {
          this.apart = apart;
          this.result = { counts: {}, lost: 0 };
          this.frame();
        }
        if (apart) return this.key === key && this.show();
        this.apart = null;
        const lines = new Map();
        const result = await changes.compare(index, a, b, (one) => gather(lines, one));
        if (this.key !== key) return;
        this.result = result;
        this.lines = [...lines.values()].sort(worstFirst);
        this.frame();
      }
      // Asked again while it compares, it shows what was asked for last.
      if (this.result) this.show();
    }

    frame() {
      const { index, a, b } = this;
      const options = runs.options(index);
      const pick = (name, value) =>
        controls.select(name === "a" ? "from" : "to", index.runs[value].id, options, (id) =>
          address.change({ [name]: id, line: "" }, true),
        );
      fill(
        this.heading,
        el(
          "div.head",
          el("h1", "Compare"),
          el(
            "div.row",
            pick("a", a),
            pick("b", b),
            el(
              "button",
              {
                type: "button",
                onclick: () => address.change({ a: index.runs[b].id, b: index.runs[a].id, line: "" }, true),
              },
              "Swap",
            ),
            controls.copyButton("Copy link", () => window.location.href),
            !this.apart && download.menu("changes", () => this.flat(), [
              ...(b === index.shown && a === index.runs[b].before ? download.all("changes") : []),
              ["Cases of the first: Parquet", `cases/run-${String(a).padStart(3, "0")}.parquet`],
              ["of the second", `cases/run-${String(b).padStart(3, "0")}.parquet`],
            ]),
          ),
        ),
      );
      this.tiles = el("div.figures", { role: "group", "aria-label": "Kinds of change" });
      this.filters = el(
        "div.filters",
        { role: "search" },
        controls.search("Search operators", this.params.get("q") || "", (q) =>
          address.change({ q, line: "" }),
        ),
      );
      this.count = el("p.quiet.small", { "aria-live": "polite" });
      this.box = el("div");
      this.detail = el("div", { tabindex: "-1" });
      if (this.table) this.table.destroy();
      this.table = null;
      const lost = this.result.lost;
      const unlike = runs.unlike(index, a, b);
      fill(
        this.body,
        this.tiles,
        lost > 0 &&
          el(
            "p.notice",
            `${words.count(lost, "operator")} ${lost === 1 ? "is" : "are"} missing in one of the two runs, ` +
              "and left out: nothing is known of them.",
          ),
        unlike && el("p.notice", unlike),
        versions(index.runs[a], index.runs[b]),
        this.filters,
        this.count,
        this.box,
        this.detail,
      );
    }

    show() {
      if (this.apart) return this.showApart();
      const { index, result, params } = this;
      const kind = params.get("change") || "";
      const match = names.matcher(params.get("q") || "");
      fill(
        this.tiles,
        ORDER.map((name) => {
          const n = result.counts[name] || 0;
          return el(
            `button.figure.${n ? changes.KINDS[name] : "zero"}`,
            {
              type: "button",
              "aria-pressed": String(kind === name),
              onclick: () => address.change({ change: kind === name ? "" : name, line: "" }),
            },
            el("span", el("b", words.number(n)), name),
          );
        }),
        result.counts[changes.UNASKED] > 0 &&
          el(
            "div.figure",
            { title: "Cases that one of the two runs has and the other was not asked for" },
            el("b", words.number(result.counts[changes.UNASKED])),
            el("span", changes.UNASKED),
          ),
      );
      this.shown = this.lines.filter(
        (line) => match(index.operators[line.operator]) && (kind ? line.counts[kind] : true),
      );
      this.count.textContent =
        `${words.number(result.counts.unchanged || 0)} cases unchanged; ${words.count(this.shown.length, "line")} ` +
        `(operator, converter, backend) with a change${kind ? `: ${kind}` : ""}`;
      this.chosen = params.get("line") || "";
      if (this.table) this.table.built.then(() => this.table.replaceData(this.shown));
      else this.build();
      this.showLine(this.lines.find((line) => line.id === this.chosen));
    }

    showApart() {
      const { index, a, b, params } = this;
      if (this.table) this.table.destroy();
      this.table = sideBySide.show(this, index, { a, b }, this.apart, {
        kind: params.get("change") || "",
        match: names.matcher(params.get("q") || ""),
        choose: (kind) => address.change({ change: kind }),
      });
    }

    build() {
      const { index } = this;
      const name = (line) => index.operators[line.operator];
      const column = (line) => words.arrow(index.columns[line.column]);
      const choose = (line) => address.change({ line: this.chosen === line.id ? "" : line.id });
      const kinds = ORDER.filter((name) => this.result.counts[name]);
      this.table = grid.grid(this.box, {
        data: this.shown,
        index: "id",
        height: Math.min(grid.height(this.box, 360), 74 + 28 * Math.max(3, this.shown.length)),
        layout: "fitColumns",
        placeholder: "Nothing changed.",
        columns: [
          grid.column({
            title: "operator",
            field: "operator",
            cell: (line) =>
              el(
                "button.fold",
                { type: "button", tabindex: "-1", title: name(line), onclick: () => choose(line) },
                el("span.arrow", { "aria-hidden": "true" }, this.chosen === line.id ? "▾" : "▸"),
                el("span.op", words.short(name(line))),
              ),
            sort: name,
            minWidth: 150,
            widthGrow: 2,
          }),
          grid.column({
            title: "converter → backend",
            field: "column",
            cell: column,
            sort: column,
            minWidth: 150,
            widthGrow: 1,
          }),
          ...kinds.map((name) =>
            grid.column({
              title: name,
              field: name,
              number: true,
              cell: (line) => (line.counts[name] ? words.number(line.counts[name]) : ""),
              sort: (line) => line.counts[name] || 0,
              width: Math.max(66, 22 + 7.2 * name.length),
            }),
          ),
        ],
        rowFormatter: grid.marking("chosen", (line) => line.id === this.chosen),
      });
    }

    async showLine(line) {
      const { index, params } = this;
      if (!line) return fill(this.detail);
      const listed = await changes.identify(line.cases);
      // Another line may have been chosen meanwhile.
      if (this.chosen !== line.id || this.params !== params) return;
      const name = index.operators[line.operator];
      const kind = params.get("change") || "";
      const cases = listed.filter((one) => !kind || one.change === kind);
      const run = (at) => failureCard.quoted(index.runs[at].place);
      fill(
        this.detail,
        el(
          "section.panel.found",
          { "aria-label": "Changed cases" },
          el(
            "div.row.between",
            el("h2", controls.operator("mono", name, name), ` on ${words.arrow(index.columns[line.column])}`),
            line.total > line.cases.length &&
              el(
                "span.quiet.small",
                `the first ${line.cases.length} of ${words.number(line.total)} changed cases`,
              ),
          ),
          controls.table(
            ["case", "dtype", "change", "before", "after", "max ULP"],
            cases.map((one) => [
              controls.operator("mono", name, one.id, { case: one.id }),
              index.dtypes[one.dtype],
              one.change,
              ended(one.before),
              ended(one.after),
              el("td.number", ulps(one)),
            ]),
          ),
          controls.code(
            `conformance diff ${run(this.a)} ${run(this.b)}\n` +
              `conformance show ${(cases[0] || listed[0]).id} --run ${run(this.b)}`,
            "commands",
            true,
          ),
        ),
      );
    }

    async flat() {
      const { index } = this;
      const examples = await changes.identify(this.shown.map((line) => line.cases[0]));
      return this.shown.map((line, i) => ({
        overload: index.operators[line.operator],
        converter: index.columns[line.column][0],
        backend: index.columns[line.column][1],
        ...Object.fromEntries(ORDER.map((name) => [name, line.counts[name] || 0])),
        example: examples[i].id,
      }));
    }
  }
})();
