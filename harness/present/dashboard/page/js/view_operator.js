// Everything about one operator, with the evidence of one run.
(function () {
  "use strict";
  const {
    el,
    fill,
    words,
    load,
    cells,
    matrixRows,
    operatorParts: parts,
    pairMap,
    failureCard,
    address,
    controls,
    charts,
    names,
    runs,
  } = Conformance;

  Conformance.views.operator = {
    title: "Operator",
    tab: false, // Other views lead to it.
    whole: true, // Another operator is another page.
    async create(main, { index, run, asked }) {
      const name = asked.parts[0] || "";
      const operator = index.operators.indexOf(name);
      if (operator < 0) return unknown(main, index, name);
      const matrix = await load.get(`matrix/${run}`);
      const { rows: there, missing } = cells.decode(matrix);
      const data = await load.get(`operator/${matrix.own.includes(operator) ? `${run}-` : ""}${operator}`);
      // A run of other operators says nothing of this one; one that has lost it does.
      const of = there.has(operator) || missing.has(operator) || data.run < 0 ? run : data.run;
      const shown = of === run ? matrix : await load.get(`matrix/${of}`);
      const rows = new matrixRows.Rows(index, cells.decode(shown));
      // Where no case ended otherwise, the evidence of another run is that of this one as well.
      const same = of === run && there.has(operator) && !matrix.unlike.includes(operator);
      const page = { index, asked: run, run: of, same, operator, name, data, rows };
      const spot = el("div");
      const standing = el("div");
      main.append(el("div.stack", head(page), standing, spot, ...sections(page)));
      return { update: (now) => update(page, spot, standing, now) };
    },
  };

  function unknown(main, index, name) {
    const near = names.find(name, index.operators, names.packets(index.operators)).slice(0, 8);
    const like = near.length
      ? near
      : index.operators
          .map((_, i) => i)
          .filter((i) => index.operators[i].includes(name.replace(/^aten\./, "").split(".")[0] || " "))
          .slice(0, 8);
    main.append(
      el(
        "div.stack",
        el("h1", "No operator of that name"),
        el("p", "No run here has ", el("code", name || "(nothing)"), "."),
        like.length > 0 &&
          controls.list(like, (i) => [controls.operator("mono", index.operators[i], index.operators[i])]),
      ),
    );
    return {};
  }

  function head({ index, asked, run, same, operator, name, data, rows }) {
    const evidence = data.run >= 0 ? index.runs[data.run] : null;
    const lacks =
      run !== asked
        ? "The chosen run is not of this operator. "
        : rows.matrix.missing.has(operator)
          ? "The chosen run lacks verdicts of this operator. "
          : "Of the chosen run, the site has the status of this operator alone. ";
    return el(
      "div",
      el(
        "div.head",
        el(
          "div",
          el(
            "p.small",
            el(
              "a",
              {
                href: address.format("matrix", [], {
                  family: index.families.names[index.families.of[operator]],
                }),
              },
              index.families.names[index.families.of[operator]] || "(no family)",
            ),
          ),
          el("h1.mono", name),
        ),
        el(
          "div.row",
          controls.copyButton("Copy link", () => window.location.href),
          controls.copyButton("Copy test command", () => `pytest harness --op ${name}`),
        ),
      ),
      data.schema ? el("p.mono.quiet", data.schema) : null,
      evidence &&
        !same &&
        el("p.notice", lacks, "Failures, cases and graphs are from the run ", runs.title(index, data.run), "."),
      evidence ? null : el("p.notice", "No run here has verdicts of this operator."),
    );
  }

  function update(page, spot, standing, asked) {
    const { index, run, rows, operator, data } = page;
    const at = { column: asked.params.get("column") || "", dtype: asked.params.get("dtype") || "" };
    fill(
      standing,
      el(
        "section.panel",
        el(
          "h2",
          "Status",
          run === page.asked ? "" : ` in the run of ${words.when(index.runs[run].started)}`,
        ),
        parts.standing(index, run, rows, operator, at),
      ),
    );
    const wanted = asked.params.get("case") || "";
    fill(spot);
    if (!wanted) return;
    const recorded =
      data.run >= 0 ? ` --run ${Conformance.failureCard.quoted(index.runs[data.run].place)}` : "";
    const group = data.groups.find((one) => one.case === wanted || one.shown === wanted);
    const one =
      data.cases.find((c) => c.id === wanted) || (group && data.cases.find((c) => c.id === group.case));
    if (group) {
      const card = document.getElementById(`case-${group.case}`);
      if (card) card.open = true;
    }
    fill(
      spot,
      one
        ? parts.oneCase(one, index.runs[data.run].place)
        : el(
            "div.notice",
            el("p", `Case ${wanted} is not on this page. This command shows it:`),
            controls.code(`conformance show ${wanted}${recorded}`, "command", true),
          ),
    );
  }

  function sections(page) {
    const { index, data, name } = page;
    const run = data.run >= 0 ? index.runs[data.run].place : "";
    const found = [];
    const section = (id, title, ...content) =>
      found.push(
        el(
          "section",
          { "aria-labelledby": `h-${id}` },
          el("div.stack", el("h2", { id: `h-${id}` }, title), content),
        ),
      );
    if (data.findings.length)
      section("when", "When it fails", el("div.panel", parts.findings(data.findings)));
    if (data.groups.length) {
      const somebodys = data.groups.filter((group) => group.blame !== "spec");
      const open = data.groups.filter((group) => group.blame === "spec");
      if (somebodys.length)
        section(
          "failures",
          `${words.count(somebodys.length, "failure")}, by use`,
          el(
            "div",
            somebodys.map((group, i) => failureCard.card(group, name, run, i < 2)),
          ),
        );
      if (open.length)
        section(
          "open",
          "Allowed by the specification (not counted)",
          el(
            "div",
            open.map((group) => failureCard.card(group, name, run, false)),
          ),
        );
    } else if (data.run >= 0) {
      section(
        "failures",
        "Failures",
        el(
          "p.panel",
          `No case of this operator failed in the run of ${words.when(index.runs[data.run].started)}.`,
        ),
      );
    }
    if (data.graphs.length)
      section("graphs", "Converter output", el("div", data.graphs.map(parts.converter)));
    if (data.pairs) section("tried", "What was tried together", el("div.panel", pairMap.view(data.pairs)));
    const spread = el("div.panel");
    section("ulps", "Numerical error of passing cases", spread);
    distributions(page, spread);
    section("history", "History", el("div.panel", parts.history(index, data.history)));
    if (data.cases.length) {
      section(
        "cases",
        "Cases",
        el(
          "p.small.quiet",
          `${words.count(data.cases.length, "case")} with something to see`,
          data.omitted > 0 &&
            `; ${words.number(data.omitted)} more failures: conformance failures --op ${name}`,
        ),
        parts.cases(data, address.current().params.get("case"), name),
      );
    }
    return found;
  }

  async function distributions({ index, run, operator }, box) {
    const tolerances = await load.get(`tolerances/${run}`);
    const mine = tolerances.rows.filter((row) => row[0] === operator && row[14].length);
    const dtypes = [...new Set(mine.map((row) => row[2]))];
    if (!dtypes.length)
      return fill(box, el("p.quiet", "No case of this operator passed with an error in ULP."));
    const draw = function (dtype) {
      const rows = mine.filter((row) => row[2] === dtype);
      fill(
        box,
        dtypes.length > 1
          ? controls.select(
              "dtype",
              dtype,
              dtypes.map((d) => [d, index.dtypes[d]]),
              (d) => draw(Number(d)),
            )
          : el("p.small.quiet", index.dtypes[dtype]),
        charts.distribution(
          tolerances.bins,
          rows.map((row) => ({ name: words.arrow(index.columns[row[1]]), counts: row[14] })),
          "Bars: passing cases by the size of their error. The Tolerances view has the numbers.",
        ),
      );
    };
    const order = [...dtypes].sort(
      (a, b) =>
        Math.max(...mine.filter((r) => r[2] === b).map((r) => r[8])) -
        Math.max(...mine.filter((r) => r[2] === a).map((r) => r[8])),
    );
    draw(order[0]);
  }
})();
