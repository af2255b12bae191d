"""The rules by which an operator case says which outputs are right."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.compare.tolerances import Tolerance
from harness.core.dtypes import PRECISION, Array

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Leeway:
    """An allowance for results of a transformed graph, beyond the rules of a judge.

    Attributes:
        tolerance: A tolerance in place of those of every dtype; None for the judge's own.
        stored_as: A narrower floating dtype in which outputs may arrive, too; "" for none.
        keeps_zero_signs: Returns whether the two zeros are apart in the graph; steps have only one.
        is_explained: Marks the elements of an output, in float64, that the dtypes of a transformed graph explain; None
            if nothing but the tolerance explains a difference.
    """

    tolerance: Tolerance | None = None
    stored_as: str = ""
    keeps_zero_signs: Callable[[], bool] = lambda: True
    is_explained: Callable[[int, Array], Mask] | None = None


@dataclass(frozen=True)
class Evidence:
    """The inputs of a rule.

    Attributes:
        arguments: The arguments by schema name, tensors as NumPy arrays.
        expected: PyTorch's outputs.
        got: The backend's outputs; each has the shape and dtype of the expected one.
    """

    arguments: Mapping[str, Any]
    expected: Sequence[Array]
    got: Sequence[Array]


#: Marks the wrong elements of one output. Shape: that of the output.
OutputRule: TypeAlias = Callable[[Evidence, int], Mask]


def anything(evidence: Evidence, output: int) -> Mask:
    """Accept all values: the rule for uninitialised outputs, of which only shape and dtype count."""
    return np.zeros(evidence.got[output].shape, dtype=bool)


#: Marks elements of each output, given the arguments and PyTorch's outputs; None for an output without marks.
Marks: TypeAlias = Callable[[Mapping[str, Any], Sequence[Array]], Sequence["Mask | None"]]


@dataclass(frozen=True)
class Allowance:
    """Marks and the reason for them, for the record.

    Attributes:
        why: A phrase for elements that are not compared, such as "a float that the integer cannot hold"; for elements
            whose result is unsettled a sentence.
        marks: The marks.
    """

    why: str
    marks: Marks

    def __call__(self, arguments: Mapping[str, Any], expected: Sequence[Array]) -> Sequence[Mask | None]:
        """Mark elements, as any `Marks` does; the mark of a complex number applies to both parts."""
        marks = self.marks(arguments, expected)
        return [
            np.stack([mask, mask], -1) if mask is not None and (*mask.shape, 2) == array.shape else mask
            for mask, array in zip(marks, expected, strict=True)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """A policy for comparing a backend's outputs with PyTorch's.

    Under every judge, shapes, dtypes and the positions of NaN and infinities must agree, and integers and booleans must
    be equal.

    Attributes:
        exact: Floating-point elements must be equal too (data movement, selection). Implies `signed_zeros`.
        signed_zeros: +0 and −0 differ. For operators whose zero is defined by IEEE 754 or PyTorch.
        accumulates: Each output is a sum of products of inputs (a reduction, a matrix product, a convolution), so that
            its rounding error scales with the sum of the terms' magnitudes instead of the result: see
            `harness.compare.nearness`.
        terms: The sum of the terms' magnitudes, in float64, as a function of the arguments, whose tensors are float64
            or complex128. For operators that accumulate but also subtract or scale, so that the call on absolute inputs
            does not give it. A tuple for several outputs; the modulus for both parts of a complex output.
        tolerances: dtype → tolerance that replaces the default, justified by `reason`.
        reason: Why the tolerances differ.
        rules: Output index → a rule that accepts exactly the right answers, for operators with several of them
            (unstable sort, ties of top-k, random, empty).
        undefined: Marks elements that PyTorch or C++ leaves undefined (a float out of range cast to an integer). They
            are not compared, but counted if they differ. An `Allowance` also gives the reason.
        unsettled: Marks elements whose right value no text defines, although PyTorch's kernels agree wherever they run
            (an integer that overflows). They are compared, and a difference is blamed on the specification.
        exact_reals: The real numbers that integer outputs, such as pixels, are rounded from, given the arguments.
            A neighbour of PyTorch's integer is then right as well if it is the real rounded, ties either way.
        alternatives: Another right answer for each element of an output, in its dtype, for operators whose documented
            formula differs from the kernel; PyTorch's element where there is none, None for an output without any.
        unused_outputs: Outputs that the arguments do not request; not even their shapes are compared.
        complex_judge: The judge of calls with complex tensors, if it differs. IEEE 754 defines no complex arithmetic,
            so either sign of a zero is right there.
        coordinates: Names of tensor arguments that are positions relative to the middle of a range; what is computed
            from them has the rounding errors of numbers of at least one.
        reads_layout: The result depends by definition on the memory layout of the inputs (`as_strided`), so PyTorch
            does not contradict itself if it differs for row-major copies.
        leeway: The allowance for a transformed graph.
    """

    exact: bool = False
    signed_zeros: bool = False
    accumulates: bool = False
    terms: Callable[[Mapping[str, Any]], Array | tuple[Array | None, ...]] | None = None
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    reason: str = ""
    rules: Mapping[int, OutputRule] = field(default_factory=dict)
    undefined: Marks | None = None
    unsettled: Allowance | None = None
    exact_reals: Callable[[Mapping[str, Any]], Array] | None = None
    alternatives: Callable[[Mapping[str, Any], Sequence[Array]], Sequence[Array | None]] | None = None
    unused_outputs: Callable[[Mapping[str, Any]], frozenset[int]] | None = None
    complex_judge: Judge | None = None
    coordinates: frozenset[str] = frozenset()
    reads_layout: bool = False
    leeway: Leeway = Leeway()

    def __post_init__(self) -> None:
        if self.tolerances and not self.reason:
            raise ValueError("tolerances need a reason")

    def restricted_to(self, outputs: Collection[int], count: int) -> Judge:
        """Return a judge for some of `count` outputs that treats the others as unused; itself if `outputs` is empty."""
        if not outputs:
            return self
        others, before = frozenset(range(count)).difference(outputs), self.unused_outputs
        return replace(self, unused_outputs=lambda arguments: others | (before(arguments) if before else frozenset()))

    def allowing(self, leeway: Leeway | None) -> Judge:
        """Return a judge with a leeway, whose tolerance is that of every floating dtype; itself for None."""
        if leeway is None:
            return self
        if leeway.tolerance is None:
            return replace(self, leeway=leeway)
        tolerances = dict.fromkeys(PRECISION, leeway.tolerance)
        return replace(self, tolerances=tolerances, reason="asked for", leeway=leeway)

    @property
    def without_unsettled(self) -> Judge:
        """The judge with unsettled elements left out of the comparison."""
        if self.unsettled is None:
            return self
        both = [marks for marks in (self.undefined, self.unsettled) if marks is not None]

        def marks(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
            masks_by_kind = [mask(arguments, expected) for mask in both]
            return [_either(masks) for masks in zip(*masks_by_kind, strict=True)]

        return replace(self, undefined=marks, unsettled=None)


def _either(masks: Sequence[Mask | None]) -> Mask | None:
    present = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(present) if present else None


#: The default: close, as `torch.testing` defines it.
CLOSE = Judge()
#: Equal bit for bit, except for NaN payloads.
EXACT = Judge(exact=True, signed_zeros=True)
#: Close, and the sign of a zero counts.
IEEE = Judge(signed_zeros=True)
#: Equal except for the sign of a zero, for operators that select an operand: PyTorch does not define which of +0 and −0
#: is larger, and its vector and scalar kernels differ.
EQUAL = Judge(
    tolerances={dtype: Tolerance(0.0, 0.0) for dtype in PRECISION},
    reason="one of the operands is returned: nothing is rounded",
)
#: Close, for sums of products.
ACCUMULATES = Judge(accumulates=True)
