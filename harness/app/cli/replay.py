"""`conformance replay`: rerun a case, and print the result."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import RenderableType
from rich.text import Text

from harness.app.cli._models import is_model
from harness.app.cli._shared import (
    emit,
    example,
    find_run,
    json_option,
    names_option,
    print_json,
    rules_option,
    statuses,
    timeout_option,
)
from harness.compare.verdict import Stage, Verdict
from harness.core.route import Route
from harness.core.text import count, shown

if TYPE_CHECKING:
    from harness.plan.reexecute import Again, Outputs

#: Outputs with more elements than this are not printed whole.
_MOST = 64


SECTION = "run"


@click.command(
    short_help="Rerun a case.",
    epilog=example(
        "conformance replay 82129e6a",
        "conformance replay 82129e6a --run results/RUN --backend onnx-reference",
        "conformance replay celu.json --converter torchscript",
        "conformance replay .conformance/corpus/aten.celu.default.jsonl --json",
    )
    + statuses("0 if no case fails now; 1 if one still fails"),
)
@click.argument("case", metavar="CASE_ID|FILE")
@click.option("--run", metavar="DIR", help="The run that has the case. Default: the newest in results/.")
@names_option("--converter", "converters", "Use this one instead of the recorded one. Repeatable.")
@names_option("--backend", "backends", "Use this one instead of the recorded one. Repeatable.")
@click.option("--opset", type=int, metavar="N", help="Opset to emit, instead of the recorded one.")
@rules_option("Use these conversion functions.")
@timeout_option(60.0, "Seconds per step.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    case: str,
    run: str | None,
    converters: tuple[str, ...],
    backends: tuple[str, ...],
    opset: int | None,
    rules: tuple[Path, ...],
    timeout: float,
    as_json: bool,
) -> None:
    """Rerun a case and compare the result. Nothing is recorded.

    CASE_ID is the id of a recorded or minimal case, or the beginning of one. It is rerun with the converter,
    the backends and the rules that recorded it. FILE holds invocations: one as JSON, or one per line, as in a
    corpus or in minimal.jsonl. `conformance check` reruns models.

    With --json: cases (case_id, call, invocation, verdict, expected, float64, got), still_failing. The last
    three of a case are lists of outputs, each a flat list, or null where it has more than 64 elements.
    """
    from harness.plan import reexecute as rerun
    from harness.plan.options import UsageProblem

    if is_model(case):
        raise click.UsageError(f"{case} is a model: `conformance check {case}` runs it")
    files = tuple(str(file.absolute()) for file in rules)
    again = _found(case, run)
    again = dataclasses.replace(
        again,
        converters=converters or again.converters,
        backends=backends or again.backends,
        opset=opset or again.opset,
        rules=files or again.rules,
    )
    try:
        found = list(rerun.verdicts(again, timeout=timeout))
    except UsageProblem as error:
        raise click.UsageError(str(error)) from None
    failing = [verdict for verdict in found if verdict.outcome.is_failure]
    if as_json:
        print_json("replay", {"cases": [_data(again, verdict) for verdict in found], "still_failing": len(failing)})
    else:
        for verdict in found:
            emit(*_parts(again, verdict))
        emit(Text(f"{count(len(failing), 'verdict')} of {len(found)} failing", style="bold"))
    ctx.exit(int(bool(failing)))


def _found(case: str, run: str | None) -> Again:
    """Return the invocations of a file, or a case of a run."""
    from harness.plan import reexecute as rerun

    if Path(case).is_file():
        return rerun.from_file(Path(case))
    if "/" in case or case.endswith((".json", ".jsonl")):
        raise click.UsageError(f"file not found: {case}")
    directory = find_run(run)
    if model := rerun.recorded_model(directory, case):
        raise click.UsageError(f"case {case} is a run of a model: `conformance check {model}` runs it")
    return rerun.recorded(directory, case)


def _outputs(again: Again, verdict: Verdict) -> Outputs | None:
    """Return the numbers of a compared case; None if this process cannot compute them."""
    from harness.plan import reexecute as rerun

    if verdict.stage is not Stage.COMPARE:
        return None
    [case] = [c for c in again.cases if _is(c, verdict)][:1]
    named = Route.parse(verdict.converter)
    dynamic = case.exported is not None
    route = dataclasses.replace(named, opset=verdict.opset, dynamic=dynamic, rules=again.rules, backend=verdict.backend)
    try:
        return rerun.outputs(case, route)
    except Exception:
        # The verdict stands; the numbers are an addition to it.
        return None


def _is(case: Any, verdict: Verdict) -> bool:
    exported = case.exported.json if case.exported is not None else ""
    return case.invocation.json == verdict.invocation and exported == verdict.exported_invocation


def _parts(again: Again, verdict: Verdict) -> Iterator[RenderableType]:
    from harness.causes.failure_match import call_text
    from harness.present.case_report import verdict_table
    from harness.present.evidence import evidence_of_row

    yield Text.assemble((f"case {verdict.case_id}", "bold"))
    yield shown(call_text(verdict.invocation), style="cyan")
    yield verdict_table([verdict])
    for text in verdict.message.splitlines()[:12]:
        yield shown(f"  {text}")
    for text in evidence_of_row(vars(verdict)).splitlines():
        yield shown(f"  {text}")
    outputs = _outputs(again, verdict)
    if outputs is not None:
        for index, expected in enumerate(outputs.expected):
            truth = outputs.truth[index] if outputs.truth else None
            got = outputs.got[index] if index < len(outputs.got) else None
            yield Text(f"output {index}: {expected.dtype}{list(expected.shape)}")
            for name, array in (("expected", expected), ("float64", truth), ("got", got)):
                if array is not None:
                    yield Text(f"  {name:<9}{_text(array)}")
    yield Text()


def _text(array: Any) -> str:
    import numpy as np

    if array.size > _MOST:
        return f"{array.size} elements"
    return " ".join(np.array2string(array, separator=", ", max_line_width=10_000, precision=9).split())


def _plain(value: Any) -> Any:
    """Convert a number to JSON; infinities and NaN become text."""
    return value if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else str(value)


def _data(again: Again, verdict: Verdict) -> dict[str, Any]:
    from harness.causes.failure_match import call_text
    from harness.present.case_report import verdict_data

    outputs = _outputs(again, verdict)

    def values(arrays: Any) -> Any:
        if arrays is None:
            return None
        return [None if a is None or a.size > _MOST else [_plain(v) for v in a.reshape(-1).tolist()] for a in arrays]

    return {
        "case_id": verdict.case_id,
        "call": call_text(verdict.invocation),
        "invocation": verdict.invocation,
        "verdict": verdict_data(verdict),
        "expected": values(outputs and outputs.expected),
        "float64": values(outputs and outputs.truth),
        "got": values(outputs and outputs.got),
    }
