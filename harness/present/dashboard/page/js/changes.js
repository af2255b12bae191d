// What became of every case from one run to another, by the rules of harness/gate/case_changes.py.
(function () {
  "use strict";
  const { load } = Conformance;
  const ABSENT = 0;
  // Kinds of change, worst first, and how each is to be taken.
  const KINDS = {
    regressed: "worse",
    "fails differently": "worse",
    "error above bound": "worse",
    "numerics moved": "",
    improved: "better",
    new: "",
    gone: "",
    flaky: "",
  };
  // A case that one of the two runs has and the other was not asked for: counted, and no change.
  const UNASKED = "not requested";

  // How the cases of a run ended: per chunk of cases the states (1 more than their numbers, 0 for absent) and errors.
  function unpack(ends, sizes) {
    const parts = new Map();
    for (const part of ends.parts) {
      const states = new Int32Array(sizes.get(part.chunk));
      let at = 0;
      for (let i = 0; i < part.states.length; i += 2) {
        states.fill(part.states[i], at, at + part.states[i + 1]);
        at += part.states[i + 1];
      }
      const ulps = new Map();
      at = 0;
      part.at.forEach(function (step, i) {
        at += step;
        ulps.set(at, part.ulps[i]);
      });
      parts.set(part.chunk, { states, ulps, flaky: part.flaky });
    }
    return parts;
  }

  // Calls `each({change, operator, column, dtype, chunk, at, block, before, after, ulps})` for every case that
  // changed; `identify` finds their ids.
  async function compare(index, a, b, each) {
    const [before, after, forBefore, forAfter, states] = await load.all([
      `ends/${a}`,
      `ends/${b}`,
      `asked/${a}`,
      `asked/${b}`,
      "states",
    ]);
    const numbers = [...new Set([...before.parts, ...after.parts].map((part) => part.chunk))].sort(
      (x, y) => x - y,
    );
    const chunks = new Map();
    (await load.all(numbers.map((n) => `cases/${n}`))).forEach((chunk, i) => chunks.set(numbers[i], chunk));
    const sizes = new Map([...chunks].map(([n, chunk]) => [n, chunk.size]));
    const old = unpack(before, sizes);
    const now = unpack(after, sizes);
    const lost = new Set([...before.missing, ...after.missing]);
    const pairs = new Map();
    const counts = {};
    for (const number of numbers) {
      const chunk = chunks.get(number);
      const was = old.get(number);
      const is = now.get(number);
      const flaky = new Set([...(was ? was.flaky : []), ...(is ? is.flaky : [])]);
      const [askedBefore, askedAfter] = [flags(forBefore[number]), flags(forAfter[number])];
      let at = 0;
      for (let c = 0; c < chunk.cells.length; c += 4) {
        const [operator, column, dtype, size] = chunk.cells.slice(c, c + 4);
        const end = at + size;
        const asked = { new: askedBefore(c / 4), gone: askedAfter(c / 4) };
        if (lost.has(operator)) {
          at = end;
          continue;
        }
        for (; at < end; at++) {
          const x = was ? was.states[at] : ABSENT;
          const y = is ? is.states[at] : ABSENT;
          if (x === ABSENT && y === ABSENT) continue;
          let change = ofPair(pairs, states, x, y);
          const ulps = [error(was, at), error(is, at)];
          if (change === "numeric") change = numeric(index.bounds, ...ulps);
          if (flaky.size && x && y && flaky.has(at)) change = "flaky";
          if (asked[change] === false) {
            counts[UNASKED] = (counts[UNASKED] || 0) + 1;
            continue;
          }
          counts[change] = (counts[change] || 0) + 1;
          if (change === "unchanged") continue;
          each({
            change,
            operator,
            column,
            dtype,
            ulps,
            chunk: number,
            at,
            block: chunk.block,
            before: x ? states[x - 1] : null,
            after: y ? states[y - 1] : null,
          });
        }
      }
    }
    return { counts, lost: lost.size };
  }

  // Cases that changed, with their ids, for which it loads the files that hold these.
  async function identify(cases) {
    const file = (one) => `ids/${one.chunk}-${Math.floor(one.at / one.block)}`;
    const names = [...new Set(cases.map(file))];
    const loaded = await load.all(names);
    return cases.map(function (one) {
      const ids = loaded[names.indexOf(file(one))];
      const at = one.at % one.block;
      return { ...one, id: typeof ids === "string" ? ids.slice(12 * at, 12 * at + 12) : ids[at] };
    });
  }

  // Run lengths of 0 and 1 → whether the place-th is 1; places are asked for in order.
  function flags(lengths) {
    let [at, end] = [0, lengths.length ? lengths[1] : 0];
    return function (place) {
      while (place >= end) {
        at += 2;
        end += lengths[at + 1];
      }
      return lengths[at] === 1;
    };
  }

  function error(part, at) {
    return part ? part.ulps.get(at) || 0 : 0;
  }

  function ofPair(known, states, x, y) {
    const key = x * (states.length + 1) + y;
    if (!known.has(key)) known.set(key, judge(x ? states[x - 1] : null, y ? states[y - 1] : null));
    return known.get(key);
  }

  const FAILURES = new Set(["mismatch", "unsupported", "error", "crash", "timeout"]);

  function judge(before, after) {
    if (!before) return "new";
    if (!after) return "gone";
    const [outcome, stage, signature, , measured, , fails] = before;
    const [outcome2, stage2, signature2, , measured2, , fails2] = after;
    if (fails !== fails2) return fails2 ? "regressed" : "improved";
    if (fails2) {
      return outcome === outcome2 && stage === stage2 && signature === signature2
        ? "unchanged"
        : "fails differently";
    }
    if (FAILURES.has(outcome) || FAILURES.has(outcome2)) return "unchanged";
    if (outcome !== outcome2) return outcome === "pass" ? "regressed" : "improved";
    return measured && measured2 ? "numeric" : "unchanged";
  }

  function numeric(bounds, before, after) {
    // −1 stands for an infinite error.
    if (before < 0 || after < 0) return "unchanged";
    const low = Math.min(before, after);
    const high = Math.max(before, after);
    if (high <= bounds.rounding || high <= bounds.moved * low) return "unchanged";
    return after > bounds.drift * Math.max(before, bounds.rounding) ? "error above bound" : "numerics moved";
  }

  Conformance.changes = { compare, identify, KINDS, UNASKED };
})();
