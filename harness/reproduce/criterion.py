"""The comparison in a script, in plain PyTorch: it must find every defect that `harness.compare.comparison` does.

The harness accepts all results that a script accepts, so that the script fails as long as the defect is there. The
reverse holds except for operators with several right answers that are hard to state: there a script asks for PyTorch's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.compare.drawn import FALSE_ALARM, DistributionTest
from harness.compare.judge import Judge, Mask, anything
from harness.compare.nearness import SCALES, term_magnitudes, tolerance_of
from harness.compare.repeated import RUNS
from harness.compare.tolerances import DEFAULT, Tolerance
from harness.core.dtypes import PRECISION, Array
from harness.core.numbers import are_same
from harness.pipeline.case import CaseOracle
from harness.reproduce.call_source import CallSource
from harness.reproduce.failure import ReproducibleFailure

#: The rule of `harness.compare`, except for sums that overflow in another order.
_NEAR = '''\
def near(got, expected, truth, terms, rtol, atol):
    """Which elements are close to PyTorch's, or as close to float64's as that is."""
    g, e, t = got.double(), expected.double(), truth.to(expected.dtype).double()
    right = torch.isclose(g, e, rtol, atol, equal_nan=True) | (g == t) | (g.isnan() & t.isnan())
    own, sums = (e - truth).abs().nan_to_num(0, 0, 0), atol + rtol * terms.abs()
    # Of sums, also PyTorch's in another order, where float64 computes other ones.
    right |= (terms.abs() > truth.abs()) & (own > sums) & ((g - e).abs() <= sums)
    return right | (truth.isfinite() & ((g - truth).abs() <= torch.maximum(sums, own)))
'''

#: The two-sample form of the inequality that `harness.compare.drawn.Fit` rests on: by that of Dvoretzky,
#: Kiefer, Wolfowitz and Massart for each of them, either sample of n strays by more than ε / 2 with a
#: probability of at most 2·exp(−nε² / 2). The limit is for one false alarm in 10⁹ over all elements.
_DISTANCE = '''\
def distance(ours, theirs):
    """The largest difference between the distributions of an element over all runs."""
    found = 0.0
    for pair in zip(ours.reshape(len(ours), -1).T, theirs.reshape(len(theirs), -1).T):
        a, b = (x.double().nan_to_num(nan=1e300).sort().values for x in pair)
        below = [torch.searchsorted(s, torch.cat([a, b]), right=True) / len(s) for s in (a, b)]
        found = max(found, (below[0] - below[1]).abs().max().item())
    return found
'''


@dataclass(frozen=True)
class Criterion:
    """The code with which a script tells right from wrong.

    Attributes:
        helpers: Lines of functions that come before everything else.
        lines: Lines over ``outputs`` and ``expected``, lists of tensors; they raise `AssertionError` for a wrong one.
        runs: Number of runs of both; if it is above 1 the tensors of all runs are stacked.
    """

    helpers: tuple[str, ...]
    lines: tuple[str, ...]
    runs: int = 1


def criterion(failure: ReproducibleFailure, judge: Judge, reference: CaseOracle, source: CallSource) -> Criterion:
    """Return the criterion for a mismatch, given the operator's judge and PyTorch's outputs."""
    expected = reference.expected
    if failure.verdict.signature in ("number of outputs", "dtype", "shape"):
        return Criterion((), tuple(_structure(judge, reference)))
    drawn = [i for i, rule in judge.rules.items() if isinstance(rule, DistributionTest)]
    if drawn:
        return _distributed(judge, reference, drawn)
    undefined = judge.undefined(reference.arguments, expected) if judge.undefined else [None] * len(expected)
    helpers: list[str] = []
    lines: list[str] = []
    truths: list[str] = []
    for i in compared_outputs(judge, reference, named_output(failure)):
        pick = _index(undefined[i])
        got, want = f"outputs[{i}]{pick}", f"expected[{i}]{pick}"
        tolerance = tolerance_for(judge, expected[i], ruled=i in judge.rules)
        if needs_truth(judge, reference, i, tolerance, undefined[i]):
            truths = truths or _truth(judge, reference, source)
            helpers = _NEAR.splitlines()
            terms = _terms(judge, reference, i)
            lines += [
                *explained(tolerance, str(expected[i].dtype)),
                "# It also accepts what is as close to the result in float64 as PyTorch is.",
                f"right = near({got}, {want}, truth[{i}]{pick}, {terms}{pick}, {tolerance.rtol}, {tolerance.atol})",
                'assert right.all(), f"wrong at {(~right).nonzero().tolist()}"',
            ]
        else:
            lines += [
                *explained(tolerance, str(expected[i].dtype)),
                f"torch.testing.assert_close({got}, {want}, "
                f"rtol={tolerance.rtol:g}, atol={tolerance.atol:g}, equal_nan=True)",
            ]
        signed = judge.exact or judge.signed_zeros or failure.verdict.signature == "sign of zero"
        can_tell = i not in judge.rules and expected[i].dtype.kind not in "iub" and (expected[i] == 0).any()
        if signed and can_tell:
            lines += [
                f"o, e = {got}, {want}",
                'assert (o.signbit() == e.signbit())[(o == 0) & (e == 0)].all(), "sign of zero"',
            ]
    return Criterion(tuple(helpers), (*truths, *lines))


def _distributed(judge: Judge, reference: CaseOracle, drawn: list[int]) -> Criterion:
    lines = []
    for i in drawn:
        size = reference.expected[i].size
        if not size:
            continue
        limit = math.sqrt(2 * math.log(4 * size / FALSE_ALARM) / RUNS)
        lines += [
            f"apart = distance(outputs[{i}], expected[{i}])",
            f'assert apart <= {limit:.4f}, f"output {i} has another distribution: {{apart:.4f}} apart"',
        ]
        if size > 1:
            alone = math.sqrt(2 * math.log(4 / FALSE_ALARM) / RUNS)
            lines += [
                "# Elements that are not drawn independently move together from run to run.",
                f"both = [x.reshape({RUNS}, -1) for x in (outputs[{i}], expected[{i}])]",
                "ranks = [x.argsort(dim=0, stable=True).argsort(dim=0) for x in both]",
                "apart = distance(*(x.double().mean(dim=1) for x in ranks))",
                f'assert apart <= {alone:.4f}, f"elements of output {i} depend on each other: {{apart:.4f}}"',
            ]
        rule = judge.rules[i]
        if not isinstance(rule, DistributionTest):
            continue
        if rule.ends is not None:
            low, high = rule.ends(reference.arguments)
            lines += [
                f"x = outputs[{i}].double()",
                f"beyond = x[~((x >= {low:g}) & (x < {high:g}))].unique().tolist()",
                f'assert not beyond, f"drawn from outside of [{low:g}, {high:g}): {{beyond}}"',
            ]
        if rule.distinct is not None and rule.distinct(reference.arguments):
            lines.append(f'assert (outputs[{i}].sort().values.diff() != 0).all(), "drawn twice without replacement"')
    return Criterion(tuple(_DISTANCE.splitlines()), tuple(lines), runs=RUNS)


def _structure(judge: Judge, reference: CaseOracle) -> list[str]:
    unasked = judge.unused_outputs(reference.arguments) if judge.unused_outputs else frozenset()
    if not unasked:
        return ["assert [(o.dtype, o.shape) for o in outputs] == [(e.dtype, e.shape) for e in expected]"]
    return [
        f"for i in {[i for i in range(len(reference.expected)) if i not in unasked]}:",
        "    assert (outputs[i].dtype, outputs[i].shape) == (expected[i].dtype, expected[i].shape)",
    ]


def compared_outputs(judge: Judge, reference: CaseOracle, named: int | None) -> list[int]:
    """Return the outputs that have one right answer, and `named`, the one that the harness found wrong."""
    unasked = judge.unused_outputs(reference.arguments) if judge.unused_outputs else frozenset()
    asked = (i for i in range(len(reference.expected)) if i not in unasked)
    return [i for i in asked if (i not in judge.rules or i == named) and judge.rules.get(i) is not anything]


def _index(undefined: Mask | None) -> str:
    """Write an index that picks the elements that are defined."""
    if undefined is None or not undefined.any():
        return ""
    return f".flatten()[{np.flatnonzero(~undefined.reshape(-1)).tolist()}]"


def named_output(failure: ReproducibleFailure) -> int | None:
    """Return the first wrong output; None if no outputs were compared, or if an earlier version wrote the record."""
    found = failure.diagnosis.difference if failure.diagnosis else None
    return found.output if found else None


def explained(tolerance: Tolerance, dtype: str) -> list[str]:
    """Write a relative tolerance as a comment; nothing without one."""
    if not tolerance.rtol or dtype not in PRECISION:
        return []
    units = f"{tolerance.rtol * 2.0 ** (PRECISION[dtype] - 1):.2g}"
    plural = "" if units == "1" else "s"
    return [f"# The relative tolerance is {units} unit{plural} in the last place of {dtype}."]


def tolerance_for(judge: Judge, expected: Array, *, ruled: bool) -> Tolerance:
    """Return the allowed difference between an output and PyTorch's.

    Args:
        ruled: Whether the operator case has a rule of its own for the output.
    """
    dtype = str(expected.dtype)
    if judge.exact or ruled:
        return Tolerance(0.0, 0.0)
    if dtype in PRECISION:
        return tolerance_of(judge, dtype)
    given = judge.tolerances.get(dtype)
    return Tolerance(0.0, given.atol if given else 0.0) if expected.dtype.kind != "c" else DEFAULT[dtype]


def needs_truth(judge: Judge, reference: CaseOracle, i: int, tolerance: Tolerance, undefined: Mask | None) -> bool:
    """Whether an output may be right though it is not close to PyTorch's."""
    expected = reference.expected[i]
    if judge.exact or i in judge.rules or str(expected.dtype) not in PRECISION:
        return False
    truth = reference.truth[i] if reference.truth else None
    if truth is None or truth.shape != expected.shape:
        return False
    with np.errstate(all="ignore"):
        wide = expected.astype(np.float64)
        apart = ~((np.abs(wide - truth) <= tolerance.allowed(wide) / 2) | are_same(wide, truth))
        terms = term_magnitudes(judge, reference, i)
        if terms is not None:
            apart |= terms > 4 * np.abs(wide)
    if undefined is not None:
        apart &= ~undefined
    return bool(apart.any())


def _truth(judge: Judge, reference: CaseOracle, source: CallSource) -> list[str]:
    """Write code for `truth`, and for `terms` if the judge and the scales do not give these; see `_terms`."""
    lines = ["torch.set_default_dtype(torch.float64)", *_mapped(source, "double()", "inputs")]
    lines += _evaluated("truth", source)
    if judge.accumulates and judge.terms is None and not _has_complex_scale(reference):
        lines += [
            "# What is summed up, in absolute values: rounding errors grow with it.",
            *_mapped(source, "abs()", "wide"),
            *_evaluated("terms", source),
        ]
        if source.gives_complex:
            lines += [
                "# The moduli of complex numbers are for both parts.",
                "pairs = zip(terms, expected)",
                "terms = [t if t.shape == e.shape else t[..., None].expand(e.shape) for t, e in pairs]",
            ]
    return lines


def _mapped(source: CallSource, method: str, tensors: str) -> list[str]:
    """Write code for the dict `wide`: another without integers, on which `method` has been called."""
    if not source.takes_complex:
        return [f"wide = {{n: x.{method} if x.is_floating_point() else x for n, x in {tensors}.items()}}"]
    tensors = source.eager_inputs if tensors == "inputs" else tensors
    complex_ = "cdouble()" if method == "double()" else method
    return [
        "wide = {",
        f"    n: x.{complex_} if x.is_complex() else x.{method} if x.is_floating_point() else x",
        f"    for n, x in {tensors}.items()",
        "}",
    ]


def _evaluated(name: str, source: CallSource) -> list[str]:
    """Write code that computes the outputs for the tensors `wide`, in float64, as the list `name`."""
    call = source.call(float64=True)
    if call == source.call():
        return [f"{name} = {source.listed('Model()(*wide.values())')}"]
    unpacked = [f"{', '.join(source.names)}, = wide.values()"] if source.names else []
    return [*unpacked, f"{name} = {source.listed(call)}"]


def _terms(judge: Judge, reference: CaseOracle, i: int) -> str:
    with np.errstate(all="ignore"):
        terms = term_magnitudes(judge, reference, i)
    has_complex_scale = _has_complex_scale(reference)
    is_stated = judge.terms is not None or has_complex_scale
    if is_stated and terms is not None and np.isfinite(terms).all():
        return f"torch.tensor({terms.tolist()})"
    # The harness takes the scales of terms by their absolute value, which the module does not.
    scaled = has_complex_scale or any(
        name in SCALES and isinstance(a, int | float) and a < 0 for name, a in reference.arguments.items()
    )
    return f"truth[{i}]" if judge.terms is not None or terms is None or scaled else f"terms[{i}]"


def _has_complex_scale(reference: CaseOracle) -> bool:
    """Whether a scale is complex, by which a call on absolute values gives no terms."""
    return any(name in SCALES and isinstance(a, complex) for name, a in reference.arguments.items())
