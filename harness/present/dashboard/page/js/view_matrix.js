// Operators × (converter, backend, dtype): how many cases pass, and the way from each cell to its evidence.
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
      this.box = el("div.matrix", { "aria-label": "Matrix of operators" });
      const clear = el(
        "button",
        { type: "button", onclick: () => address.change({ ...matrixFilters.ALL, fold: "", sort: "" }) },
        "Clear filters",
      );
      main.append(
        el(
          "div.stack",
          el(
            "div.head",
            el("h1", "Matrix"),
            el(
              "div.row",
              clear,
              controls.copyButton("Copy link", () => window.location.href),
              download.menu("matrix", () => this.flat(), [
                ...download.all("matrix"),
                ["Cases: Parquet", `cases/run-${String(run).padStart(3, "0")}.parquet`],
              ]),
            ),
          ),
          this.filters,
          el("div.row.between", this.count, legend()),
          this.box,
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
      this.count.textContent =
        words.count(operators, "operator") +
        (matrixRows.filtered(want) || want.dtype || want.column
          ? ` of ${words.number(this.rows.matrix.rows.size + this.rows.matrix.missing.size)}`
          : "");
      const layout = JSON.stringify(this.groups.map((group) => group.leaves));
      if (this.table && layout === this.layout) {
        await this.table.built;
        await this.table.replaceData(rows);
        this.focusAgain();
      } else {
        this.layout = layout;
        this.build(rows);
      }
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
      const first = grid.column({
        title: "operator",
        field: "name",
        cell: (row) => (row.kind === "family" ? this.familyCell(row) : this.operatorCell(row)),
        frozen: true,
        width: narrow ? 148 : 250,
      });
      // As wide as there is room, within what reads well.
      const leaves = this.groups.flatMap((group) => group.leaves);
      const room =
        (this.box.clientWidth - first.width - 18 - 20 * leaves.filter((leaf) => leaf.dtype === "").length) /
        leaves.length;
      this.width = Math.round(Math.max(60, Math.min(96, room)));
      const groups = this.groups.map((group) =>
        grid.group(
          group.title,
          group.leaves.map((leaf) => this.leafColumn(leaf, group)),
        ),
      );
      this.table = grid.grid(this.box, {
        data: rows,
        index: "id",
        layout: "fitData",
        height: grid.height(this.box, 380),
        columns: [first, ...groups],
        rowFormatter: grid.marking("family", (row) => row.kind === "family"),
      });
    }

    leafColumn(leaf, group) {
      const name = leaf.dtype === "" ? "all" : this.index.dtypes[leaf.dtype];
      const key = `${leaf.column}/${leaf.dtype}`;
      return grid.column({
        title: name
          .replace("complex", "cplx")
          .replace("bfloat", "bf")
          .replace("float", "f")
          .replace("uint", "u")
          .replace(/^int/, "i"),
        field: key,
        class: "cell",
        hint: `${group.title}, ${leaf.dtype === "" ? "all dtypes" : name}: sort by this column`,
        cell: (row) => this.stateCell(row, leaf),
        headerClick: () => address.change({ sort: this.want.sort === key ? "" : key }),
        width: (leaf.dtype === "" ? 20 : 0) + this.width,
      });
    }

    familyCell(row) {
      const toggle = () => {
        const fold = new Set(this.want.fold);
        if (!fold.delete(row.name)) fold.add(row.name);
        this.refocus = row.id;
        address.change({ fold: [...fold].sort().join(",") });
      };
      return el(
        "button.fold",
        { type: "button", tabindex: "-1", "aria-expanded": String(row.open), onclick: toggle },
        el("span.arrow", { "aria-hidden": "true" }, row.open ? "▾" : "▸"),
        el("span.op", row.name || "(no family)"),
        el("span.quiet.small", ` ${row.members.length}`),
      );
    }

    operatorCell(row) {
      const flat = this.want.rows === "flat";
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
          { title: `${row.name}: ${cells.sentence(found)}` },
          summary(found),
        );
      }
      const found = this.rows.cell(row.operator, leaf);
      const worse = this.worse?.get(row.operator)?.get(`${leaf.column}/${leaf.dtype}`);
      const dimmed = row.hits && !hit(row.hits, leaf) ? ".dimmed" : "";
      const dtype = leaf.dtype === "" ? "all dtypes" : this.index.dtypes[leaf.dtype];
      const title =
        `${row.name}, ${words.arrow(this.index.columns[leaf.column])}, ${dtype}: ${cells.sentence(found)}` +
        (worse ? `; ${words.count(worse, "case")} worse` : "");
      if (found === null) return el("span.state.absent", { title }, cells.text(found));
      return el(
        `a.state.${cells.shade(found)}${dimmed}${worse ? ".worse" : ""}`,
        { href: this.link(row, leaf), title, tabindex: "-1", "aria-label": title },
        cells.text(found) + (worse ? " ↓" : ""),
      );
    }

    link(row, leaf) {
      const place = leaf
        ? {
            column: words.arrow(this.index.columns[leaf.column]),
            dtype: leaf.dtype === "" ? "" : this.index.dtypes[leaf.dtype],
          }
        : {};
      const run = this.run === this.index.runs.length - 1 ? "" : this.index.runs[this.run].id;
      return address.format("operator", [row.name], { ...place, run });
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
              };
            }),
        )
        .filter((row) => row.standing !== "absent");
    }

    leave() {
      if (this.table) this.table.destroy();
    }
  }

  const hit = (hits, leaf) => [...hits].some((one) => one.column === leaf.column && one.dtype === leaf.dtype);

  function summary(found) {
    const how = cells.standing(found);
    if (how === "whole") return "✓ 100%";
    if (how === "none") return "✕ 0%";
    if (how === "part") return words.percent(found.passes, found.total);
    return cells.text(found);
  }

  function legend() {
    const sample = (kind, text, words_) => el("span.sample", el(`span.state.${kind}`, text), words_);
    return el(
      "div.legend",
      { "aria-label": "Legend" },
      sample("s5", "✓ 32", "all pass"),
      sample("s4", "30/32", "most"),
      sample("s2", "12/32", "some"),
      sample("s0", "✕ 0/32", "none"),
      sample("unjudged", "◇ built", "not judged"),
      sample("missing", "?", "missing"),
    );
  }
})();
