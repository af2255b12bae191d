"""A backend's outputs beside PyTorch's: are they right, and how far apart are they?

Shapes and dtypes must agree; integers, booleans and whatever an operator moves or selects must be equal;
what an operator computes in floating point is held to the rules of `harness.compare.nearness`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.compare.drawn import Drawn
from harness.compare.judge import Evidence, Judge, Mask
from harness.compare.nearness import Oracle, right_elements, tolerance_of, ulp
from harness.compare.tolerances import MIN_EXPONENT, Tolerance, needed_tolerance
from harness.core import PRECISION, Array

NAN_POSITIONS = "NaN positions"
OVERFLOW = "overflow to infinity"
INFINITIES = "infinities"
FLUSHED = "subnormals flushed to zero"
VALUES = "values"
ZERO_SIGN = "sign of zero"

#: All that a comparison finds wrong: first what is wrong with the outputs as a whole, then with elements.
PROBLEMS = (
    "number of outputs",
    "dtype",
    "shape",
    VALUES,
    NAN_POSITIONS,
    INFINITIES,
    OVERFLOW,
    FLUSHED,
    ZERO_SIGN,
)


@dataclass(frozen=True, kw_only=True)
class OutputComparison:
    """The distance between outputs and the verdict on it, over all outputs of a case.

    Attributes:
        problem: None where everything is right, else what is wrong, without numbers of this case:
            one of `PROBLEMS`.
        detail: The first wrong element or the difference of shapes, for a person.
        max_abs_error: Largest |got - expected| over finite elements; None where nothing is comparable.
        max_rel_error: The same over |expected|, elements with expected = 0 left out.
        max_ulp_error: The same in units in the last place of expected, in the output's dtype.
        needed_rtol: See `harness.compare.tolerances.needed_tolerance`; None where no element asks for it.
        needed_atol: The atol of that pair.
        mismatched_elements: How many are wrong.
        total_elements: How many were compared.
    """

    problem: str | None
    detail: str = ""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    max_ulp_error: float | None = None
    needed_rtol: float | None = None
    needed_atol: float | None = None
    mismatched_elements: int = 0
    total_elements: int = 0

    @property
    def message(self) -> str:
        """What is wrong, with the numbers of this case; "" where everything is right."""
        return "" if self.problem is None else f"{self.problem}: {self.detail}"


def compare(judge: Judge, oracle: Oracle, got: Sequence[Array]) -> OutputComparison:
    """Judge the outputs that a backend gave in one case, in the order of PyTorch's."""
    expected = oracle.expected
    total = sum(array.size for array in expected)
    if len(got) != len(expected):
        return _structural("number of outputs", f"expected {len(expected)}, got {len(got)}", total)
    unasked = judge.unasked(oracle.arguments) if judge.unasked else frozenset()
    for i, (e, g) in enumerate(zip(expected, got, strict=True)):
        if i in unasked:
            continue
        if e.dtype != g.dtype:
            return _structural("dtype", f"output {i}: expected {e.dtype}, got {g.dtype}", total)
        if e.shape != g.shape:
            return _structural("shape", f"output {i}: expected {list(e.shape)}, got {list(g.shape)}", total)
    if not judge.rules and all(e.tobytes() == g.tobytes() for e, g in zip(expected, got, strict=True)):
        return OutputComparison(
            problem=None,
            max_abs_error=0.0,
            max_rel_error=0.0,
            max_ulp_error=0.0,
            needed_rtol=0.0,
            needed_atol=0.0,
            total_elements=total,
        )
    undefined = judge.undefined(oracle.arguments, expected) if judge.undefined else [None] * len(expected)
    evidence = Evidence(oracle.arguments, expected, got)
    return _merge(
        [
            _by_rule(judge, evidence, i) if i in judge.rules else _elementwise(judge, i, oracle, got[i], skip)
            for i, skip in zip(range(len(expected)), undefined, strict=True)
            if i not in unasked
        ]
    )


def wrong_elements(judge: Judge, oracle: Oracle, got: Sequence[Array]) -> tuple[Mask, ...]:
    """The elements of each of `got` that `compare` finds wrong; all of an output of another shape or dtype.

    There are as many outputs as PyTorch's.
    """
    expected = oracle.expected
    unasked = judge.unasked(oracle.arguments) if judge.unasked else frozenset()
    undefined = judge.undefined(oracle.arguments, expected) if judge.undefined else [None] * len(expected)
    masks: list[Mask] = []
    for i, (e, g, skip) in enumerate(zip(expected, got, undefined, strict=True)):
        dtype = str(e.dtype)
        if i in unasked:
            mask = np.zeros(g.shape, dtype=bool)
        elif (e.shape, dtype) != (g.shape, str(g.dtype)):
            mask = np.ones(g.shape, dtype=bool)
        elif i in judge.rules:
            mask = judge.rules[i](Evidence(oracle.arguments, expected, got), i)
        elif dtype in PRECISION:
            with np.errstate(all="ignore"):
                wide = e.astype(np.float64), g.astype(np.float64)
                wrong, wrong_zero = _wrong(judge, oracle, i, *wide, skip)
            mask = wrong if wrong.any() else wrong_zero
        else:
            mask = _unequal(e, g, skip, judge.tolerances.get(dtype))
        masks.append(mask)
    return tuple(masks)


def _structural(problem: str, detail: str, total: int) -> OutputComparison:
    return OutputComparison(problem=problem, detail=detail, mismatched_elements=total, total_elements=total)


def _by_rule(judge: Judge, evidence: Evidence, output: int) -> OutputComparison:
    rule, got = judge.rules[output], evidence.got[output]
    if isinstance(rule, Drawn):
        placing = rule.place(evidence, output)
        wrong = placing.wrong
        detail = placing.said(got, output) if wrong.any() else ""
    else:
        wrong = rule(evidence, output)
        detail = _first(wrong, evidence.expected[output], got, output) if wrong.any() else ""
    return OutputComparison(
        problem=VALUES if wrong.any() else None,
        detail=detail,
        mismatched_elements=int(wrong.sum()),
        total_elements=wrong.size,
    )


def _elementwise(
    judge: Judge, output: int, oracle: Oracle, got: Array, skip: Mask | None
) -> OutputComparison:
    expected = oracle.expected[output]
    dtype = str(expected.dtype)
    if dtype not in PRECISION:
        return _equality(output, expected, got, skip, judge.tolerances.get(dtype))
    with np.errstate(all="ignore"):
        e, g = expected.astype(np.float64), got.astype(np.float64)
        difference = np.abs(g - e)
        finite = np.isfinite(e) & np.isfinite(g)
        problem = None
        wrong, wrong_zero = _wrong(judge, oracle, output, e, g, skip)
        if skip is not None:
            finite = finite & ~skip
        if wrong.any():
            problem = _kind_of(judge, oracle, output, wrong, e, g)
        elif wrong_zero.any():
            problem, wrong = ZERO_SIGN, wrong_zero
        shown = _showing(problem, wrong, e, g) if problem else wrong
        errors = difference[finite]
        scale = np.abs(e[finite])
        relative = errors[scale > 0] / scale[scale > 0]
        ulps = errors / ulp(scale, dtype)
        needed_rtol, needed_atol = needed_tolerance(e[finite], g[finite], dtype)
        return OutputComparison(
            problem=problem,
            detail=_first(shown, expected, got, output) if problem else "",
            max_abs_error=float(errors.max()) if errors.size else None,
            max_rel_error=float(relative.max()) if relative.size else None,
            max_ulp_error=float(ulps.max()) if ulps.size else None,
            needed_rtol=needed_rtol,
            needed_atol=needed_atol,
            mismatched_elements=int(wrong.sum()),
            total_elements=e.size if skip is None else int((~skip).sum()),
        )


def _wrong(
    judge: Judge, oracle: Oracle, output: int, e: Array, g: Array, skip: Mask | None
) -> tuple[Mask, Mask]:
    """The wrong elements of a floating output, and those of which only the sign of the zero is wrong."""
    if judge.exact:
        wrong = ~((g == e) | (np.isnan(g) & np.isnan(e)))
    else:
        wrong = ~right_elements(judge, oracle, output, e, g, skip)
    wrong_zero = np.zeros_like(wrong)
    if judge.exact or judge.signed_zeros:
        wrong_zero = (e == 0) & (g == 0) & (np.signbit(e) != np.signbit(g))
    return (wrong, wrong_zero) if skip is None else (wrong & ~skip, wrong_zero & ~skip)


def _kind_of(judge: Judge, oracle: Oracle, output: int, wrong: Mask, e: Array, g: Array) -> str:
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
    left = np.isinf(g) & np.isfinite(e) & ((e == 0) | (np.sign(e) == np.sign(g)))
    return OVERFLOW if left[wrong].sum() == infinite.sum() else INFINITIES


def _showing(kind: str, wrong: Mask, e: Array, g: Array) -> Mask:
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


def _equality(
    output: int, expected: Array, got: Array, skip: Mask | None, tolerance: Tolerance | None = None
) -> OutputComparison:
    wrong = _unequal(expected, got, skip, tolerance)
    error = None
    if expected.dtype.kind in "iu" and expected.size:
        kept = ... if skip is None else ~skip
        apart = np.abs(expected.astype(np.float64) - got.astype(np.float64))[kept]
        error = float(apart.max()) if apart.size else None
    return OutputComparison(
        problem=VALUES if wrong.any() else None,
        detail=_first(wrong, expected, got, output) if wrong.any() else "",
        max_abs_error=error,
        mismatched_elements=int(wrong.sum()),
        total_elements=wrong.size if skip is None else int((~skip).sum()),
    )


def _unequal(expected: Array, got: Array, skip: Mask | None, tolerance: Tolerance | None) -> Mask:
    """The wrong elements of an output that is not floating."""
    wrong = np.asarray(expected != got)
    if tolerance is not None and wrong.any():
        # A case of its own reason: integers that stand for rounded reals, as pixels do.
        wrong = np.abs(expected.astype(np.float64) - got.astype(np.float64)) > tolerance.atol
    return wrong if skip is None else wrong & ~skip


def _first(wrong: Mask, expected: Array, got: Array, output: int) -> str:
    place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    where = f"[{','.join(str(int(i)) for i in place)}]" if place else ""
    return f"output {output}{where}: expected {expected[place]!s}, got {got[place]!s}"


def _merge(parts: Sequence[OutputComparison]) -> OutputComparison:
    if len(parts) == 1:
        return parts[0]
    worst = next((p for p in parts if p.problem), None)

    def largest(name: str) -> float | None:
        present = [v for v in (getattr(p, name) for p in parts) if v is not None]
        return max(present, default=None)

    return OutputComparison(
        problem=worst.problem if worst else None,
        detail=worst.detail if worst else "",
        max_abs_error=largest("max_abs_error"),
        max_rel_error=largest("max_rel_error"),
        max_ulp_error=largest("max_ulp_error"),
        needed_rtol=largest("needed_rtol"),
        needed_atol=largest("needed_atol"),
        mismatched_elements=sum(p.mismatched_elements for p in parts),
        total_elements=sum(p.total_elements for p in parts),
    )
