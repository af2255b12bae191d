// Operators × (converter, backend): how many ordinary and how many edge cases pass, dtypes on demand, and the way
// from each cell to its evidence.
(function () {
  "use strict";
  const { el, address, cells, words, load, grid, matrixRows, matrixFilters, controls, download, say } =
    Conformance;

  Conformance.views.matrix = {
    title: "Matrix",
    async create(main, { index, run }) {
      const matrix = cells.decode(await load.get(`matrix/${run}`));
      const view = new View(main, index, run, new matrixRows.Rows(index, matrix));
      return { update: (asked) => view.update(asked), leave: () => view.leave() };
    },
  };

  class View {
    constructor(main, index, run, rows) {
      Object.assign(this, { index, run, rows, table: null, layout: "", shown: [] });
      this.filters = el("div");
      this.count = el("p.quiet.small", { "aria-live": "polite" });
      this.clear = el(
        "button",
        {
          type: "button",
          hidden: true,
          onclick: () => address.change({ ...matrixFilters.ALL, fold: "", sort: "", rows: "" }),
        },
        "Clear filters",
      );
      this.box = el("div.matrix", { "aria-label": "Matrix of operators" });
      main.append(
        el(
          "div.stack",
          el("div.head", el("h1", "Matrix"), legend()),
          this.filters,
          el("div.row", this.count, this.clear),
          this.box,
          // After the table, which the keyboard then reaches soon.
          el(
            "div.row",
            controls.copyButton("Copy link", () => window.location.href),
            download.menu("matrix", () => this.flat(), [
              ...(run === index.shown ? download.all("matrix") : []),
              ["Cases: Parquet", `cases/run-${String(run).padStart(3, "0")}.parquet`],
            ]),
          ),
        ),
      );
    }

    async update(asked) {
      const { index, run } = this;
      const want = (this.want = matrixRows.read(asked.params));
      matrixFilters.sync(this.filters, index, run, want);
      const since = index.runs.findIndex((one) => one.id === want.since);
      this.worse = since >= 0 ? await matrixRows.worseSince(index, since, run) : null;
      if (this.want !== want) return;
      this.groups = matrixRows.leaves(index, run, this.rows.matrix, want);
      const { rows, operators } = matrixRows.list(this.rows, this.groups, want, this.worse);
      this.shown = rows;
      const narrowed = matrixRows.filtered(want) || Boolean(want.dtype || want.column);
      this.count.textContent =
        words.count(operators, "operator") +
        (narrowed
          ? ` of ${words.number(this.rows.matrix.rows.size + this.rows.matrix.missing.size)}`
          : ", by use: first those that most models call");
      this.clear.hidden = !narrowed;
      const layout = JSON.stringify(this.groups.map((group) => group.leaves));
      if (this.table && layout === this.layout) {
        await this.table.built;
        await this.table.replaceData(rows);
        this.focusAgain();
      } else {
        this.layout = layout;
        this.build(rows);
      }
      this.total();
      if (matrixRows.filtered(want)) say(this.count.textContent);
    }

    // A family that was folded keeps the focus.
    focusAgain() {
      const row = this.refocus && this.table.getRow(this.refocus);
      this.refocus = null;
      if (row) row.getElement().querySelector("button.fold")?.focus({ preventScroll: true });
    }

    build(rows) {
      if (this.table) this.table.destroy();
      const narrow = window.innerWidth < 720;
      const leaves = this.groups.flatMap((group) => group.leaves);
      // A name has what the columns leave it; each is as wide as there is room, within what reads well.
      const spare = this.box.clientWidth - 250 - 180 * leaves.length - 320;
      const first = narrow ? 116 : 250 + Math.max(0, Math.min(150, spare));
      const room = this.box.clientWidth - first - 18;
      // The name of a converter and a backend stands above its columns, be it one.
      const most = leaves.length > this.groups.length ? 40 : 90;
      const more = narrow ? 0 : Math.round(Math.max(18, Math.min(most, room / leaves.length - 60)));
      const wide = (leaf) => (leaf.dtype === "" ? more : 0);
      const left = room - leaves.reduce((sum, leaf) => sum + wide(leaf), 0);
      const width = Math.floor(Math.max(60, Math.min(84, left / leaves.length)));
      this.heads = new Map();
      const groups = this.groups.map((group) =>
        grid.group(
          group.title,
          group.leaves.map((leaf) => this.leafColumn(leaf, group, width + wide(leaf))),
        ),
      );
      // What is left says how the failing cases end.
      const rest = left - width * leaves.length;
      const ends = grid.column({
        title: "how failing cases end",
        field: "ends",
        cell: (row) => this.endsCell(row),
        width: rest,
      });
      this.table = grid.grid(this.box, {
        data: rows,
        index: "id",
        layout: "fitData",
        height: grid.height(this.box, 380) - 52,
        columns: [
          grid.column({
            title: "operator",
            field: "name",
            cell: (row) => (row.kind === "family" ? this.familyCell(row) : this.operatorCell(row)),
            frozen: true,
            width: first,
          }),
          ...groups,
          ...(rest > 200 ? [ends] : []),
        ],
        rowFormatter: grid.marking("family", (row) => row.kind === "family"),
      });
      // All of a row leads to the operator.
      this.table.on("rowClick", (event, row) => {
        if (event.target.closest("a, button")) return;
        if (row.getData().kind === "family") this.toggle(row.getData());
        else window.location.hash = this.link(row.getData());
      });
    }

    leafColumn(leaf, group, width) {
      const whole = { ordinary: "ordinary", edge: "edge", "": "all cases" }[leaf.use];
      const name = leaf.dtype === "" ? whole : this.index.dtypes[leaf.dtype];
      const key = matrixRows.nameOf(leaf);
      const figures = { share: el("b.share"), of: el("span.of") };
      this.heads.set(key, { leaf, ...figures });
      return grid.column({
        title: [el("span", shorten(name)), figures.share, figures.of],
        field: key,
        class: "cell",
        hint: `${group.title}, ${name}: sort by this column`,
        stop: false,
        cell: (row) => this.stateCell(row, leaf),
        headerClick: () => address.change({ sort: this.want.sort === key ? "" : key }),
        width,
      });
    }

    // The share of the cases of all operators in sight stands in the head of their column.
    total() {
      const operators = this.shown.flatMap((row) =>
        row.kind === "family" ? (row.open ? [] : row.members) : [row.operator],
      );
      for (const { leaf, share, of } of this.heads.values()) {
        const found = this.rows.sum(operators, leaf);
        const there = found && found !== "missing";
        share.textContent = there ? words.percent(found.passes, found.total) : "–";
        of.textContent =
          there && leaf.dtype === "" ? `${words.number(found.passes)}/${words.number(found.total)}` : "";
      }
    }

    endsCell(row) {
      const operators = row.kind === "family" ? row.members : [row.operator];
      const said = this.groups
        .map((group) => [
          group,
          this.rows.sum(operators, { column: group.column, dtype: "", use: this.want.use }),
        ])
        .filter(([, found]) => found && found !== "missing" && found.failures)
        .map(
          ([group, found]) =>
            (this.groups.length > 1 ? `${group.title.split(" → ")[+!several(this.groups)]}: ` : "") +
            cells.ends(found),
        );
      return el("span.op.quiet", { title: said.join("; ") }, said.join("; "));
    }

    toggle(row) {
      const fold = new Set(this.want.fold);
      if (!fold.delete(row.name)) fold.add(row.name);
      this.refocus = row.id;
      address.change({ fold: [...fold].sort().join(",") });
    }

    familyCell(row) {
      return el(
        "button.fold",
        {
          type: "button",
          tabindex: "-1",
          "aria-expanded": String(row.open),
          onclick: () => this.toggle(row),
        },
        el("span.arrow", { "aria-hidden": "true" }, row.open ? "▾" : "▸"),
        el("span.op", row.name || "(no family)"),
        el("span.quiet.small", ` ${row.members.length}`),
      );
    }

    operatorCell(row) {
      const flat = !matrixRows.inFamilies(this.want);
      return el(
        `a.op${flat ? "" : ".inner"}`,
        { href: this.link(row), title: row.name, tabindex: "-1" },
        words.short(row.name),
      );
    }

    stateCell(row, leaf) {
      if (row.kind === "family") {
        const found = this.rows.sum(row.members, leaf);
        return el(
          `span.state.${cells.shade(found)}`,
          { title: `${row.name}, ${leaf.use || "all"} cases: ${cells.sentence(found)}` },
          this.text(found, leaf),
        );
      }
      const found = this.rows.cell(row.operator, leaf);
      const worse = this.worse?.get(row.operator)?.get(`${leaf.column}/${leaf.dtype}`);
      const dimmed = row.hits && !hit(row.hits, leaf) ? ".dimmed" : "";
      const which = leaf.dtype === "" ? "all dtypes" : this.index.dtypes[leaf.dtype];
      const kind = leaf.use ? `${leaf.use} cases` : which;
      const title =
        `${row.name}, ${words.arrow(this.index.columns[leaf.column])}, ${kind}: ${cells.sentence(found)}` +
        (worse ? `; ${words.count(worse, "case")} worse` : "");
      if (found === null) return el("span.state.absent", { title }, cells.text(found));
      return el(
        `a.state.${cells.shade(found)}${dimmed}${worse ? ".worse" : ""}`,
        { href: this.link(row, leaf), title, tabindex: "-1", "aria-label": title },
        this.text(found, leaf),
        worse ? " ↓" : "",
      );
    }

    // A share, and the numbers where there is room for them.
    text(found, leaf) {
      const how = cells.standing(found);
      if (!["whole", "none", "part"].includes(how)) return cells.text(found);
      const glyph = { whole: "✓ ", none: "✕ ", part: "" }[how];
      const share = glyph + words.percent(found.passes, found.total);
      const room = leaf.dtype === "" && window.innerWidth >= 720;
      return room ? [el("b", share), ` ${words.number(found.passes)}/${words.number(found.total)}`] : share;
    }

    link(row, leaf) {
      const place = leaf
        ? {
            column: words.arrow(this.index.columns[leaf.column]),
            dtype: leaf.dtype === "" ? "" : this.index.dtypes[leaf.dtype],
          }
        : {};
      return address.format("operator", [row.name], place);
    }

    flat() {
      const leaves = this.groups.flatMap((group) => group.leaves);
      const operators = this.shown.flatMap((row) =>
        row.kind === "operator" ? [row.operator] : row.open ? [] : row.members,
      );
      return operators
        .flatMap((operator) =>
          leaves
            .filter((leaf) => leaf.dtype !== "" || leaves.every((l) => l.dtype === ""))
            .map((leaf) => {
              const found = this.rows.cell(operator, leaf);
              const [converter, backend] = this.index.columns[leaf.column];
              // Of what is missing or was not run these are not known.
              const { passes = "", total = "", failures = "" } = found ?? {};
              return {
                overload: this.index.operators[operator],
                converter,
                backend,
                dtype: leaf.dtype === "" ? "all" : this.index.dtypes[leaf.dtype],
                standing: cells.standing(found),
                passes,
                total,
                failures,
                use: leaf.use || "all",
              };
            }),
        )
        .filter((row) => row.standing !== "absent");
    }

    leave() {
      if (this.table) this.table.destroy();
    }
  }

  const hit = (hits, leaf) => [...hits].some((one) => matrixRows.nameOf(one) === matrixRows.nameOf(leaf));

  // Whether columns differ in their converter.
  const several = (groups) => new Set(groups.map((group) => group.title.split(" → ")[0])).size > 1;

  const shorten = (name) =>
    name
      .replace("complex", "cplx")
      .replace("bfloat", "bf")
      .replace("float", "f")
      .replace("uint", "u")
      .replace(/^int/, "i");

  function legend() {
    const sample = (kind, text, words_) => el("span.sample", el(`span.state.${kind}`, text), words_);
    return el(
      "div.legend",
      { "aria-label": "Legend" },
      sample("s5", "✓ 100%", "no failure found"),
      sample("s4", "94%", "some pass"),
      sample("s0", "✕ 0%", "none pass"),
      sample("unjudged", "◇ built", "not judged"),
      sample("missing", "?", "missing"),
    );
  }
})();
