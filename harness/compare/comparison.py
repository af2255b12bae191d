"""Compare a backend's outputs with PyTorch's: are they right, and how far apart are they?

Shapes and dtypes must agree. Integers, booleans and elements that an operator only moves or selects must be equal.
Numbers computed in floating point must satisfy the rules of `harness.compare.nearness`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.compare.complex_results import WHY, undefined_parts
from harness.compare.diagnosis import Difference
from harness.compare.drawn import DistributionTest, Fit
from harness.compare.judge import CLOSE, Evidence, Judge, Mask, anything
from harness.compare.largest import is_within_largest
from harness.compare.nearness import (
    Excuses,
    Oracle,
    right_elements,
    summed_tolerance,
    term_magnitudes,
    tolerance_of,
    ulp,
)
from harness.compare.output_comparison import (
    OutputComparison,
    OutputProblem,
    distinct,
    merged,
)
from harness.compare.problem_kinds import FLUSHED, VALUES, ZERO_SIGN, elements_of_kind, name_problem
from harness.compare.tolerances import Tolerance, needed_tolerance
from harness.core.dtypes import LARGEST, PRECISION, Array
from harness.core.numbers import are_same

#: A real number up to 255 may be this far from a half and be rounded either way, computed from float32 coordinates.
_ROUNDING = 2.0**-6
_OTHER = "another of several right answers"
_EXPLAINED = "explained by the dtypes of the transformed graph"


def compare(judge: Judge, oracle: Oracle, got: Sequence[Array]) -> OutputComparison:
    """Judge the outputs of a backend for one case, given in the order of PyTorch's.

    If a dtype or shape is wrong, all elements count as wrong; wrong elements in the other outputs are further problems.
    """
    expected = oracle.expected
    got = stored_as_asked(judge, expected, got)
    total = sum(array.size for array in expected)
    if len(got) != len(expected):
        detail = f"expected {len(expected)}, got {len(got)}"
        difference = Difference(expected=str(len(expected)), got=str(len(got)))
        return _structural([OutputProblem("number of outputs", detail, difference=difference)], total)
    unasked = judge.unused_outputs(oracle.arguments) if judge.unused_outputs else frozenset()
    structural = []
    for i, (e, g) in enumerate(zip(expected, got, strict=True)):
        if i in unasked:
            continue
        if e.dtype != g.dtype:
            structural.append(_differing("dtype", i, str(e.dtype), str(g.dtype)))
        if e.shape != g.shape:
            structural.append(_differing("shape", i, list(e.shape), list(g.shape)))
    if structural:
        return _structural([*structural, *_element_problems(judge, oracle, got, structural, unasked)], total)
    if not judge.rules and all(e.tobytes() == g.tobytes() for e, g in zip(expected, got, strict=True)):
        return OutputComparison(
            max_abs_error=0.0,
            max_rel_error=0.0,
            max_ulp_error=0.0,
            needed_rtol=0.0,
            needed_atol=0.0,
            total_elements=total,
        )
    outputs = [i for i in range(len(expected)) if i not in unasked]
    found = merged(_compared(judge, oracle, got, outputs))
    if found.problems and is_within_largest(judge, oracle, got, found.problems):
        return replace(found, within_largest=True)
    return found


def wrong_elements(judge: Judge, oracle: Oracle, got: Sequence[Array]) -> tuple[Mask, ...]:
    """Return a mask for each of `got` that marks the elements that `compare` calls wrong.

    All elements of an output with a wrong shape or dtype are marked. There must be as many outputs as PyTorch's.
    """
    expected = oracle.expected
    got = stored_as_asked(judge, expected, got)
    unasked = judge.unused_outputs(oracle.arguments) if judge.unused_outputs else frozenset()
    undefined = judge.undefined(oracle.arguments, expected) if judge.undefined else [None] * len(expected)
    masks: list[Mask] = []
    for i, (e, g, skip) in enumerate(zip(expected, got, undefined, strict=True)):
        dtype = str(e.dtype)
        if i in unasked:
            mask = np.zeros(g.shape, dtype=bool)
        elif (e.shape, dtype) != (g.shape, str(g.dtype)):
            mask = np.ones(g.shape, dtype=bool)
        elif i in judge.rules:
            mask = _unexplained(judge, i, judge.rules[i](Evidence(oracle.arguments, expected, got), i), g)
        elif dtype in PRECISION:
            with np.errstate(all="ignore"):
                wide = e.astype(np.float64), g.astype(np.float64)
                wrong, wrong_zero, _ = _wrong(judge, oracle, i, *wide, skip)
            mask = wrong if wrong.any() else wrong_zero
        else:
            mask = _unequal(judge, oracle, i, g, skip)
        masks.append(mask)
    return tuple(masks)


def stored_as_asked(judge: Judge, expected: Sequence[Array], got: Sequence[Array]) -> Sequence[Array]:
    """Return outputs in the dtypes that are expected where a transform stores them in a narrower one."""
    narrow = judge.leeway.stored_as
    if not narrow or len(got) != len(expected):
        return got
    return [
        g.astype(e.dtype) if str(g.dtype) == narrow != str(e.dtype) and str(e.dtype) in PRECISION else g
        for e, g in zip(expected, got, strict=True)
    ]


def _structural(problems: Sequence[OutputProblem], total: int) -> OutputComparison:
    return OutputComparison(problems=distinct(problems), mismatched_elements=total, total_elements=total)


def _element_problems(
    judge: Judge,
    oracle: Oracle,
    got: Sequence[Array],
    structural: Sequence[OutputProblem],
    unasked: Collection[int],
) -> Iterator[OutputProblem]:
    """Yield the problems of the elements of outputs, some of which have a wrong dtype or shape."""
    expected = oracle.expected
    shapeless = {i for problem in structural for i in problem.outputs if problem.kind == "shape"}
    # A rule may use several outputs, so it needs the right shape of all.
    barred = {*shapeless, *unasked, *(judge.rules if shapeless else ())}
    outputs = [i for i in range(len(expected)) if i not in barred]
    outputs = [i for i in outputs if (expected[i].dtype.kind == "c") == (got[i].dtype.kind == "c")]
    with np.errstate(all="ignore"):
        cast = [g.astype(e.dtype) if i in outputs else g for i, (e, g) in enumerate(zip(expected, got, strict=True))]
    for i in outputs:
        coarse, out_of_range = _coarser(judge, str(got[i].dtype), expected[i])
        for part in _compared(coarse, oracle, cast, [i], out_of_range):
            yield from part.problems


def _coarser(judge: Judge, dtype: str, expected: Array) -> tuple[Judge, Mask | None]:
    """Return how to judge a result that has been cast from `dtype`, and the elements outside that dtype's range.

    It is judged at the precision of `dtype`, as by `torch.testing.assert_close` without its check of dtypes.
    """
    wanted = str(expected.dtype)
    if PRECISION.get(dtype, 99) >= PRECISION.get(wanted, 0):
        return judge, None
    tolerance = tolerance_of(judge, dtype)
    tolerances = {**judge.tolerances, wanted: tolerance}
    loose = replace(judge, exact=False, signed_zeros=False, tolerances=tolerances, reason="the precision that it has")
    beyond = np.abs(expected.astype(np.float64)) > LARGEST[dtype]
    return loose, np.asarray(beyond & np.isfinite(expected))


def _compared(
    judge: Judge, oracle: Oracle, got: Sequence[Array], outputs: Sequence[int], ignored: Mask | None = None
) -> list[OutputComparison]:
    """Compare some outputs, all of the right shape and dtype; `ignored` marks further elements to leave out."""
    expected, arguments = oracle.expected, oracle.arguments
    undefined = judge.undefined(arguments, expected) if judge.undefined else [None] * len(expected)
    unsettled = judge.unsettled(arguments, expected) if judge.unsettled else [None] * len(expected)
    evidence = Evidence(arguments, expected, got)
    parts = []
    for i in outputs:
        if i in judge.rules:
            parts.append(_apply_rule(judge, evidence, i))
            continue
        skip, open_ = undefined[i], unsettled[i]
        why = judge.unsettled.why if judge.unsettled else ""
        if open_ is None:
            open_, why = _open_parts(judge, oracle, i, got[i], skip), WHY
        if open_ is not None and open_.any():
            parts.append(_unsettled(why, i, expected[i], got[i], open_, skip))
            skip = open_ if skip is None else skip | open_
        else:
            open_ = None
        if ignored is not None:
            skip = ignored if skip is None else skip | ignored
        part = _elementwise(judge, i, oracle, got[i], skip)
        left_out = undefined[i]
        if left_out is not None and left_out.any():
            why = getattr(judge.undefined, "why", "undefined")
            part = replace(part, excused=(*part.excused, *_left_out(judge, why, expected[i], got[i], left_out)))
        parts.append(part)
    return parts


def _open_parts(judge: Judge, oracle: Oracle, output: int, got: Array, skip: Mask | None) -> Mask | None:
    """Mark the parts of complex numbers whose right value is undefined and that would be wrong otherwise."""
    expected = oracle.expected[output]
    parts = undefined_parts(judge, oracle.arguments, expected, got)
    if parts is None or not parts.any():
        return None
    with np.errstate(all="ignore"):
        wrong, _, _ = _wrong(judge, oracle, output, expected.astype(np.float64), got.astype(np.float64), skip)
    return np.asarray(parts & wrong)


def _left_out(judge: Judge, why: str, e: Array, g: Array, mask: Mask) -> list[tuple[str, int]]:
    number = int((_unlike(judge, e, g) & mask).sum())
    return [(why, number)] if number else []


def _unlike(judge: Judge, e: Array, g: Array) -> Mask:
    """Mark the elements that differ from PyTorch's by more than the last places."""
    dtype = str(e.dtype)
    if dtype in PRECISION and not judge.exact:
        return ~tolerance_of(judge, dtype).accepts(e.astype(np.float64), g.astype(np.float64))
    with np.errstate(all="ignore"):
        return np.asarray((e != g) & ~((e != e) & (g != g)))


def _unsettled(why: str, output: int, e: Array, g: Array, open_: Mask, skip: Mask | None) -> OutputComparison:
    wrong = _unlike(CLOSE, e, g) & open_
    if skip is not None:
        wrong = wrong & ~skip
    if not wrong.any():
        return OutputComparison()
    problem = replace(_first(VALUES, wrong, e, g, output), unsettled=why)
    return OutputComparison(problems=(problem,), mismatched_elements=int(wrong.sum()))


def _apply_rule(judge: Judge, evidence: Evidence, output: int) -> OutputComparison:
    rule, expected, got = judge.rules[output], evidence.expected[output], evidence.got[output]
    if isinstance(rule, DistributionTest):
        fit = rule.place(evidence, output)
        wrong, why = fit.wrong, "drawn at random"
        problem = _random_problem(fit, got, output) if wrong.any() else None
    else:
        wrong, why = _unexplained(judge, output, rule(evidence, output), got), _OTHER
        problem = _first(VALUES, wrong, expected, got, output) if wrong.any() else None
    if rule is anything:
        why = "uninitialised or not asked for"
    return OutputComparison(
        problems=(problem,) if problem else (),
        mismatched_elements=int(wrong.sum()),
        total_elements=wrong.size,
        excused=tuple(_left_out(judge, why, expected, got, ~wrong)),
    )


def _elementwise(judge: Judge, output: int, oracle: Oracle, got: Array, skip: Mask | None) -> OutputComparison:
    expected = oracle.expected[output]
    dtype = str(expected.dtype)
    if dtype not in PRECISION:
        return _equality(judge, oracle, output, got, skip)
    with np.errstate(all="ignore"):
        e, g = expected.astype(np.float64), got.astype(np.float64)
        difference = np.abs(g - e)
        finite = np.isfinite(e) & np.isfinite(g)
        problem = None
        wrong, wrong_zero, excused = _wrong(judge, oracle, output, e, g, skip)
        if skip is not None:
            finite = finite & ~skip
        if wrong.any():
            problem = name_problem(judge, oracle, output, wrong, e, g)
        elif wrong_zero.any():
            problem, wrong = ZERO_SIGN, wrong_zero
        errors = difference[finite]
        scale = np.abs(e[finite])
        relative = errors[scale > 0] / scale[scale > 0]
        ulps = errors / ulp(scale, dtype)
        needed_rtol, needed_atol = needed_tolerance(e[finite], g[finite], dtype)
        problems: tuple[OutputProblem, ...] = ()
        if problem:
            shown = elements_of_kind(problem, wrong, e, g)
            finite_and_wrong = wrong & ~shown & np.isfinite(e) & np.isfinite(g)
            first = _first(problem, shown, expected, got, output)
            problems = (replace(first, has_wrong_numbers=bool(finite_and_wrong.any())),)
        return OutputComparison(
            problems=problems,
            max_abs_error=float(errors.max()) if errors.size else None,
            max_rel_error=float(relative.max()) if relative.size else None,
            max_ulp_error=float(ulps.max()) if ulps.size else None,
            needed_rtol=needed_rtol,
            needed_atol=needed_atol,
            mismatched_elements=int(wrong.sum()),
            total_elements=e.size if skip is None else int((~skip).sum()),
            excused=tuple(excused.items()),
        )


def _wrong(
    judge: Judge, oracle: Oracle, output: int, e: Array, g: Array, skip: Mask | None
) -> tuple[Mask, Mask, Excuses]:
    """Return the wrong elements of a floating output, the zeros whose sign is wrong, and the excuses of others."""
    excused: Excuses = {}
    if judge.exact:
        right = are_same(g, e)
    else:
        right, excused = right_elements(judge, oracle, output, e, g, skip)
    wrong = ~right
    other = _other(judge, oracle, output) if wrong.any() else None
    if other is not None:
        tolerance = Tolerance(0.0, 0.0) if judge.exact else summed_tolerance(judge, oracle, output)
        accepted = wrong & _is_near(other.astype(np.float64), g, tolerance, term_magnitudes(judge, oracle, output))
        wrong = wrong & ~accepted
        number = int((accepted if skip is None else accepted & ~skip).sum())
        excused = {**excused, _OTHER: number} if number else excused
    is_explained = judge.leeway.is_explained
    if is_explained is not None and (wrong if skip is None else wrong & ~skip).any():
        accepted = wrong & is_explained(output, g)
        wrong = wrong & ~accepted
        number = int((accepted if skip is None else accepted & ~skip).sum())
        excused = {**excused, _EXPLAINED: number} if number else excused
    wrong_zero = np.zeros_like(wrong)
    if judge.exact or judge.signed_zeros:
        wrong_zero = (e == 0) & (g == 0) & (np.signbit(e) != np.signbit(g))
        if wrong_zero.any() and not judge.leeway.keeps_zero_signs():
            wrong_zero = np.zeros_like(wrong)
    kept = (wrong, wrong_zero) if skip is None else (wrong & ~skip, wrong_zero & ~skip)
    return (*kept, excused)


def _is_near(other: Array, g: Array, tolerance: Tolerance, magnitude: Array | None) -> Mask:
    """Mark the elements that are near another right answer, up to roundings of its terms."""
    near = tolerance.accepts(other, g)
    if magnitude is not None:
        near = near | (np.isfinite(other) & (np.abs(g - other) <= tolerance.allowed(magnitude)))
    return np.asarray(near)


def _other(judge: Judge, oracle: Oracle, output: int) -> Array | None:
    """Return another right answer for each element; None if there is none."""
    return judge.alternatives(oracle.arguments, oracle.expected)[output] if judge.alternatives else None


def _equality(judge: Judge, oracle: Oracle, output: int, got: Array, skip: Mask | None) -> OutputComparison:
    expected = oracle.expected[output]
    wrong = _unequal(judge, oracle, output, got, skip)
    accepted = (expected != got) & ~wrong
    excused = int((accepted if skip is None else accepted & ~skip).sum())
    reason = _OTHER if judge.exact_reals is None else "the real number rounded otherwise"
    error = None
    if expected.dtype.kind in "iu" and expected.size:
        kept = ... if skip is None else ~skip
        apart = np.abs(expected.astype(np.float64) - got.astype(np.float64))[kept]
        error = float(apart.max()) if apart.size else None
    problem = None
    if wrong.any():
        # A comparison with zero, for instance, of a subnormal number that was flushed to zero.
        flushed = None if oracle.flushed is None else oracle.flushed[output]
        is_flushed = flushed is not None and flushed.shape == got.shape and (flushed == got)[wrong].all()
        problem = _first(FLUSHED if is_flushed else VALUES, wrong, expected, got, output)
    return OutputComparison(
        problems=(problem,) if problem else (),
        max_abs_error=error,
        mismatched_elements=int(wrong.sum()),
        total_elements=wrong.size if skip is None else int((~skip).sum()),
        excused=((reason, excused),) if excused else (),
    )


def _unequal(judge: Judge, oracle: Oracle, output: int, got: Array, skip: Mask | None) -> Mask:
    """Mark the wrong elements of an output that is not floating."""
    expected = oracle.expected[output]
    # Floats of eight and fewer bits have NaN, too.
    wrong = np.asarray((expected != got) & ((expected == expected) | (got == got)))
    if judge.exact_reals is not None and expected.dtype.kind in "iu" and wrong.any():
        apart = np.abs(expected.astype(np.float64) - got.astype(np.float64))
        wrong &= (apart > 1) | (np.abs(got - judge.exact_reals(oracle.arguments)) > 0.5 + _ROUNDING)
    other = _other(judge, oracle, output) if wrong.any() else None
    if other is not None:
        wrong &= other != got
    wrong = _unexplained(judge, output, wrong, got)
    return wrong if skip is None else wrong & ~skip


def _unexplained(judge: Judge, output: int, wrong: Mask, got: Array) -> Mask:
    """Return the wrong elements that the dtypes of a transformed graph do not explain."""
    is_explained = judge.leeway.is_explained
    if is_explained is None or got.dtype.kind == "c" or not wrong.any():
        return wrong
    return wrong & ~is_explained(output, got.astype(np.float64))


def _differing(kind: str, output: int, expected: Any, got: Any) -> OutputProblem:
    """Return the problem of outputs that differ in their dtype or shape."""
    detail = f"output {output}: expected {expected}, got {got}"
    difference = Difference(output, expected=str(expected), got=str(got))
    return OutputProblem(kind, detail, (output,), expected=expected, got=got, difference=difference)


def _random_problem(fit: Fit, got: Array, output: int) -> OutputProblem:
    """Return the problem of random numbers that are impossible or have the wrong distribution."""
    return OutputProblem(VALUES, fit.message(got, output), (output,), difference=Difference(output))


def _first(kind: str, wrong: Mask, expected: Array, got: Array, output: int) -> OutputProblem:
    """Return the problem of wrong elements, of which the first is shown."""
    place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    where = f"[{','.join(str(int(i)) for i in place)}]" if place else ""
    e, g = expected[place], got[place]
    detail = f"output {output}{where}: expected {e!s}, got {g!s}"
    return OutputProblem(
        kind,
        detail,
        (output,),
        expected=_number(e),
        got=_number(g),
        dtype=str(expected.dtype),
        difference=Difference(output, tuple(map(int, place)), str(e), str(g)),
    )


def _number(element: Any) -> Any:
    """Return an element as a Python number, or as a string; bfloat16 has no `item` that gives a number."""
    number = element.item() if hasattr(element, "item") else element
    return number if isinstance(number, bool | int | float | str) else float(number)
