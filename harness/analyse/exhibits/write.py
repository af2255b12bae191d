"""Writing the graphs and scripts of a run, in a process beside this one that may die or hang."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from harness.analyse.exhibits.exhibit_making import make_graph, make_script, one_thread
from harness.analyse.exhibits.selection import wanted_failures, wanted_graphs
from harness.core import IsolatedCalls
from harness.record import append_line, read_graphs, read_minimal, read_run_info, read_scripts

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Written:
    """What was done.

    Attributes:
        graphs: How many graphs were written.
        scripts: How many scripts were written.
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
        progress: Called with a label of what is made next.

    Raises:
        ResultsError: the run cannot be read, or its directory not written.
    """
    info, minimals = read_run_info(run), read_minimal(run)
    opset = info.options.get("opset")
    done_graphs = set() if again else set(read_graphs(run))
    done_scripts = set() if again else set(read_scripts(run))
    written = Written()
    with IsolatedCalls(timeout=timeout, prepare=one_thread) as process:
        for graph in wanted_graphs(run, overloads):
            if (graph.overload, graph.converter) in done_graphs:
                continue
            label = f"graph of {graph.overload} by {graph.converter}"
            progress(label)
            made = _made(
                process, written, label, make_graph, graph, opset if isinstance(opset, int) else None
            )
            if made is not None:
                append_line(run, made)
                written.graphs += 1
        for row in wanted_failures(run, overloads):
            if (row.case_id, row.converter, row.backend) in done_scripts:
                continue
            label = f"script of {row.case_id}, {row.converter} → {row.backend}"
            progress(label)
            mine = [minimal for minimal in minimals if minimal.case_id == row.case_id]
            script = _made(process, written, label, make_script, run, row, mine, info)
            if script is not None:
                append_line(run, script)
                written.scripts += 1
    return written


def _made(
    process: IsolatedCalls,
    written: Written,
    label: str,
    function: Callable[P, R],
    *args: P.args,
    **kwargs: P.kwargs,
) -> R | None:
    """What the function makes in the process; None where it fails, dies or hangs, which is noted."""
    try:
        return process.call(function, *args, **kwargs)
    except Exception as error:
        written.failed[label] = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return None
