// What works where, what moved, and how it went over the runs: the page of the morning.
(function () {
  "use strict";
  const { el, words, charts, address, cells, controls, outside, download, names, load, runs } = Conformance;

  Conformance.views.overview = {
    title: "Overview",
    async create(main, { index: all, run }) {
      const index = { ...all, ...(await load.get(`overview/${run}`)) };
      const shown = index.runs[run];
      main.append(
        el(
          "div.stack",
          head(index, shown),
          el(index.moved ? "div.columns" : "div.stack", standing(index, run), moved(index, run)),
          el("div.columns", failures(index, true), failures(index, false)),
          el("div.columns", families(index), index.trend.length > 1 ? trend(index) : null),
        ),
      );
      return {};
    },
  };

  function head(index, shown) {
    const about = [
      words.count(shown.operators, "operator"),
      words.count(shown.cases, "case"),
      words.count(shown.rows, "verdict"),
    ].join(" · ");
    const missing =
      shown.missing > 0 &&
      el(
        "a",
        { href: address.format("matrix", [], { run: shown.id, standing: "missing" }) },
        `${words.count(shown.missing, "operator")} missing`,
      );
    return controls.heading(
      "What works where",
      missing ? [about, " · ", missing] : about,
      download.menu("overview", () => index.runs.flatMap(trendRows(index)), download.all("overview")),
    );
  }

  function trendRows(index) {
    return (run) =>
      run.columns.map(function (column, i) {
        const row = {
          run: run.id,
          started: run.started,
          state: run.state,
          converter: index.columns[column][0],
          backend: index.columns[column][1],
        };
        index.standings.forEach((name, k) => (row[`operators_${name}`] = run.standings[i][k]));
        const [passed, total, usual, usualTotal] = sums(run.standings[i]);
        index.standings.forEach((name, k) => (row[`operators_ordinary_${name}`] = run.standings[i][7 + k]));
        return {
          ...row,
          cases_passed: passed,
          cases: total,
          ordinary_cases_passed: usual,
          ordinary_cases: usualTotal,
        };
      });
  }

  // Of a column's numbers: cases that pass and how many there are, and the same of ordinary ones.
  const sums = (counts) => [counts[5], counts[6], counts[12], counts[13]];

  function standing(index, run) {
    const shown = index.runs[run];
    const rows = shown.columns.map((column, i) => ({
      name: words.arrow(index.columns[column]),
      counts: shown.standings[i],
      key: column,
    }));
    const place = (column, more) => address.format("matrix", [], { column, ...more });
    const open = (key, kind) =>
      (window.location.hash = place(key === undefined ? "" : words.arrow(index.columns[key.column]), {
        use: key?.use || "",
        standing: kind || "",
      }));
    // Of each column a bar of ordinary use, and one of all. A phone has no room for backends that are all the same.
    const backends = new Set(shown.columns.map((column) => index.columns[column][1]));
    const short = window.innerWidth < 720 && backends.size === 1;
    const label = (row) => (short ? index.columns[row.key][0] : row.name);
    const bars = rows.flatMap((row) => [
      {
        name: `ordinary: ${label(row)}`,
        counts: row.counts.slice(7, 12),
        key: { column: row.key, use: "ordinary" },
      },
      { name: `all cases: ${label(row)}`, counts: row.counts.slice(0, 5), key: { column: row.key } },
    ]);
    const rate = (row, use, passed, total) =>
      el(
        "td.number",
        total
          ? [
              el("a", { href: place(row.name, { use }) }, el("b", words.percent(passed, total))),
              el("div.quiet.small.counts", `${words.number(passed)} of ${words.number(total)}`),
            ]
          : "–",
      );
    const used = charts.KINDS.map((kind, i) => [kind, i]).filter(
      ([, i]) => i < 3 || rows.some((row) => row.counts[i]),
    );
    return section(
      "stand",
      "Operators by converter and backend",
      null,
      controls.table(
        [
          "converter → backend",
          // What a user meets comes first: a narrow window cuts off the rest.
          el("th.number", { scope: "col", title: WEIGHTED }, "ordinary, by use"),
          el("th.number", { scope: "col", title: ORDINARY }, "ordinary pass"),
          el("th.number", { scope: "col", title: EDGE }, "edge pass"),
          used.map(([kind]) =>
            el(
              "th.number",
              { scope: "col", title: `operators, all their cases: ${cells.NAMES[kind]}` },
              `${cells.GLYPHS[kind]} ${cells.NAMES[kind].replace(" pass", "")}`,
            ),
          ),
        ],
        rows.map(function (row, i) {
          const [passed, total, usual, usualTotal] = sums(row.counts);
          return [
            el("th", { scope: "row" }, row.name),
            el(
              "td.number",
              el("b", index.weighted[i][0] === null ? "–" : words.percent(index.weighted[i][0], 1)),
            ),
            rate(row, "ordinary", usual, usualTotal),
            rate(row, "edge", passed - usual, total - usualTotal),
            used.map(([kind, i]) =>
              el(
                "td.number",
                row.counts[i]
                  ? el("a", { href: place(row.name, { standing: kind }) }, words.number(row.counts[i]))
                  : "–",
              ),
            ),
          ];
        }),
      ),
      charts.standings(
        bars,
        "Bars: operators of which all, some or no cases pass. The table above has the numbers.",
        open,
        bars.length > 8,
      ),
      el("p.small.quiet", ORDINARY, " ", EDGE, " ", WEIGHTED),
    );
  }

  const ORDINARY =
    "Ordinary cases are calls that a model could well make: finite everyday values in float32, float16 or int64, " +
    "no empty tensor, contiguous or transposed.";
  const EDGE = "Edge cases are all others.";
  const WEIGHTED =
    "Weighted by use: each operator/dtype counts once per model in cases/operator_use.json that uses it.";

  function moved(index, run) {
    const found = index.moved;
    if (!found) {
      return el(
        "section.panel",
        el("h2", "What moved"),
        el("p.quiet", "This is the first run here. It can be compared with a later one."),
      );
    }
    const unlike = runs.unlike(index, found.before, run);
    const changed = runs.changed(index.runs[found.before], index.runs[run]);
    const [a, b] = [index.runs[found.before].id, index.runs[found.after].id];
    const lost = Math.max(index.runs[found.before].missing, index.runs[found.after].missing);
    const link = (kind) => address.format("compare", [], { a, b, change: kind });
    const { KINDS } = Conformance.changes;
    const shown = Object.keys(KINDS).filter(
      (kind) => found.counts[kind] || ["regressed", "improved"].includes(kind),
    );
    const worse = found.lines.filter((line) => line.worse).slice(0, 10);
    const lines = worse.length
      ? worse
      : found.lines.filter((line) => !line.counts.new && !line.counts.gone).slice(0, 6);
    return section(
      "moved",
      `What moved since ${words.when(index.runs[found.before].started)}`,
      el("a", { href: link("") }, "Compare"),
      el(
        "div.figures",
        shown.map((kind) =>
          el(
            `a.figure.${found.counts[kind] ? KINDS[kind] : "zero"}`,
            { href: link(kind) },
            el("b", words.number(found.counts[kind] || 0)),
            el("span", kind),
          ),
        ),
      ),
      el("p.small.quiet", `Compared with ${runs.title(index, found.before)}.`),
      unlike && el("p.small", unlike),
      found.unasked > 0 &&
        el("p.small", `${words.count(found.unasked, "case")} not requested in one of the two runs.`),
      changed.length
        ? el(
            "p.small",
            el("span.quiet", "Changed: "),
            changed.slice(0, 6).map(([name, x, y], i) => `${(i ? ", " : "") + name} ${x} → ${y}`),
          )
        : el("p.small.quiet", "No version and no conversion function changed."),
      lost > 0 &&
        el(
          "p.small",
          `${words.count(lost, "operator")} missing in one of the two runs. They cannot be compared.`,
        ),
      lines.length
        ? controls.list(lines, (line) => [
            controls.operator(
              "grow.mono",
              index.operators[line.operator],
              words.short(index.operators[line.operator]),
              { case: Object.values(line.examples)[0] },
            ),
            el("span.quiet.small", words.arrow(index.columns[line.column])),
            Object.entries(line.counts).map(([kind, n]) => el("span.chip", `${words.number(n)} ${kind}`)),
          ])
        : el("p.quiet", lost ? "Nothing that both runs have is worse." : "Nothing is worse."),
    );
  }

  function trend(index) {
    const alike = index.trend.map((i) => index.runs[i]);
    const used = [...new Set(alike.flatMap((run) => run.columns))];
    const series = used.map((column) => ({
      name: words.arrow(index.columns[column]),
      values: alike.map(function (run) {
        const at = run.columns.indexOf(column);
        if (at < 0) return null;
        const counts = run.standings[at].slice(7, 12);
        const total = sum(counts);
        return total ? Number(((100 * counts[0]) / total).toFixed(2)) : null;
      }),
    }));
    const marks = alike.map((run) =>
      run.state !== "complete" ? "partial" : run.unlike ? "not the same operators" : "",
    );
    const open = (at) => (window.location.hash = address.format("overview", [], { run: alike[at].id }));
    const others = index.runs.length - alike.length;
    return section(
      "trend",
      "Operators with no failure found in ordinary cases, run by run",
      null,
      charts.trend(
        alike.map((run) => words.when(run.started)),
        series,
        marks,
        "Lines: share of operators with no failure found in ordinary cases, per run. The download has the numbers.",
        "%",
        open,
      ),
      marks.some(Boolean) &&
        el("p.small.quiet", "Hollow: incomplete, or a different operator set."),
      others > 0 &&
        el(
          "p.small.quiet",
          `${words.count(others, "run")} of other operators or other cases ${others === 1 ? "is" : "are"} left out.`,
        ),
    );
  }

  // Failures that ordinary use meets, or those of edge cases only, each with its message and a small call.
  function failures(index, ordinary) {
    const shown = index.failures.filter((group) => Boolean(group.ordinary) === ordinary);
    const count = ordinary ? index.ordinaryFailureCount : index.failureCount - index.ordinaryFailureCount;
    const use = ordinary ? "ordinary" : "edge";
    return section(
      `failures-${use}`,
      ordinary ? "Failures in ordinary use" : "Failures in edge cases only",
      count > 0 && el("a", { href: address.format("failures", [], { use }) }, `All ${words.number(count)}`),
      shown.length
        ? controls.list(shown, (group) => [
            controls.outcome(group.outcome, group.stage),
            controls.operator(
              "grow.mono",
              group.overload,
              names.listed(group.overloads.map(words.short), 2),
              { case: group.case },
            ),
            el("span.quiet.small", about(group)),
            group.known.slice(0, 1).map((issue) => outside(issue.link, "known")),
            el("div.whole.clip2", { title: group.message }, group.message.split("\n")[0] || group.signature),
            el("div.whole.mono.quiet.clip2", { title: group.call }, group.call),
          ])
        : el("p.quiet", "Nothing failed."),
    );
  }

  function about(group) {
    const cases = words.count(group.cases, "case");
    const usual = group.ordinary ? ` (${words.number(group.ordinary)} ordinary)` : "";
    return `${cases}${usual}, blame: ${group.owner || "unknown"}`;
  }

  // Families by column: the share of ordinary cases that pass, and of edge cases, worst first.
  function families(index) {
    const columns = [...new Set(index.familyShares.map((row) => row[1]))];
    const byFamily = new Map();
    for (const row of index.familyShares) {
      if (!byFamily.has(row[0])) byFamily.set(row[0], new Map());
      byFamily.get(row[0]).set(row[1], row);
    }
    const share = function (theirs) {
      const rows = [...theirs.values()];
      const total = (at) => rows.reduce((all, row) => all + row[at], 0);
      return total(6) ? total(5) / total(6) : total(8) ? total(7) / total(8) : 2;
    };
    const order = [...byFamily].sort(([, a], [, b]) => share(a) - share(b));
    const cell = function (family, column, row, use) {
      const [passed, total] =
        use === "ordinary" ? [row?.[5], row?.[6]] : [row?.[7] - row?.[5], row?.[8] - row?.[6]];
      if (!total) return el("td", el("span.state.absent", row && row[4] === row[2] ? "? missing" : "·"));
      const found = { passes: passed, total, failures: total - passed, outcomes: {} };
      const name = words.arrow(index.columns[column]);
      const title =
        `${index.families.names[family] || "(none)"}, ${name}: ${words.number(passed)} of ` +
        `${words.number(total)} ${use} cases pass; of ${words.count(row[2], "operator")} ` +
        `all cases of ${words.number(row[3])} pass` +
        (row[4] ? ` and ${words.number(row[4])} are missing` : "");
      return el(
        "td",
        el(
          `a.state.${cells.shade(found)}`,
          {
            href: address.format("matrix", [], {
              family: index.families.names[family] || "",
              column: name,
              use,
            }),
            title,
          },
          words.percent(passed, total),
        ),
      );
    };
    return section(
      "families",
      "Families: share of cases that pass, worst first",
      null,
      el(
        "div.scroll",
        el(
          "table.standing.families",
          el(
            "thead",
            el(
              "tr",
              el("th"),
              el("th"),
              columns.map((column) =>
                el("th", { scope: "colgroup", colspan: "2" }, words.arrow(index.columns[column])),
              ),
            ),
            el(
              "tr",
              el("th", { scope: "col" }, "family"),
              el("th", { scope: "col" }, "operators"),
              columns.map(() => ["ordinary", "edge"].map((use) => el("th", { scope: "col" }, use))),
            ),
          ),
          el(
            "tbody",
            order.map(([family, theirs]) =>
              el(
                "tr",
                el("th", { scope: "row" }, index.families.names[family] || "(none)"),
                el("td.number", words.number(Math.max(...[...theirs.values()].map((row) => row[2])))),
                columns.map((column) =>
                  ["ordinary", "edge"].map((use) => cell(family, column, theirs.get(column), use)),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }

  const sum = (counts) => counts.reduce((a, b) => a + b, 0);

  // A panel with a heading; `aside` stands beside that.
  function section(id, title, aside, ...content) {
    const heading = el("h2", { id: `h-${id}` }, title);
    const top = aside === null ? heading : el("div.row.between", heading, aside);
    return el("section.panel", { "aria-labelledby": `h-${id}` }, top, content);
  }
})();
