// The rows of the matrix: operators with their cells, filtered, sorted, and gathered into families.
(function () {
  "use strict";
  const { cells, names } = Conformance;

  // What is asked for, out of an address.
  function read(params) {
    const get = (name) => params.get(name) || "";
    const names = "q family dtype column outcome blame stage standing since gaps sort rows dtypes";
    return {
      ...Object.fromEntries(names.split(" ").map((name) => [name, get(name)])),
      fold: new Set(get("fold").split(",").filter(Boolean)),
    };
  }

  const FILTERS = ["q", "family", "outcome", "blame", "stage", "standing", "since", "gaps"];
  const filtered = (want) => FILTERS.some((name) => want[name]);

  // The columns to show: [{column, dtype: number or ""}], a whole column first, then its dtypes.
  function leaves(index, run, matrix, want) {
    const arrows = index.columns.map(Conformance.words.arrow);
    const used = new Map();
    for (const row of matrix.rows.values()) {
      for (const key of row.keys()) {
        const [column, dtype] = key.split("/").map(Number);
        if (!used.has(column)) used.set(column, new Set());
        used.get(column).add(dtype);
      }
    }
    const wanted = want.dtype ? new Set(want.dtype.split(",")) : null;
    const columns = index.runs[run].columns.filter(
      (column) => !want.column || arrows[column] === want.column,
    );
    const groups = columns.map((column) => ({
      column,
      title: arrows[column],
      dtypes: index.dtypeOrder.filter(
        (d) => used.get(column)?.has(d) && (!wanted || wanted.has(index.dtypes[d])),
      ),
    }));
    const many = groups.reduce((sum, group) => sum + group.dtypes.length, 0) > 40;
    const split = want.dtypes ? want.dtypes === "yes" : !many || Boolean(wanted);
    return groups.map((group) => ({
      ...group,
      split,
      leaves: [
        ...(wanted ? [] : [{ column: group.column, dtype: "" }]),
        ...(split ? group.dtypes.map((dtype) => ({ column: group.column, dtype })) : []),
      ],
    }));
  }

  // Cells are counted when they are first looked at.
  class Rows {
    constructor(index, matrix) {
      this.index = index;
      this.matrix = matrix;
      this.counted = new Map();
    }

    pairs(operator, leaf) {
      const row = this.matrix.rows.get(operator);
      if (!row) return [];
      if (leaf.dtype !== "") {
        const one = row.get(cells.key(leaf.column, leaf.dtype));
        return one ? [one] : [];
      }
      return [...row].filter(([key]) => key.startsWith(`${leaf.column}/`)).map(([, pairs]) => pairs);
    }

    cell(operator, leaf) {
      if (this.matrix.missing.has(operator)) return "missing";
      const key = `${operator}:${leaf.column}/${leaf.dtype}`;
      if (!this.counted.has(key)) {
        const lists = this.pairs(operator, leaf);
        this.counted.set(key, lists.length ? cells.tally(lists, this.index.buckets) : null);
      }
      return this.counted.get(key);
    }

    // Of a family: all its operators together; missing where every one is.
    sum(operators, leaf) {
      const there = operators.filter((operator) => !this.matrix.missing.has(operator));
      if (operators.length && !there.length) return "missing";
      const lists = there.flatMap((operator) => this.pairs(operator, leaf));
      return lists.length ? cells.tally(lists, this.index.buckets) : null;
    }

    // Whether a bucket of a cell is what the filters ask for.
    hit(operator, leaf, want) {
      return this.pairs(operator, leaf).some((pairs) =>
        pairs.some(([bucket]) => {
          const [outcome, stage, blame] = this.index.buckets[bucket];
          return (
            (!want.outcome || outcome === want.outcome) &&
            (!want.stage || stage === want.stage) &&
            (!want.blame || blame === want.blame)
          );
        }),
      );
    }
  }

  const bySpecial = (want) => Boolean(want.outcome || want.blame || want.stage);

  // Operators that the filters leave, each {operator, hits}: hits are the cells that are meant, null for all. What
  // is asked of a column holds for one and the same column, or for one dtype of it where dtypes are asked for.
  function select(rows, groups, want, worse) {
    const { index, matrix } = rows;
    const match = names.matcher(want.q);
    const narrow = Boolean(bySpecial(want) || want.standing || want.gaps || worse);
    const found = [];
    index.operators.forEach(function (name, operator) {
      const family = index.families.names[index.families.of[operator]];
      if (want.family && family !== want.family) return;
      if (want.q && !match(name)) return;
      if (matrix.missing.has(operator)) {
        if (!narrow || (want.standing === "missing" && !bySpecial(want) && !want.gaps && !worse))
          found.push({ operator, hits: null });
        return;
      }
      const hits = groups.flatMap((group) =>
        spots(group, want).flatMap((spot) => meant(rows, operator, group, spot, want, worse)),
      );
      if (hits.length) found.push({ operator, hits: narrow ? new Set(hits) : null });
    });
    return found;
  }

  // What the status of an operator is asked of: a column, or each dtype of it that is asked for.
  const spots = ({ column, dtypes }, want) =>
    (want.dtype ? dtypes : [""]).map((dtype) => ({ column, dtype }));

  // The cells of a spot that are all that is asked for.
  function meant(rows, operator, group, spot, want, worse) {
    const cell = rows.cell(operator, spot);
    if (!cell) return [];
    if (want.standing && cells.standing(cell) !== want.standing) return [];
    if (want.gaps && !isGap(rows, operator, spot)) return [];
    const inside = spot.dtype === "" ? group.leaves : [spot];
    return inside.filter(
      (leaf) =>
        rows.cell(operator, leaf) &&
        (!bySpecial(want) || rows.hit(operator, leaf, want)) &&
        (!worse || worse.get(operator)?.get(`${leaf.column}/${leaf.dtype}`)),
    );
  }

  // Whether an operator fails there, and only because it is openly unsupported.
  function isGap(rows, operator, spot) {
    const failing = rows
      .pairs(operator, spot)
      .flat()
      .filter(([bucket]) => rows.index.buckets[bucket][3]);
    return failing.length > 0 && failing.every(([bucket]) => rows.index.buckets[bucket][0] === "unsupported");
  }

  // Worst first: what fails most of its cases; what is missing before what passes.
  function badness(rows, operator, leaves_) {
    let total = 0;
    let failures = 0;
    for (const leaf of leaves_) {
      const cell = rows.cell(operator, leaf);
      if (cell === "missing") return [-1.5, 0];
      if (!cell) continue;
      total += cell.total;
      failures += cell.failures;
    }
    return [-failures / Math.max(1, total), -failures];
  }

  function compareBy(rows, groups, sort) {
    const { index } = rows;
    const byName = (a, b) => a.operator - b.operator;
    const wholes = groups.map((group) => ({ column: group.column, dtype: "" }));
    const measure = new Map();
    const of = function (one, how) {
      if (!measure.has(one.operator)) measure.set(one.operator, how(one.operator));
      return measure.get(one.operator);
    };
    if (sort === "worst" || sort === "failures") {
      const [first, second] = sort === "worst" ? [0, 1] : [1, 0];
      return function (a, b) {
        const [x, y] = [of(a, (o) => badness(rows, o, wholes)), of(b, (o) => badness(rows, o, wholes))];
        return x[first] - y[first] || x[second] - y[second] || byName(a, b);
      };
    }
    const chosen = /^(\d+)\/(\d*)$/.exec(sort);
    if (chosen && index.columns[chosen[1]]) {
      const leaf = { column: Number(chosen[1]), dtype: chosen[2] === "" ? "" : Number(chosen[2]) };
      return (a, b) =>
        of(a, (o) => share(rows.cell(o, leaf))) - of(b, (o) => share(rows.cell(o, leaf))) || byName(a, b);
    }
    return byName;
  }

  function share(cell) {
    if (cell === null) return 2;
    return cell === "missing" ? -1 : cell.passes / Math.max(1, cell.total);
  }

  // The rows of the table, in order: families with their operators where they are open, or operators alone.
  function list(rows, groups, want, worse) {
    const { index } = rows;
    const chosen = select(rows, groups, want, worse);
    chosen.sort(compareBy(rows, groups, want.sort));
    const operators = chosen.map(({ operator, hits }) => ({
      id: `o${operator}`,
      kind: "operator",
      operator,
      hits,
      name: index.operators[operator],
    }));
    if (want.rows === "flat") return { rows: operators, operators: operators.length };
    const families = new Map();
    for (const row of operators) {
      const family = index.families.names[index.families.of[row.operator]];
      if (!families.has(family)) families.set(family, []);
      families.get(family).push(row);
    }
    // Families keep the order of their first operator unless they go by name.
    const order = want.sort ? [...families.keys()] : [...families.keys()].sort();
    const openAtFirst = want.rows ? want.rows === "open" : filtered(want);
    const listed = [];
    for (const family of order) {
      const open = want.fold.has(family) !== openAtFirst;
      const theirs = families.get(family);
      listed.push({
        id: `f${family}`,
        kind: "family",
        name: family,
        open,
        members: theirs.map((row) => row.operator),
      });
      if (open) listed.push(...theirs);
    }
    return { rows: listed, operators: operators.length };
  }

  // Operator → cell → cases that are worse than in another run.
  async function worseSince(index, since, run) {
    const found = new Map();
    const bad = new Set(index.changes.filter((change) => change.worse).map((change) => change.name));
    await Conformance.changes.compare(index, since, run, function (one) {
      if (!bad.has(one.change)) return;
      if (!found.has(one.operator)) found.set(one.operator, new Map());
      const row = found.get(one.operator);
      for (const key of [`${one.column}/${one.dtype}`, `${one.column}/`])
        row.set(key, (row.get(key) || 0) + 1);
    });
    return found;
  }

  Conformance.matrixRows = { read, leaves, Rows, list, worseSince, filtered };
})();
