// Parts of an operator's page: its status, what converters emit, when it fails, its history, its cases.
(function () {
  "use strict";
  const { el, words, cells, controls, charts, grid } = Conformance;

  // Converter → backend by dtype, as the matrix has it.
  function standing(index, run, rows, operator, at) {
    const columns = index.runs[run].columns;
    const has = (found) => found && found !== "missing";
    const dtypes = index.dtypeOrder.filter((dtype) =>
      columns.some((column) => has(rows.cell(operator, { column, dtype }))),
    );
    const cell = function (column, dtype, use) {
      const found = rows.cell(operator, { column, dtype, use });
      const chosen =
        !use &&
        at.column === words.arrow(index.columns[column]) &&
        at.dtype === (dtype === "" ? "" : index.dtypes[dtype]);
      return el(
        `td${chosen ? ".at" : ""}`,
        el(`span.state.${cells.shade(found)}`, { title: cells.sentence(found) }, cells.text(found)),
      );
    };
    const USES = ["ordinary", "edge"];
    const whole = columns
      .map((column) => [column, rows.cell(operator, { column, dtype: "" })])
      .filter(([, found]) => cells.standing(found) === "whole");
    return el(
      "div.scroll",
      { tabindex: "0", "aria-label": "Status of the operator" },
      whole.map(([column, found]) =>
        el("p.quiet.small", `${words.arrow(index.columns[column])}: ${cells.sentence(found)}`),
      ),
      el(
        "table.standing",
        el(
          "thead",
          el(
            "tr",
            el("th"),
            [...USES, "all"].map((name) => el("th", { scope: "col" }, name)),
            dtypes.map((dtype) => el("th", { scope: "col" }, index.dtypes[dtype])),
          ),
        ),
        el(
          "tbody",
          columns.map((column) =>
            el(
              "tr",
              el("th", { scope: "row" }, words.arrow(index.columns[column])),
              USES.map((use) => cell(column, "", use)),
              cell(column, ""),
              dtypes.map((dtype) => cell(column, dtype)),
            ),
          ),
        ),
      ),
    );
  }

  function converter(graph) {
    const refused = graph.cases - graph.converted;
    return el(
      "details.card",
      { open: Boolean(graph.text) },
      el(
        "summary",
        el("strong", graph.converter),
        el("span.quiet.small.grow", graph.version),
        el(
          "span.small",
          graph.converted === graph.cases
            ? `converts all ${words.count(graph.cases, "case")}`
            : `converts ${words.number(graph.converted)} of ${words.count(graph.cases, "case")}`,
        ),
      ),
      el(
        "div.body",
        el(
          "dl.facts",
          graph.opsets.length ? [el("dt", "opset"), el("dd", graph.opsets.join(", "))] : null,
          graph.nodes.length ? [el("dt", "ONNX operators"), el("dd.mono", graph.nodes.join(" · "))] : null,
          graph.call ? [el("dt", "exported call"), el("dd.mono", graph.call)] : null,
        ),
        refused > 0 &&
          el(
            "div",
            el("h3", "Not converted"),
            controls.list(graph.refused, ([said, n]) => [
              el("span.small", words.count(n, "case")),
              el("span.grow.mono.clip2", { title: said }, said),
            ]),
          ),
        graph.text
          ? controls.code(graph.text, "ONNX graph")
          : el("p.quiet.small", "No graph is recorded; `conformance graphs RUN` writes them."),
      ),
    );
  }

  // Where no backend has taken part yet.
  const BEFORE = new Set(["reference", "convert", "transform", "check"]);

  function findings(list) {
    return controls.list(list, (one) => [
      el("strong.grow", one.sentence),
      el(
        "span.small",
        `${words.number(one.fails)} of ${words.number(one.cases)} with, ` +
          `${words.number(one.other_fails)} of ${words.number(one.other_cases)} without` +
          (one.apart ? `; ignoring ${words.number(one.apart)} other failures` : ""),
      ),
      el(
        "span.quiet.small",
        `${one.outcome} at ${one.stage}, ${one.converter}`,
        BEFORE.has(one.stage) ? "" : ` → ${one.backends.join(", ")}`,
        one.signature ? `: ${one.signature}` : "",
      ),
    ]);
  }

  // Share of cases that pass, run by run.
  function history(index, rows) {
    const columns = [...new Set(rows.map((row) => row[1]))].sort((a, b) => a - b);
    const series = columns.map(function (column) {
      const byRun = new Map(rows.filter((row) => row[1] === column).map((row) => [row[0], row]));
      return {
        name: words.arrow(index.columns[column]),
        values: index.runs.map((_, i) =>
          byRun.has(i) && byRun.get(i)[3]
            ? Number(((100 * byRun.get(i)[2]) / byRun.get(i)[3]).toFixed(2))
            : null,
        ),
      };
    });
    return [
      index.runs.length > 1 &&
        charts.trend(
          index.runs.map((run) => words.when(run.started)),
          series,
          index.runs.map((run) => (run.state === "complete" ? "" : "partial")),
          "Lines: share of cases that pass, run by run; the table below has the numbers.",
          "%",
        ),
      el(
        "details",
        { open: index.runs.length === 1 },
        el("summary", "Numbers"),
        controls.table(
          [
            "run",
            columns.map((column) => el("th.number", { scope: "col" }, words.arrow(index.columns[column]))),
          ],
          index.runs
            .map((run, i) => [run, i])
            .reverse()
            .map(([run, i]) => [
              el("th", { scope: "row" }, words.when(run.started)),
              columns.map(function (column) {
                const row = rows.find((one) => one[0] === i && one[1] === column);
                return el("td.number", row ? `${row[2]}/${row[3]}` : "–");
              }),
            ]),
        ),
      ),
    ];
  }

  function cases(data, chosen, overload) {
    const box = el("div");
    const rows = data.cases.flatMap((one) =>
      one.rows.map((row, i) => ({ ...row, key: one.id + i, id: one.id, dtype: one.dtype, call: one.call })),
    );
    const link = (row) =>
      controls.operator("link.mono", overload, row.id, { case: row.id }, { tabindex: "-1" });
    const ended = (row) =>
      row.outcome +
      (row.outcome === "pass" || row.outcome === "mismatch" ? "" : ` at ${row.stage}`) +
      (row.placement ? `, ${row.placement}` : "");
    const several = new Set(rows.map((row) => row.converter + row.backend)).size > 1;
    queueMicrotask(function () {
      if (!box.isConnected) return;
      grid.grid(box, {
        data: rows,
        index: "key",
        height: Math.min(420, 40 + 28 * Math.max(2, rows.length)),
        layout: "fitColumns",
        columns: [
          grid.column({ title: "case", field: "id", cell: link, width: 126 }),
          ...(several
            ? [
                grid.column({
                  title: "converter → backend",
                  field: "backend",
                  cell: (row) => `${row.converter} → ${row.backend}`,
                  sort: (row) => row.converter + row.backend,
                  width: 190,
                }),
              ]
            : []),
          grid.column({ title: "dtype", field: "dtype", sort: (row) => row.dtype, width: 84 }),
          grid.column({ title: "ended", field: "outcome", cell: ended, sort: ended, width: 148 }),
          grid.column({
            title: "max ULP",
            field: "ulp",
            number: true,
            cell: (row) => words.error(row.ulp),
            sort: (row) => (row.ulp < 0 ? Infinity : row.ulp),
            width: 88,
          }),
          grid.column({
            title: "call",
            field: "call",
            cell: (row) => el("span.mono.op", { title: row.call }, row.call),
            minWidth: 260,
          }),
        ],
        rowFormatter: grid.marking("chosen", (row) => row.id === chosen),
      });
    });
    return box;
  }

  // One case in full: what became of it everywhere.
  function oneCase(one, run) {
    const quoted = Conformance.failureCard.quoted;
    return el(
      "div.panel.found",
      el("h3", "Case ", el("code", one.id)),
      one.rows.some((row) => row.blame) &&
        el("p.small", el("a", { href: Conformance.address.format("case", [one.id]) }, "The case by itself: blame, script, history")),
      el("p.mono", one.call),
      controls.table(
        ["converter → backend", "shapes", "ended", "blame", "wrong", "max abs", "max ULP", "said"],
        one.rows.map((row) => [
          el("th", { scope: "row" }, `${row.converter} → ${row.backend}`),
          row.shapes,
          controls.outcome(row.outcome, row.stage),
          row.blame || "–",
          el("td.number", row.elements ? `${row.wrong}/${row.elements}` : "–"),
          el("td.number", words.error(row.abs)),
          el("td.number", words.error(row.ulp)),
          el("td.mono.long", [row.placement, row.message, ...accepted(row)].filter(Boolean).join("; ") || "–"),
        ]),
      ),
      controls.code(`conformance show ${one.id} --run ${quoted(run)}`, "command", true),
    );
  }

  // Why elements count as right that differ by more than the last places.
  const accepted = (row) =>
    (row.accepted || []).map(([rule, elements]) => `${words.count(elements, "element")} accepted: ${rule}`);

  Conformance.operatorParts = { standing, converter, findings, history, cases, oneCase };
})();
