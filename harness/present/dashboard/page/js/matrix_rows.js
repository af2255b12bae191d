// The rows of the matrix: operators with their cells, filtered, sorted, and gathered into families.
(function () {
  "use strict";
  const { cells, names } = Conformance;

  // What is asked for, out of an address.
  function read(params) {
    const get = (name) => params.get(name) || "";
    const names = "q family dtype column outcome blame stage standing since gaps use sort rows dtypes";
    return {
      ...Object.fromEntries(names.split(" ").map((name) => [name, get(name)])),
      fold: new Set(get("fold").split(",").filter(Boolean)),
    };
  }

  const FILTERS = ["q", "family", "outcome", "blame", "stage", "standing", "since", "gaps", "use"];
  const filtered = (want) => FILTERS.some((name) => want[name]);

  // The columns to show: [{column, dtype: number or "", use}], a whole column first, then its dtypes. `use` is
  // which of its cases count: "ordinary", "edge", or "" for all.
  function leaves(index, run, matrix, want) {
    const arrows = index.columns.map(Conformance.words.arrow);
    const used = new Map();
    const counts = ([bucket]) => !want.use || isOf(index, bucket, want.use);
    for (const row of matrix.rows.values()) {
      for (const [key, pairs] of row) {
        if (!pairs.some(counts)) continue;
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
    const split = Boolean(want.dtypes || wanted);
    // What another run has is known of all cases together.
    const uses = want.use || want.since ? [want.use] : ["ordinary", "edge"];
    return groups.map(({ column, title, dtypes }) => ({
      column,
      title,
      dtypes,
      leaves: [
        ...(wanted ? [] : uses.map((use) => ({ column, dtype: "", use }))),
        ...(split ? dtypes.map((dtype) => ({ column, dtype, use: want.use })) : []),
      ],
    }));
  }

  const isOf = (index, bucket, use) => Boolean(index.buckets[bucket][4]) === (use === "ordinary");

  // A leaf's name: in addresses, and for the table.
  const nameOf = (leaf) => `${leaf.column}/${leaf.dtype}${leaf.use ? `/${leaf.use}` : ""}`;

  function named(name, index) {
    const found = /^(\d+)\/(\d*)(?:\/(ordinary|edge))?$/.exec(name);
    if (!found || !index.columns[found[1]]) return null;
    const [, column, dtype, use] = found;
    return { column: Number(column), dtype: dtype === "" ? "" : Number(dtype), use: use || "" };
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
      const own = leaf.dtype === "" ? null : cells.key(leaf.column, leaf.dtype);
      const lists = own
        ? [row.get(own) || []]
        : [...row].filter(([key]) => key.startsWith(`${leaf.column}/`)).map(([, pairs]) => pairs);
      if (!leaf.use) return lists.filter((pairs) => pairs.length);
      return lists
        .map((pairs) => pairs.filter(([bucket]) => isOf(this.index, bucket, leaf.use)))
        .filter((pairs) => pairs.length);
    }

    cell(operator, leaf) {
      if (this.matrix.missing.has(operator)) return "missing";
      const key = `${operator}:${nameOf(leaf)}`;
      if (!this.counted.has(key)) {
        const lists = this.pairs(operator, leaf);
        const found = lists.length ? cells.tally(lists, this.index.buckets) : null;
        // How various the cases are is known of all of them together.
        if (found && leaf.dtype === "" && !leaf.use) found.seen = this.matrix.seen.get(operator);
        this.counted.set(key, found);
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
    (want.dtype ? dtypes : [""]).map((dtype) => ({ column, dtype, use: want.use }));

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

  // Worst first: by priority as harness/causes/priority.py has it, which is the share of failures times that of the
  // models that call the operator. Then by the share of all cases, then by the worse ways; what is missing comes first.
  function badness(rows, operators, columns, use) {
    const failing = function (which) {
      const found = columns.map((column) => rows.sum(operators, { column, dtype: "", use: which }));
      const counted = found.filter((cell) => cell && cell !== "missing");
      const failures = total(counted, (cell) => cell.failures);
      const share =
        failures /
        Math.max(
          1,
          total(counted, (cell) => cell.total),
        );
      return { counted, failures, share, lost: found.includes("missing") };
    };
    const all = failing(use);
    if (all.lost) return { order: [-1.5], number: 0 };
    const usual = use ? all : failing("ordinary");
    const ways = cells.WAYS.map((way) => -total(all.counted, (cell) => cell.outcomes[way] || 0));
    const { models, callers, edge } = rows.index.use;
    const called = Math.max(...operators.map((operator) => callers[operator]));
    const weighed = use ? all.share : Math.max(usual.share, edge * failing("edge").share);
    const priority = (weighed * (called + 0.5)) / (models + 1);
    return { order: [-priority, -all.share, ...ways], number: -all.failures };
  }

  const total = (counted, number) => counted.reduce((sum, cell) => sum + number(cell), 0);

  function compareBy(rows, groups, want) {
    const { index } = rows;
    const members = (row) => (row.kind === "family" ? row.members : [row.operator]);
    const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
    const columns = groups.map((group) => group.column);
    const measure = new Map();
    const of = function (row, how) {
      if (!measure.has(row.id)) measure.set(row.id, how(members(row)));
      return measure.get(row.id);
    };
    const chosen = named(want.sort, index);
    if (chosen) {
      const value = (row) => of(row, (operators) => share(rows.sum(operators, chosen)));
      return (a, b) => value(a) - value(b) || byName(a, b);
    }
    if (want.sort === "name") return byName;
    const bad = (row) => of(row, (operators) => badness(rows, operators, columns, want.use));
    if (want.sort === "failures") return (a, b) => bad(a).number - bad(b).number || byName(a, b);
    return function (a, b) {
      const [x, y] = [bad(a).order, bad(b).order];
      const at = x.findIndex((value, i) => value !== (y[i] ?? 0));
      return at < 0 ? byName(a, b) : x[at] - (y[at] ?? 0);
    };
  }

  function share(cell) {
    if (cell === null) return 2;
    return cell === "missing" ? -1 : cell.passes / Math.max(1, cell.total);
  }

  // The rows of the table, in order: operators, or families with their operators where they are open.
  function list(rows, groups, want, worse) {
    const { index } = rows;
    const order = compareBy(rows, groups, want);
    const operators = select(rows, groups, want, worse)
      .map(({ operator, hits }) => ({
        id: `o${operator}`,
        kind: "operator",
        operator,
        hits,
        name: index.operators[operator],
      }))
      .sort(order);
    if (!inFamilies(want)) return { rows: operators, operators: operators.length };
    const families = new Map();
    for (const row of operators) {
      const family = index.families.names[index.families.of[row.operator]];
      if (!families.has(family)) families.set(family, []);
      families.get(family).push(row);
    }
    const openAtFirst = want.rows ? want.rows === "open" : filtered(want);
    const listed = [...families]
      .map(([family, theirs]) => ({
        id: `f${family}`,
        kind: "family",
        name: family,
        open: want.fold.has(family) !== openAtFirst,
        members: theirs.map((row) => row.operator),
        theirs,
      }))
      .sort(order)
      .flatMap(({ theirs, ...row }) => (row.open ? [row, ...theirs] : [row]));
    return { rows: listed, operators: operators.length };
  }

  // An address that says which families are open means families.
  const inFamilies = (want) => ["open", "closed"].includes(want.rows) || (!want.rows && want.fold.size > 0);

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

  Conformance.matrixRows = { read, leaves, Rows, list, worseSince, filtered, inFamilies, nameOf };
})();
