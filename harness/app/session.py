"""A run: its plan is executed unit by unit and recorded. The command line's work, for Python.

plan = make_plan(Options(ops=("aten::celu",), examples=40))
with Session(plan, Path("out")) as session:
    for unit in plan.units:
        print(session.run(unit).text())
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import harness
from harness.app.baseline_option import report_of
from harness.causes.upkeep import read_upkeep
from harness.compare.diagnosis import DIVERGENCE, Diagnosis
from harness.compare.verdict import Verdict
from harness.convert.converter import find_converter
from harness.core.invocation import MODEL, Invocation
from harness.core.route import route_label
from harness.gate.baseline.file import Baseline, make_baseline
from harness.gate.baseline.recheck import Rechecked, recheck
from harness.gate.waivers import NO_WAIVERS, Waivers
from harness.generate.regressions.corpus_store import Corpus, CorpusEntry
from harness.generate.regressions.remember import Memory, Remembered
from harness.generate.sources.corpus import FromCorpus
from harness.generate.sources.source import Notice
from harness.pipeline.supervisor import Supervisor
from harness.plan.basis import basis
from harness.plan.plan import Plan
from harness.plan.unit import Unit, run_unit
from harness.present.evidence import evidence_of_row
from harness.record import layout, store
from harness.record.run_info import OPTION, RunInfo, recorded_paths, write_run_info
from harness.record.writer import RunWriter
from harness.run.backend import BACKENDS, runtime_distributions


class UnitSummary:
    """The result of one unit.

    Attributes:
        compared: Comparison with the baseline; None if the run has no baseline.
        open: Number of verdicts that would be failures if the specification did not leave the result open.
        notices: Messages for the user from the sources of the cases.
        notes: Messages for the user about the converters that took part.
        remembered: Changes of the corpus.
        waived: Number of a waiver → failing cases that met it.
    """

    def __init__(self, waivers: Waivers = NO_WAIVERS) -> None:
        self._waivers = waivers
        self.waived: Counter[int] = Counter()
        self.compared: Rechecked | None = None
        self.verdicts = 0
        self.outcomes: Counter[str] = Counter()
        self.open = 0
        self.notices: list[Notice] = []
        self.notes: list[str] = []
        self.remembered = Remembered()
        self._cases: set[tuple[str, str]] = set()
        self._failures: dict[str, tuple[int, str]] = {}

    def add(self, verdicts: Sequence[Verdict]) -> None:
        """Count more of the unit's verdicts."""
        for verdict in verdicts:
            self.verdicts += 1
            self._cases.add((verdict.case_id, verdict.exported_invocation))
            self.outcomes[verdict.outcome.value] += 1
            waiver = self._waivers.meeting(verdict)
            if waiver is not None:
                self.waived[waiver] += 1
            if verdict.is_open:
                self.open += 1
            elif self._waivers.holds(waiver):
                continue
            elif verdict.outcome.is_failure:
                key = f"{verdict.backend}: {verdict.outcome} at {verdict.stage}: {verdict.signature}"
                count, case_id = self._failures.get(key, (0, verdict.case_id))
                self._failures[key] = (count + 1, case_id)

    @property
    def cases(self) -> int:
        """Return the number of distinct cases drawn."""
        return len(self._cases)

    @property
    def failed(self) -> int:
        """Return the number of verdicts that are failures of a component."""
        return sum(count for count, _ in self._failures.values())

    def text(self) -> str:
        """Return the failures, one line per signature, commonest first."""
        lines = [f"{self.failed} of {self.verdicts} verdicts are failures"]
        if self.open:
            lines[0] += f", {self.open} more are left open by the specification"
        for key, (count, case_id) in sorted(self._failures.items(), key=lambda failure: -failure[1][0]):
            lines.append(f"  {count:>4} × {key} (first: {case_id})")
        return "\n".join(lines)


class Session:
    """Carries out units in a worker process and records their verdicts.

    Args:
        plan: The units to run.
        results_dir: Directory of the run; None for ``results/RUN_ID`` below the current directory.
        options: The user's choices, for ``run.json``.
        seed: Seed of the draws, for ``run.json``.
        timeout: Seconds per step of a batch.
        memory_limit: Bytes that the worker process may use.
        baseline: The baseline to compare with. A failure that it expects does not count as a failure.
        waivers: Failures that are expected in addition, and do not count.
        joins: A run that another process began, which this one adds to as `worker`.
        worker: Names this process's parts of the record.
        rule_files: The user's rule files, for readers of the run.

    Raises:
        harness.record.layout.ResultsError: the directory cannot be written, or holds a run already.
    """

    def __init__(
        self,
        plan: Plan,
        results_dir: Path | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        timeout: float = 120.0,
        memory_limit: int = 4 * 2**30,
        baseline: Baseline | None = None,
        waivers: Waivers = NO_WAIVERS,
        joins: RunInfo | None = None,
        worker: str = "main",
        rule_files: Sequence[Path] = (),
    ) -> None:
        self.run_info = joins or RunInfo.begin(
            seed=seed,
            options={**(options or {}), "converter": list(plan.converters), "backend": list(plan.backends)},
            versions={"harness": harness.__version__, **_versions(plan)},
            runtimes=runtime_distributions(),
            shard=dataclasses.asdict(plan.shard) if plan.shard else None,
            planned=plan.whole,
            basis=basis(plan.units, plan.sources),
        )
        self.results_dir = results_dir or layout.default_directory(self.run_info.run_id)
        if rule_files and joins is None:
            named: dict[str, Any] = {OPTION: recorded_paths(rule_files, self.results_dir)}
            self.run_info = replace(self.run_info, options={**self.run_info.options, **named})
        self._owns_run = joins is None
        self._writer = RunWriter(self.results_dir, self.run_info, worker)
        self._supervisor = Supervisor(timeout=timeout, memory_limit=memory_limit)
        self._without: RunWriter | None = None
        if plan.rules:
            self._without = RunWriter(self.rule_free_results, self.run_info, worker)
        self._baseline, self._waivers = baseline, waivers
        #: Labels of the rules that took part in a case so far.
        self.fired: set[str] = set()

    @property
    def rule_free_results(self) -> Path:
        """Return the directory that records the same cases without the user's rules, if there are rules."""
        return self.results_dir / layout.WITHOUT_RULES_DIRECTORY

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, unit: Unit) -> UnitSummary:
        """Draw, run and record the cases of one unit; if rules are tried, without them first.

        Raises:
            harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
            harness.record.layout.ResultsError: the record or the corpus cannot be written.
        """
        if self._without is not None:
            blames = unit.settings.blame and unit.draws
            settings = replace(unit.settings, blame=blames)
            plain = replace(unit, route=replace(unit.route, rules=()), settings=settings)
            self._record(plain, self._without)
        return self._record(unit, self._writer, self._baseline)

    def _record(self, unit: Unit, writer: RunWriter, baseline: Baseline | None = None) -> UnitSummary:
        summary = UnitSummary(self._waivers)
        seen: list[Verdict] = []
        # The corpus remembers the main run only.
        memory = _memory(unit) if writer is self._writer else None
        try:
            notice = summary.notices.append
            for verdicts in run_unit(unit, self._supervisor, notice, lambda rows: writer.hold(add_evidence(rows))):
                writer.write(add_evidence(verdicts))
                summary.add(verdicts)
                if not unit.draws and writer is self._writer:
                    for entry in (entry for verdict in verdicts for entry in _departing_calls(verdict)):
                        Corpus.default().add(entry)
                if memory is not None:
                    memory.add(verdicts)
                if baseline is not None:
                    seen += verdicts
                self.fired.update(label for v in verdicts if v.rule for label in v.rule.split(", "))
        finally:
            writer.flush()
            if memory is not None:
                summary.remembered = memory.commit()
        writer.done(unit.overload, unit.word)
        summary.notes += self._supervisor.notes
        if baseline is not None:
            found = make_baseline(self.run_info, {})
            summary.compared = recheck(baseline, found, seen, unit, self._supervisor, self._waivers)
        return summary

    def leave_out(self, units: Iterable[Unit]) -> None:
        """Note that planned units were deselected: the run lacks nothing without them."""
        left = [(unit.overload, unit.word) for unit in units]
        for writer in (self._writer, self._without):
            if writer is not None and left:
                writer.leave_out(left)

    def compared(self, summary: UnitSummary) -> dict[str, Any]:
        """Return a unit's comparison with the baseline as plain data; empty without a baseline."""
        if summary.compared is None or self._baseline is None:
            return {}
        return report_of(summary.compared, self._baseline.versions, self.run_info.versions)

    def close(self, exit_status: int | None = None, notes: Iterable[str] = ()) -> None:
        """End the worker process and complete the record with pytest's exit status and the workers' notes."""
        notes = tuple(dict.fromkeys([*notes, *self._supervisor.notes]))
        self._supervisor.close()
        self._writer.close()
        if self._without is not None:
            self._without.close()
            if self._owns_run:
                store.finish(self.rule_free_results, exit_status)
        if self._owns_run:
            info = store.finish(self.results_dir, exit_status, notes)
            self.run_info = replace(info, upkeep=read_upkeep(self.results_dir).to_data())
            write_run_info(self.results_dir, self.run_info)


def _departing_calls(verdict: Verdict) -> Iterator[CorpusEntry]:
    """Return the operators at which a model's wrong result begins, which will run by themselves from now on."""
    diagnosis = Diagnosis.from_row(vars(verdict))
    if diagnosis is None or diagnosis.inherited_from or DIVERGENCE not in diagnosis.facts:
        return
    found = diagnosis.facts[DIVERGENCE]
    where = f" ({found['module']})" if found["module"] else ""
    note = f"first divergence of {verdict.overload.removeprefix(MODEL)}{where}, "
    note += route_label(verdict.converter, verdict.backend)
    for call in found["alone"]:
        if call["invocation"]:
            yield CorpusEntry(invocation=Invocation.from_json(call["invocation"]), origin="captured", note=note)


def add_evidence(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return verdicts with the sentences of their diagnosis, for readers that do not import the harness."""

    def has_more_to_say(verdict: Verdict) -> bool:
        return bool(verdict.diagnosis or (verdict.model_run and verdict.outcome.is_failure))

    return [replace(v, evidence=evidence_of_row(vars(v))) if has_more_to_say(v) else v for v in verdicts]


def corpus_of(unit: Unit) -> Corpus | None:
    """Return the corpus to update; None if the run was asked for recorded cases, or for other sources than the
    corpus."""
    return next((source.corpus for source in unit.sources if isinstance(source, FromCorpus)), None)


def _memory(unit: Unit) -> Memory | None:
    corpus = corpus_of(unit)
    return None if corpus is None else Memory(corpus, unit.overload)


def _versions(plan: Plan) -> dict[str, str]:
    converters = {name: find_converter(name).version() for name in plan.converters}
    # The file's exporter is unknown.
    named = {f"converter {name}": version for name, version in converters.items() if version}
    for name in plan.backends:
        entry, argument = BACKENDS.find(name)
        named[f"backend {name}"] = entry.version(argument)
    return named
