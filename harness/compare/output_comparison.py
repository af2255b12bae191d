"""The result of a comparison: all that is wrong, and what was excused.

What to call that elements are wrong.

What a comparison finds: how far outputs are apart, all that is wrong with them, and what was excused.

All that is wrong with a case, as the record has it where that is more than its outcome.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from harness.compare.diagnosis import Difference
from harness.compare.judge import Judge, Mask
from harness.compare.nearness import Oracle, tolerance_of
from harness.compare.tolerances import MIN_EXPONENT
from harness.core.documents import as_json, without_escapes
from harness.core.dtypes import Array

NAN_POSITIONS = "NaN positions"
OVERFLOW = "overflow to infinity"
INFINITIES = "infinities"
FLUSHED = "subnormals flushed to zero"
VALUES = "values"
ZERO_SIGN = "sign of zero"

#: What a comparison finds wrong with elements.
ELEMENTWISE = (VALUES, NAN_POSITIONS, INFINITIES, OVERFLOW, FLUSHED, ZERO_SIGN)
#: All that it finds wrong: first what is wrong with the outputs as a whole.
PROBLEMS = ("number of outputs", "dtype", "shape", *ELEMENTWISE)


def kind_of(judge: Judge, oracle: Oracle, output: int, wrong: Mask, e: Array, g: Array) -> str:
    """Name what is wrong with the elements marked in `wrong`.

    `FLUSHED` is said where every wrong element is right for a machine that takes subnormal numbers for
    zeros, as GPUs and fast-math kernels do: among its inputs, or its result. `OVERFLOW` is said where
    PyTorch has a number and the backend an infinity of its sign: the range was left on the way.

    Args:
        judge: The operator's.
        oracle: PyTorch's answers.
        output: Its index.
        wrong: At least one element is marked.
        e: PyTorch's result in float64.
        g: The backend's.
    """
    if _is_flushed(judge, oracle, output, wrong, e, g):
        return FLUSHED
    if (np.isnan(e) != np.isnan(g))[wrong].any():
        return NAN_POSITIONS
    infinite = (np.isinf(e) | np.isinf(g))[wrong]
    if not infinite.any():
        return VALUES
    if judge.exact:
        # What is only moved leaves no range.
        return INFINITIES
    left = np.isinf(g) & np.isfinite(e) & ((e == 0) | (np.sign(e) == np.sign(g)))
    return OVERFLOW if left[wrong].sum() == infinite.sum() else INFINITIES


def elements_of_kind(kind: str, wrong: Mask, e: Array, g: Array) -> Mask:
    """Of the elements marked in `wrong` those that show the kind, for a message that names one."""
    if kind == NAN_POSITIONS:
        return np.asarray(wrong & (np.isnan(e) != np.isnan(g)))
    if kind in (OVERFLOW, INFINITIES):
        return np.asarray(wrong & (np.isinf(e) | np.isinf(g)))
    return wrong


def _is_flushed(judge: Judge, oracle: Oracle, output: int, wrong: Mask, e: Array, g: Array) -> bool:
    smallest_normal = np.ldexp(1.0, MIN_EXPONENT[str(oracle.expected[output].dtype)])
    excused = (g == 0) & (np.abs(e) < smallest_normal)
    if not (excused | ~wrong).all() and oracle.flushed is not None:
        flushed = oracle.flushed[output]
        if flushed.shape == e.shape:
            zeroed = flushed.astype(np.float64)
            zeroed = np.where(np.abs(zeroed) < smallest_normal, 0.0, zeroed)
            excused |= (g == zeroed) | (np.isnan(g) & np.isnan(zeroed))
            # Beside zero every small number is near, flushed or not.
            tolerance = tolerance_of(judge, str(oracle.expected[output].dtype))
            excused |= (zeroed != 0) & tolerance.accepts(zeroed, g)
    return bool((excused | ~wrong).all())


#: A reason and a number of elements, as the record has them; reasons hold no semicolon.
_BETWEEN = "; "


@dataclass(frozen=True)
class OutputProblem:
    """One thing that is wrong with outputs.

    Attributes:
        kind: One of `harness.compare.output_comparison.PROBLEMS`: it has no numbers of this case.
        detail: The first wrong element or the difference of shapes, for a person.
        outputs: Indices of the outputs that have it.
        expected: PyTorch's dtype, shape or first wrong element; None where there is no such.
        got: The backend's.
        dtype: Of the output, where elements are wrong.
        difference: The first of them, in words.
        unsettled: Why it is unknown what is right, a sentence; "" where it is known.
    """

    kind: str
    detail: str
    outputs: tuple[int, ...] = ()
    unsettled: str = ""
    expected: Any = None
    got: Any = None
    dtype: str = ""
    difference: Difference | None = None

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
        """Why it is unknown what is right, where that holds of all that is wrong; else ""."""
        return self.problems[0].unsettled if self.problems else ""

    def excused_as(self, why: str) -> OutputComparison:
        """The comparison where all that is wrong has an excuse."""
        excused = (*self.excused, (why, self.mismatched_elements))
        return replace(self, problems=(), mismatched_elements=0, excused=excused)

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
    """Each kind of problem once, with all outputs that have it; what has a right answer comes first."""
    found: dict[tuple[str, str], OutputProblem] = {}
    for problem in sorted(problems, key=lambda p: bool(p.unsettled)):
        key = problem.kind, problem.unsettled
        first = found.setdefault(key, problem)
        if first is not problem:
            found[key] = replace(first, outputs=(*first.outputs, *problem.outputs))
    return tuple(found.values())


@dataclass(frozen=True, kw_only=True)
class CaseProblem:
    """One problem of a case: what the columns of the same names would say if it were the only one."""

    stage: str
    outcome: str
    signature: str
    message: str
    blame: str
    evidence: str = ""
    blame_rule: str = ""
    component: str = ""
    place: str = ""
    fault: str = ""
    detail: str = ""
    diagnosis: str = ""


def problems_text(problems: Sequence[CaseProblem]) -> str:
    """Problems as the record has them, a JSON list; "" where there is no more than one."""
    if len(problems) < 2:
        return ""
    return as_json([{name: without_escapes(text) for name, text in asdict(one).items() if text} for one in problems])


def parse_problems(text: str) -> tuple[CaseProblem, ...]:
    """What `problems_text` wrote.

    Raises:
        ValueError: it wrote something else.
    """
    try:
        found = json.loads(text) if text else ()
        return tuple(CaseProblem(**{"signature": "", "message": "", "blame": "", **one}) for one in found)
    except TypeError as error:
        raise ValueError(f"no list of problems: {error}") from None
