// Two runs of different ways (converters or backends), side by side: of each operator what each of them passes.
(function () {
  "use strict";
  const { el, fill, words, grid, controls, cells, load } = Conformance;

  // Whether two runs have no converter and backend in common.
  const isOf = (index, a, b) =>
    index.runs[a].columns.length > 0 &&
    index.runs[b].columns.length > 0 &&
    !index.runs[a].columns.some((column) => index.runs[b].columns.includes(column));

  // What a run passes of each operator, over its converters and backends.
  function tallies(index, run, matrix) {
    const found = new Map();
    const columns = new Set(index.runs[run].columns.map(String));
    for (const [operator, row] of matrix.rows) {
      // Keys are `${column}/${dtype}`.
      const lists = [...row].filter(([key]) => columns.has(key.split("/")[0])).map(([, pairs]) => pairs);
      if (lists.length) found.set(operator, cells.tally(lists, index.buckets));
    }
    return found;
  }

  const share = (found) => (found.total ? found.passes / found.total : 0);

  async function lines(index, a, b) {
    const [first, second] = (await load.all([`matrix/${a}`, `matrix/${b}`])).map(cells.decode);
    const [left, right] = [tallies(index, a, first), tallies(index, b, second)];
    const both = [...left.keys()].filter((operator) => right.has(operator));
    return both
      .map((operator) => ({ id: operator, operator, left: left.get(operator), right: right.get(operator) }))
      .filter((line) => line.left.total && line.right.total)
      .sort((x, y) => Math.abs(share(y.left) - share(y.right)) - Math.abs(share(x.left) - share(x.right)));
  }

  const KINDS = {
    "both pass": (line) => share(line.left) === 1 && share(line.right) === 1,
    "first passes more": (line) => share(line.left) > share(line.right),
    "second passes more": (line) => share(line.left) < share(line.right),
    alike: (line) => share(line.left) === share(line.right) && share(line.left) < 1,
  };

  function name(index, run) {
    return index.runs[run].columns.map((column) => words.arrow(index.columns[column])).join(", ");
  }

  // The figures and the table; `kind` is the pressed figure, `choose` is told of another.
  function show(boxes, index, { a, b }, found, { kind, match, choose }) {
    fill(
      boxes.tiles,
      Object.entries(KINDS).map(([title, is]) =>
        el(
          "button.figure",
          { type: "button", "aria-pressed": String(kind === title), onclick: () => choose(kind === title ? "" : title) },
          el("span", el("b", words.number(found.filter(is).length)), title),
        ),
      ),
    );
    const shown = found.filter(
      (line) => match(index.operators[line.operator]) && (!KINDS[kind] || KINDS[kind](line)),
    );
    boxes.count.textContent =
      `${words.count(shown.length, "operator")} that both were asked for; ` +
      "the furthest apart first. Neither run is the expectation of the other.";
    const side = (title, field) =>
      grid.column({
        title,
        field,
        cell: (line) => el("span", { title: cells.sentence(line[field]) }, cells.text(line[field])),
        sort: (line) => share(line[field]),
        minWidth: 150,
        widthGrow: 1,
      });
    return grid.grid(boxes.box, {
      data: shown,
      index: "id",
      height: Math.min(grid.height(boxes.box, 360), 74 + 28 * Math.max(3, shown.length)),
      layout: "fitColumns",
      placeholder: "No operator is in both.",
      columns: [
        grid.column({
          title: "operator",
          field: "operator",
          cell: (line) =>
            controls.operator("op", index.operators[line.operator], words.short(index.operators[line.operator])),
          sort: (line) => index.operators[line.operator],
          minWidth: 150,
          widthGrow: 2,
        }),
        side(name(index, a), "left"),
        side(name(index, b), "right"),
      ],
    });
  }

  Conformance.sideBySide = { isOf, lines, show };
})();
