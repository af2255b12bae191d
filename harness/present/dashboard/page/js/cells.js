// A matrix as it was loaded, and the status of a cell of it. Only a pass is a pass; what was lost is never one.
(function () {
  "use strict";
  const { words } = Conformance;

  // The flat list of numbers of data/matrix/N.js → cells by operator, column and dtype.
  function decode(data) {
    const rows = new Map();
    const flat = data.cells;
    for (let at = 0; at < flat.length;) {
      const operator = flat[at];
      const column = flat[at + 1];
      const dtype = flat[at + 2];
      const end = at + 4 + 2 * flat[at + 3];
      const pairs = [];
      for (at += 4; at < end; at += 2) pairs.push([flat[at], flat[at + 1]]);
      if (!rows.has(operator)) rows.set(operator, new Map());
      rows.get(operator).set(key(column, dtype), pairs);
    }
    const seen = new Map();
    for (let at = 0; at < data.pairs.length; at += 2) seen.set(data.pairs[at], data.pairs[at + 1]);
    return { rows, missing: new Set(data.missing), seen };
  }

  // A cell's place in its row; a dtype of "" is that of a whole column.
  const key = (column, dtype) => `${column}/${dtype}`;

  // Sums of pairs of bucket and count.
  function tally(lists, buckets) {
    const found = { passes: 0, total: 0, failures: 0, skipped: 0, outcomes: {} };
    for (const pairs of lists) {
      for (const [bucket, count] of pairs) {
        const [outcome, , , fails] = buckets[bucket];
        found.outcomes[outcome] = (found.outcomes[outcome] || 0) + count;
        if (outcome === "skip") found.skipped += count;
        if (outcome === "pass") found.passes += count;
        if (fails) found.failures += count;
        // As everywhere: shares are of what passed or failed.
        if (outcome === "pass" || fails) found.total += count;
      }
    }
    return found;
  }

  function standing(found) {
    if (found === null) return "absent";
    if (found === "missing") return "missing";
    if (found.passes && found.passes === found.total) return "whole";
    if (!found.passes) return found.failures ? "none" : "unjudged";
    return "part";
  }

  // Glyph and numbers beside the colour: neither is needed to read the other.
  function text(found) {
    switch (standing(found)) {
      case "absent":
        return "·";
      case "missing":
        return "? missing";
      case "whole":
        return `✓ ${short(found.total)}`;
      case "none":
        return `✕ 0/${short(found.total)}`;
      case "unjudged":
        return `◇ ${Object.keys(found.outcomes).find((o) => o !== "skip") || "skip"}`;
      default:
        return `${short(found.passes)}/${short(found.total)}`;
    }
  }

  const short = (n) => (n >= 10000 ? `${Math.round(n / 1000)}k` : String(n));

  function shade(found) {
    const how = standing(found);
    if (how === "whole") return "s5";
    if (how === "none") return "s0";
    if (how !== "part") return how;
    const share = found.passes / found.total;
    return share < 0.34 ? "s1" : share < 0.67 ? "s2" : share < 0.9 ? "s3" : "s4";
  }

  function sentence(found) {
    switch (standing(found)) {
      case "absent":
        return "not run";
      case "missing":
        return "missing: the run has no results for this operator";
      default: {
        const rest = Object.entries(found.outcomes)
          .filter(([o]) => o !== "pass")
          .map(([o, n]) => `${n} ${o}`);
        if (standing(found) === "whole")
          return [`no failure found in ${words.count(found.total, "case")}`, found.seen]
            .filter(Boolean)
            .join(", ");
        const passing = `${found.passes} of ${words.count(found.total, "case")} pass`;
        return [passing, rest.join(", ")].filter(Boolean).join("; ");
      }
    }
  }

  // The ways in which cases fail, the worst first.
  const WAYS = ["mismatch", "crash", "timeout", "error", "unsupported"];

  // How failing cases end.
  function ends(found) {
    return WAYS.filter((outcome) => found.outcomes[outcome])
      .map((outcome) => `${words.number(found.outcomes[outcome])} ${outcome}`)
      .join(", ");
  }

  const NAMES = {
    whole: "no failure found",
    part: "some pass",
    none: "none pass",
    unjudged: "not judged",
    missing: "missing",
  };
  const GLYPHS = { whole: "✓", part: "◐", none: "✕", unjudged: "◇", missing: "?" };

  Conformance.cells = { decode, key, tally, standing, text, shade, sentence, ends, WAYS, NAMES, GLYPHS };
})();
