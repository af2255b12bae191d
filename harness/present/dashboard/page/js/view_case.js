// One failing case: its call, its results on every route, whom each failure is blamed on, and its history.
(function () {
  "use strict";
  const { el, words, load, controls, address, failureCard, runs } = Conformance;
  const DIGITS = 2; // Those of an id that name its file.

  // The case as a file has it, its texts in place of their numbers, and its run; null if no run here has it.
  async function find(index, run, id) {
    const first = id.slice(0, DIGITS);
    const known = index.caseFiles.filter(([, digits]) => digits.includes(first)).map(([number]) => number);
    for (const number of new Set(known.includes(run) ? [run, ...known] : known)) {
      const file = await load.get(`case/${number}-${first}`);
      const ids = Object.keys(file.cases).filter((one) => one.startsWith(id));
      if (ids.length === 1 || file.cases[id]) {
        const full = file.cases[id] ? id : ids[0];
        return { id: full, run: number, texts: file.texts, ...file.cases[full] };
      }
    }
    return null;
  }

  Conformance.views.case = {
    title: "Case",
    tab: false, // Other views lead to it.
    whole: true, // Another case is another page.
    async create(main, { index, run, asked }) {
      const id = (asked.parts[0] || "").toLowerCase();
      const found = id ? await find(index, run, id) : null;
      main.append(el("div.stack", found ? page(index, found) : unknown(index, run, id)));
      return {};
    },
  };

  function unknown(index, run, id) {
    const place = run >= 0 ? ` --run ${failureCard.quoted(index.runs[run].place)}` : "";
    return [
      el("h1", "No failing case of that id"),
      el("p", "No run here has a failing case ", el("code", id || "(nothing)"), ". This command asks the record:"),
      controls.code(`conformance show ${id || "CASE"}${place}`, "command", true),
    ];
  }

  function page(index, found) {
    const text = (number) => (number === undefined ? "" : found.texts[number]);
    const place = failureCard.quoted(index.runs[found.run].place);
    const failing = found.rows.filter((row) => row.owner);
    return [
      el(
        "div.head",
        el(
          "div",
          el("p.small", controls.operator("mono", found.operator, found.operator)),
          el("h1", "Case ", el("code", found.id)),
          el("p.small.quiet", `${found.dtype}, from the run of ${words.when(index.runs[found.run].started)}`),
        ),
        controls.copyButton("Copy link", () => window.location.href),
      ),
      el("p.mono", text(found.call)),
      found.torch === undefined ? null : section("In PyTorch", controls.code(text(found.torch), "call")),
      section("Results", el("div.panel", results(found, text))),
      failing.map((row) => blame(row, text, failing.length > 1)),
      section(
        "Run it again",
        found.script
          ? controls.code(found.script, "repro script")
          : controls.code(`conformance repro ${found.id} --run ${place}`, "repro command", true),
        controls.code(
          `conformance replay ${found.id} --run ${place}\nconformance show ${found.id} --run ${place}`,
          "commands",
          true,
        ),
      ),
      found.history ? section("History", el("div.panel", history(index, found))) : null,
    ];
  }

  const section = (title, ...content) => el("section", el("div.stack", el("h2", title), content));

  function results(found, text) {
    return controls.table(
      ["converter → backend", "shapes", "ended", "blame", "wrong", "max abs", "max ULP", "said"],
      found.rows.map((row) => [
        el("th", { scope: "row" }, words.arrow([row.converter, row.backend])),
        row.shapes,
        controls.outcome(row.outcome, row.stage),
        row.owner || "–",
        el("td.number", row.elements ? `${row.wrong}/${row.elements}` : "–"),
        el("td.number", words.error(row.abs)),
        el("td.number", words.error(row.ulp)),
        el("td.mono.long", [row.placement, text(row.message)].filter(Boolean).join("; ") || "–"),
      ]),
    );
  }

  // Whom a failure is blamed on, and why.
  function blame(row, text, several) {
    const route = several ? `${words.arrow([row.converter, row.backend])}: ` : "";
    return section(
      `${route}blame: ${row.owner}`,
      el(
        "div.panel",
        el("p", el("strong", `${text(row.place)} ${text(row.fault)}`)),
        row.same
          ? el(
              "p",
              "It fails in the same way as case ",
              el("a.mono", { href: address.format("case", [row.same]) }, row.same),
              ", which was examined in its place.",
            )
          : failureCard.sentences(text(row.evidence)),
      ),
    );
  }

  // How the case ended in the other runs of the site, the newest first.
  function history(index, found) {
    const ends = [
      ...found.rows.map((row) => [row.converter, row.backend, found.run, row.stage, row.outcome]),
      ...(found.history || []),
    ].sort((a, b) => b[2] - a[2]);
    return controls.table(
      ["run", "converter → backend", "ended"],
      ends.map(([converter, backend, run, stage, outcome]) => [
        el("th", { scope: "row" }, runs.title(index, run)),
        words.arrow([converter, backend]),
        controls.outcome(outcome, stage),
      ]),
    );
  }
})();
