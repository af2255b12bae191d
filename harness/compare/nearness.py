"""The rules by which a floating-point result is right.

The measure is the same call in float64, the best available truth, and PyTorch's own result in the case's dtype. Let u
be the unit roundoff of the dtype (2⁻ᵖ, p the bits of its significand), e PyTorch's result, o the truth, g the backend's
result, and

    κ   the number of roundings that a library may make on the way to a result: the relative tolerance of
        `torch.testing.assert_close` in units of u, which PyTorch's tests require of every kernel (22 in float32,
        2 in float16, 4 in bfloat16). u, κ and the smallest number depend on the dtype, so half precision is not
        simply a loose float32. float64 has the κ of float32, because its own (9·10⁸ roundings) would accept a result
        computed in float32;
    η   the spacing of the dtype's subnormal numbers: the cost of a rounding near zero (N. Higham, Accuracy and
    Stability
        of Numerical Algorithms, 2nd ed., eq. 2.8).

An element is right if any of these holds:

1. |g - e| ≤ κ(u|e| + η): PyTorch's result except for the last places;
2. |g - o| ≤ k(u|o| + η), k = max(κ, 2√m): the truth except for the last places, where m is the number of input elements
   per output element, for a reduction its length. The roundings of a sum of m terms add up to about √m of one (Higham
   §2.8; N. Higham and T. Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019);
3. |g - o| ≤ |e - o|: as near to the truth as PyTorch's result, whose rounding errors a backend need not repeat. A
   result may be right by chance, so PyTorch's largest error in a few calls whose inputs differ in the last place counts
   too, doubled. If PyTorch leaves the range on the way and returns an infinity or NaN although the truth is finite, any
   infinity or NaN is right; a finite number must satisfy another rule;
4. the operator accumulates (a sum of products) and |g - o| ≤ max(κ, 2√n)·u·S, where S is the same call in float64 on
   the absolute values of the inputs (or `Judge.terms`), the sum of the terms' magnitudes, and n the number of elements
   of the largest input. The forward error of a sum of n terms in any order is at most γₙ·S, γₙ = n·u / (1 - n·u)
   (Higham §3.1, §4.2), whatever remains after cancellation, and grows with √n in practice (see 2).
   The same holds if |g - e| is within that bound and |e - o| is not: the call computes some terms in a narrower dtype
   than the result's (float32 distances of a float64 integral), which float64 does not reproduce;
5. the operator accumulates, none of the element's inputs is infinite or NaN, including those multiplied by zero, and g
   is an infinity or NaN that some order of summation produces. Neither ONNX nor PyTorch defines an order. A partial sum
   is at most the sum of the positive terms, P = (S + o) / 2, and at least minus that of the negative ones,
   N = (S - o) / 2. So +inf is right if P(1 + κu) exceeds the dtype's largest finite number, -inf if N(1 + κu) does, and
   NaN, which is +inf + -inf (IEEE 754-2019 §7.2), if both do. All three are right if float64 itself overflows, which
   leaves P and N unknown, or if terms are scaled by less than one only after summation and may overflow before: if
   S(1 + κu), with `SCALES` of at least one, exceeds the largest finite number. If an infinite input decides, the other
   terms may still overflow to the opposite infinity, as in a product that is rounded before it is added, unlike a fused
   multiply-add: NaN is right along with +inf if N of the finite terms exceeds the largest finite number, and along with
   -inf if their P does. P and N are known up to 2⁻⁵⁰·S, which a single huge term can make larger than all other numbers
   of the dtype;
6. |g - o| ≤ k·D + k²·C, where D is how far o moves when every input moves by its last place, and C the part of it that
   grows with the square of the step (half the second difference): the result is exact for inputs that the dtype cannot
   distinguish from these, which is all that a stable algorithm promises (backward error, Higham §1.5, §1.6).
   `Judge.coordinates` move by the last place of one or more. C is what remains at an extremum: for equal elements, the
   variance is the square of their mean's error. Only a smooth response counts, one that grows with the step: at a jump
   (a rounding, a comparison, a remainder) the operator defines which side is right;
7. PyTorch's definition of the operator in terms of simpler ones, run in the case's dtype, is another order of the same
   terms. For an operator that accumulates, its result is right if none of the element's inputs is infinite or NaN but
   PyTorch's or the backend's result is, so that the order decided whether the range was left. For a float64 result,
   which has no wider reference, PyTorch's own error is at least the distance between the two, if that is at most 2⁻⁴⁰
   of the result: |g - e| ≤ twice that;
8. float64 has no answer, and |g - e| ≤ atol + rtol·|e| with the numbers of `torch.testing.assert_close`.

The parts of a complex number are judged separately. Each part of a product or quotient is a sum of products and may be
all rounding error after cancellation; complex arithmetic promises only a small relative error of the whole (Higham
§3.6, lemma 3.5). These operators are judged by rules 4 and 5 with the modulus for S (`Judge.complex_judge`), and so are
those that accumulate: the call on absolute values gives moduli.

So a result as near to the truth as PyTorch's is right even if the two differ, and one far from the truth is wrong even
within a loose tolerance. NaN equals NaN. An infinity must be one of the same sign in PyTorch's result or in the float64
result rounded to the dtype. If a `Judge` has tolerances, they replace κu and κη and state their reason.

Rule 1 is the usual expectation; an element that only a later rule accepts is excused and counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

import numpy as np

from harness.compare.judge import Judge, Mask
from harness.compare.tolerances import DEFAULT, ROUNDINGS, Tolerance
from harness.core.dtypes import LARGEST, MIN_EXPONENT, PRECISION, Array

#: Reason for an excuse → number of elements that it accepts and earlier rules do not.
Excuses: TypeAlias = Mapping[str, int]

_TRUTH = "nearness 2 (near the truth)"
_OVERFLOWN = "nearness 3 (PyTorch leaves the range on its way)"
_ORDER = "nearness 5 (overflow that depends on the order of summation)"
_NO_TRUTH = "nearness 8 (float64 has no answer)"
_DEFINITION = "nearness 7 (PyTorch's own definition)"
_OWN_ERROR = "nearness 3 (no further from the truth than PyTorch)"
_TERMS = "nearness 4 (the terms' magnitudes)"
_BESIDE = "nearness 3 (PyTorch's error beside the case)"
_CONDITION = "nearness 6 (conditioning)"

#: Arguments that scale terms in every overload where they are numbers.
SCALES = frozenset({"alpha", "beta", "value"})


class Sensitivity(Protocol):
    """The response of an output when the inputs move by their last place.

    It may take many calls of PyTorch to measure, so both of its parts come in steps that a reader can stop at.
    """

    def own_errors(self) -> Iterator[Array]:
        """Yield growing lower bounds of PyTorch's largest error at these inputs (rule 3); the last one is exact.

        Each has the output's unit and shape.
        """

    def movements(self) -> Iterator[tuple[Array, Array | float]]:
        """Yield growing lower bounds of D and C of rule 6; the last ones are exact.

        Each has the output's unit and shape; C may be 0.
        """


@dataclass(frozen=True)
class KnownSensitivity:
    """A `Sensitivity` that has been measured.

    Attributes:
        condition: D of rule 6.
        own_error: PyTorch's largest error.
        curvature: C of rule 6.
    """

    condition: Array
    own_error: Array
    curvature: Array | float = 0.0

    @classmethod
    def of(cls, sensitivity: Sensitivity) -> Self:
        """Measure a sensitivity to the end."""
        *_, own_error = sensitivity.own_errors()
        *_, (condition, curvature) = sensitivity.movements()
        return cls(condition, own_error, curvature)

    def own_errors(self) -> Iterator[Array]:
        """See `Sensitivity`."""
        yield self.own_error

    def movements(self) -> Iterator[tuple[Array, Array | float]]:
        """See `Sensitivity`."""
        yield self.condition, self.curvature


class Oracle(Protocol):
    """PyTorch's results for one case. Everything but `expected` costs further runs and is computed only on demand."""

    @property
    def expected(self) -> tuple[Array, ...]:
        """The outputs in the case's dtype."""

    @property
    def truth(self) -> tuple[Array | None, ...] | None:
        """The outputs in float64; None for an output, or instead of all, if float64 has no answer."""

    @property
    def magnitude(self) -> tuple[Array | None, ...] | None:
        """The outputs in float64 for the absolute values of the inputs."""

    @property
    def unscaled(self) -> tuple[Array | None, ...] | None:
        """The same with scales of at least one."""

    @property
    def marked(self) -> tuple[Array | None, ...] | None:
        """The same with every finite input replaced by 1; an output is finite if all its inputs are."""

    @property
    def sensitivity(self) -> tuple[Sensitivity | None, ...] | None:
        """The responses of the outputs when the inputs move by their last place."""

    @property
    def finite_terms(self) -> tuple[Sequence[Array | None] | None, Sequence[Array | None] | None]:
        """The truth and the magnitude with infinite and NaN inputs replaced by zeros."""

    @property
    def definition(self) -> tuple[Array, ...] | None:
        """The outputs, in the case's dtype, of PyTorch's definition of the operator in terms of simpler ones."""

    @property
    def flushed(self) -> tuple[Array, ...] | None:
        """The outputs, in the case's dtype, for subnormal inputs replaced by zeros; None if no input is subnormal."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments by schema name, tensors as arrays."""


def tolerance_of(judge: Judge, dtype: str) -> Tolerance:
    """Return (κu, κη) for a dtype, or the judge's own tolerance."""
    own = judge.tolerances.get(dtype)
    if own is not None:
        return own
    roundings = ROUNDINGS[dtype]
    return Tolerance(
        roundings * 2.0 ** -PRECISION[dtype], roundings * 2.0 ** (MIN_EXPONENT[dtype] - PRECISION[dtype] + 1)
    )


def right_elements(
    judge: Judge, oracle: Oracle, output: int, e: Array, g: Array, skip: Mask | None
) -> tuple[Mask, Excuses]:
    """Mark the right elements, and count how many of them each rule after the first accepts.

    Args:
        judge: The operator's judge.
        oracle: PyTorch's results.
        output: Index of the output.
        e: PyTorch's result, converted to float64.
        g: The backend's result, converted to float64.
        skip: Marks elements that need not be judged and are not counted.
    """
    dtype = str(oracle.expected[output].dtype)
    excused: dict[str, int] = {}
    right = tolerance_of(judge, dtype).accepts(e, g)

    def done(bounded: Mask | None = None) -> bool:
        """Whether no element is left to judge; with `bounded`, none among these."""
        judged = right if skip is None else right | skip
        return bool((judged if bounded is None else judged | ~bounded).all())

    def accept(elements: Mask, reason: str) -> None:
        nonlocal right
        count = int((elements & ~(right if skip is None else right | skip)).sum())
        if count:
            excused[reason] = excused.get(reason, 0) + count
        right = right | elements

    if done():
        return right, excused
    o = oracle.truth[output] if oracle.truth else None
    if o is None or o.shape != e.shape:
        accept(judge.tolerances.get(dtype, DEFAULT[dtype]).accepts(e, g), _NO_TRUTH)
        return right, excused
    rounded = o.astype(oracle.expected[output].dtype).astype(np.float64)
    accept((g == rounded) | (np.isnan(g) & np.isnan(o)), _TRUTH)
    accept(np.isfinite(rounded) & ~np.isfinite(e) & ~np.isfinite(g), _OVERFLOWN)
    true = np.isfinite(o) & np.isfinite(g)
    error = np.abs(g - o)
    accept(true & (error <= _summed(judge, dtype, _per_element(oracle, o)).allowed(o)), _TRUTH)
    if not (right | np.isfinite(g)).all():
        accept(_overflown_on_the_way(judge, oracle, output, g, o), _ORDER)
    bounds = _allowances(judge, oracle, output)
    # Each bound may take many calls of PyTorch, so the next is asked for only if it can accept an element.
    while not done(true) and (bound := next(bounds, None)) is not None:
        reason, allowed = bound
        accept(true & (error <= allowed), reason)
    if not done():
        accept(_is_other_order(judge, oracle, output, e, g), _TERMS)
    if not done():
        accept(_fits_definition(judge, oracle, output, e, g), _DEFINITION)
    return right, excused


def _is_other_order(judge: Judge, oracle: Oracle, output: int, e: Array, g: Array) -> Mask:
    """Apply the second part of rule 4: PyTorch's result in another order of summation, where float64's differs."""
    o = oracle.truth[output] if oracle.truth else None
    magnitude = term_magnitudes(judge, oracle, output)
    if magnitude is None or o is None:
        return np.zeros(e.shape, dtype=bool)
    allowed = _summed(judge, str(oracle.expected[output].dtype), _largest(oracle)).allowed(magnitude)
    return np.asarray((np.abs(e - o) > allowed) & (np.abs(g - e) <= allowed))


#: Largest relative distance between PyTorch's definition and its kernel in float64 that counts as rounding.
_ROUNDED_OTHERWISE = 2.0**-40


def _fits_definition(judge: Judge, oracle: Oracle, output: int, e: Array, g: Array) -> Mask:
    """Apply rule 7: another order of the same terms, and the error of PyTorch in float64 that it reveals."""
    nothing = np.zeros(e.shape, dtype=bool)
    dtype = str(oracle.expected[output].dtype)
    sums = judge.accumulates or judge.terms is not None
    leaves_range = ~np.isfinite(e) | ~np.isfinite(g)
    if dtype in judge.tolerances or not (dtype == "float64" or (sums and leaves_range.any())):
        return nothing
    definition = oracle.definition
    if definition is None or len(definition) != len(oracle.expected):
        return nothing
    if definition[output].shape != e.shape or str(definition[output].dtype) != dtype:
        return nothing
    d = definition[output].astype(np.float64)
    right = nothing
    if sums and leaves_range.any():
        same = tolerance_of(judge, dtype).accepts(d, g)
        # If the definition stays within the range and the kernel does not, the inputs need not be checked.
        stays = np.isfinite(d) & ~np.isfinite(e)
        right = same & leaves_range & (stays | _has_finite_inputs(judge, oracle, output))
    if dtype == "float64":
        own_error = np.abs(d - e)
        right = right | ((own_error <= _ROUNDED_OTHERWISE * np.abs(e)) & (np.abs(g - e) <= 2.0 * own_error))
    return np.asarray(right)


def allowances(judge: Judge, oracle: Oracle, output: int) -> Iterator[Array]:
    """Yield how far from the truth rules 3, 4 and 6 allow a finite element to be, in the output's unit.

    They are computed lazily, since later ones cost more calls of PyTorch. NaN means that a rule allows nothing; without
    a truth there are no rules.
    """
    return (allowed for _, allowed in _allowances(judge, oracle, output))


def _allowances(judge: Judge, oracle: Oracle, output: int) -> Iterator[tuple[str, Array]]:
    e = oracle.expected[output].astype(np.float64)
    dtype = str(oracle.expected[output].dtype)
    o = oracle.truth[output] if oracle.truth else None
    if o is None or o.shape != e.shape:
        return
    # If PyTorch overflows, its distance is infinite and would excuse anything.
    yield _OWN_ERROR, np.where(np.isfinite(e), np.abs(e - o), np.nan)
    magnitude = term_magnitudes(judge, oracle, output)
    if magnitude is not None:
        yield _TERMS, _summed(judge, dtype, _largest(oracle)).allowed(magnitude)
    sensitivity = oracle.sensitivity if dtype not in judge.tolerances else None
    moved = sensitivity[output] if sensitivity else None
    if moved is not None:
        yield from ((_BESIDE, 2.0 * own_error) for own_error in moved.own_errors())
        roundings = _summed(judge, dtype, _per_element(oracle, o)).rtol * 2.0 ** PRECISION[dtype]
        for condition, curvature in moved.movements():
            yield _CONDITION, roundings * condition + roundings**2 * curvature


def term_magnitudes(judge: Judge, oracle: Oracle, output: int) -> Array | None:
    """Return S, the sum of the terms' magnitudes; None if the operator sums nothing or S is unknown."""
    if judge.terms is not None:
        sums = _stated(judge, oracle, output, {name: _wide(a) for name, a in oracle.arguments.items()})
    else:
        sums = oracle.magnitude[output] if judge.accumulates and oracle.magnitude else None
    return np.abs(sums) if sums is not None and sums.shape == oracle.expected[output].shape else None


def _stated(judge: Judge, oracle: Oracle, output: int, arguments: Mapping[str, Any]) -> Array | None:
    """Return the sum of the terms' magnitudes that the judge states for an output."""
    assert judge.terms is not None
    terms = judge.terms(arguments)
    sums = terms[output] if isinstance(terms, tuple) else terms
    return None if sums is None else paired(np.asarray(sums), oracle.expected[output].shape)


def paired(magnitude: Array, shape: tuple[int, ...]) -> Array:
    """Repeat the magnitude of complex numbers for both parts of an output of `shape`; return others unchanged."""
    return np.stack([magnitude, magnitude], -1) if (*magnitude.shape, 2) == shape else magnitude


def _largest(oracle: Oracle) -> int:
    """Return the number of elements of the largest input."""
    return max((a.size for a in oracle.arguments.values() if isinstance(a, np.ndarray)), default=1)


def _per_element(oracle: Oracle, o: Array) -> float:
    """Return the number of input elements per output element."""
    return _largest(oracle) / max(o.size, 1)


def summed_tolerance(judge: Judge, oracle: Oracle, output: int) -> Tolerance:
    """Return the tolerance of a reduction to this output, k of rule 2, or `tolerance_of` if that is larger."""
    expected = oracle.expected[output]
    return _summed(judge, str(expected.dtype), _per_element(oracle, expected))


def _summed(judge: Judge, dtype: str, terms: float) -> Tolerance:
    """Return the tolerance of a sum of this many terms, or `tolerance_of` if that is larger."""
    tolerance = tolerance_of(judge, dtype)
    if dtype in judge.tolerances:
        return tolerance
    factor = max(1.0, 2.0 * math.sqrt(terms) / ROUNDINGS[dtype])
    return Tolerance(tolerance.rtol * factor, tolerance.atol * factor)


def ulp(magnitude: Array, dtype: str) -> Array:
    """Return the unit in the last place at `magnitude`: 2^(e - p + 1), with e not below the least normal exponent."""
    _, exponent = np.frexp(magnitude)
    exponent = np.maximum(exponent - 1, MIN_EXPONENT[dtype])
    return np.asarray(np.ldexp(1.0, exponent - (PRECISION[dtype] - 1)))


#: The share of all magnitudes that float64 may lose from a sum of terms of one sign next to larger ones of the other.
_LOST = 2.0**-50


def _overflown_on_the_way(judge: Judge, oracle: Oracle, output: int, g: Array, o: Array) -> Mask:
    """Apply rule 5: infinities and NaN that depend on the order in which finite terms are summed."""
    magnitude = term_magnitudes(judge, oracle, output)
    if magnitude is None:
        return np.zeros(g.shape, dtype=bool)
    dtype = str(oracle.expected[output].dtype)
    tolerance = tolerance_of(judge, dtype)
    known = np.isfinite(magnitude)
    limit = LARGEST[dtype]
    unknown = ~known
    unscaled = _unscaled(judge, oracle, output)
    if unscaled is not None:
        unknown |= ~np.isfinite(unscaled) | (np.abs(unscaled) * (1.0 + tolerance.rtol) > limit)
    if unknown.any():
        unknown &= _has_finite_inputs(judge, oracle, output)
    # Halved first, since the sum of two numbers near the largest would overflow.
    lost = magnitude * _LOST
    upwards = unknown | (known & ((magnitude / 2 + o / 2 + lost) * (1.0 + tolerance.rtol) > limit))
    downwards = unknown | (known & ((magnitude / 2 - o / 2 + lost) * (1.0 + tolerance.rtol) > limit))
    right = (np.isposinf(g) & upwards) | (np.isneginf(g) & downwards) | (np.isnan(g) & upwards & downwards)
    if (np.isnan(g) & np.isinf(o) & ~right).any():
        right = right | _overflown_against_infinity(judge, oracle, output, g, o)
    return np.asarray(right)


def _overflown_against_infinity(judge: Judge, oracle: Oracle, output: int, g: Array, o: Array) -> Mask:
    """Apply rule 5 to NaN: finite terms may overflow to the infinity opposite to that of an infinite term."""
    truths, magnitudes = oracle.finite_terms
    if judge.terms is not None:
        magnitude = _stated(judge, oracle, output, {name: _zeroed(a) for name, a in oracle.arguments.items()})
    else:
        magnitude = magnitudes[output] if magnitudes else None
    truth = truths[output] if truths else None
    if magnitude is None or truth is None or not magnitude.shape == truth.shape == g.shape:
        return np.zeros(g.shape, dtype=bool)
    dtype = str(oracle.expected[output].dtype)
    limit, magnitude = LARGEST[dtype] / (1.0 + tolerance_of(judge, dtype).rtol), np.abs(magnitude)
    unknown = ~np.isfinite(magnitude) | ~np.isfinite(truth)
    lost = magnitude * _LOST
    upwards = unknown | (magnitude / 2 + truth / 2 + lost > limit)
    downwards = unknown | (magnitude / 2 - truth / 2 + lost > limit)
    return np.asarray(np.isnan(g) & ((np.isposinf(o) & downwards) | (np.isneginf(o) & upwards)))


def _zeroed(argument: Any) -> Any:
    wide = _wide(argument)
    return np.where(np.isfinite(wide), wide, 0.0) if isinstance(wide, np.ndarray) and wide.dtype.kind in "fc" else wide


def _has_finite_inputs(judge: Judge, oracle: Oracle, output: int) -> Mask:
    """Mark the elements none of whose inputs is infinite or NaN."""
    if judge.terms is not None:
        marked = _stated(judge, oracle, output, {name: _marked(a) for name, a in oracle.arguments.items()})
    else:
        marked = oracle.marked[output] if oracle.marked else None
    if marked is None or marked.shape != oracle.expected[output].shape:
        return np.asarray(False)
    return np.isfinite(marked)


def _marked(argument: Any) -> Any:
    if not isinstance(argument, np.ndarray) or argument.dtype.kind in "biu":
        return _wide(argument)
    wide = np.abs(_wide(argument))
    return np.where(np.isfinite(wide), 1.0, wide)


def _unscaled(judge: Judge, oracle: Oracle, output: int) -> Array | None:
    """Return S with scales of at least one; None if all scales are."""
    scales = {n: a for n, a in oracle.arguments.items() if n in SCALES and isinstance(a, int | float | complex)}
    if all(abs(a) >= 1 for a in scales.values()):
        return None
    if judge.terms is not None:
        wide = {name: _wide(a) for name, a in oracle.arguments.items()}
        return _stated(judge, oracle, output, {**wide, **{name: max(abs(a), 1) for name, a in scales.items()}})
    return oracle.unscaled[output] if judge.accumulates and oracle.unscaled else None


def _wide(argument: Any) -> Any:
    if not isinstance(argument, np.ndarray):
        return argument
    return argument.astype(np.complex128 if argument.dtype.kind == "c" else np.float64)
