"""What a comparison finds: how far outputs are apart, all that is wrong with them, and what was excused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

#: A reason and a number of elements, as the record has them; reasons hold no semicolon.
_BETWEEN = "; "


@dataclass(frozen=True)
class OutputProblem:
    """One thing that is wrong with outputs.

    Attributes:
        kind: One of `harness.compare.problem_kinds.PROBLEMS`: it has no numbers of this case.
        detail: The first wrong element or the difference of shapes, for a person.
        outputs: Indices of the outputs that have it.
        expected: PyTorch's dtype, shape or first wrong element; None where there is no such.
        got: The backend's.
        dtype: Of the output, where elements are wrong.
        unsettled: Why nobody can say what is right, a sentence; "" where it is known.
    """

    kind: str
    detail: str
    outputs: tuple[int, ...] = ()
    unsettled: str = ""
    expected: Any = None
    got: Any = None
    dtype: str = ""

    @property
    def message(self) -> str:
        """What is wrong, with the numbers of this case."""
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class OutputComparison:
    """The distance between outputs and the verdict on it, over all outputs of a case.

    Attributes:
        problems: All that is wrong, each kind once, the first one first; none where everything is right.
        max_abs_error: Largest |got - expected| over finite elements; None where nothing is comparable.
        max_rel_error: The same over |expected|, elements with expected = 0 left out.
        max_ulp_error: The same in units in the last place of expected, in the output's dtype.
        needed_rtol: See `harness.compare.tolerances.needed_tolerance`; None where no element asks for it.
        needed_atol: The atol of that pair.
        mismatched_elements: How many are wrong.
        total_elements: How many were compared.
        excused: Of the elements that are not PyTorch's but for the last places, how many a rule accepts or
            leaves out, and which one: pairs of words and a number.
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

    @property
    def problem(self) -> str | None:
        """The kind of the first problem; None where everything is right."""
        return self.problems[0].kind if self.problems else None

    @property
    def message(self) -> str:
        """The first problem, with the numbers of this case; "" where everything is right."""
        return self.problems[0].message if self.problems else ""

    @property
    def unsettled(self) -> str:
        """Why nobody can say what is right, where that holds of all that is wrong; else ""."""
        return self.problems[0].unsettled if self.problems else ""

    @property
    def excuses(self) -> str:
        """`excused` in a line, as the record has it."""
        return excuses_text(self.excused)


def excuses_text(excused: Sequence[tuple[str, int]]) -> str:
    """How many elements were excused and why: ``3: nearness 2 (near the truth)``; "" for none."""
    return _BETWEEN.join(f"{number}: {why}" for why, number in excused)


def excuses_of(text: str) -> tuple[tuple[str, int], ...]:
    """What `excuses_text` wrote."""
    parts = (part.partition(": ") for part in text.split(_BETWEEN) if part)
    return tuple((why, int(number)) for number, _, why in parts)


def merged(parts: Sequence[OutputComparison]) -> OutputComparison:
    """The comparison of a case, given those of its outputs, in order."""
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
    """Each kind of problem once, with all outputs that have it; what is somebody's comes first."""
    found: dict[tuple[str, str], OutputProblem] = {}
    for problem in sorted(problems, key=lambda p: bool(p.unsettled)):
        key = problem.kind, problem.unsettled
        first = found.setdefault(key, problem)
        if first is not problem:
            found[key] = replace(first, outputs=(*first.outputs, *problem.outputs))
    return tuple(found.values())
