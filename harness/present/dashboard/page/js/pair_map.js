// What was tried together: a small map of the conditions that an operator's cases have, by two.
(function () {
  "use strict";
  const { el, fill, words } = Conformance;

  // As `Tried` of harness/coverage/seen_pairs.py counts; 0 is no pair.
  const STATES = [
    null,
    { word: "not drawn", glyph: "" },
    { word: "every case fails before it is compared", glyph: "" },
    { word: "compared, no failure found", glyph: "" },
    { word: "compared, some case fails", glyph: "" },
    { word: "compared, no case passes", glyph: "×" },
  ];
  // The order in which people want them.
  const SHOWN = [3, 4, 5, 2, 1];

  // Rows of the lower triangle; row i has i cells.
  function triangle(text, size) {
    const rows = [];
    for (let i = 0, at = 0; i < size; at += i, i += 1) rows.push(text.slice(at, at + i));
    return rows;
  }

  function view(pairs) {
    const rows = triangle(pairs.cells, pairs.names.length);
    const counts = STATES.map((_, state) => [...pairs.cells].filter((cell) => Number(cell) === state).length);
    const compared = counts[3] + counts[4] + counts[5];
    const possible = compared + counts[1] + counts[2];
    return el(
      "div.stack",
      el(
        "p",
        `${words.percent(compared, possible)} of ${words.count(possible, "pair")} of conditions were compared. `,
        el(
          "span.quiet",
          "Pairs that PyTorch rejects in combination are also counted as not covered: " +
            "the record cannot tell, but ",
          el("code", "pytest harness --generator-report"),
          " can.",
        ),
      ),
      el(
        "div.legend",
        SHOWN.map((state) =>
          el(
            "span.sample",
            el(`span.tried.t${state}`, { "aria-hidden": "true" }, STATES[state].glyph),
            `${STATES[state].word}: ${words.number(counts[state])}`,
          ),
        ),
      ),
      el(
        "div.scroll",
        { tabindex: "0", "aria-label": "Map of pairs of conditions" },
        map(pairs, rows),
      ),
      [5, 4, 2, 1].filter((state) => counts[state]).map((state) => list(pairs, rows, state, counts[state])),
    );
  }

  function map({ names, about }, rows) {
    // The first conditions have no others above them, and the last none below.
    const lines = names.map((_, i) => i).filter((i) => /[^0]/.test(rows[i]));
    const columns = names.map((_, j) => j).filter((j) => lines.some((i) => j < i && rows[i][j] !== "0"));
    const edge = (place) => (place > 0 && about[place] !== about[place - 1] ? ".edge" : "");
    return el(
      "table.pairs",
      el(
        "thead",
        el(
          "tr",
          el("td"),
          columns.map((j) => el(`th${edge(j)}`, { scope: "col", title: names[j] }, el("span", names[j]))),
        ),
      ),
      el(
        "tbody",
        lines.map((i) =>
          el(
            `tr${edge(i)}`,
            el("th", { scope: "row", title: names[i] }, names[i]),
            columns.filter((j) => j < i).map((j) => cell(names, i, j, rows[i][j], edge(j))),
          ),
        ),
      ),
    );
  }

  function cell(names, i, j, digit, edge) {
    const state = STATES[Number(digit)];
    const title = state && `${names[i]} × ${names[j]}: ${state.word}`;
    const mark = state && { role: "img", title, "aria-label": state.word };
    return el(`td${edge}`, state && el(`span.tried.t${digit}`, mark, state.glyph));
  }

  // The pairs of one state in words, made when they are asked for.
  function list({ names }, rows, state, count) {
    const box = el("div");
    const show = function (event) {
      if (!event.target.open || box.childNodes.length) return;
      const found = names
        .map((name, i) => [name, names.filter((_, j) => cellOf(rows, i, j) === state)])
        .filter(([, others]) => others.length)
        .sort((a, b) => b[1].length - a[1].length);
      fill(
        box,
        el(
          "dl.facts",
          found.map(([name, others]) => [el("dt", name), el("dd", others.join(" · "))]),
        ),
      );
    };
    return el(
      "details",
      { ontoggle: show },
      el("summary", `${words.count(count, "pair")}: ${STATES[state].word}`),
      box,
    );
  }

  const cellOf = (rows, i, j) => (i === j ? 0 : Number(rows[Math.max(i, j)][Math.min(i, j)]));

  Conformance.pairMap = { view };
})();
