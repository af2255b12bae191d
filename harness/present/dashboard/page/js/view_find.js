// What a word is found in: operators, failures and cases of a run, on one page.
(function () {
  "use strict";
  const { el, words, load, controls, address, names, failureCard } = Conformance;
  const MOST = 40;

  Conformance.views.find = {
    title: "Search",
    tab: false, // The field above all views leads to it.
    whole: true,
    async create(main, { index, run, asked }) {
      const word = asked.params.get("q") || "";
      const failures = run >= 0 ? await load.get(`failures/${run}`) : [];
      const match = names.matcher(word);
      const exact = names.find(word, index.operators, names.packets(index.operators));
      const like = index.operators.map((_, i) => i).filter((i) => match(index.operators[i]) && !exact.includes(i));
      const found = failures.filter((group) => match(failureCard.searched(group)));
      const isId = /^[0-9a-f]{6,12}$/i.test(word);
      main.append(
        el(
          "div.stack",
          controls.heading("Search", word ? `Of “${word}”, in operators, failures and cases.` : "Nothing to look for."),
          isId
            ? part("Case", 1, [el("a.mono", { href: address.format("case", [word]) }, `case ${word.toLowerCase()}`)])
            : null,
          part(
            words.count(exact.length + like.length, "operator"),
            exact.length + like.length,
            [...exact, ...like]
              .slice(0, MOST)
              .map((i) => controls.operator("mono", index.operators[i], index.operators[i])),
            address.format("matrix", [], { q: word }),
          ),
          part(
            words.count(found.length, "failure"),
            found.length,
            found
              .slice(0, MOST)
              .map((group) => [
                controls.outcome(group.outcome, group.stage),
                controls.operator("grow", group.overload, `${group.place} ${group.cause}`, { case: group.case }),
                el("span.quiet.small", words.count(group.cases, "case")),
              ]),
            address.format("failures", [], { q: word }),
          ),
        ),
      );
      return {};
    },
  };

  function part(title, number, lines, all) {
    if (!number) return null;
    return el(
      "section.panel",
      el("h2", title),
      controls.list(lines, (line) => line),
      number > lines.length && all ? el("p", el("a", { href: all }, "All of them")) : null,
    );
  }
})();
