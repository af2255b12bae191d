// The runs, what was set aside, the versions, the files, and badges for other pages.
(function () {
  "use strict";
  const { el, words, controls, address } = Conformance;
  const FILES = [
    ["overview", "Operators by status, per run, converter and backend"],
    [
      "matrix",
      "Cases by operator, column, dtype, outcome, stage, blame and whether they are ordinary, of the run that is shown first",
    ],
    ["failures", "Distinct failures of the run that is shown first"],
    ["tolerances", "Errors in ULP and the tolerances that cover them, of the run that is shown first"],
    ["changes", "Cases that changed since the previous run"],
  ];

  Conformance.views.data = {
    title: "Data",
    create(main, { index, run }) {
      main.append(
        el(
          "div.stack",
          el("h1", "Runs and data"),
          index.aside.length ? aside(index) : null,
          index.runs.length
            ? [runs(index), files(index), badges(index), versions(index, run)]
            : el("p.panel", "No run could be shown."),
          about(index),
        ),
      );
      return {};
    },
  };

  function aside(index) {
    return el(
      "section.panel",
      el("h2", "Set aside"),
      el("p.quiet", "These runs could not be read. No number on this page counts them."),
      controls.list(index.aside, (one) => [el("strong", one.name), el("span.grow", one.message)]),
    );
  }

  function runs(index) {
    return el(
      "section.panel",
      el("h2", words.count(index.runs.length, "run")),
      controls.table(
        [
          "started (UTC)",
          "run",
          "state",
          "operators",
          "missing",
          "verdicts",
          "seed",
          "options",
          "every case",
        ],
        index.runs
          .map((run, i) => [
            el("td.nowrap", words.when(run.started)),
            el(
              "td.mono.nowrap",
              el("a", { href: address.format("overview", [], { run: run.id }) }, run.name),
              el("div.small.quiet", run.id),
            ),
            el(
              `td${run.state === "complete" ? ".nowrap" : ".long"}`,
              run.state === "complete" ? "✓ complete" : el("span", "◐ partial: ", run.notes.join(" ")),
            ),
            el("td.number", words.number(run.operators)),
            el("td.number", run.missing ? words.number(run.missing) : "–"),
            el("td.number", words.number(run.rows)),
            el("td.number", String(run.seed)),
            el(
              "td.small.long",
              el(
                "span.clip2",
                Object.entries(run.options)
                  .map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(" ") : value}`)
                  .join(", "),
              ),
            ),
            el(
              "a",
              { href: `download/cases/run-${String(i).padStart(3, "0")}.parquet`, download: "" },
              "Parquet",
            ),
          ])
          .reverse(),
      ),
    );
  }

  function files() {
    return el(
      "section.panel",
      el("h2", "Files"),
      controls.table(
        [],
        [
          ...FILES.map(([name, what]) => [
            el("th", { scope: "row" }, name),
            what,
            el(
              "div.chips",
              [
                ["json", "JSON"],
                ["csv", "CSV"],
                ["parquet", "Parquet"],
              ].map(([end, title]) => el("a.chip", { href: `download/${name}.${end}`, download: "" }, title)),
            ),
          ]),
          [
            el("th", { scope: "row" }, "summary"),
            "The run that is shown first in a few numbers, for other pages",
            el("a.chip", { href: "summary.json", download: "" }, "JSON"),
          ],
        ],
      ),
    );
  }

  function badges(index) {
    return el(
      "section.panel.badges",
      el("h2", "Badges"),
      el(
        "p.quiet.small",
        "Share of operators in which no failure was found, in the run that is shown first. Put the address of this site before the path.",
      ),
      controls.list(index.badges, (badge) => [
        el("img", { src: badge.path, alt: `${badge.label}: operators in which no failure was found`, height: "20" }),
        controls.code(`![${badge.label}](${badge.path})`, "Markdown", true),
      ]),
    );
  }

  function versions(index, at) {
    const run = index.runs[at];
    return el(
      "section.panel",
      el("h2", "What took part"),
      el("p.quiet.small", Conformance.runs.title(index, at)),
      el(
        "dl.facts",
        Object.entries({
          ...run.versions,
          ...Object.fromEntries(Object.entries(run.host).map(([k, v]) => [`host ${k}`, v])),
        }).map(([name, version]) => [el("dt", name), el("dd", version)]),
      ),
    );
  }

  function about(index) {
    return el(
      "section.panel",
      el("h2", "About this page"),
      el(
        "p",
        `Built by \`conformance dashboard\` of aten-onnx-conformance ${index.harness} from the record of the ` +
          "runs; it runs no operator and asks nothing of the network. Charts: Apache ECharts 6.1.0 (Apache-2.0). " +
          "Tables: Tabulator 6.5.3 (MIT). Their licences are in vendor/.",
      ),
    );
  }
})();
