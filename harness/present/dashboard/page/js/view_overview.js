// What works where, what moved, and how it went over the runs: the page of the morning.
(function () {
  "use strict";
  const { el, words, charts, address, cells, controls, outside, download, names } = Conformance;

  Conformance.views.overview = {
    title: "Overview",
    create(main, { index, run }) {
      const shown = index.runs[run];
      main.append(
        el(
          "div.stack",
          head(index, shown),
          el("div.columns", standing(index, run), moved(index)),
          index.runs.length > 1 ? trend(index) : null,
          el("div.columns", worst(index), families(index)),
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
        return { ...row, cases_passed: run.standings[i][5], cases: run.standings[i][6] };
      });
  }

  function standing(index, run) {
    const shown = index.runs[run];
    const rows = shown.columns.map((column, i) => ({
      name: words.arrow(index.columns[column]),
      counts: shown.standings[i],
      key: column,
    }));
    const open = (column, kind) =>
      (window.location.hash = address.format("matrix", [], {
        run: runOf(index, run),
        column: column === undefined ? "" : words.arrow(index.columns[column]),
        standing: kind || "",
      }));
    return section(
      "stand",
      "Operators by converter and backend",
      null,
      charts.standings(
        rows,
        "Bars: operators of which all, some or no cases pass. The table below has the numbers.",
        open,
      ),
      controls.table(
        [
          "converter → backend",
          charts.KINDS.map((kind) =>
            el(
              "th.number",
              { scope: "col" },
              `${cells.GLYPHS[kind]} ${cells.NAMES[kind].replace(" pass", "")}`,
            ),
          ),
          el("th.number", { scope: "col" }, "cases pass"),
        ],
        rows.map((row) => [
          el("th", { scope: "row" }, row.name),
          charts.KINDS.map((kind, i) =>
            el(
              "td.number",
              row.counts[i]
                ? el(
                    "a",
                    {
                      href: address.format("matrix", [], {
                        run: runOf(index, run),
                        column: row.name,
                        standing: kind,
                      }),
                    },
                    words.number(row.counts[i]),
                  )
                : "–",
            ),
          ),
          el("td.number", words.percent(row.counts[5], row.counts[6])),
        ]),
      ),
    );
  }

  const runOf = (index, run) => (run === index.runs.length - 1 ? "" : index.runs[run].id);

  function moved(index) {
    const found = index.moved;
    if (!found) {
      return el(
        "section.panel",
        el("h2", "What moved"),
        el("p.quiet", "There is only one run. A second run shows what changed."),
      );
    }
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
      found.versions.length
        ? el(
            "p.small",
            el("span.quiet", "Versions: "),
            found.versions
              .slice(0, 6)
              .map(([name, x, y], i) => `${(i ? ", " : "") + name} ${x || "–"} → ${y || "–"}`)
              .join(""),
          )
        : el("p.small.quiet", "No version changed."),
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
    const used = [...new Set(index.runs.flatMap((run) => run.columns))];
    const series = used.map((column) => ({
      name: words.arrow(index.columns[column]),
      values: index.runs.map(function (run) {
        const at = run.columns.indexOf(column);
        if (at < 0) return null;
        const counts = run.standings[at];
        const total = sum(counts.slice(0, 5));
        return total ? Number(((100 * counts[0]) / total).toFixed(2)) : null;
      }),
    }));
    const marks = index.runs.map((run) =>
      run.state !== "complete" ? "partial" : run.unlike ? "not the operators of the newest run" : "",
    );
    const open = (at) => (window.location.hash = address.format("overview", [], { run: index.runs[at].id }));
    return section(
      "trend",
      "Operators whose cases all pass, run by run",
      null,
      charts.trend(
        index.runs.map((run) => words.when(run.started)),
        series,
        marks,
        "Lines: share of operators whose cases all pass, per run. The download has the numbers.",
        "%",
        open,
      ),
      marks.some(Boolean) &&
        el(
          "p.small.quiet",
          "A hollow circle is an incomplete run, or a run of other operators than the newest: its share " +
            "cannot be compared.",
        ),
    );
  }

  function worst(index) {
    return section(
      "worst",
      "Worst failures of the newest run",
      el("a", { href: "#/failures" }, `All ${words.number(index.failureCount)}`),
      index.failures.length
        ? controls.list(index.failures, (group) => [
            controls.outcome(group.outcome, group.stage),
            controls.operator(
              "grow.mono",
              group.overloads[0],
              names.listed(group.overloads.map(words.short), 2),
              { case: group.case },
            ),
            el("span.quiet.small", `${words.count(group.cases, "case")}, blame: ${group.blame || "unknown"}`),
            group.known.slice(0, 1).map((issue) => outside(issue.link, "known")),
          ])
        : el("p.quiet", "Nothing failed."),
    );
  }

  function families(index) {
    const columns = [...new Set(index.familyStandings.map((row) => row[1]))];
    const box = el("div");
    const draw = function (column) {
      Conformance.fill(box);
      const rows = index.familyStandings
        .filter((row) => row[1] === column)
        .map(([family, , ...counts]) => ({
          name: `${index.families.names[family] || "(none)"} ${sum(counts)}`,
          counts,
          key: index.families.names[family],
        }))
        .sort((a, b) => share(a.counts, 0) - share(b.counts, 0) || share(b.counts, 2) - share(a.counts, 2));
      const open = (family, kind) =>
        (window.location.hash = address.format("matrix", [], {
          family: family || "",
          column: words.arrow(index.columns[column]),
          standing: kind || "",
        }));
      box.append(
        charts.standings(
          rows,
          "Bars: operators of each family by status. The matrix has the numbers.",
          open,
          true,
        ),
      );
    };
    if (columns.length) draw(columns[0]);
    const choice = columns.map((c) => [c, words.arrow(index.columns[c])]);
    return section(
      "families",
      "Families, worst first",
      columns.length > 1 && controls.select("on", columns[0], choice, (c) => draw(Number(c))),
      box,
    );
  }

  const sum = (counts) => counts.reduce((a, b) => a + b, 0);

  const share = (counts, at) => counts[at] / Math.max(1, sum(counts));

  // A panel with a heading; `aside` stands beside that.
  function section(id, title, aside, ...content) {
    const heading = el("h2", { id: `h-${id}` }, title);
    const top = aside === null ? heading : el("div.row.between", heading, aside);
    return el("section.panel", { "aria-labelledby": `h-${id}` }, top, content);
  }
})();
