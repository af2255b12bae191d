"""Writing the graphs and scripts of a run, in a process beside this one that may die or hang."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.analyse.exhibits.exhibit_making import make_graph, make_script, start
from harness.analyse.exhibits.selection import wanted_failures, wanted_graphs
from harness.record import append_line, read_graphs, read_minimal, read_run_info, read_scripts


@dataclass
class Written:
    """What was done.

    Attributes:
        graphs: How many were written.
        scripts: Likewise.
        failed: What could not be made → why, in a line.
    """

    graphs: int = 0
    scripts: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def write_evidence(
    run: Path,
    *,
    overloads: Collection[str] | None = None,
    again: bool = False,
    timeout: float = 60.0,
    progress: Callable[[str], None] = lambda words: None,
) -> Written:
    """Write ``graphs.jsonl`` and ``scripts.jsonl`` of a run; what is there already is not made again.

    Args:
        run: The run.
        overloads: Only these operators; None for all.
        again: Make also what is there.
        timeout: Seconds for each.
        progress: Told what is being made.

    Raises:
        ResultsError: the run cannot be read, or its directory not written.
    """
    info, minimals = read_run_info(run), read_minimal(run)
    opset = info.options.get("opset")
    done_graphs = set() if again else set(read_graphs(run))
    done_scripts = set() if again else set(read_scripts(run))
    written = Written()
    with _beside(timeout) as ask:
        for graph in wanted_graphs(run, overloads):
            if (graph.overload, graph.converter) in done_graphs:
                continue
            label = f"graph of {graph.overload} by {graph.converter}"
            progress(label)
            made = ask(label, written.failed, make_graph, graph, opset if isinstance(opset, int) else None)
            if made is not None:
                append_line(run, made)
                written.graphs += 1
        for row in wanted_failures(run, overloads):
            if (row.case_id, row.converter, row.backend) in done_scripts:
                continue
            label = f"script of {row.case_id}, {row.converter} → {row.backend}"
            progress(label)
            mine = [minimal for minimal in minimals if minimal.case_id == row.case_id]
            made = ask(label, written.failed, make_script, run, row, mine, info)
            if made is not None:
                append_line(run, made)
                written.scripts += 1
    return written


@contextmanager
def _beside(timeout: float) -> Iterator[Callable[..., Any]]:
    """A function that calls another in a process of its own; None where that fails, dies or hangs."""
    pools: list[ProcessPoolExecutor] = []

    def ask(label: str, failed: dict[str, str], function: Callable[..., Any], *arguments: Any) -> Any:
        if not pools:
            pools.append(
                ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=start)
            )
        future: Future[Any] = pools[0].submit(function, *arguments)
        try:
            return future.result(timeout)
        except BrokenProcessPool:
            failed[label] = "the process died"
        except TimeoutError:
            failed[label] = f"no answer within {timeout:g} s"
        except Exception as error:
            failed[label] = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return None
        _stop(pools.pop())
        return None

    try:
        yield ask
    finally:
        for pool in pools:
            _stop(pool)


def _stop(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
