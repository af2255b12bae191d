"""The request of a run: it identifies runs of the same kind, and what was not requested is not missing.

The terminal and the page use it to choose the run to show first and the run to compare it with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.gate.baseline.file import drawing
from harness.record.dictionary_encoding import numbered_column
from harness.record.progress import completeness
from harness.record.run_info import JSON, RunInfo, read_run_info

#: Options that restrict a run to some operators, or to something other than operators.
_NARROWING = ("op", "model", "models", "rules")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The request of one run.

    Attributes:
        directory: The run's directory.
        started: When it began, ISO 8601.
        full: Whether it was asked to run every operator.
        operators: The operators that it was asked to run; empty if unknown.
        converters: The converters; empty if unknown, like `backends`.
        shapes: ``static``, ``dynamic``, ``both`` or ``mixed``.
        sources: The sources of its cases.
        budget: The given options that determine the drawn cases, and the seed.
    """

    directory: Path
    started: str
    full: bool
    operators: frozenset[str] = frozenset()
    converters: frozenset[str] = frozenset()
    backends: frozenset[str] = frozenset()
    shapes: str = "static"
    sources: frozenset[str] = frozenset()
    budget: Mapping[str, JSON] = field(default_factory=dict)

    def is_same_kind(self, other: RunRequest) -> bool:
        """Whether both requested the same from the same operators; seeds may differ."""
        return not self.differences(other).keys() - {"seed", "sources"}

    def shares_route(self, other: RunRequest) -> bool:
        """Whether both have some converter and some backend in common, as far as known."""
        pairs = ((self.converters, other.converters), (self.backends, other.backends))
        return all(not mine or not theirs or mine & theirs for mine, theirs in pairs)

    def asks(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that it requests.

        Args:
            rows: Rows of any run with ``overload``, ``converter``, ``backend``, ``dtype``, ``source`` and
                ``shape_mode``.
        """
        wanted = {
            "overload": self.operators,
            "converter": self.converters,
            "backend": self.backends,
            "dtype": _words(self.budget.get("dtype")),
            "source": {word.partition(":")[0] for word in self.sources},
            "shape_mode": () if self.shapes in ("both", "mixed") else (self.shapes,),
        }
        asked = np.ones(rows.num_rows, dtype=bool)
        for name, values in wanted.items():
            if values:
                numbers, words = numbered_column(rows[name])
                asked &= np.isin(words.to_pylist(), list(values))[numbers]
        return asked

    def differences(self, other: RunRequest) -> dict[str, tuple[str, str]]:
        """Return the requests that differ: name → descriptions for this run and for the other one."""
        names = dict.fromkeys([*self.budget, *other.budget])
        pairs = {
            "operators": (self._operators, other._operators),
            "converters": (_listed(self.converters), _listed(other.converters)),
            "backends": (_listed(self.backends), _listed(other.backends)),
            "shapes": (self.shapes, other.shapes),
            "sources": (_listed(self.sources), _listed(other.sources)),
            **{name: (_show(self.budget, name), _show(other.budget, name)) for name in names},
        }
        if self.full == other.full and (self.full or self.operators == other.operators):
            # Operators are added and removed over time, but runs of all of them stay of one kind.
            del pairs["operators"]
        # An unknown value is not a difference.
        return {name: (a, b) for name, (a, b) in pairs.items() if a and b and a != b}

    @property
    def _operators(self) -> str:
        if self.full:
            return f"all {len(self.operators):,}" if self.operators else "all"
        names = sorted(self.operators)
        return f"{len(names):,}" if len(names) > 2 else ", ".join(names) or "some"


def requested(directory: Path, info: RunInfo | None = None) -> RunRequest:
    """Return the request of the run in `directory`; `info` is its info if that is known.

    Raises:
        ResultsError: The directory has no run, or it is damaged.
    """
    info = info or read_run_info(directory)
    options = info.options
    operators = frozenset(completeness(directory).operators)
    planned = frozenset(name for part in info.planned for name in part)
    # Deselected operators (`-k`) and those of other shards were not requested.
    narrowed = any(options.get(name) for name in _NARROWING) or bool(planned and planned != operators)
    return RunRequest(
        directory=directory,
        started=info.started,
        full=not narrowed and info.shard is None,
        operators=operators,
        converters=_words(options.get("converter")),
        backends=_words(options.get("backend")),
        shapes=str(options.get("shapes") or "static"),
        sources=frozenset(info.basis.get("sources", "").split()),
        budget=drawing(options, info.seed),
    )


def shown_first(requests: Iterable[RunRequest]) -> RunRequest | None:
    """Return the run that represents all: the newest one of every operator, or else the newest; None without any."""
    return max(requests, key=lambda request: (request.full, request.started), default=None)


def last_of_kind(like: RunRequest, others: Iterable[RunRequest]) -> RunRequest | None:
    """Return the newest run of the same kind that began before `like`; None if there is none."""
    earlier = (other for other in others if other.started < like.started and like.is_same_kind(other))
    return max(earlier, key=lambda request: request.started, default=None)


def _words(value: JSON) -> frozenset[str]:
    return frozenset(map(str, value)) if isinstance(value, list) else frozenset()


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))


def _show(budget: Mapping[str, JSON], name: str) -> str:
    value = budget.get(name)
    if isinstance(value, list):
        return _listed(map(str, value))
    return str(value) if value is not None else "all" if name == "dtype" else "default"
