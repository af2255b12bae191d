"""Which outputs of an operator are right, as an operator case states it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.compare.tolerances import Tolerance
from harness.core.dtypes import PRECISION, Array

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Evidence:
    """What a rule may look at.

    Attributes:
        arguments: Schema name → the value that was passed, tensors as NumPy arrays.
        expected: PyTorch's outputs.
        got: The backend's outputs; each has the shape and dtype of its expected one.
    """

    arguments: Mapping[str, Any]
    expected: Sequence[Array]
    got: Sequence[Array]


#: Decides one output: True where an element is wrong. Shape: that of the output.
OutputRule: TypeAlias = Callable[[Evidence, int], Mask]


def anything(evidence: Evidence, output: int) -> Mask:
    """The output rule for uninitialised values: only shape and dtype count."""
    return np.zeros(evidence.got[output].shape, dtype=bool)


#: Marks elements of each output, from the arguments and PyTorch's outputs; None for an output without any.
Marks: TypeAlias = Callable[[Mapping[str, Any], Sequence[Array]], Sequence["Mask | None"]]


@dataclass(frozen=True)
class Allowance:
    """Marks, with what they excuse, for the record.

    Attributes:
        why: A few words for elements that are not compared, as in "a float that the integer cannot hold";
            a sentence for elements whose result is unsettled.
    """

    why: str
    marks: Marks

    def __call__(self, arguments: Mapping[str, Any], expected: Sequence[Array]) -> Sequence[Mask | None]:
        """As any `Marks`; a mark of a complex number is one of both its parts."""
        marks = self.marks(arguments, expected)
        return [
            np.stack([mask, mask], -1) if mask is not None and (*mask.shape, 2) == array.shape else mask
            for mask, array in zip(marks, expected, strict=True)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """How to compare a backend's outputs with PyTorch's.

    Whatever the judge, shapes, dtypes, and the positions of NaN and infinities must agree, and
    integers and booleans must be equal.

    Attributes:
        exact: Floating-point elements must be equal too (data movement, selection). Implies
            `signed_zeros`.
        signed_zeros: +0 and −0 differ. For operators whose zero IEEE 754 or PyTorch defines.
        accumulates: Each output is a sum of products of inputs (a reduction, a product of
            matrices, a convolution), so that its rounding error scales with the sum of the terms'
            magnitudes, not with the result: see `harness.compare.comparison`.
        terms: For an operator that accumulates and also subtracts or scales, so that the call on absolute
            inputs does not give it: the sum of the terms' magnitudes, in float64, from the arguments,
            whose tensors come as float64 or complex128. Of several outputs, a tuple. Of a complex output the
            modulus, for both parts.
        tolerances: dtype → tolerance in place of the default, with `reason`.
        reason: Why the tolerances differ.
        rules: Output index → a rule that accepts exactly the right answers, for operators that
            have several (unstable sort, ties of top-k, random, empty).
        undefined: Marks, per output, elements that PyTorch or C++ leave undefined (a float out of
            range cast to an integer); they are not compared, and counted where they differ. An `Allowance`
            says why.
        unsettled: Marks elements for which no text says what is right, although PyTorch's kernels compute
            the same for them wherever they run (an integer that overflows). They are compared; a difference
            in them is nobody's, and recorded as the specification's.
        exact_reals: For integers that stand for rounded reals, as pixels do: these reals, from the arguments. A
            neighbour of PyTorch's integer is right, too, where it is the real number rounded, ties as it may.
        alternatives: Another right answer for each element of an output, in its dtype, where documentation and
            kernel compute otherwise; PyTorch's where there is none, None for an output without any.
        unused_outputs: Outputs that the arguments do not ask for, so that not even their shape is compared.
        of_complex: Of calls with complex tensors, where they are judged otherwise. IEEE 754 defines no
            complex arithmetic, so that neither sign of a zero is wrong there.
        coordinates: Names of tensor arguments whose numbers are places measured from the middle of a range, so that
            what is computed from them is rounded as numbers of at least one are.
        reads_layout: The result depends by definition on how the inputs lie in memory (`as_strided`), so
            that PyTorch does not contradict itself where it differs for row-major copies of them.
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
    of_complex: Judge | None = None
    coordinates: frozenset[str] = frozenset()
    reads_layout: bool = False

    def __post_init__(self) -> None:
        if self.tolerances and not self.reason:
            raise ValueError("a tolerance of one's own needs its reason")

    def restricted_to(self, outputs: Collection[int], count: int) -> Judge:
        """The same for some of `count` outputs, all if none is named, as if the others were unused."""
        if not outputs:
            return self
        others, before = frozenset(range(count)).difference(outputs), self.unused_outputs
        return replace(self, unused_outputs=lambda arguments: others | (before(arguments) if before else frozenset()))

    def allowing(self, tolerance: Tolerance | None) -> Judge:
        """Return the same judge with one tolerance for every floating dtype, in place of all others; None for none."""
        if tolerance is None:
            return self
        return replace(self, tolerances=dict.fromkeys(PRECISION, tolerance), reason="asked for")

    @property
    def without_unsettled(self) -> Judge:
        """The same without a look at what is unsettled."""
        if self.unsettled is None:
            return self
        both = [marks for marks in (self.undefined, self.unsettled) if marks is not None]

        def marks(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
            found = [mask(arguments, expected) for mask in both]
            return [_either(masks) for masks in zip(*found, strict=True)]

        return replace(self, undefined=marks, unsettled=None)


def _either(masks: Sequence[Mask | None]) -> Mask | None:
    present = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(present) if present else None


#: Close as `torch.testing` understands it. The default.
CLOSE = Judge()
#: Bit for bit but for NaN payloads.
EXACT = Judge(exact=True, signed_zeros=True)
#: Close, and the sign of a zero counts.
IEEE = Judge(signed_zeros=True)
#: Equal, but for the sign of a zero: for operators that select one of several operands. Which of +0 and −0 is
#: the larger PyTorch leaves open, and its vector and scalar kernels differ in it.
EQUAL = Judge(
    tolerances={dtype: Tolerance(0.0, 0.0) for dtype in PRECISION},
    reason="one of the operands is returned: nothing is rounded",
)
#: Sums of products.
ACCUMULATES = Judge(accumulates=True)
