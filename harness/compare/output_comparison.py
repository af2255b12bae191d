"""The result of a comparison: how far outputs are apart, everything that is wrong, and what was excused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.compare.diagnosis import Difference

#: Separates excuses in the record; a reason contains no semicolon.
_SEPARATOR = "; "


@dataclass(frozen=True)
class OutputProblem:
    """A problem of one or more outputs.

    Attributes:
        kind: One of `harness.compare.problem_kinds.PROBLEMS`, without any numbers.
        detail: The first wrong element or the differing shapes, as text.
        outputs: Indices of the outputs that have the problem.
        expected: PyTorch's dtype, shape or first wrong element; None if there is none.
        got: The backend's.
        dtype: The output's dtype if elements are wrong.
        difference: The first wrong element, as text.
        has_wrong_numbers: For a problem of NaN or infinities: whether finite numbers are wrong as well.
        unsettled: A sentence on why the right answer is unknown; "" if it is known.
    """

    kind: str
    detail: str
    outputs: tuple[int, ...] = ()
    unsettled: str = ""
    expected: Any = None
    got: Any = None
    dtype: str = ""
    difference: Difference | None = None
    has_wrong_numbers: bool = False

    @property
    def message(self) -> str:
        """The kind and the detail."""
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class OutputComparison:
    """The distance between the outputs of a case and everything that is wrong with them.

    Attributes:
        problems: One problem of each kind, the first one first; empty if everything is right.
        max_abs_error: Largest |got - expected| over finite elements; None if nothing is comparable.
        max_rel_error: Largest |got - expected| / |expected|, without elements whose expected value is 0.
        max_ulp_error: Largest error in units in the last place of the expected value, in the output's dtype.
        needed_rtol: See `harness.compare.tolerances.needed_tolerance`; None if no element needs it.
        needed_atol: The atol of that pair.
        mismatched_elements: Number of wrong elements.
        total_elements: Number of compared elements.
        excused: Reasons and numbers of elements that differ from PyTorch's by more than the last places and that a
            rule accepts or leaves out.
        within_largest: Whether all that is wrong is within the tolerance of the largest element of its output.
    """

    problems: tuple[OutputProblem, ...] = ()
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    max_ulp_error: float | None = None
    needed_rtol: float | None = None
    needed_atol: float | None = None
    mismatched_elements: int = 0
    total_elements: int = 0
    excused: tuple[tuple[str, int], ...] = ()
    within_largest: bool = False

    @property
    def problem(self) -> str | None:
        """The kind of the first problem; None if everything is right."""
        return self.problems[0].kind if self.problems else None

    @property
    def message(self) -> str:
        """The first problem's message; "" if everything is right."""
        return self.problems[0].message if self.problems else ""

    @property
    def unsettled(self) -> str:
        """Why the right answer is unknown, if that is so for everything that is wrong; else ""."""
        return self.problems[0].unsettled if self.problems else ""

    def excused_as(self, why: str) -> OutputComparison:
        """Return the comparison with everything that is wrong excused for a reason."""
        excused = (*self.excused, (why, self.mismatched_elements))
        return replace(self, problems=(), mismatched_elements=0, excused=excused)

    @property
    def excuses(self) -> str:
        """`excused` on one line, as recorded."""
        return excuses_text(self.excused)


def excuses_text(excused: Sequence[tuple[str, int]]) -> str:
    """Return excuses on one line: ``3: nearness 2 (near the truth)``; "" if there are none."""
    return _SEPARATOR.join(f"{number}: {why}" for why, number in excused)


def parse_excuses(text: str) -> tuple[tuple[str, int], ...]:
    """Return the excuses that `excuses_text` wrote."""
    parts = (part.partition(": ") for part in text.split(_SEPARATOR) if part)
    return tuple((why, int(number)) for number, _, why in parts)


def merged(parts: Sequence[OutputComparison]) -> OutputComparison:
    """Return the comparison of a case from those of its outputs, in order."""
    if len(parts) == 1:
        return parts[0]

    def largest(name: str) -> float | None:
        present = [v for v in (getattr(p, name) for p in parts) if v is not None]
        return max(present, default=None)

    excused: Counter[str] = Counter()
    for part in parts:
        excused.update(dict(part.excused))
    return OutputComparison(
        problems=distinct([problem for part in parts for problem in part.problems]),
        max_abs_error=largest("max_abs_error"),
        max_rel_error=largest("max_rel_error"),
        max_ulp_error=largest("max_ulp_error"),
        needed_rtol=largest("needed_rtol"),
        needed_atol=largest("needed_atol"),
        mismatched_elements=sum(p.mismatched_elements for p in parts),
        total_elements=sum(p.total_elements for p in parts),
        excused=tuple(excused.items()),
    )


def distinct(problems: Sequence[OutputProblem]) -> tuple[OutputProblem, ...]:
    """Return each kind of problem once, with all outputs that have it; those with a known right answer come first."""
    by_kind: dict[tuple[str, str], OutputProblem] = {}
    for problem in sorted(problems, key=lambda p: bool(p.unsettled)):
        key = problem.kind, problem.unsettled
        first = by_kind.setdefault(key, problem)
        if first is not problem:
            by_kind[key] = replace(first, outputs=(*first.outputs, *problem.outputs))
    return tuple(by_kind.values())
