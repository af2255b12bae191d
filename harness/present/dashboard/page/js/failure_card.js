// One group of failures with its evidence: what was expected and got, the smallest case, a script to copy.
(function () {
  "use strict";
  const { el, words, controls, outside, names, address } = Conformance;

  function card(group, overload, run, open) {
    const path =
      names.listed(group.converters, 3) +
      (group.backends.length ? ` → ${names.listed(group.backends, 3)}` : "");
    return el(
      "details.card",
      { open, id: `case-${group.case}` },
      el(
        "summary",
        controls.outcome(group.outcome, group.stage),
        el("span.grow", path),
        el("span.quiet.small", names.listed(group.dtypes, 5)),
        el(
          "span.small",
          words.count(group.cases, "case"),
          group.ordinary ? `, ${words.number(group.ordinary.cases)} ordinary` : ", all edge",
        ),
        controls.blame(group),
      ),
      el("div.body", body(group, overload, run)),
    );
  }

  function body(group, overload, run) {
    const said = group.expected
      ? el(
          "div",
          el("p.mono.quiet", group.message.split(/expected /)[0].replace(/[\s:]+$/, "")),
          el(
            "div.versus",
            el("div", el("span", "expected"), el("code", group.expected)),
            el("div", el("span", "got"), el("code", group.got)),
          ),
        )
      : null;
    const at = `--run ${quoted(run)}`;
    return [
      el("p", "Place: ", el("code", group.place)),
      group.matters.length ? el("p", el("strong", group.matters.join("; "))) : null,
      said,
      group.message && !said ? controls.code(group.message, "message", true) : null,
      el(
        "div",
        // A shrunk case is in no run.
        el(
          "h3",
          group.shrunk ? "Minimal case " : "Smallest case ",
          group.shrunk ? el("code", group.shown) : caseLink(group.shown),
        ),
        el("p.mono", group.call),
      ),
      group.ordinary && group.ordinary.case !== group.shown
        ? el(
            "div",
            el("h3", "Smallest case of ordinary use ", caseLink(group.ordinary.case)),
            el("p.mono", group.ordinary.call),
          )
        : null,
      group.torch ? details("The call in PyTorch", controls.code(group.torch, "call"), false) : null,
      group.rule &&
        el("p", "The conversion function ", el("code", group.rule), " took part: run it again with --rules."),
      group.rule
        ? null
        : group.script
          ? details("Repro script, needs no harness", controls.code(group.script, "repro script"), true)
          : el(
              "div",
              el("h3", "Repro script"),
              controls.code(`conformance repro ${group.case} ${at}${path(group)}`, "repro command", true),
            ),
      el(
        "div",
        el("h3", "Rerun, or see all details"),
        controls.code(
          `conformance replay ${group.case} ${at}\nconformance show ${group.case} ${at}`,
          "commands",
          true,
        ),
      ),
      group.evidence &&
        details(
          `Why ${
            group.blame === "unknown" || !group.blame ? "blame is undecided" : `${group.owner} is blamed`
          }`,
          sentences(group.evidence),
          false,
        ),
      group.known.length > 0 &&
        el(
          "div",
          el("h3", "Known upstream"),
          controls.list(group.known, (issue) => [
            outside(issue.link, short(issue.link)),
            el("span.grow", issue.note),
          ]),
        ),
    ];
  }

  const caseLink = (id) => el("a.mono", { href: address.format("case", [id]) }, id);

  // What a search for words finds a failure of a run by.
  const searched = (group) =>
    [...group.overloads, group.place, group.cause, group.message, group.case, group.call, group.owner].join("\n");

  const path = (group) =>
    (group.where[0] ? ` --converter ${quoted(group.where[0])}` : "") +
    (group.where[1] ? ` --backend ${quoted(group.where[1])}` : "");

  // As a shell reads it: a name of a run may be anything.
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`);

  const short = (link) => link.replace(/^https:\/\/github\.com\//, "").replace(/\/(issues|pull)\//, " #");

  const details = (title, content, open) => el("details", { open }, el("summary", title), content);

  const sentences = (text) =>
    el(
      "ul",
      text.split(/(?<=\.)\s+(?=[A-Z])/).map((sentence) => el("li", sentence)),
    );

  Conformance.failureCard = { card, quoted, sentences, searched };
})();
