// The distinct failures of a run, by use.
(function () {
  "use strict";
  const { el, words, load, grid, controls, address, names, outside, download, failureCard } = Conformance;

  // The counts of kinds, in the words of the terminal.
  function counted(groups) {
    const by = (kind) => groups.filter((group) => group.kind === kind).length;
    const open = by("left open");
    const failures = groups.length - open;
    const kinds = [
      by("defect") && words.count(by("defect"), "defect"),
      by("declared gap") && words.count(by("declared gap"), "declared gap"),
      by("undecided") && `${words.number(by("undecided"))} undecided`,
    ].filter(Boolean);
    const parts = [words.count(failures, "distinct failure") + (kinds.length > 1 ? `: ${kinds.join(", ")}` : "")];
    if (open) parts.push(`${words.count(open, "difference")} left open by the specification`);
    return parts.join("; ");
  }

  Conformance.views.failures = {
    title: "Failures",
    async create(main, { index, run }) {
      const all = await load.get(`failures/${run}`);
      const box = el("div");
      const filters = el("div");
      const count = el("p.quiet.small", { "aria-live": "polite" });
      let table = null;
      let shown = all;
      main.append(
        el(
          "div.stack",
          controls.heading(
            "Failures",
            `A line each, by use: first what most models meet. From the run of ${words.when(index.runs[run].started)}. A declared gap is a call that a converter or runtime says it does not support; undecided means that the evidence names nobody.`,
            download.menu(
              "failures",
              () =>
                shown.map(({ known, ...group }) => ({
                  ...Object.fromEntries(
                    Object.entries(group).map(([k, v]) => [k, Array.isArray(v) ? v.join(" ") : v]),
                  ),
                  known: known.map((issue) => issue.link).join(" "),
                })),
              run === index.shown ? download.all("failures") : [],
            ),
          ),
          filters,
          count,
          box,
        ),
      );
      return {
        update(asked) {
          const get = (name) => asked.params.get(name) || "";
          const match = names.matcher(get("q"));
          shown = all.filter(
            (group) =>
              (!get("use") || (get("use") === "ordinary") === group.ordinary > 0) &&
              (!get("outcome") || group.outcome === get("outcome")) &&
              (!get("blame") || (group.blame || "unknown") === get("blame")) &&
              (!get("stage") || group.stage === get("stage")) &&
              (!get("known") || (get("known") === "yes") === group.known.length > 0) &&
              (!get("q") || match(failureCard.searched(group))),
          );
          bar(filters, all, asked.params);
          count.textContent = counted(shown) + (shown.length < all.length ? `; of ${words.number(all.length)} lines` : "");
          if (table) table.setData(shown);
          else table = build(box, shown);
        },
        leave: () => table && table.destroy(),
      };
    },
  };

  function bar(box, all, params) {
    // Only the fields' own values have changed, and by the reader's hand.
    if (controls.typing(box)) return;
    const select = (label, name, options) =>
      controls.select(label, params.get(name) || "", [["", "any"], ...options], (value) =>
        address.change({ [name]: value }),
      );
    const of = (name) =>
      select(
        name,
        name,
        [...new Set(all.map((group) => group[name] || "unknown"))].sort().map((v) => [v, v]),
      );
    const fields = [
      select("cases", "use", [
        ["ordinary", "ordinary use"],
        ["edge", "edge cases only"],
      ]),
      ["outcome", "blame", "stage"].map(of),
      select("upstream", "known", [
        ["yes", "known"],
        ["no", "not reported"],
      ]),
    ];
    const used = ["use", "outcome", "blame", "stage", "known"].filter((name) => params.get(name)).length;
    controls.renew(
      box,
      controls.filters(
        controls.search("Search operators and messages (press /)", params.get("q") || "", (q) =>
          address.change({ q }),
        ),
        window.innerWidth < 720 ? controls.more(used, box.querySelector(".more")?.open, fields) : fields,
      ),
    );
  }

  const place = (group) => [group.overload, { case: group.case }];

  const message = (group) => group.message.split("\n")[0] || group.signature;

  const link = (group, lines) =>
    controls.operator(
      `${lines}.mono.link`,
      group.overload,
      names.listed(group.overloads.map(words.short), 3),
      { case: group.case },
      { tabindex: "-1", title: group.overloads.join(", ") },
    );

  // On a phone each failure is three lines: how it ends and where, what is wrong, and the call.
  function stacked(group) {
    return el(
      "div.stacked",
      el("div.row", controls.outcome(group.outcome, group.stage), link(group, "op")),
      el("div.clip2", `${group.place.split(" in ")[0]} ${group.cause}: ${message(group)}`),
      el(
        "div.quiet.small.op",
        `${words.count(group.cases, "case")}, blame: ${group.owner || "unknown"} · ${group.call}`,
      ),
    );
  }

  function build(box, rows) {
    const narrow = window.innerWidth < 720;
    box.classList.toggle("tall", narrow);
    box.classList.toggle("double", !narrow);
    const table = grid.grid(box, {
      data: rows,
      height: grid.height(box, 400),
      layout: "fitColumns",
      rowHeight: narrow ? 92 : 46,
      headerVisible: !narrow,
      columns: narrow ? [grid.column({ title: "failure", field: "signature", cell: stacked })] : columns(),
    });
    // All of a row leads to the evidence.
    table.on("rowClick", (event, row) => {
      if (event.target.closest("a, button")) return;
      const [name, more] = place(row.getData());
      window.location.hash = address.format("operator", [name], more);
    });
    return table;
  }

  const columns = () => [
    grid.column({
      title: "outcome",
      field: "outcome",
      cell: (g) => controls.outcome(g.outcome, g.stage),
      sort: (g) => g.outcome + g.stage,
      width: 196,
    }),
    grid.column({
      title: "operators",
      field: "overloads",
      cell: (g) => link(g, "clip2"),
      sort: (g) => g.overloads.length,
      widthGrow: 2,
      minWidth: 180,
    }),
    grid.column({
      title: "place",
      field: "place",
      hint: "Where the defect is: an operator of a backend, a conversion function",
      cell: (g) => el("span.clip2", { title: g.place }, g.place.split(" in ")[0]),
      sort: (g) => g.place,
      widthGrow: 3,
      minWidth: 220,
    }),
    grid.column({
      title: "what is wrong",
      field: "signature",
      cell: (g) =>
        el("span.clip2", { title: g.message || g.signature }, g.cause, ": ", el("span.quiet", message(g))),
      widthGrow: 4,
      minWidth: 220,
    }),
    grid.column({
      title: "dtypes",
      field: "dtypes",
      cell: (g) => el("span.clip2", { title: g.dtypes.join(", ") }, names.listed(g.dtypes, 1)),
      width: 92,
    }),
    grid.column({
      title: "blame",
      field: "blame",
      cell: (g) => g.owner || "unknown",
      sort: (g) => g.owner,
      width: 86,
    }),
    grid.column({
      title: "cases",
      field: "cases",
      number: true,
      cell: (g) => words.number(g.cases),
      sort: (g) => g.cases,
      width: 74,
    }),
    grid.column({
      title: "ordinary",
      field: "ordinary",
      number: true,
      hint: "How many of the cases are ordinary use",
      cell: (g) => (g.ordinary ? words.number(g.ordinary) : "–"),
      sort: (g) => g.ordinary,
      width: 74,
    }),
    grid.column({
      title: "models",
      field: "callers",
      number: true,
      hint: "How many models call one of its operators in such a dtype",
      cell: (g) => (g.callers ? words.number(g.callers) : "–"),
      sort: (g) => g.callers,
      width: 68,
    }),
    grid.column({
      title: "upstream",
      field: "known",
      cell: (g) => (g.known.length ? outside(g.known[0].link, "known") : ""),
      width: 84,
    }),
  ];
})();
