"""What a run was asked for. Runs of the same kind are found by it, and what was not asked for is not missed.

The terminal and the page both use it to choose the run to show first and the run to compare that with.
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

#: Options that narrow a run to a part of the operators, or to something else than operators.
_NARROWING = ("op", "model", "models", "rules")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What one run was asked for.

    Attributes:
        directory: Of the run.
        started: When it began, ISO 8601.
        full: Whether it was to run every operator.
        operators: Those of which it was to run something; empty where the run does not say.
        converters: Empty where the run does not say; `backends` too.
        shapes: ``static``, ``dynamic``, ``both`` or ``mixed``.
        sources: Where its cases came from.
        budget: The options that decide which cases are drawn, and the seed: those that were given.
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

    def fail_alike(self, other: RunRequest) -> bool:
        """Whether both asked the same of the same operators; the seeds may differ."""
        return not self.differences(other).keys() - {"seed", "sources"}

    def shares_way(self, other: RunRequest) -> bool:
        """Whether both ran some converter and some backend, as far as they say."""
        pairs = ((self.converters, other.converters), (self.backends, other.backends))
        return all(not mine or not theirs or mine & theirs for mine, theirs in pairs)

    def asks(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Whether it asks for what each row is about.

        Args:
            rows: Of any run, with ``overload``, ``converter``, ``backend``, ``dtype``, ``source`` and
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
        for name, some in wanted.items():
            if some:
                numbers, words = numbered_column(rows[name])
                asked &= np.isin(words.to_pylist(), list(some))[numbers]
        return asked

    def differences(self, other: RunRequest) -> dict[str, tuple[str, str]]:
        """What they were asked for that differs: name → in words for this run, and for the other one."""
        names = dict.fromkeys([*self.budget, *other.budget])
        pairs = {
            "operators": (self._operators, other._operators),
            "converters": (_listed(self.converters), _listed(other.converters)),
            "backends": (_listed(self.backends), _listed(other.backends)),
            "shapes": (self.shapes, other.shapes),
            "sources": (_listed(self.sources), _listed(other.sources)),
            **{name: (_said(self.budget, name), _said(other.budget, name)) for name in names},
        }
        if self.full == other.full and (self.full or self.operators == other.operators):
            # As operators are added and removed over time, runs of all of them stay of one kind.
            del pairs["operators"]
        # What one of the two does not say is not a difference.
        return {name: (a, b) for name, (a, b) in pairs.items() if a and b and a != b}

    @property
    def _operators(self) -> str:
        if self.full:
            return f"all {len(self.operators):,}" if self.operators else "all"
        some = sorted(self.operators)
        return f"{len(some):,}" if len(some) > 2 else ", ".join(some) or "some"


def requested(directory: Path, info: RunInfo | None = None) -> RunRequest:
    """What the run in `directory` was asked for; `info` is what its ``run.json`` says, if that is known.

    Raises:
        ResultsError: it is damaged, or there is none.
    """
    info = info or read_run_info(directory)
    options = info.options
    operators = frozenset(completeness(directory).operators)
    planned = frozenset(name for part in info.planned for name in part)
    # Operators that were deselected (`-k`), and those of other shards, were not asked for.
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
    """The run that stands for all: the newest that was to run every operator, or else the newest.

    None without any run.
    """
    return max(requests, key=lambda one: (one.full, one.started), default=None)


def last_alike(like: RunRequest, others: Iterable[RunRequest]) -> RunRequest | None:
    """The newest run of the same kind that began before `like`; None without any."""
    earlier = (other for other in others if other.started < like.started and like.fail_alike(other))
    return max(earlier, key=lambda one: one.started, default=None)


def _words(value: JSON) -> frozenset[str]:
    return frozenset(map(str, value)) if isinstance(value, list) else frozenset()


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))


def _said(budget: Mapping[str, JSON], name: str) -> str:
    value = budget.get(name)
    if isinstance(value, list):
        return _listed(map(str, value))
    return str(value) if value is not None else "all" if name == "dtype" else "default"
