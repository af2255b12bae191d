"""Count how often a model calls each operator, and which of them fail in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harness.compare.verdict import Outcome
from harness.core.route import route_label
from harness.core.text import count
from harness.models.capture import Capture
from harness.record import layout, store

T = TypeVar("T")
K = TypeVar("K")

_COLUMNS = ("case_id", "overload", "dtype", "converter", "backend", "stage", "outcome", "blame", "signature")


@dataclass(frozen=True)
class UseOutcome:
    """The results of an operator on one route.

    Attributes:
        converter: The converter.
        backend: The backend.
        own_cases: Number of the model's kinds of call that the run has.
        own_failures: Number of those that fail.
        cases: Number of the operator's cases in the run with a dtype of the model's calls.
        failures: Number of those that fail, except where a specification leaves the result undefined.
        how: The most frequent failure, preferably of the model's own calls.
        case_id: A case with that failure.
    """

    converter: str
    backend: str
    own_cases: int
    own_failures: int
    cases: int
    failures: int
    how: str
    case_id: str


@dataclass(frozen=True)
class OperatorUse:
    """An operator of the model.

    Attributes:
        overload: The operator.
        calls: Number of calls in one forward pass.
        kinds: Number of kinds of call.
        modules: The first few modules that call it.
        places: Its results in a run; empty if the run has no case of it.
    """

    overload: str
    calls: int
    kinds: int
    modules: tuple[str, ...]
    places: tuple[UseOutcome, ...] = ()

    @property
    def rank(self) -> tuple[int, int, int]:
        """The sort key that puts failing calls of the model first, then failing operators, then frequent calls."""
        own = max((p.own_failures for p in self.places), default=0)
        failures = max((p.failures for p in self.places), default=0)
        return -int(own > 0) * self.calls, -failures, -self.calls


def operator_uses(captured: Capture, run: Path | None) -> list[OperatorUse]:
    """Return the operators of a model, worst first, with their results in a run if one is given.

    Raises:
        ResultsError: The run cannot be read.
    """
    rows = _group_by(store.read(run, _COLUMNS).to_pylist() if run is not None else (), lambda row: row["overload"])
    uses = _group_by(captured.calls, lambda call: call.invocation.overload)
    operators = []
    for overload, calls in uses.items():
        own = {call.invocation.case_id for call in calls}
        dtypes = {call.invocation.dtype for call in calls}
        recorded = [row for row in rows.get(overload, ()) if row["dtype"] in dtypes]
        modules = dict.fromkeys(place for call in calls for place in call.places if place)
        operators.append(
            OperatorUse(
                overload,
                sum(call.calls for call in calls),
                len(calls),
                tuple(modules)[:3],
                tuple(_places(recorded, own)),
            )
        )
    return sorted(operators, key=lambda use: use.rank)


def _group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _places(rows: Sequence[Mapping[str, Any]], own: set[str]) -> Iterator[UseOutcome]:
    by_place = _group_by(rows, lambda row: (row["converter"], row["backend"]))
    for (converter, backend), cases in sorted(by_place.items()):
        failures = [r for r in cases if Outcome(r["outcome"]).is_failure and r["blame"] != "spec"]
        own_failures = [r for r in failures if r["case_id"] in own]
        relevant = own_failures or failures
        kinds = _group_by(relevant, lambda row: f"{row['outcome']} at {row['stage']}: {row['signature']}")
        how, examples = max(kinds.items(), key=lambda item: len(item[1]), default=("", []))
        yield UseOutcome(
            converter,
            backend,
            len(own & {r["case_id"] for r in cases}),
            len({r["case_id"] for r in own_failures}),
            len(cases),
            len(failures),
            how,
            examples[0]["case_id"] if examples else "",
        )


def capture_data(captured: Capture, uses: Sequence[OperatorUse], run: Path | None) -> dict[str, Any]:
    """Return plain JSON data."""
    return {
        "model": captured.model,
        "calls": captured.total,
        "kinds": len(captured.calls),
        "left_out": dict(captured.left_out),
        "run": str(run) if run is not None else None,
        "operators": [asdict(use) for use in uses],
    }


def render_capture(captured: Capture, uses: Sequence[OperatorUse], run: Path | None) -> Iterator[RenderableType]:
    """Yield the capture as a table and lines for people."""
    kinds, operators_ = count(len(captured.calls), "kind"), count(len(uses), "operator")
    yield Text(f"{captured.model}: {count(captured.total, 'call')} of {operators_}, {kinds} of call", style="bold")
    table = Table(box=None, pad_edge=False)
    # Names wrap instead of being cut in a narrow terminal.
    table.add_column("operator", overflow="fold")
    for name in ("calls", "kinds", "own fail", "dtype fail"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("route", no_wrap=True)
    reasons: dict[str, list[str]] = {}
    for use in uses:
        head = [use.overload, str(use.calls), str(use.kinds)]
        for place in use.places or (None,):
            table.add_row(*head, *(_cells(place) if place is not None else ("not in the run", "", "")))
            head = ["", "", ""]
            if place is not None and place.own_failures:
                reasons.setdefault(f"{place.how} ({place.case_id})", []).append(use.overload)
    yield table
    for how, names in reasons.items():
        yield Text(f"{', '.join(dict.fromkeys(names))}: {how}")
    for why, calls in sorted(captured.left_out.items()):
        yield Text(f"left out: {count(calls, 'call')}: {why}")
    if run is None:
        yield Text(f"No run to look them up in: make one with `{layout.run_command()}`, or name one with --run.")


def _cells(place: UseOutcome) -> tuple[str, str, str]:
    own = f"{place.own_failures}/{place.own_cases}" if place.own_cases else "not run"
    return own, f"{place.failures}/{place.cases}", route_label(place.converter, place.backend)
