// The fields above the matrix. Each changes the address, and shows what the address says.
(function () {
  "use strict";
  const { el, fill, address, controls, words, cells, matrixRows, runs } = Conformance;
  const OUTCOMES = "mismatch crash timeout error unsupported built narrowed inaccurate skip pass".split(" ");
  const BLAMES = ["converter", "transform", "backend", "pytorch", "spec", "unknown"];
  const STAGES = ["reference", "convert", "transform", "check", "load", "run", "compare"];
  const NAMES = "q family dtype column outcome blame stage standing since gaps use dtypes".split(" ");
  const ALL = Object.fromEntries(NAMES.map((name) => [name, ""]));

  const USES = [
    ["ordinary", "ordinary"],
    ["edge", "edge"],
  ];

  const any = (list, empty) => [["", empty], ...list.map((one) => (Array.isArray(one) ? one : [one, one]))];

  function bar(index, run, want, open) {
    const set = (name) => (value) => address.change({ [name]: value, fold: "" });
    const shown = index.runs[run];
    const columns = shown.columns.map((column) => words.arrow(index.columns[column]));
    const earlier = index.runs
      .filter((one) => one !== shown)
      .map((one) => [one.id, runs.title(index, runs.place(index, one.id))])
      .reverse();
    const dtypes = index.dtypeOrder.map((number) => index.dtypes[number]);
    const { select } = controls;
    const sorts = [
      ["", "worst share"],
      ["failures", "most failures"],
      ["name", "name"],
      ...shown.columns.map((column, i) => [`${column}//ordinary`, `ordinary, ${columns[i]}`]),
      ...shown.columns.map((column, i) => [`${column}//edge`, `edge, ${columns[i]}`]),
    ];
    const sort = want.sort === "worst" ? "" : want.sort;
    if (!sorts.some(([name]) => name === sort)) sorts.push([sort, "a column, worst first"]);
    return el(
      "div.filters",
      { role: "search", "aria-label": "Filters of the matrix" },
      controls.search("Search operators: celu, upsample_* (press /)", want.q, set("q")),
      controls.more(
        used(want),
        open,
        select("cases", want.use, any(USES, "ordinary and edge"), set("use")),
        select("family", want.family, any(index.families.names, "all"), set("family")),
        columns.length > 1 && select("converter → backend", want.column, any(columns, "all"), set("column")),
        select("dtype", want.dtype, any(dtypes, "all"), set("dtype")),
        select("status", want.standing, any(Object.entries(cells.NAMES), "any"), set("standing")),
        select("outcome", want.outcome, any(OUTCOMES, "any"), set("outcome")),
        select("blame", want.blame, any(BLAMES, "any"), set("blame")),
        select("stage", want.stage, any(STAGES, "any"), set("stage")),
        earlier.length > 0 && select("regressed since", want.since, any(earlier, "–"), set("since")),
        controls.check(
          "dtypes",
          Boolean(want.dtypes),
          (on) => address.change({ dtypes: on ? "yes" : "" }),
          "A column for each dtype, too",
        ),
        controls.check(
          "unsupported only",
          Boolean(want.gaps),
          (on) => set("gaps")(on ? "1" : ""),
          "Operators whose failures with a converter and backend are all declared gaps: one of these says that it does not support them",
        ),
        select(
          "rows",
          matrixRows.inFamilies(want) ? want.rows || "closed" : "",
          [
            ["", "operators"],
            ["closed", "families"],
            ["open", "families, open"],
          ],
          (value) => address.change({ rows: value, fold: "" }),
        ),
        select("sort by", sort, sorts, (value) => address.change({ sort: value })),
      ),
    );
  }

  const used = (want) => Object.keys(ALL).filter((name) => name !== "q" && want[name]).length;

  // Bring fields that show another state than the address up to it, but the one that is being typed in.
  function sync(box, index, run, want) {
    const active = document.activeElement;
    const typing = box.contains(active) && active.type === "search";
    const old = box.firstElementChild;
    if (!old) return fill(box, bar(index, run, want, false));
    const fresh = bar(index, run, want, old.querySelector(".more").open);
    if (typing) {
      // A field that is replaced while it is typed in loses what is typed next.
      const mine = fresh.querySelector(".search");
      mine.replaceWith(active.closest(".search"));
      old.replaceWith(fresh);
      active.focus();
      return fresh;
    }
    const label = box.contains(active) ? active.dataset.field : null;
    old.replaceWith(fresh);
    controls.refocus(box, label);
    return fresh;
  }

  Conformance.matrixFilters = { sync, ALL };
})();
