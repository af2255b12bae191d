"""Shrink the failures of a recorded run, worst first, and write the minimal cases into the run.

for minimal in shrink_run(Path("results/RUN"), seconds=60):
    print(minimal.overload, minimal.matters)
"""

from __future__ import annotations

import time
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from harness.causes.groups import FAILED
from harness.compare.verdict import FAILURES, Outcome, Stage, Verdict
from harness.convert.converter import find_converter
from harness.core.invocation import MODEL, InvalidInvocation, Invocation, is_exported
from harness.core.plugins import UnknownName
from harness.core.route import DYNAMIC, Route
from harness.core.text import count
from harness.generate.case_library import load_cases
from harness.generate.regressions.corpus_store import Corpus, CorpusEntry
from harness.generate.sources.recorded import Replayed
from harness.pipeline.model_task import refuse_model
from harness.pipeline.supervisor import Supervisor, WorkerFailed
from harness.pipeline.task import OWN_FAULT
from harness.plan.unit import Unit
from harness.record import store
from harness.record.json_lines import Minimal, append_line, read_minimal
from harness.record.layout import ResultsError
from harness.record.run_info import read_run_info
from harness.reproduce.edits import Domains, domains_of
from harness.reproduce.failure import opset_asked
from harness.reproduce.matters import matters
from harness.reproduce.plainness import elements
from harness.reproduce.shrinker import Budget, Evaluator, Test, shrink
from harness.run.backend import BACKENDS

#: Stages before the backend takes part: a failure there is one for every backend.
_OF_BACKEND = frozenset({Stage.LOAD, Stage.RUN, Stage.COMPARE})


#: Columns that all cases of a failure share; they also share the backend, if it takes part.
_ALIKE = ("overload", "converter", "shape_mode", "stage", "outcome", "signature")


def failures(results_dir: Path, *, case_id: str | None = None) -> list[Verdict]:
    """Return the smallest case of each distinct failure, worst first.

    The smallest has the fewest elements, then the shortest JSON, then the first backend by name. Operators take turns
    among failures that are equally bad, so that none hides another.

    Raises:
        ResultsError: the run cannot be read.
    """
    where = FAILED if case_id is None else FAILED & (pc.field("case_id") == case_id)
    smallest: dict[tuple[str, ...], tuple[tuple[int, int, str], str]] = {}
    cases: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    # Of a run's rows few are the smallest: only these are read whole.
    for batch in store.read(results_dir, ("case_id", "backend", "invocation", *_ALIKE), where).to_batches(1024):
        for row in batch.to_pylist():
            if case_id is not None:
                refuse_model(results_dir, case_id, row["overload"], "shrunk")
                if is_exported(row["overload"]):
                    raise ResultsError(
                        f"case {case_id} is a graph: `conformance repro {case_id}` shrinks and writes it"
                    )
            size = _size(row["invocation"])
            if size is None or row["overload"].startswith(MODEL) or is_exported(row["overload"]):
                continue
            key = _key(row)
            cases[key].add(row["case_id"])
            ranked = (*size, row["backend"]), row["case_id"]
            if key not in smallest or ranked[0] < smallest[key][0]:
                smallest[key] = ranked
    found: dict[tuple[str, ...], Verdict] = {}
    chosen = pc.field("case_id").isin(pa.array([case for _, case in smallest.values()], pa.string()))
    for verdict in store.verdicts(results_dir, where & chosen):
        key = _key(vars(verdict))
        (*_, backend), case = smallest.get(key, (("",), ""))
        if (verdict.case_id, verdict.backend) == (case, backend):
            found.setdefault(key, verdict)
    return list(_sort_for_shrinking({key: found[key] for key in smallest}, cases))


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the key of the failure that a row is a case of."""
    return row["backend"] if Stage(row["stage"]) in _OF_BACKEND else "", *(row[name] for name in _ALIKE)


def _size(invocation: str) -> tuple[int, int] | None:
    """Return the numbers of elements and characters; None for an invocation of another version."""
    try:
        return elements(Invocation.from_json(invocation)), len(invocation)
    except InvalidInvocation:
        return None


def _sort_for_shrinking(
    smallest: Mapping[tuple[str, ...], Verdict], cases: Mapping[tuple[str, ...], set[str]]
) -> Iterator[Verdict]:
    def commonest(key: tuple[str, ...]) -> tuple[int, str, str, str, str]:
        failure = smallest[key]
        return -len(cases[key]), failure.overload, failure.converter, failure.backend, failure.signature

    for outcome in FAILURES:
        queues: defaultdict[str, list[Verdict]] = defaultdict(list)
        for key in sorted((k for k, failure in smallest.items() if failure.outcome is outcome), key=commonest):
            queues[smallest[key].overload].append(smallest[key])
        for turn in zip_longest(*queues.values()):
            yield from filter(None, turn)


#: Seconds for one failure, so that a stubborn one leaves time for the others.
PER_FAILURE = 20.0
#: Share of a failure's time that is left for the properties it depends on.
_ASKING = 0.3
#: Share of the run's time for shrinking at its end, with an upper limit in seconds, and a least time below which there
#: is no shrinking: a user who tries one operator does not wait.
_PART, _MOST, _LEAST = 0.1, 30.0, 2.0


def default_seconds(results_dir: Path) -> float:
    """Return the seconds that a finished run spends on shrinking by default.

    Raises:
        ResultsError: the run cannot be read.
    """
    info = read_run_info(results_dir)
    if info.finished is None:
        return 0.0
    took = datetime.fromisoformat(info.finished) - datetime.fromisoformat(info.started)
    seconds = min(_PART * took.total_seconds(), _MOST)
    return seconds if seconds >= _LEAST else 0.0


def shrink_after_run(
    results_dir: Path,
    seconds: float,
    *,
    timeout: float,
    memory_limit: int,
    rules: Sequence[str] = (),
    corpus: Corpus | None = None,
    cases: Sequence[str] | None = None,
) -> str:
    """Shrink the run's worst failures, or those of some cases, and return one line about the result.

    A run that is measured and written is never spoilt by a later step: an error in this function becomes part of
    that line.
    """
    done = finished = 0
    own: list[str] = []

    def skipped(failure: Verdict, why: str) -> None:
        if OWN_FAULT in why:
            own.append(f"; {failure.case_id}: {why}")

    try:
        chosen = None
        if cases is not None:
            chosen = [failure for case in cases for failure in failures(results_dir, case_id=case)]
        for minimal in shrink_run(
            results_dir,
            seconds=seconds,
            chosen=chosen,
            timeout=timeout,
            memory_limit=memory_limit,
            rules=rules,
            corpus=corpus,
            on_skipped=skipped,
        ):
            done += 1
            finished += minimal.finished
    except (ResultsError, WorkerFailed) as error:
        return f"shrinking stopped: {error}"
    except Exception as error:
        return f"shrinking failed, please report it: {type(error).__name__}: {error}"
    more = "" if finished == done else f" (time limit reached for {done - finished})"
    return f"Shrunk {count(done, 'failure')}{more}{''.join(own)}; run `conformance shrink` to continue"


def shrink_run(
    results_dir: Path,
    *,
    seconds: float,
    per_failure: float = PER_FAILURE,
    chosen: Sequence[Verdict] | None = None,
    again: bool = False,
    timeout: float = 60.0,
    memory_limit: int = 4 * 2**30,
    rules: Sequence[str] = (),
    corpus: Corpus | None = None,
    on_skipped: Callable[[Verdict, str], None] | None = None,
) -> Iterator[Minimal]:
    """Shrink failures until there are no more or the time is over; each is written as it is found.

    Cases that an earlier call finished are left alone; the ones that it began are continued.

    Args:
        results_dir: The run.
        seconds: Total time; an evaluation that is under way is finished.
        per_failure: Maximum seconds for one failure.
        chosen: Failures to shrink, in this order; None for all of the run, worst first.
        again: Whether to shrink finished failures, too.
        timeout: Seconds per step of an evaluation.
        memory_limit: Bytes that the worker process may use.
        rules: Files of the conversion functions that the run tried.
        corpus: The corpus that keeps the minimal cases for the next run; None to keep none.
        on_skipped: Called with each failure that cannot be shrunk, and the reason.

    Yields:
        Minimal cases.

    Raises:
        harness.record.layout.ResultsError: the run cannot be read or written.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    load_cases()
    end = time.monotonic() + seconds
    skipped = on_skipped or (lambda failure, why: None)
    asked = read_run_info(results_dir).options
    known = {(m.case_id, m.converter, m.backend): m for m in read_minimal(results_dir)}
    with Supervisor(timeout=timeout, memory_limit=memory_limit) as supervisor:
        for failure in failures(results_dir) if chosen is None else chosen:
            left = end - time.monotonic()
            if left <= 0:
                return
            before = known.get((failure.case_id, failure.converter, failure.backend))
            if before is not None and before.finished and not again:
                continue
            found: Minimal | str = _missing(failure, rules)
            if not found:
                evaluator = Evaluator(_unit(failure, asked, rules), supervisor, Budget(min(left, per_failure)))
                found = _tried(failure, before, evaluator)
            if not isinstance(found, Minimal):
                skipped(failure, found)
                continue
            append_line(results_dir, found)
            if corpus is not None:
                corpus.add(_entry(found))
            yield found


def _tried(failure: Verdict, before: Minimal | None, evaluator: Evaluator) -> Minimal | str:
    try:
        return _shrink_one(failure, before, evaluator)
    except WorkerFailed:
        raise
    except Exception as error:
        # The others can be shrunk anyway.
        return f"{OWN_FAULT}, please report it: {type(error).__name__}: {error}"


def _unit(failure: Verdict, asked: Mapping[str, Any], rules: Sequence[str]) -> Unit:
    """Return the unit that evaluates the failure with the options of its run."""
    route = replace(
        Route.parse(failure.converter),
        opset=opset_asked(failure.converter, failure.overload, asked.get("opset")),
        public_api=bool(asked.get("public_api")),
        dynamic=failure.shape_mode == DYNAMIC,
        rules=tuple(rules),
    )
    return Unit(overload=failure.overload, route=route, backends=(failure.backend,))


def _shrink_one(failure: Verdict, before: Minimal | None, evaluator: Evaluator) -> Minimal | str:
    """Return the minimal case, or the reason why there is none."""
    original = _subject(failure)
    verdict = evaluator.blamed(original)
    if verdict is None:
        return "no time is left for it"
    if not _fails_again(failure, verdict):
        message = f" ({verdict.signature})" if verdict.signature else ""
        return f"it does not fail again as it was recorded: {verdict.outcome} at {verdict.stage}{message}"
    start = original
    if before is not None and Test(evaluator, verdict, careful=True).fails(_subject(before)):
        start = _subject(before)
    smallest, finished, sentences = _smallest(start, evaluator, verdict, domains_of(original.invocation))
    verdict = evaluator.blamed(smallest)
    assert verdict is not None
    return Minimal(
        case_id=failure.case_id,
        overload=failure.overload,
        converter=failure.converter,
        backend=failure.backend,
        stage=failure.stage,
        outcome=failure.outcome,
        signature=failure.signature,
        blame=verdict.blame,
        component=verdict.component,
        place=verdict.place,
        fault=verdict.fault,
        detail=verdict.detail,
        diagnosis=verdict.diagnosis,
        message=verdict.message,
        minimal_id=verdict.case_id,
        invocation=verdict.invocation,
        exported_invocation=verdict.exported_invocation,
        matters=sentences,
        elements=elements(smallest.invocation),
        evaluations=evaluator.evaluations + (before.evaluations if before else 0),
        finished=finished,
    )


def _smallest(
    start: Replayed, evaluator: Evaluator, original: Verdict, domains: Domains
) -> tuple[Replayed, bool, tuple[str, ...]]:
    """Return the smallest failure, whether no smaller case fails, and the properties that it depends on.

    Witnesses cost more than many candidates. They are heard about the end of the way, and about every step
    of it only if the end turns out to be someone else's defect.
    """
    budget = evaluator.budget
    kept = budget.set_aside(_ASKING)
    test = Test(evaluator, original)
    smallest = shrink(start, test, domains)
    finished = not budget.spent
    budget.give_back(kept)
    if smallest != start and not test.is_blamed_alike(smallest):
        known = _last_blamed_alike(start, test)
        kept = budget.set_aside(_ASKING)
        smallest = shrink(known, Test(evaluator, original, careful=True), domains)
        finished = not budget.spent
        budget.give_back(kept)
    sentences = matters(smallest, test, domains)
    return smallest, finished and not budget.spent, sentences


def _last_blamed_alike(start: Replayed, test: Test) -> Replayed:
    """Return the last reduction from `start` with the same blame, found by halving."""
    alike = bisect(test.way, False, key=lambda subject: not test.is_blamed_alike(subject))
    return test.way[alike - 1] if alike else start


def _fails_again(failure: Verdict, verdict: Verdict) -> bool:
    """Whether the recorded case fails as recorded.

    An exporter may list its options in another order in another process: for an error of the very same
    case, the place and the kind are enough. The signature of wrong numbers is one of few words.
    """
    return (verdict.stage, verdict.outcome) == (failure.stage, failure.outcome) and (
        verdict.signature == failure.signature or failure.outcome is not Outcome.MISMATCH
    )


def _subject(case: Verdict | Minimal) -> Replayed:
    return Replayed.from_row(case.invocation, case.exported_invocation)


def _entry(minimal: Minimal) -> CorpusEntry:
    subject = _subject(minimal)
    return CorpusEntry(
        invocation=subject.invocation,
        exported=subject.exported,
        origin="minimal",
        note="; ".join(minimal.matters),
        converter=minimal.converter,
        backend=minimal.backend,
        stage=minimal.stage,
        outcome=minimal.outcome,
        signature=minimal.signature,
    )


def _missing(failure: Verdict, rules: Sequence[str]) -> str:
    """Why the failure cannot be evaluated here; "" if it can."""
    if failure.rule and not rules:
        return f"the rule {failure.rule} took part: give its file with --rules"
    try:
        entry, argument = BACKENDS.find(failure.backend)
        for problem in (find_converter(failure.converter).probe(), entry.probe(argument)):
            if problem is not None:
                return problem.reason
    except UnknownName as error:
        return str(error)
    return ""
