"""When a floating-point result is right.

The measure is the same call in float64, the truth as far as this machine can know it, and beside it what
PyTorch itself makes of the call in the case's dtype. Let u be the unit roundoff of the dtype (2⁻ᵖ, p the
bits of its significand), e PyTorch's result, o the truth, g the backend's result, and

    κ   how many roundings a library may make on its way to a result: the relative tolerance of
        `torch.testing.assert_close` in units of u, which PyTorch's own tests hold every kernel to (22 in
        float32, 2 in float16, 4 in bfloat16). Each dtype has its own u, its own κ and its own smallest
        number: a half is not a loose float32. The one of float64 (9·10⁸ roundings) would accept a result
        that was computed in float32; float64 has the κ of float32 instead;
    η   the spacing of the dtype's subnormal numbers: what one rounding may cost near zero (Higham, Accuracy
        and Stability of Numerical Algorithms, 2nd ed., eq. 2.8).

An element is right if any of these holds:

1. |g - e| ≤ κ(u|e| + η): PyTorch's result but for the last places;
2. |g - o| ≤ k(u|o| + η), k = max(κ, 2√m): the truth but for the last places, where m is how many input
   elements there are for each output element, of a reduction its length. The roundings of a sum of m
   terms add up to about √m of one (Higham §2.8; Higham and Mary, A New Approach to Probabilistic Rounding
   Error Analysis, SIAM J. Sci. Comput. 41, 2019);
3. |g - o| ≤ |e - o|: no further from the truth than PyTorch's own result: a backend cannot be asked to
   repeat PyTorch's rounding errors. One result may be right by luck, so PyTorch's largest error in a few
   calls whose inputs differ from the case's in the last place counts too, twice. Where PyTorch leaves the
   range on its way and ends in an infinity or NaN although the truth is finite, any infinity or NaN is no
   further; a finite number must be right by itself;
4. the operator accumulates (a sum of products) and |g - o| ≤ max(κ, 2√n)·u·S, where S is the same call in
   float64 on the absolute values of the inputs (or `Judge.terms`), the sum of the terms' magnitudes, and n
   the number of elements of the largest input. The forward error of a sum of n terms in any order is at
   most γₙ·S, γₙ = n·u / (1 - n·u) (Higham §3.1, §4.2), whatever is left after cancellation, and grows with
   √n in practice (see 2). So it is where |g - e| is at most that, and |e - o| more: the call computes some of its
   terms in a narrower dtype than the result has (float32 distances of a float64 integral), which float64 does not;
5. the operator accumulates, none of the element's inputs is infinite or NaN, not even one that a factor of
   zero hides, and it is an infinity or NaN that some order of summation runs into. Neither ONNX nor PyTorch
   states an order, and a partial sum is at most the sum of the positive terms, P = (S + o) / 2, and at least
   minus that of the negative ones, N = (S - o) / 2: +inf is right where P(1 + κu) exceeds the largest finite
   number of the dtype, -inf where N(1 + κu) does, and NaN, which is +inf + -inf (IEEE 754-2019 §7.2), where
   both do. Where float64 overflows itself, P and N are unknown and all three are right; so they are where
   terms may overflow because they are scaled by less than one only after they have been summed: where
   S(1 + κu), the `SCALES` taken as at least one, exceeds the largest finite number. Where an infinite input
   decides, the other terms may still overflow to the other infinity, as they do in a product that is rounded
   before it is added and do not in a fused multiply-add: NaN is right beside +inf where the N of the finite
   terms exceeds the largest finite number, and beside -inf where their P does. P and N are known up to 2⁻⁵⁰·S,
   which one huge term makes larger than the other numbers of the dtype;
6. |g - o| ≤ k·D + k²·C, where D is how far o moves when every input moves by its last place, and C the part
   of it that grows with the square of the step (half the second difference): the result is then the exact one
   for inputs that the dtype cannot tell from these, which is all that a stable algorithm promises (backward
   error, ibid. §1.5, §1.6). `Judge.coordinates` are moved by the last place of one at least. C is what is
   left at an extremum: where all elements are equal the variance is the square of the error that their mean
   has. Only a smooth response counts, one that grows with the step: at a jump (a rounding, a comparison, a
   remainder) the operator defines which side is right;
7. PyTorch's own definition of the operator by simpler ones, run in the case's dtype, is another order of the
   same terms. Of an operator that accumulates it is right where no input of the element is infinite or NaN and
   PyTorch's result or the backend's is: the order decided then whether the range was left. Of a float64 result,
   which has nothing wider to be held against, PyTorch's own error is at least the distance between the two, if
   that is at most 2⁻⁴⁰ of the result: |g - e| ≤ twice that;
8. float64 has no answer, and |g - e| ≤ atol + rtol·|e| with the numbers of `torch.testing.assert_close`.

The parts of a complex number are judged one by one. Each part of a product or quotient is a sum of products,
and what is left after cancellation may be all rounding error: a small relative error of the whole is all that
complex arithmetic promises (Higham §3.6, lemma 3.5). These operators are judged by rules 4 and 5 with the
modulus for S (`Judge.of_complex`), as those are that accumulate: the call on absolute values gives moduli.

So a result as close to the truth as PyTorch's is right even where the two differ, and one that is far from
the truth is wrong even inside a loose tolerance. NaN equals NaN. Infinities must be infinities of the same
sign in PyTorch's result or in the float64 result rounded to the dtype. A `Judge` with tolerances of its own
states them as (rtol, atol) in place of κu and κη, with its reason.

Rule 1 is what anybody would ask for; an element that only a later rule accepts is excused, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from harness.compare.judge import Judge, Mask
from harness.compare.tolerances import DEFAULT, MIN_EXPONENT, ROUNDINGS, Tolerance
from harness.core.dtypes import PRECISION, Array

#: What a rule excuses → elements that no rule before it accepts.
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

#: Arguments that scale terms, in every overload that has a number of that name.
SCALES = frozenset({"alpha", "beta", "value"})


@dataclass(frozen=True)
class Sensitivity:
    """What becomes of one output when the inputs move by their last place.

    Attributes:
        condition: D of rule 6, in the output's unit; its shape is the output's.
        own_error: PyTorch's largest error at these inputs (rule 3), as an array.
        curvature: C of rule 6, as an array or 0.
    """

    condition: Array
    own_error: Array
    curvature: Array | float = 0.0


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
        """Outputs in float64 for the absolute values of the inputs."""

    @property
    def unscaled(self) -> tuple[Array | None, ...] | None:
        """The magnitude with scales of at least one."""

    @property
    def marked(self) -> tuple[Array | None, ...] | None:
        """The magnitude with 1 for every finite number, scales of at least one: finite if all numbers are."""

    @property
    def sensitivity(self) -> tuple[Sensitivity | None, ...] | None:
        """What calls with inputs in the neighbourhood say."""

    @property
    def finite_terms(self) -> tuple[Sequence[Array | None] | None, Sequence[Array | None] | None]:
        """The truth and the magnitude with zeros for infinite inputs and NaN."""

    @property
    def definition(self) -> tuple[Array, ...] | None:
        """Outputs, in the case's dtype, of PyTorch's own definition of the operator by simpler ones."""

    @property
    def flushed(self) -> tuple[Array, ...] | None:
        """Outputs in the case's dtype with zeros for subnormal inputs; None where no input is subnormal."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Schema name → value passed, tensors as arrays."""


def tolerance_of(judge: Judge, dtype: str) -> Tolerance:
    """(κu, κη) of a dtype, or the judge's own."""
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
    """Which elements are right by the rules above, and which of the rules excuse how many of them.

    Args:
        judge: The operator's.
        oracle: PyTorch's answers.
        output: Index of the output.
        e: PyTorch's result in float64 (of the case's values).
        g: The backend's.
        skip: Elements that need not be judged, and are not counted.
    """
    dtype = str(oracle.expected[output].dtype)
    excused: dict[str, int] = {}
    right = tolerance_of(judge, dtype).accepts(e, g)

    def done() -> bool:
        return bool((right if skip is None else right | skip).all())

    def accept(elements: Mask, words: str) -> None:
        nonlocal right
        count = int((elements & ~(right if skip is None else right | skip)).sum())
        if count:
            excused[words] = excused.get(words, 0) + count
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
    for words, allowed in _allowances(judge, oracle, output):
        if done():
            break
        accept(true & (error <= allowed), words)
    if not done():
        accept(_in_another_order(judge, oracle, output, e, g), _TERMS)
    if not done():
        accept(_as_defined(judge, oracle, output, e, g), _DEFINITION)
    return right, excused


def _in_another_order(judge: Judge, oracle: Oracle, output: int, e: Array, g: Array) -> Mask:
    """The second part of rule 4: PyTorch's result but for the order of its sum, where float64 computes another one."""
    o = oracle.truth[output] if oracle.truth else None
    magnitude = term_magnitudes(judge, oracle, output)
    if magnitude is None or o is None:
        return np.zeros(e.shape, dtype=bool)
    allowed = _summed(judge, str(oracle.expected[output].dtype), _largest(oracle)).allowed(magnitude)
    return np.asarray((np.abs(e - o) > allowed) & (np.abs(g - e) <= allowed))


#: Of a float64 result: how far PyTorch's definition may be from its kernel and still be the same but for rounding.
_ROUNDED_OTHERWISE = 2.0**-40


def _as_defined(judge: Judge, oracle: Oracle, output: int, e: Array, g: Array) -> Mask:
    """Rule 7: another order of the same terms, and what it says of PyTorch's own error in float64."""
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
        # A definition that stays in range where the kernel does not needs no look at the inputs.
        stays = np.isfinite(d) & ~np.isfinite(e)
        right = same & leaves_range & (stays | _of_finite_inputs(judge, oracle, output))
    if dtype == "float64":
        own_error = np.abs(d - e)
        right = right | ((own_error <= _ROUNDED_OTHERWISE * np.abs(e)) & (np.abs(g - e) <= 2.0 * own_error))
    return np.asarray(right)


def allowances(judge: Judge, oracle: Oracle, output: int) -> Iterator[Array]:
    """How far from the truth rules 3, 4 and 6 allow a finite element to be, in the output's unit.

    Each is asked for only when it is needed: a later one costs more calls of PyTorch. NaN where a rule allows
    nothing. Without a truth there are none.
    """
    return (allowed for _, allowed in _allowances(judge, oracle, output))


def _allowances(judge: Judge, oracle: Oracle, output: int) -> Iterator[tuple[str, Array]]:
    e = oracle.expected[output].astype(np.float64)
    dtype = str(oracle.expected[output].dtype)
    o = oracle.truth[output] if oracle.truth else None
    if o is None or o.shape != e.shape:
        return
    # Where PyTorch overflows its distance is infinite, which would excuse anything.
    yield _OWN_ERROR, np.where(np.isfinite(e), np.abs(e - o), np.nan)
    magnitude = term_magnitudes(judge, oracle, output)
    if magnitude is not None:
        yield _TERMS, _summed(judge, dtype, _largest(oracle)).allowed(magnitude)
    sensitivity = oracle.sensitivity if dtype not in judge.tolerances else None
    of_output = sensitivity[output] if sensitivity else None
    if of_output is not None:
        yield _BESIDE, 2.0 * of_output.own_error
        roundings = _summed(judge, dtype, _per_element(oracle, o)).rtol * 2.0 ** PRECISION[dtype]
        yield _CONDITION, roundings * of_output.condition + roundings**2 * of_output.curvature


def term_magnitudes(judge: Judge, oracle: Oracle, output: int) -> Array | None:
    """The sum of the terms' magnitudes, S; None for an operator that sums nothing, or where it is unknown."""
    if judge.terms is not None:
        found = _stated(judge, oracle, output, {name: _wide(a) for name, a in oracle.arguments.items()})
    else:
        found = oracle.magnitude[output] if judge.accumulates and oracle.magnitude else None
    return np.abs(found) if found is not None and found.shape == oracle.expected[output].shape else None


def _stated(judge: Judge, oracle: Oracle, output: int, arguments: Mapping[str, Any]) -> Array | None:
    """What the judge says of an output's terms."""
    assert judge.terms is not None
    terms = judge.terms(arguments)
    found = terms[output] if isinstance(terms, tuple) else terms
    return None if found is None else paired(np.asarray(found), oracle.expected[output].shape)


def paired(magnitude: Array, shape: tuple[int, ...]) -> Array:
    """The magnitude of complex numbers for both parts of an output of `shape`; any other as it is."""
    return np.stack([magnitude, magnitude], -1) if (*magnitude.shape, 2) == shape else magnitude


def _largest(oracle: Oracle) -> int:
    """The number of elements of the largest input."""
    return max((a.size for a in oracle.arguments.values() if isinstance(a, np.ndarray)), default=1)


def _per_element(oracle: Oracle, o: Array) -> float:
    """How many input elements there are for each output element."""
    return _largest(oracle) / max(o.size, 1)


def summed_tolerance(judge: Judge, oracle: Oracle, output: int) -> Tolerance:
    """`tolerance_of`, or what a reduction to this output needs where that is more: k of rule 2."""
    expected = oracle.expected[output]
    return _summed(judge, str(expected.dtype), _per_element(oracle, expected))


def _summed(judge: Judge, dtype: str, terms: float) -> Tolerance:
    """`tolerance_of`, or what a sum of so many terms needs where that is more."""
    tolerance = tolerance_of(judge, dtype)
    if dtype in judge.tolerances:
        return tolerance
    factor = max(1.0, 2.0 * math.sqrt(terms) / ROUNDINGS[dtype])
    return Tolerance(tolerance.rtol * factor, tolerance.atol * factor)


def largest_finite(dtype: str) -> float:
    """The largest finite number of a dtype: (2 - 2^(1-p))·2^emax."""
    return float(np.ldexp(2.0 - np.ldexp(1.0, 1 - PRECISION[dtype]), 1 - MIN_EXPONENT[dtype]))


def ulp(magnitude: Array, dtype: str) -> Array:
    """The unit in the last place at `magnitude`: 2^(e - p + 1), e at least the smallest normal's."""
    _, exponent = np.frexp(magnitude)
    exponent = np.maximum(exponent - 1, MIN_EXPONENT[dtype])
    return np.asarray(np.ldexp(1.0, exponent - (PRECISION[dtype] - 1)))


#: What float64 may lose of a sum of terms of one sign beside much larger ones of the other, of all magnitudes.
_LOST = 2.0**-50


def _overflown_on_the_way(judge: Judge, oracle: Oracle, output: int, g: Array, o: Array) -> Mask:
    """Rule 5: infinities and NaN that depend on the order in which finite terms are summed."""
    magnitude = term_magnitudes(judge, oracle, output)
    if magnitude is None:
        return np.zeros(g.shape, dtype=bool)
    dtype = str(oracle.expected[output].dtype)
    tolerance = tolerance_of(judge, dtype)
    known = np.isfinite(magnitude)
    limit = largest_finite(dtype)
    unknown = ~known
    unscaled = _unscaled(judge, oracle, output)
    if unscaled is not None:
        unknown |= ~np.isfinite(unscaled) | (np.abs(unscaled) * (1.0 + tolerance.rtol) > limit)
    if unknown.any():
        unknown &= _of_finite_inputs(judge, oracle, output)
    # Half of each: the sum of two numbers near the largest would overflow here.
    lost = magnitude * _LOST
    upwards = unknown | (known & ((magnitude / 2 + o / 2 + lost) * (1.0 + tolerance.rtol) > limit))
    downwards = unknown | (known & ((magnitude / 2 - o / 2 + lost) * (1.0 + tolerance.rtol) > limit))
    right = (np.isposinf(g) & upwards) | (np.isneginf(g) & downwards) | (np.isnan(g) & upwards & downwards)
    if (np.isnan(g) & np.isinf(o) & ~right).any():
        right = right | _overflown_against_infinity(judge, oracle, output, g, o)
    return np.asarray(right)


def _overflown_against_infinity(judge: Judge, oracle: Oracle, output: int, g: Array, o: Array) -> Mask:
    """Rule 5: NaN where the terms that are finite may overflow to the other infinity than an infinite term's."""
    truths, magnitudes = oracle.finite_terms
    if judge.terms is not None:
        magnitude = _stated(judge, oracle, output, {name: _zeroed(a) for name, a in oracle.arguments.items()})
    else:
        magnitude = magnitudes[output] if magnitudes else None
    truth = truths[output] if truths else None
    if magnitude is None or truth is None or not magnitude.shape == truth.shape == g.shape:
        return np.zeros(g.shape, dtype=bool)
    dtype = str(oracle.expected[output].dtype)
    limit, magnitude = largest_finite(dtype) / (1.0 + tolerance_of(judge, dtype).rtol), np.abs(magnitude)
    unknown = ~np.isfinite(magnitude) | ~np.isfinite(truth)
    lost = magnitude * _LOST
    upwards = unknown | (magnitude / 2 + truth / 2 + lost > limit)
    downwards = unknown | (magnitude / 2 - truth / 2 + lost > limit)
    return np.asarray(np.isnan(g) & ((np.isposinf(o) & downwards) | (np.isneginf(o) & upwards)))


def _zeroed(argument: Any) -> Any:
    wide = _wide(argument)
    return np.where(np.isfinite(wide), wide, 0.0) if isinstance(wide, np.ndarray) and wide.dtype.kind in "fc" else wide


def _of_finite_inputs(judge: Judge, oracle: Oracle, output: int) -> Mask:
    """Elements that are not infinite or NaN because of their inputs, which leaves one right answer."""
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
    """S with scales of at least one; None where they are."""
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
