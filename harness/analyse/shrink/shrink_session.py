"""Shrink the failures of a recorded run, worst first, and write the minimal cases beside them.

for minimal in shrink_run(Path("results/RUN"), seconds=60):
    print(minimal.overload, minimal.matters)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harness.analyse.shrink.domains import Domains, domains_of
from harness.analyse.shrink.evaluate import Budget, Evaluator, FailurePlace, Test
from harness.analyse.shrink.matters import matters
from harness.analyse.shrink.plainness import elements
from harness.analyse.shrink.recorded_failures import RecordedFailure, failures
from harness.analyse.shrink.shrink_target import Target
from harness.analyse.shrink.shrinker import shrink
from harness.analyse.shrink.subject import ShrinkSubject
from harness.compare import Outcome, Verdict
from harness.convert import find_converter
from harness.core import Invocation, UnknownName
from harness.execute import OWN_FAULT, Settings, Supervisor, WorkerFailed
from harness.generate import Corpus, CorpusEntry, load_cases
from harness.record import Minimal, RunInfo, append_line, read_minimal, read_run_info
from harness.run import BACKENDS

#: Seconds for one failure, so that a stubborn one leaves time for the others.
PER_FAILURE = 20.0
#: Of a failure's time, what is left to find out what it depends on.
_ASKING = 0.3


def shrink_run(
    results_dir: Path,
    *,
    seconds: float,
    per_failure: float = PER_FAILURE,
    chosen: Sequence[RecordedFailure] | None = None,
    again: bool = False,
    timeout: float = 60.0,
    memory_limit: int = 4 * 2**30,
    rules: Sequence[str] = (),
    corpus: Corpus | None = None,
    on_skipped: Callable[[RecordedFailure, str], None] | None = None,
) -> Iterator[Minimal]:
    """Shrink failures until there are no more or the time is over; each is written as it is found.

    What an earlier call finished is left alone, and what it began is gone on with.

    Args:
        results_dir: The run.
        seconds: In all; one evaluation that is under way is finished.
        per_failure: At most, for one.
        chosen: Failures to shrink, in this order; None for all of the run, worst first.
        again: Shrink those, too, that are finished already.
        timeout: Seconds per step of an evaluation.
        memory_limit: Bytes that the worker process may take.
        rules: Files of the conversion functions that the run tried.
        corpus: Where the minimal cases are kept for the next run; None for nowhere.
        on_skipped: Told of each failure that cannot be shrunk, and why.

    Yields:
        Minimal cases.

    Raises:
        harness.record.layout.ResultsError: the run cannot be read or written.
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
    """
    load_cases()
    end = time.monotonic() + seconds
    skipped = on_skipped or (lambda failure, why: None)
    run = read_run_info(results_dir)
    known = {(m.case_id, m.converter, m.backend): m for m in read_minimal(results_dir)}
    with Supervisor(timeout=timeout, memory_limit=memory_limit) as supervisor:
        for failure in failures(results_dir) if chosen is None else chosen:
            left = end - time.monotonic()
            if left <= 0:
                return
            before = known.get((failure.case_id, failure.converter, failure.backend))
            if before is not None and before.finished and not again:
                continue
            why = _missing(failure, rules)
            if why:
                skipped(failure, why)
                continue
            budget = Budget(min(left, per_failure))
            try:
                found = _shrink_one(failure, before, _settings(run, failure, rules), supervisor, budget)
            except WorkerFailed:
                raise
            except Exception as error:
                # The others can be shrunk all the same.
                found = f"{OWN_FAULT}, please report it: {type(error).__name__}: {error}"
            if isinstance(found, Minimal):
                append_line(results_dir, found)
                if corpus is not None:
                    corpus.add(_entry(found))
                yield found
            else:
                skipped(failure, found)


def _shrink_one(
    failure: RecordedFailure,
    before: Minimal | None,
    settings: Settings,
    supervisor: Supervisor,
    budget: Budget,
) -> Minimal | str:
    """The minimal case, or why there is none."""
    place = FailurePlace(
        overload=failure.overload,
        converter=failure.converter,
        backend=failure.backend,
        shape_mode=failure.shape_mode,
        settings=settings,
    )
    evaluator = Evaluator(place, supervisor, budget)
    original = _subject(failure.invocation, failure.exported_invocation)
    verdict = evaluator.blamed(original)
    if verdict is None:
        return "no time is left for it"
    if not _fails_again(failure, verdict):
        return f"it does not fail again as it was recorded: {_ending(verdict)}"
    target = Target.of(verdict)
    start = original
    if before is not None:
        begun = _subject(before.invocation, before.exported_invocation)
        start = begun if Test(evaluator, target, careful=True).fails(begun) else original
    smallest, finished, said = _smallest(start, evaluator, target, domains_of(original.invocation))
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
        evidence=verdict.evidence,
        message=verdict.message,
        minimal_id=verdict.case_id,
        invocation=verdict.invocation,
        exported_invocation=verdict.exported_invocation,
        matters=said,
        elements=elements(smallest.invocation),
        evaluations=evaluator.evaluations + (before.evaluations if before else 0),
        finished=finished,
    )


def _smallest(
    start: ShrinkSubject, evaluator: Evaluator, target: Target, domains: Domains
) -> tuple[ShrinkSubject, bool, tuple[str, ...]]:
    """The smallest failure, whether nothing smaller fails, and what it depends on.

    Witnesses cost more than many candidates. They are heard about the end of the way, and about every step
    of it only where the end turns out to be someone else's defect.
    """
    budget = evaluator.budget
    kept = budget.set_aside(_ASKING)
    test = Test(evaluator, target)
    smallest = shrink(start, test, domains)
    finished = not budget.spent
    budget.give_back(kept)
    if smallest != start and not test.is_blamed_alike(smallest):
        known = _last_blamed_alike(start, test)
        kept = budget.set_aside(_ASKING)
        smallest = shrink(known, Test(evaluator, target, careful=True), domains)
        finished = not budget.spent
        budget.give_back(kept)
    said = matters(smallest, test, domains)
    return smallest, finished and not budget.spent, said


def _last_blamed_alike(start: ShrinkSubject, test: Test) -> ShrinkSubject:
    """Where on the way from `start` the witnesses begin to blame someone else, found by halving."""
    way = test.way
    alike, unlike = 0, len(way)
    while alike < unlike:
        middle = (alike + unlike) // 2
        if test.is_blamed_alike(way[middle]):
            alike = middle + 1
        else:
            unlike = middle
    return way[alike - 1] if alike else start


def _fails_again(failure: RecordedFailure, verdict: Verdict) -> bool:
    """Whether the recorded case does what was recorded.

    An exporter may list what it knows in another order in another process: of an error of the very same
    case, the place and the kind say enough. What is wrong with numbers is one of few words.
    """
    if (verdict.stage, verdict.outcome) != (failure.stage, failure.outcome):
        return False
    return verdict.signature == failure.signature or failure.outcome is not Outcome.MISMATCH


def _subject(invocation: str, exported: str) -> ShrinkSubject:
    return ShrinkSubject(
        Invocation.from_json(invocation), Invocation.from_json(exported) if exported else None
    )


def _ending(verdict: Verdict) -> str:
    said = f" ({verdict.signature})" if verdict.signature else ""
    return f"{verdict.outcome} at {verdict.stage}{said}"


def _entry(minimal: Minimal) -> CorpusEntry:
    exported = minimal.exported_invocation
    return CorpusEntry(
        invocation=Invocation.from_json(minimal.invocation),
        exported=Invocation.from_json(exported) if exported else None,
        origin="minimal",
        note="; ".join(minimal.matters),
        converter=minimal.converter,
        backend=minimal.backend,
        stage=minimal.stage,
        outcome=minimal.outcome,
        signature=minimal.signature,
    )


def _settings(run: RunInfo, failure: RecordedFailure, rules: Sequence[str]) -> Settings:
    """As the run exported."""
    opset = run.options.get("opset")
    return Settings(
        opset=opset if isinstance(opset, int) else None,
        public_api=bool(run.options.get("public_api")),
        dynamic=failure.shape_mode == "dynamic",
        rules=tuple(rules),
    )


def _missing(failure: RecordedFailure, rules: Sequence[str]) -> str:
    """Why the failure cannot be evaluated here; "" where it can."""
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
