"""Shrinking at the end of `pytest harness`: how long, and of which runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from harness.analyse.shrink.recorded_failures import failures
from harness.analyse.shrink.shrink_session import shrink_run
from harness.core import count
from harness.execute import OWN_FAULT, WorkerFailed
from harness.generate import Corpus
from harness.record import ResultsError, read_run_info

#: Of the time that measuring took; at most so many seconds, and none where fewer than the last are left: who
#: tries one operator is not kept waiting.
_PART, _MOST, _LEAST = 0.1, 30.0, 2.0


def default_seconds(results_dir: Path) -> float:
    """What a finished run spends on shrinking where nobody said.

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
    """Shrink the run's worst failures, or those of some cases, and say in one line what came of it.

    A run that is measured and written is never spoilt by what comes after it: what goes wrong here is said
    in that line.
    """
    done = finished = 0
    faults: list[str] = []
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
            on_skipped=lambda failure, why: faults.append(f"; {failure.case_id}: {why}"),
        ):
            done += 1
            finished += minimal.finished
    except (ResultsError, WorkerFailed) as error:
        return f"shrinking stopped: {error}"
    except Exception as error:
        return f"shrinking failed, please report it: {type(error).__name__}: {error}"
    more = "" if finished == done else f" (time limit reached for {done - finished})"
    own = "".join(fault for fault in faults if OWN_FAULT in fault)
    return f"Shrunk {count(done, 'failure')}{more}{own}; run `conformance shrink` to continue"
