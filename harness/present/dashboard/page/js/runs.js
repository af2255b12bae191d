// Which run a view shows, how a run is named, and what two runs were not asked for alike.
(function () {
  "use strict";
  const { el, words } = Conformance;

  // The run that an address asks for; without one, or with one that is not here, that which is shown first.
  function chosen(index, params) {
    const found = place(index, params.get("run"));
    return found >= 0 ? found : index.shown;
  }

  const place = (index, id) => index.runs.findIndex((run) => run.id === id);

  // What an address says of a run: nothing of the one that is shown first.
  const param = (index, run) => (run === index.shown || run < 0 ? "" : index.runs[run].id);

  const listed = (all) => [...new Set(all)].sort().join(", ");

  // Time, name, converters and backends: what tells runs of one day apart.
  function title(index, run) {
    if (run < 0) return "a site without runs";
    const one = index.runs[run];
    const names = one.columns.map((column) => index.columns[column]);
    const path = `${listed(names.map(([name]) => name))} → ${listed(names.map(([, name]) => name))}`;
    const name = one.state === "complete" ? one.name : `${one.name} (partial)`;
    return [words.when(one.started), name, names.length ? path : "no verdicts"].join(" · ");
  }

  // All runs to choose from, newest first.
  const options = (index) => index.runs.map((run, i) => [run.id, title(index, i)]).reverse();

  // What of an address names no run here: a notice each.
  function unknown(index, params) {
    const said = {
      run: `This is ${title(index, index.shown)}.`,
      since: "No operator is marked as regressed.",
    };
    return ["run", "a", "b", "since"]
      .filter((name) => params.get(name) && place(index, params.get(name)) < 0)
      .map((name) =>
        el(
          "div.notice",
          { role: "note" },
          el("strong", `No run here is called ${params.get(name)}. `),
          said[name] || "Another run is compared instead.",
        ),
      );
  }

  // The run that a run is compared with; of the first the one after it.
  const other = (index, run) => index.runs[run].before ?? (run ? 0 : 1);

  // What two runs were asked for that differs: name → [for the first, for the second].
  function differences(index, a, b) {
    if (a <= b) return index.differences[`${a}/${b}`] || {};
    const turned = Object.entries(index.differences[`${b}/${a}`] || {});
    return Object.fromEntries(turned.map(([name, [x, y]]) => [name, [y, x]]));
  }

  // Versions and conversion functions that differ: [name, in the first, in the second].
  function changed(before, after) {
    const all = [...new Set([...Object.keys(before.versions), ...Object.keys(after.versions)])].sort();
    const found = all
      .map((name) => [name, before.versions[name] || "–", after.versions[name] || "–"])
      .filter(([, x, y]) => x !== y);
    if (!Object.keys(before.versions).length || !Object.keys(after.versions).length) found.length = 0;
    if (before.source && after.source && before.source !== after.source)
      found.push(["harness source", before.source, after.source]);
    const [x, y] = [rules(before), rules(after)];
    if (x !== y || before.rules.digest !== after.rules.digest)
      found.push(["rules", x, x === y ? `${y}, changed` : y]);
    return found;
  }

  const rules = (run) => run.rules.files.join(", ") || (run.rules.digest ? "some" : "none");

  // A sentence on the differences between the requests of two runs; null if there are none.
  function unlike(index, a, b) {
    const found = Object.entries(differences(index, a, b));
    if (!found.length) return null;
    const changes = found.map(([name, [x, y]]) => `${name} ${x} → ${y}`).join("; ");
    return `The two runs used different options: ${changes}. Only cases that both requested are compared.`;
  }

  Conformance.runs = { chosen, place, param, title, options, unknown, other, differences, changed, unlike };
})();
