"""The summary at the end of a session: matrix, counts, failures, and how to reproduce one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console, RenderableType
from rich.text import Text

from harness.causes import groups as failures, known_issues
from harness.causes.real_use import real_use
from harness.causes.rows import fill_ordinary
from harness.causes.upkeep import read_upkeep
from harness.compare.verdict import Outcome
from harness.core.invocation import MODEL
from harness.core.route import route_label
from harness.core.text import count, plain
from harness.coverage.seen_pairs import SeenPairs, read_seen_pairs
from harness.gate.case_changes import ChangeKind
from harness.gate.diff_inputs import ReportedDifference
from harness.gate.run_diff import Diff, compare_runs
from harness.pipeline.model_task import model_word
from harness.present import glance, matrix, report as reports, run_changes as changes, run_counts
from harness.present.case_report import command, shown_path
from harness.present.composition_text import composition, render_composition
from harness.present.failures_text import render_first, render_no_longer_failing
from harness.present.opset_text import opset_differences, render_opsets
from harness.present.real_use_text import real_use_sentence
from harness.present.run_counts import fallbacks
from harness.record import layout, store
from harness.record.dictionary_encoding import numbered_column
from harness.record.json_lines import read_minimal
from harness.record.layout import ResultsError
from harness.record.progress import completeness
from harness.record.run_info import read_run_info, rule_files
from harness.reproduce.failure import find_failure
from harness.reproduce.script import write_script
from harness.reproduce.script_text import NoScript

_COLUMNS: list[str] = sorted(
    {
        *(*matrix.COLUMNS, *matrix.RATE_COLUMNS, *glance.COLUMNS),
        *(*run_counts.COUNTED_COLUMNS, "case_id"),
    }
)


def print_summary(
    console: Console,
    results_dir: Path,
    *,
    operators: int = 10,
    groups: int = 10,
    cwd: Path | None = None,
    regressed: ReportedDifference | None = None,
    verbose: bool = False,
    minutes: float | None = None,
) -> None:
    """Print a run on one screen: its headline, a matrix, the failures that most models meet, and what to do next.

    At most so many operators and groups of failures are shown, paths relative to `cwd`. `conformance failures` and
    `conformance summary` have the rest. The command at its end reruns the case that has `regressed` from a baseline, if
    one is given. With `verbose`, it has what concerns maintainers: the notes on how the run was made, operator cases
    that PyTorch rejects, witnesses that raised. `minutes` is the time after which the run was asked to end.

    Raises:
        ResultsError: the run cannot be read.
    """
    for part in _parts(results_dir, operators, groups, cwd, regressed, minutes):
        # A line that people copy is never wrapped.
        console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
    if verbose:
        for part in _upkeep_parts(results_dir):
            console.print(part, soft_wrap=True)


def _parts(
    results_dir: Path,
    operators: int,
    groups: int,
    cwd: Path | None,
    from_baseline: ReportedDifference | None,
    minutes: float | None,
) -> Iterator[RenderableType]:
    rows = store.read(results_dir, _COLUMNS, encoded=True, made=fill_ordinary).unify_dictionaries()
    where = shown_path(results_dir, cwd)
    if not rows.num_rows:
        yield Text(f"No case was drawn; the run is in {plain(where)}", style="bold red")
        yield from _notes(results_dir)
        return
    yield from _rates(results_dir, merge_opsets(rows), operators)
    yield run_counts.sentence(run_counts.counts(rows))
    for left in fallbacks(results_dir):
        yield Text(f"Not on the backend's device: {left.sentence}", style="bold yellow")
    yield Text()
    known, complaint = _known_issues()
    if complaint:
        yield Text(plain(complaint), style="bold red")
    found = failures.failure_groups(
        store.read(results_dir, failures.COLUMNS, failures.FAILED, encoded=True),
        read_minimal(results_dir),
        known,
    )
    if found:
        yield render_first(found, groups)
        yield Text()
    # Its table of pairs is in `conformance summary`.
    yield from islice(render_composition(composition(results_dir)), 1)
    yield from render_opsets(opset_differences(results_dir))
    without = results_dir / layout.WITHOUT_RULES_DIRECTORY
    regressed = None if from_baseline is None else _failing(results_dir, from_baseline)
    if without.is_dir():
        found_by_rules = compare_runs(without, results_dir)
        regressed = regressed or _regressed(found_by_rules)
        yield Text("With the rules, compared with the converter's own conversions:", style="bold")
        yield reports.render(changes.report(found_by_rules))
        yield Text()
    if found:
        case = regressed or {**vars(found[0].usual), "rule": found[0].rule}
        yield from _next(results_dir, case, cwd, "regression" if regressed else "failure")
    yield from _ending(results_dir, minutes)
    cases = len(numbered_column(rows["case_id"])[1])
    name = layout.VERDICTS_FILE if (results_dir / layout.VERDICTS_FILE).exists() else layout.PARTS_DIRECTORY
    yield Text(
        f"{count(cases, 'case')}, {count(rows.num_rows, 'verdict')}, written to {plain(where)}/{name}",
        no_wrap=True,
    )


def merge_opsets(rows: pa.Table) -> pa.Table:
    """Return rows with ``dynamo`` in place of ``dynamo@23`` if the run has both: a column of its own for a few
    operators at a later opset says little."""
    names = pc.unique(rows["converter"].cast(pa.string())).to_pylist()
    plainer = {name: name.partition("@")[0] for name in names if name.partition("@")[0] in names}
    if all(name == base for name, base in plainer.items()):
        return rows
    merged = rows["converter"].cast(pa.string())
    for name, base in plainer.items():
        merged = pc.if_else(pc.equal(merged, name), base, merged)
    place = rows.column_names.index("converter")
    return rows.set_column(place, "converter", merged.dictionary_encode()).unify_dictionaries()


def _ending(results_dir: Path, minutes: float | None) -> Iterator[Text]:
    """Yield what is missing from the run; for one that ended after the minutes that it was given, nothing is."""
    there = completeness(results_dir)
    if there.complete:
        return
    if minutes is not None and len(there.parts) == 1:
        done = len(there.operators) - len(there.unfinished)
        noun = "minute" if minutes == 1 else "minutes"
        operators = f"{done:,} of {len(there.operators):,} operators"
        yield Text(f"Ended after {minutes:g} {noun}, as asked: {operators} are done.")
        return
    yield Text(f"Incomplete: {plain(there.summary)}", style="bold yellow")


def _upkeep_parts(results_dir: Path) -> Iterator[RenderableType]:
    """Yield how the run was made, and what of it concerns the harness itself."""
    yield from _notes(results_dir)
    found = read_upkeep(results_dir)
    if found.raised:
        names = ", ".join(f"{plain(name)} ({count(n, 'time')})" for name, n in found.raised.items())
        yield Text(f"Diagnosis probes that crashed: {names}")
    if found.rejections:
        yield run_counts.render_rejections(found.rejections)
    known, _ = _known_issues()
    gone = known_issues.no_longer_failing(known, known_issues.rows_about(known, results_dir))
    if gone:
        yield render_no_longer_failing(gone)


def _rates(results_dir: Path, rows: pa.Table, operators: int) -> Iterator[RenderableType]:
    """Yield the rates of each converter and backend as users meet them, and the matrix of operators."""
    used = {(use.converter, use.backend): use for use in real_use(results_dir)}
    weighted = {(rate.converter, rate.backend): rate for rate in matrix.weighted_rates(rows)}
    for found in glance.glances(rows):
        way = found.converter, found.backend
        yield Text(_headline(found, weighted.get(way)), style="bold")
        yield from (Text(f"  {sentence}") for sentence in found.sentences)
        if way in used:
            yield Text(f"  {real_use_sentence(used[way])}")
    yield Text(_KINDS, style="dim")
    yield Text()
    counted = matrix.matrix(rows)
    passing = [row.overload for row in counted.rows if row.passing]
    seen = SeenPairs.together(read_seen_pairs(results_dir, passing).values())
    yield matrix.render(counted, operators, seen)


#: Ordinary and edge cases, as `harness.generate.call_traits` tells them apart.
_KINDS = "(ordinary: a call that a model could well make; edge: NaN, infinities, rare dtypes, empty tensors)"


def _headline(found: glance.Glance, weighted: matrix.WeightedRate | None) -> str:
    """Return a sentence on a user's experience with a converter and a backend."""
    way = route_label(found.converter, found.backend)
    if weighted is not None and weighted.ordinary is not None:
        share = matrix.percent_of(weighted.ordinary)
        return f"{way}: {share} of ordinary calls are right, weighted by how many models make them"
    total = found.ordinary.total()
    return f"{way}: {matrix.percent(found.ordinary[Outcome.PASS], total)} of ordinary calls are right"


def _next(results_dir: Path, case: Mapping[str, Any], cwd: Path | None, what: str) -> Iterator[Text]:
    """Yield where a script of a failure is, if it is one call, and the commands for a closer look."""
    script = _written_script(results_dir, case)
    if script is not None:
        yield Text(f"The first {what} as a script: python {shown_path(script, cwd)}", no_wrap=True)
    yield Text(f"Run it again: {_rerun(results_dir, case, cwd)}", no_wrap=True)
    where = shown_path(results_dir, cwd)
    if not str(case["overload"]).startswith(MODEL):
        yield Text(f"See whose fault it is: conformance show {case['case_id']} --run {where}", no_wrap=True)
    yield Text(f"All failures: conformance failures {where}", no_wrap=True)
    yield Text(f"All figures: conformance summary {where}", no_wrap=True)


def _written_script(results_dir: Path, case: Mapping[str, Any]) -> Path | None:
    """Write the script that shows a failing case into the directory of the run; return None if there is none."""
    if str(case["overload"]).startswith(MODEL):
        return None
    try:
        failure = find_failure(
            results_dir, case["case_id"], converter=case["converter"] or None, backend=case["backend"] or None
        )
        path = results_dir / f"repro_{case['case_id'][:8]}.py"
        path.write_text(write_script(failure), encoding="utf-8")
    except (NoScript, ResultsError, LookupError, OSError):
        return None
    return path


def _rerun(results_dir: Path, case: Mapping[str, Any], cwd: Path | None) -> str:
    """Return the command that reruns a failing case."""
    return command(
        results_dir,
        case["case_id"],
        converter=case["converter"],
        backend=case["backend"] or None,
        model=model_word(results_dir, (case["overload"],)),
        rules=rule_files(results_dir, read_run_info(results_dir)) if case["rule"] else (),
        cwd=cwd,
    )


def _notes(results_dir: Path) -> Iterator[Text]:
    for note in read_run_info(results_dir).notes:
        yield Text(plain(note), style="yellow", no_wrap=True)


def _failing(results_dir: Path, difference: ReportedDifference) -> Mapping[str, Any] | None:
    """Return a failing row of the case that a difference names."""
    where = failures.FAILED & (pc.field("case_id") == difference.case_id)
    where &= pc.field("converter") == difference.converter
    columns = ["case_id", "overload", "converter", "backend", "rule"]
    rows: list[Mapping[str, Any]] = store.read(results_dir, columns, where).to_pylist()
    return min(rows, key=lambda row: row["backend"] != difference.backend, default=None)


def _regressed(found: Diff) -> Mapping[str, Any] | None:
    """Return a case that fails and passed before, else one that failed in another way; None for neither."""
    kinds = (ChangeKind.REGRESSED, ChangeKind.FAILS_OTHERWISE)
    lines = ((line, kind) for kind in kinds for line in found.overloads)
    return next((line.examples[kind].row for line, kind in lines if kind in line.examples), None)


def _known_issues() -> tuple[tuple[known_issues.KnownIssue, ...], str]:
    """Return the known defects, or a message about their file: a typing error there must not cost the summary."""
    try:
        return known_issues.read_known_issues(), ""
    except ResultsError as error:
        return (), str(error)
