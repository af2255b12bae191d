"""Which operators of a model fail in a run, and how often the model calls them."""

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
    """How an operator does with one converter and one backend.

    Attributes:
        own_cases: Kinds of the model's own calls that the run has.
        own_failures: Those of them that fail.
        cases: All of the operator's cases in the run that have the dtypes of the model's calls.
        failures: Those of them that fail; what a specification leaves open is not a failure.
        how: The commonest failure, of the model's own calls where one of these fails.
        case_id: A case of that failure.
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
        calls: How often the model calls it in one forward pass.
        modules: Modules that call it, the first few.
        places: What a run says of it; none where the run has no case of it.
    """

    overload: str
    calls: int
    kinds: int
    modules: tuple[str, ...]
    places: tuple[UseOutcome, ...] = ()

    @property
    def rank(self) -> tuple[int, int, int]:
        """Worst first: failures of the model's own calls, then of the operator, then calls."""
        own = max((p.own_failures for p in self.places), default=0)
        failures = max((p.failures for p in self.places), default=0)
        return -int(own > 0) * self.calls, -failures, -self.calls


def operator_uses(captured: Capture, run: Path | None) -> list[OperatorUse]:
    """The operators of a model, worst first, with what a recorded run says of them where there is one.

    Raises:
        ResultsError: the run cannot be read.
    """
    rows = _by(store.read(run, _COLUMNS).to_pylist() if run is not None else (), lambda row: row["overload"])
    uses = _by(captured.calls, lambda call: call.invocation.overload)
    found = []
    for overload, calls in uses.items():
        own = {call.invocation.case_id for call in calls}
        dtypes = {call.invocation.dtype for call in calls}
        recorded = [row for row in rows.get(overload, ()) if row["dtype"] in dtypes]
        modules = dict.fromkeys(place for call in calls for place in call.places if place)
        found.append(
            OperatorUse(
                overload,
                sum(call.calls for call in calls),
                len(calls),
                tuple(modules)[:3],
                tuple(_places(recorded, own)),
            )
        )
    return sorted(found, key=lambda use: use.rank)


def _by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def _places(rows: Sequence[Mapping[str, Any]], own: set[str]) -> Iterator[UseOutcome]:
    by_place = _by(rows, lambda row: (row["converter"], row["backend"]))
    for (converter, backend), cases in sorted(by_place.items()):
        failures = [r for r in cases if Outcome(r["outcome"]).is_failure and r["blame"] != "spec"]
        own_failures = [r for r in failures if r["case_id"] in own]
        kinds = _by(own_failures or failures, lambda row: f"{row['outcome']} at {row['stage']}: {row['signature']}")
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
    """As JSON."""
    return {
        "model": captured.model,
        "calls": captured.total,
        "kinds": len(captured.calls),
        "left_out": dict(captured.left_out),
        "run": str(run) if run is not None else None,
        "operators": [asdict(use) for use in uses],
    }


def render_capture(captured: Capture, uses: Sequence[OperatorUse], run: Path | None) -> Iterator[RenderableType]:
    """For people."""
    kinds, operators_ = count(len(captured.calls), "kind"), count(len(uses), "operator")
    yield Text(f"{captured.model}: {count(captured.total, 'call')} of {operators_}, {kinds} of call", style="bold")
    table = Table(box=None, pad_edge=False)
    # Nothing is cut off: in a narrow terminal a name has several lines.
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
