// Parts of the comparison: cases gathered into lines, how a case ended, and the versions that changed.
(function () {
  "use strict";
  const { el, words, controls, runs } = Conformance;
  const ORDER = Object.keys(Conformance.changes.KINDS);
  // Cases of a line that are kept: of each kind some, and so many in all.
  const [OF_A_KIND, LISTED] = [8, 40];

  function gather(lines, one) {
    const id = `${one.operator}-${one.column}`;
    if (!lines.has(id))
      lines.set(id, { id, operator: one.operator, column: one.column, counts: {}, cases: [], total: 0 });
    const line = lines.get(id);
    line.counts[one.change] = (line.counts[one.change] || 0) + 1;
    line.total += 1;
    const same = line.counts[one.change];
    if (same <= OF_A_KIND && line.cases.length < LISTED) line.cases.push(one);
  }

  const weight = (line) => ORDER.findIndex((name) => line.counts[name]);

  function worstFirst(a, b) {
    return (
      weight(a) - weight(b) ||
      (b.counts[ORDER[weight(b)]] || 0) - (a.counts[ORDER[weight(a)]] || 0) ||
      a.operator - b.operator ||
      a.column - b.column
    );
  }

  function ended(state) {
    if (!state) return el("span.quiet", "–");
    const [outcome, stage, signature, open, , rule] = state;
    return el(
      "div",
      controls.outcome(outcome, stage),
      open ? el("span.small.quiet", " left open") : null,
      signature ? el("div.mono.small.clip2", { title: signature }, signature) : null,
      rule ? el("div.small.quiet", `rule: ${rule}`) : null,
    );
  }

  function ulps(one) {
    if (!["numerics moved", "error above bound"].includes(one.change)) return "";
    return `${words.few(one.ulps[0])} → ${words.few(one.ulps[1])}`;
  }

  function versions(before, after) {
    const changed = runs.changed(before, after);
    if (!changed.length)
      return el("p.quiet", "No version and no conversion function changed between the two runs.");
    return el(
      "section.panel",
      el("h2", "What changed between the two runs"),
      controls.table(
        ["", words.when(before.started), words.when(after.started)],
        changed.map(([name, x, y]) => [el("th", { scope: "row" }, name), x, y]),
      ),
    );
  }

  Conformance.compareParts = { ORDER, gather, worstFirst, ended, ulps, versions };
})();
