"""A backend's outputs beside PyTorch's: are they right, and how far apart are they?

An element of a floating-point output is right if any of these holds (t = atol + rtol·|x|, the
tolerance of its dtype at x):

1. it is within t of PyTorch's result in the case's dtype;
2. it is within t of the same call in float64, the truth as far as this machine can know it;
3. it is no further from that truth than PyTorch's own result is: a backend cannot be asked to
   repeat PyTorch's rounding errors. Where PyTorch leaves the range on its way and ends in an infinity or NaN
   although the truth is finite, any infinity or NaN is no further; a finite number must be right by itself;
4. the operator accumulates (a sum of products) and it is within atol + rtol·S of the truth, where S
   is the same call in float64 on the absolute values of the inputs (or `Judge.terms`), the sum of the
   terms' magnitudes. The forward error of a sum of n terms in any order is at most γₙ·S, γₙ = n·u / (1 - n·u)
   (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.1, §4.2), whatever is left
   after cancellation; rtol stands for γₙ, since errors grow with √n rather than n in practice
   (ibid. §2.8) and cases have few terms;
5. the operator accumulates, none of the element's inputs is infinite or NaN, and it is an infinity or NaN
   that some order of summation runs into. Neither ONNX nor PyTorch states an order, and a partial sum is at
   most the sum of the positive terms, P = (S + truth) / 2, and at least minus that of the negative ones,
   N = (S - truth) / 2: +inf is right where P(1 + rtol) exceeds the largest finite number of the dtype, -inf
   where N(1 + rtol) does, and NaN, which is +inf + -inf (IEEE 754-2019 §7.2), where both do. Where float64
   overflows itself, P and N are unknown and all three are right; so they are where terms may overflow because
   they are scaled by less than one only after they have been summed: where S(1 + rtol), the `SCALES` taken as
   at least one, exceeds the largest finite number.

NaN equals NaN. Infinities must be infinities of the same sign in PyTorch's result or in the float64
result rounded to the dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from harness.dtypes import PRECISION
from harness.verdict.judge import Array, Evidence, Judge, Mask
from harness.verdict.tolerances import DEFAULT, Tolerance

#: Arguments that scale terms, in every overload that has a number of that name.
SCALES = frozenset({"alpha", "beta", "value"})

_MIN_EXPONENT = {"float64": -1022, "float32": -126, "float16": -14, "bfloat16": -126}


class Oracle(Protocol):
    """What PyTorch says of one case. Float64 costs another run, so it is asked for only when needed."""

    @property
    def expected(self) -> tuple[Array, ...]:
        """Outputs in the case's dtype."""

    @property
    def truth(self) -> tuple[Array | None, ...] | None:
        """Outputs in float64; None for an output, or as a whole, where there is none."""

    @property
    def magnitude(self) -> tuple[Array | None, ...] | None:
        """Outputs in float64 for the absolute values of the inputs, likewise."""

    @property
    def unscaled(self) -> tuple[Array | None, ...] | None:
        """The magnitude with scales of at least one, likewise."""

    @property
    def marked(self) -> tuple[Array | None, ...] | None:
        """The magnitude with 1 for every finite number, likewise: finite where only such take part."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Schema name → value passed, tensors as arrays."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The distance between outputs and the verdict on it, over all outputs of a case.

    Attributes:
        problem: None where everything is right, else what is wrong, without numbers of this case:
            ``shape``, ``dtype``, ``NaN positions``, ``infinities``, ``sign of zero``, ``values``,
            ``number of outputs``.
        detail: The first wrong element or the difference of shapes, for a person.
        max_abs_error: Largest |got - expected| over finite elements; None where nothing is comparable.
        max_rel_error: The same over |expected|, elements with expected = 0 left out.
        max_ulp_error: The same in units in the last place of expected, in the output's dtype.
        mismatched_elements: How many are wrong.
        total_elements: How many were compared.
    """

    problem: str | None
    detail: str = ""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    max_ulp_error: float | None = None
    mismatched_elements: int = 0
    total_elements: int = 0


def compare(judge: Judge, oracle: Oracle, got: Sequence[Array]) -> Comparison:
    """Judge the outputs of one case.

    Args:
        judge: The operator's.
        oracle: PyTorch's outputs.
        got: The backend's, in the same order.
    """
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
    if not judge.rules and all(_same_bits(e, g) for e, g in zip(expected, got, strict=True)):
        return Comparison(
            problem=None, max_abs_error=0.0, max_rel_error=0.0, max_ulp_error=0.0, total_elements=total
        )
    undefined = judge.undefined(oracle.arguments, expected) if judge.undefined else [None] * len(expected)
    parts = []
    for i, skip in zip(range(len(expected)), undefined, strict=True):
        if i in unasked:
            continue
        if i in judge.rules:
            parts.append(_by_rule(judge, Evidence(oracle.arguments, expected, got), i))
        else:
            parts.append(_elementwise(judge, i, oracle, got[i], skip))
    return _merge(parts)


def _structural(problem: str, detail: str, total: int) -> Comparison:
    return Comparison(problem=problem, detail=detail, mismatched_elements=total, total_elements=total)


def _same_bits(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()


def _by_rule(judge: Judge, evidence: Evidence, output: int) -> Comparison:
    wrong = judge.rules[output](evidence, output)
    problem = "values" if wrong.any() else None
    return Comparison(
        problem=problem,
        detail=_first(wrong, evidence.expected[output], evidence.got[output], output) if problem else "",
        mismatched_elements=int(wrong.sum()),
        total_elements=wrong.size,
    )


def _elementwise(
    judge: Judge,
    output: int,
    oracle: Oracle,
    got: Array,
    skip: Mask | None,
) -> Comparison:
    expected = oracle.expected[output]
    dtype = str(expected.dtype)
    if dtype not in PRECISION:
        return _equality(output, expected, got, skip, judge.tolerances.get(dtype))
    with np.errstate(all="ignore"):
        e, g = expected.astype(np.float64), got.astype(np.float64)
        tolerance = judge.tolerances.get(dtype, DEFAULT[dtype])
        difference = np.abs(g - e)
        finite = np.isfinite(e) & np.isfinite(g)
        if judge.exact:
            wrong = ~((g == e) | (np.isnan(g) & np.isnan(e)))
        else:
            right = _near_pytorch(tolerance, e, g)
            if not (right if skip is None else right | skip).all():
                right |= _near_truth(tolerance, oracle, output, e, g, judge)
            wrong = ~right
        problem = None
        wrong_zero = np.zeros_like(wrong)
        if judge.exact or judge.signed_zeros:
            wrong_zero = (e == 0) & (g == 0) & (np.signbit(e) != np.signbit(g))
        if skip is not None:
            wrong, wrong_zero, finite = wrong & ~skip, wrong_zero & ~skip, finite & ~skip
        if wrong.any():
            problem = _kind(wrong, e, g)
        elif wrong_zero.any():
            problem, wrong = "sign of zero", wrong_zero
        errors = difference[finite]
        scale = np.abs(e[finite])
        relative = errors[scale > 0] / scale[scale > 0]
        ulps = errors / _ulp(scale, dtype)
        return Comparison(
            problem=problem,
            detail=_first(wrong, expected, got, output) if problem else "",
            max_abs_error=float(errors.max()) if errors.size else None,
            max_rel_error=float(relative.max()) if relative.size else None,
            max_ulp_error=float(ulps.max()) if ulps.size else None,
            mismatched_elements=int(wrong.sum()),
            total_elements=e.size if skip is None else int((~skip).sum()),
        )


def _near_pytorch(tolerance: Tolerance, e: Array, g: Array) -> Mask:
    right = (g == e) | (np.isnan(g) & np.isnan(e))
    right |= np.isfinite(e) & (np.abs(g - e) <= tolerance.atol + tolerance.rtol * np.abs(e))
    return np.asarray(right)


def _near_truth(tolerance: Tolerance, oracle: Oracle, output: int, e: Array, g: Array, judge: Judge) -> Mask:
    o = oracle.truth[output] if oracle.truth else None
    if o is None or o.shape != e.shape:
        return np.zeros(e.shape, dtype=bool)
    rounded = o.astype(oracle.expected[output].dtype).astype(np.float64)
    right = (g == rounded) | (np.isnan(g) & np.isnan(o))
    true = np.isfinite(o) & np.isfinite(g)
    error = np.abs(g - o)
    right |= true & (error <= tolerance.atol + tolerance.rtol * np.abs(o))
    # Where PyTorch overflows its distance is infinite, which would excuse anything: finite numbers are not.
    right |= true & np.isfinite(e) & (error <= np.abs(e - o))
    right |= np.isfinite(rounded) & ~np.isfinite(e) & ~np.isfinite(g)
    magnitude = _magnitude(judge, oracle, output)
    if magnitude is not None and magnitude.shape == o.shape:
        right |= true & (error <= tolerance.atol + tolerance.rtol * np.abs(magnitude))
        if not (right | np.isfinite(g)).all():
            right |= _overflown_on_the_way(tolerance, oracle, output, g, o, np.abs(magnitude), judge)
    return np.asarray(right)


def _overflown_on_the_way(
    tolerance: Tolerance,
    oracle: Oracle,
    output: int,
    g: Array,
    o: Array,
    magnitude: Array,
    judge: Judge,
) -> Mask:
    """Rule 5: infinities and NaN that depend on the order in which finite terms are summed."""
    known = np.isfinite(magnitude)
    dtype = str(oracle.expected[output].dtype)
    limit = np.ldexp(2.0 - np.ldexp(1.0, 1 - PRECISION[dtype]), 1 - _MIN_EXPONENT[dtype])
    unknown = ~known
    unscaled = _unscaled(judge, oracle, output)
    if unscaled is not None:
        unknown |= ~np.isfinite(unscaled) | (np.abs(unscaled) * (1.0 + tolerance.rtol) > limit)
    if unknown.any():
        unknown &= _of_finite_inputs(judge, oracle, output)
    # Half of each: the sum of two numbers near the largest would overflow here.
    upwards = unknown | (known & ((magnitude / 2 + o / 2) * (1.0 + tolerance.rtol) > limit))
    downwards = unknown | (known & ((magnitude / 2 - o / 2) * (1.0 + tolerance.rtol) > limit))
    right = (np.isposinf(g) & upwards) | (np.isneginf(g) & downwards) | (np.isnan(g) & upwards & downwards)
    return np.asarray(right)


def _of_finite_inputs(judge: Judge, oracle: Oracle, output: int) -> Mask:
    """Elements that are not infinite or NaN because of their inputs, which leaves one right answer."""
    if judge.terms is not None:
        return np.isfinite(judge.terms({name: _marked(a) for name, a in oracle.arguments.items()}))
    marked = oracle.marked[output] if oracle.marked else None
    return np.isfinite(marked) if marked is not None else np.asarray(False)


def _marked(argument: Any) -> Any:
    if not isinstance(argument, np.ndarray) or argument.dtype.kind in "biu":
        return _wide(argument)
    wide = np.abs(_wide(argument))
    return np.where(np.isfinite(wide), 1.0, wide)


def _magnitude(judge: Judge, oracle: Oracle, output: int) -> Array | None:
    """The sum of the terms' magnitudes, S."""
    if judge.terms is not None:
        return np.asarray(judge.terms({name: _wide(a) for name, a in oracle.arguments.items()}))
    return oracle.magnitude[output] if judge.accumulates and oracle.magnitude else None


def _unscaled(judge: Judge, oracle: Oracle, output: int) -> Array | None:
    """S with scales of at least one; None where they are."""
    scales = {n: a for n, a in oracle.arguments.items() if n in SCALES and isinstance(a, int | float)}
    if all(abs(a) >= 1 for a in scales.values()):
        return None
    if judge.terms is not None:
        wide = {name: _wide(a) for name, a in oracle.arguments.items()}
        return np.asarray(judge.terms({**wide, **{name: max(abs(a), 1) for name, a in scales.items()}}))
    return oracle.unscaled[output] if judge.accumulates and oracle.unscaled else None


def _wide(argument: Any) -> Any:
    if not isinstance(argument, np.ndarray):
        return argument
    return argument.astype(np.complex128 if argument.dtype.kind == "c" else np.float64)


def _equality(
    output: int, expected: Array, got: Array, skip: Mask | None, tolerance: Tolerance | None = None
) -> Comparison:
    wrong = np.asarray(expected != got)
    if tolerance is not None and wrong.any():
        # A case of its own reason: integers that stand for rounded reals, as pixels do.
        wrong = np.abs(expected.astype(np.float64) - got.astype(np.float64)) > tolerance.atol
    if skip is not None:
        wrong = wrong & ~skip
    error = None
    if expected.dtype.kind in "iu" and expected.size:
        kept = ... if skip is None else ~skip
        apart = np.abs(expected.astype(np.float64) - got.astype(np.float64))[kept]
        error = float(apart.max()) if apart.size else None
    return Comparison(
        problem="values" if wrong.any() else None,
        detail=_first(wrong, expected, got, output) if wrong.any() else "",
        max_abs_error=error,
        mismatched_elements=int(wrong.sum()),
        total_elements=wrong.size if skip is None else int((~skip).sum()),
    )


def _ulp(magnitude: Array, dtype: str) -> Array:
    """The unit in the last place at `magnitude`: 2^(e - p + 1), e at least the smallest normal's."""
    _, exponent = np.frexp(magnitude)
    exponent = np.maximum(exponent - 1, _MIN_EXPONENT[dtype])
    return np.asarray(np.ldexp(1.0, exponent - (PRECISION[dtype] - 1)))


def _kind(wrong: Mask, e: Array, g: Array) -> str:
    if (np.isnan(e) != np.isnan(g))[wrong].any():
        return "NaN positions"
    if (np.isinf(e) | np.isinf(g))[wrong].any():
        return "infinities"
    return "values"


def _first(wrong: Mask, expected: Array, got: Array, output: int) -> str:
    place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    where = f"[{','.join(str(int(i)) for i in place)}]" if place else ""
    return f"output {output}{where}: expected {expected[place]!s}, got {got[place]!s}"


def _merge(parts: Sequence[Comparison]) -> Comparison:
    if len(parts) == 1:
        return parts[0]
    worst = next((p for p in parts if p.problem), None)

    def largest(name: str) -> float | None:
        present = [v for v in (getattr(p, name) for p in parts) if v is not None]
        return max(present, default=None)

    return Comparison(
        problem=worst.problem if worst else None,
        detail=worst.detail if worst else "",
        max_abs_error=largest("max_abs_error"),
        max_rel_error=largest("max_rel_error"),
        max_ulp_error=largest("max_ulp_error"),
        mismatched_elements=sum(p.mismatched_elements for p in parts),
        total_elements=sum(p.total_elements for p in parts),
    )
