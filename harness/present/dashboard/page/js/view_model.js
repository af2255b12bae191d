// Whether a model's operators survive: a list of operators against a converter and a backend.
(function () {
  "use strict";
  const { el, fill, words, load, cells, matrixRows, names, address, grid, controls, download, say } =
    Conformance;
  const RANK = { missing: 0, untested: 1, none: 2, part: 3, unjudged: 4, whole: 5 };

  const LABELS = {
    whole: "✓ no failure found",
    part: "◐ some pass",
    none: "✕ none pass",
    unjudged: "◇ not judged",
    missing: "? missing",
    untested: "– not tested",
  };
  const how = (kind) =>
    kind === "whole" ? "better" : ["none", "missing", "untested"].includes(kind) ? "worse" : "";

  Conformance.views.model = {
    title: "For my model",
    async create(main, { index, run }) {
      const rows = new matrixRows.Rows(index, cells.decode(await load.get(`matrix/${run}`)));
      const view = new View(main, index, run, rows);
      return { update: (asked) => view.update(asked), leave: () => view.table && view.table.destroy() };
    },
  };

  class View {
    constructor(main, index, run, rows) {
      Object.assign(this, { index, run, rows, table: null, shown: [] });
      this.packets = names.packets(index.operators);
      this.field = el("textarea", {
        "aria-label": "Operators",
        spellcheck: "false",
        placeholder: "aten::celu\naten.add.Tensor\nupsample_bilinear2d",
        oninput: () => this.typed(),
      });
      const file = el("input", {
        type: "file",
        "aria-label": "File with operators",
        accept: ".txt,.json,.list",
        onchange: () => this.take(file.files[0]),
      });
      this.drop = el(
        "div.drop.stack",
        {
          ondragover: (event) => {
            event.preventDefault();
            this.drop.classList.add("over");
          },
          ondragleave: () => this.drop.classList.remove("over"),
          ondrop: (event) => {
            event.preventDefault();
            this.drop.classList.remove("over");
            this.take(event.dataTransfer.files[0]);
          },
        },
        this.field,
        el("div.row", el("span.quiet.small", "or drop a file here:"), file),
      );
      this.chosen = el("div");
      this.result = el("div.stack");
      main.append(
        el(
          "div.stack",
          el(
            "div",
            el("h1", "For my model"),
            el("p.quiet", "Name the operators of a model, one per line, to see which of them work."),
          ),
          el(
            "div.columns",
            el("section.panel", this.drop),
            el(
              "section.panel",
              el("h2", "Get the list of a model"),
              el("p", "These commands run the operators of an exported program or of a function that makes a model, and list them:"),
              controls.code(
                "conformance supports program.pt2 --json > operators.json\nconformance supports my_model.py:make_model --json > operators.json",
                "commands",
                true,
              ),
              el(
                "p.small.quiet",
                "Drop the file here. Nothing that you enter here leaves this page.",
              ),
            ),
          ),
          this.chosen,
          this.result,
        ),
      );
    }

    typed() {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.name(this.field.value), 250);
    }

    // What is in the field becomes the address, and so can be pasted into an issue.
    name(text) {
      const list = names.read(text);
      const written = list.map(
        (one) =>
          (one.unmapped ? "?" : "") +
          (one.unmapped ? one.word : words.short(names.dotted(one.word))) +
          (one.nodes ? `:${one.nodes}` : ""),
      );
      address.change({ ops: written.join(",") });
    }

    async take(file) {
      if (!file) return;
      if (/\.(onnx|pt2|pt|pth|safetensors)$/i.test(file.name)) {
        fill(
          this.result,
          el(
            "p.notice",
            `The page cannot read a model. List its operators on the command line: conformance supports ${file.name} --json`,
          ),
        );
        return;
      }
      this.field.value = await file.text();
      this.name(this.field.value);
      say(`${file.name} was read`);
    }

    update(asked) {
      const { index, run } = this;
      const given = (asked.params.get("ops") || "").split(",").filter(Boolean).map(read);
      if (document.activeElement !== this.field && !names.read(this.field.value).length)
        this.field.value = given.map((one) => one.word).join("\n");
      const columns = index.runs[run].columns.map((column) => words.arrow(index.columns[column]));
      const column = columns.includes(asked.params.get("column")) ? asked.params.get("column") : columns[0];
      const dtypes = index.dtypeOrder.map((d) => index.dtypes[d]);
      const dtype = dtypes.includes(asked.params.get("dtype")) ? asked.params.get("dtype") : "";
      if (!this.chosen.contains(document.activeElement)) {
        fill(
          this.chosen,
          el(
            "div.filters",
            controls.select(
              "converter → backend",
              column,
              columns.map((c) => [c, c]),
              (value) => address.change({ column: value }),
            ),
            controls.select("dtype", dtype, [["", "all"], ...dtypes.map((d) => [d, d])], (value) =>
              address.change({ dtype: value }),
            ),
            given.length ? controls.copyButton("Copy link", () => window.location.href) : null,
            given.length ? download.menu("model", () => this.flat()) : null,
          ),
        );
      }
      this.show(given, {
        column: index.columns.findIndex((c) => words.arrow(c) === column),
        dtype: dtype === "" ? "" : index.dtypes.indexOf(dtype),
      });
    }

    show(given, leaf) {
      if (!given.length) {
        if (this.table) this.table.destroy();
        this.table = null;
        return fill(this.result);
      }
      this.shown = given
        .flatMap((one, i) => this.judge(one, leaf, i))
        .sort(
          (a, b) => RANK[a.standing] - RANK[b.standing] || a.share - b.share || (a.name < b.name ? -1 : 1),
        );
      const of = (kind) => this.shown.filter((row) => row.standing === kind).length;
      const whole = of("whole");
      const verdict =
        whole === this.shown.length
          ? "No failure was found in the ordinary cases of any operator."
          : `${words.number(whole)} of ${words.count(this.shown.length, "operator")} pass all their ordinary cases.`;

      if (!this.box) this.box = el("div");
      if (this.table) this.table.destroy();
      fill(
        this.result,
        el("h2", verdict),
        el(
          "div.figures",
          Object.keys(LABELS)
            .filter(of)
            .map((kind) =>
              el(`div.figure.${how(kind)}`, el("b", words.number(of(kind))), el("span", LABELS[kind])),
            ),
        ),
        this.box,
      );
      this.build(leaf);
    }

    // The rows for what was named: each overload of an operator that was named without one.
    judge(one, leaf, i) {
      const { index, run, rows } = this;
      const found = one.unmapped ? [] : names.find(one.word, index.operators, this.packets);
      if (!found.length)
        return [
          {
            id: `u${i}`,
            name: one.word,
            nodes: one.nodes,
            operator: -1,
            standing: "untested",
            share: 0,
            found: null,
            edge: null,
            all: null,
            why: one.unmapped ? "this node is of no known ATen operator" : "no run here has it",
          },
        ];
      return found.map(function (operator) {
        const all = rows.cell(operator, leaf);
        const edge = rows.cell(operator, { ...leaf, use: "edge" });
        // Where no case is ordinary, as with a rare dtype, all count.
        const cell = rows.cell(operator, { ...leaf, use: "ordinary" }) ?? all;
        const how = cells.standing(cell);
        const standing = how === "absent" ? "untested" : how;
        return {
          id: `${i}/${operator}`,
          name: index.operators[operator],
          nodes: one.nodes,
          operator,
          standing,
          found: cell,
          edge: all === "missing" || cell === all ? null : edge,
          all,
          share: cell && cell.total ? cell.passes / cell.total : 0,
          why: cell === null ? absent(index, run, rows, operator) : "",
        };
      });
    }

    build(leaf) {
      const { index } = this;

      const link = (row) =>
        row.operator < 0
          ? el("span.mono", row.name)
          : controls.operator(
              "link.mono.op",
              row.name,
              row.name,
              {
                column: words.arrow(index.columns[leaf.column]),
                dtype: leaf.dtype === "" ? "" : index.dtypes[leaf.dtype],
              },
              { tabindex: "-1" },
            );
      this.table = grid.grid(this.box, {
        data: this.shown,
        index: "id",
        height: Math.min(620, 44 + 28 * Math.max(3, this.shown.length)),
        layout: "fitColumns",
        columns: [
          grid.column({
            title: "operator",
            field: "name",
            cell: link,
            sort: (row) => row.name,
            minWidth: 170,
            widthGrow: 3,
          }),
          grid.column({
            title: "verdict",
            field: "standing",
            cell: (row) =>
              el(
                `span.${{ better: "good", worse: "bad" }[how(row.standing)] ?? ""}`,
                {},
                row.standing === "part"
                  ? `◐ ${words.percent(row.found.passes, row.found.total)} pass`
                  : row.standing === "whole"
                    ? `${LABELS.whole} in ${words.count(row.found.total, "case")}`
                    : LABELS[row.standing],
              ),
            sort: (row) => RANK[row.standing] + row.share,
            width: 216,
          }),
          ...[
            ["ordinary", "found"],
            ["edge", "edge"],
          ].map(([title, field]) =>
            grid.column({
              title,
              field,
              hint: `How many ${title} cases pass`,
              cell: (row) =>
                row[field]
                  ? el(
                      `span.state.${cells.shade(row[field])}`,
                      { title: cells.sentence(row[field]) },
                      cells.text(row[field]),
                    )
                  : "",
              width: 92,
            }),
          ),
          grid.column({
            title: "nodes",
            field: "nodes",
            number: true,
            cell: (row) => row.nodes ?? "",
            sort: (row) => row.nodes || 0,
            width: 66,
          }),
          grid.column({
            title: "how failing cases end",
            field: "why",
            cell: (row) => row.why || rest(row.all),
            minWidth: 150,
            widthGrow: 3,
          }),
        ],
      });
    }

    flat() {
      return this.shown.map((row) => ({
        operator: row.name,
        verdict: row.standing,
        passes: row.all?.passes ?? "",
        total: row.all?.total ?? "",
        ordinary_passes: row.all && row.found !== row.all ? row.found.passes : "",
        ordinary_total: row.all && row.found !== row.all ? row.found.total : "",
        nodes: row.nodes ?? "",
      }));
    }
  }

  // Why a run says nothing of an operator on a column.
  function absent(index, run, rows, operator) {
    if (rows.matrix.rows.has(operator)) return "not run with this dtype there";
    const last = index.evidence[operator];
    return last >= 0
      ? `not in this run; last seen in the run of ${words.when(index.runs[last].started)}`
      : "missing in every run";
  }

  function rest(found) {
    if (!found || found === "missing") return "";
    return Object.entries(found.outcomes)
      .filter(([o]) => o !== "pass" && o !== "skip")
      .map(([o, n]) => `${n} ${o}`)
      .join(", ");
  }

  // As `name` writes it into the address.
  function read(written) {
    const [, unmapped, word, nodes] = /^(\?)?(.*?)(?::(\d+))?$/.exec(written);
    return { word, nodes: nodes ? Number(nodes) : null, unmapped: Boolean(unmapped) };
  }
})();
