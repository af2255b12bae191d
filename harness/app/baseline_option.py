"""Compare each item with the baseline for ``--baseline``, and write the baseline for ``--update-baseline``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from harness.compare.verdict import CaseKey
from harness.core.documents import parse_data, to_data
from harness.gate.baseline.count_cells import DRAWN_SOURCES
from harness.gate.baseline.file import (
    Baseline,
    baseline_of_run,
    is_baseline,
    make_baseline,
    read_baseline,
    update,
    write_baseline as write,
)
from harness.gate.baseline.gate import BaselineFinding
from harness.gate.baseline.recheck import Rechecked
from harness.gate.diff_inputs import BaselineComparison, ReportedDifference, comparison, reported
from harness.gate.run_diff import version_changes
from harness.generate.sources.generated import Generated
from harness.generate.sources.programs import Programs
from harness.plan.options import OPERATOR_EXAMPLES, PROGRAM_EXAMPLES, Options, UsageProblem
from harness.present import gate_report as gate, report as reports
from harness.record.json_lines import write_flaky
from harness.record.layout import ResultsError
from harness.record.run_info import RunInfo

#: Exit statuses of pytest.
_OK, _FAILED = 0, 1


def prepare(given: Any) -> None:
    """Complete pytest's options: a missing one comes from the baseline, or is the default.

    Raises:
        UsageProblem: options that do not go together.
        ResultsError: the baseline is damaged, or there is none.
    """
    if given.update_baseline and not given.baseline:
        raise UsageProblem("--update-baseline needs --baseline DIR")
    if given.baseline:
        _check(given)
        known = expected(given)
        for name, value in (known.options if known else {}).items():
            if getattr(given, name) in (None, []):
                setattr(given, name, value)
        if not (given.programs or given.pattern):
            # Sources that are asked before would take cases out of those that are compared.
            given.source = sorted(given.source or [Generated.name], key=lambda word: not _is_drawn(word))
    usual = {"seed": Options().seed, "examples": PROGRAM_EXAMPLES if _draws_programs_only(given) else OPERATOR_EXAMPLES}
    for name, value in usual.items():
        if getattr(given, name) is None:
            setattr(given, name, value)


def _is_drawn(source: str) -> bool:
    """Whether a baseline counts the cases of a source."""
    return source.partition(":")[0] in DRAWN_SOURCES


def _draws_programs_only(given: Any) -> bool:
    drawn = {word.partition(":")[0] for word in given.source if _is_drawn(word)}
    return bool(given.programs or given.pattern) or drawn == {Programs.name}


def _check(given: Any) -> None:
    if given.replay is not None:
        raise UsageProblem("--baseline compares drawn cases, and --replay runs recorded ones: use `conformance diff`")
    if given.no_blame:
        raise UsageProblem("--baseline must know which failures the specifications leave open: leave out --no-blame")
    if given.source and not any(map(_is_drawn, given.source)):
        raise UsageProblem(f"--baseline compares drawn cases only: add --source {Generated.name}")


def expected(given: Any) -> Baseline | None:
    """Return the baseline in use: None without one, an empty one if a first one will be made.

    Raises:
        ResultsError: it is damaged or absent.
    """
    if not given.baseline:
        return None
    directory = Path(given.baseline)
    if given.update_baseline and not is_baseline(directory):
        return Baseline({})
    return read_baseline(directory)


def report_of(compared: Rechecked, before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, Any]:
    """Return one item's report as plain data; `before` and `now` are versions of the baseline and the run."""
    versions = version_changes(before, now)
    return {
        "differences": [to_data(reported(difference, versions)) for difference in compared.differences],
        "flaky": sorted(compared.flaky),
        "compared": [compared.same, compared.other],
    }


class Gate:
    """Collects the reports of the items, and decides the exit status; `known` is the baseline, if there is one."""

    def __init__(self, known: Baseline | None) -> None:
        self._known = known
        self._differences: list[ReportedDifference] = []
        self._flaky: set[CaseKey] = set()
        self._same = self._other = 0
        self._message = ""

    def add(self, properties: Mapping[str, Any]) -> None:
        """Add one item's report, made by `report_of`."""
        self._differences += parse_data(list[ReportedDifference], properties.get("differences", []))
        for case_id, exported, converter, backend in properties.get("flaky", ()):
            self._flaky.add((case_id, exported, converter, backend))
        same, other = properties.get("compared", (0, 0))
        self._same += same
        self._other += other

    def close(self, given: Any, results_dir: Path, status: int) -> int:
        """Note the flaky cases in the finished run, and write the baseline if that was asked for.

        Returns:
            pytest's exit status from now on.
        """
        try:
            write_flaky(results_dir, self._flaky)
        except ResultsError as error:
            self._message = f"ERROR: {error}"
            return _FAILED
        if not given.update_baseline:
            return status
        if status not in (_OK, _FAILED):
            self._message = "the baseline was not changed, because the run did not finish"
            return status
        try:
            run = baseline_of_run(results_dir)
            write(Path(given.baseline), update(self._known, run))
        except ResultsError as error:
            self._message = f"ERROR: the baseline was not changed: {error}"
            return _FAILED
        self._message = f"wrote {len(run.cells):,} operator/dtype entries to {given.baseline}"
        return _OK

    @property
    def worse_cases(self) -> list[str] | None:
        """A case of each difference that closes the gate; None without a baseline."""
        if self._known is None:
            return None
        return list(
            dict.fromkeys(
                difference.case_id
                for difference in self._differences
                if difference.finding.fails and difference.case_id
            )
        )

    @property
    def regressed(self) -> ReportedDifference | None:
        """The first difference that closes the gate and has a case that fails; None for none."""
        failing = (difference for difference in self._differences if difference.finding.fails and difference.case_id)
        return next((d for d in failing if d.finding is not BaselineFinding.DRIFT), None)

    def comparison(self, run: RunInfo) -> BaselineComparison:
        """Return the comparison of the whole run with the baseline."""
        now = make_baseline(run, {})
        return comparison(self._known or Baseline({}), now, self._differences, same=self._same, other=self._other)

    def rendered(self, given: Any, run: RunInfo) -> list[RenderableType]:
        """Render the comparison for a terminal, and the message about the baseline."""
        parts: list[RenderableType] = []
        if self._known is not None and self._known.cells:
            advice = "" if given.update_baseline else "fix them, or accept them with --update-baseline"
            parts.append(reports.render(gate.report(self.comparison(run), "Compared with the baseline", advice)))
        return [*parts, self._message] if self._message else parts
