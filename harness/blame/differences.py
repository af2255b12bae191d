"""Compare the failing backend's wrong answer, element by element, with the right one and with other answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from harness.compare.comparison import wrong_elements
from harness.compare.drawn import draws, fail_alike
from harness.compare.judge import CLOSE, Evidence, Judge, Mask
from harness.compare.nearness import tolerance_of
from harness.compare.output_comparison import OutputComparison
from harness.compare.problem_kinds import elements_of_kind, name_problem
from harness.compare.tolerances import MUCH_NEARER
from harness.core.dtypes import PRECISION, Array
from harness.core.numbers import are_same
from harness.pipeline.case import CaseOracle
from harness.pipeline.nodes.judged_nodes import form_of
from harness.pipeline.nodes.walk import Walk, WrongStep


@dataclass(frozen=True, eq=False)
class WrongAnswer:
    """The failing backend's answer to a case, and the elements that the failure is about.

    Attributes:
        oracle: The right outputs.
        judge: The rules for comparing with them.
        outputs: The failing backend's outputs; None if it gives none.
        only: The elements that an earlier diagnosis leaves unexplained, a mask per output; None for all.
    """

    oracle: CaseOracle
    judge: Judge
    outputs: tuple[Array, ...] | None
    only: tuple[Mask, ...] | None = None

    @cached_property
    def wrong(self) -> tuple[Mask, ...]:
        """A mask per output, true at the elements that the failure is about.

        These are the wrong elements of the first wrong output that show the kind of the failure. Elements of other
        outputs and excused elements do not count.
        """
        assert self.outputs is not None
        return self._elements_to_explain(self.outputs)

    def _elements_to_explain(self, outputs: Sequence[Array]) -> tuple[Mask, ...]:
        """Return a mask per output, true where the first wrong output shows the kind of the failure."""
        masks = wrong_elements(self.judge, self.oracle, outputs)
        if self.only is not None and [mask.shape for mask in masks] == [only.shape for only in self.only]:
            return tuple(mask & only for mask, only in zip(masks, self.only, strict=True))
        first = next((i for i, mask in enumerate(masks) if mask.any()), -1)
        return tuple(
            self._showing(i, mask, outputs[i]) if i == first else np.zeros_like(mask) for i, mask in enumerate(masks)
        )

    def _showing(self, output: int, wrong: Mask, got: Array) -> Mask:
        """Return the wrong elements that show the kind of the failure."""
        expected = self.oracle.expected[output]
        dtype = str(expected.dtype)
        if output in self.judge.rules or dtype not in PRECISION or _form(expected) != _form(got):
            return wrong
        wide = expected.astype(np.float64), got.astype(np.float64)
        with np.errstate(all="ignore"):
            return elements_of_kind(name_problem(self.judge, self.oracle, output, wrong, *wide), wrong, *wide)

    def is_same(self, outputs: Sequence[Array], answer: tuple[Array, ...] | None = None) -> bool:
        """Whether `outputs` are the same wrong answer as `answer`, by default the failing backend's.

        Their answers do not matter where that answer is right. Where it is wrong, they must be much nearer
        to it than PyTorch's answer is, so that two answers that are both nearly right are not mixed up.
        """
        answer = self.outputs if answer is None else answer
        expected = self.oracle.expected
        if answer is None or [_form(o) for o in outputs] != [_form(a) for a in answer]:
            return False
        if [_form(a) for a in answer] != [_form(e) for e in expected]:
            # The form is wrong.
            return True
        if draws(self.judge):
            arguments = self.oracle.arguments
            ours, theirs = (Evidence(arguments, expected, some) for some in (outputs, answer))
            return fail_alike(self.judge, ours, theirs)
        asked = self.wrong if answer is self.outputs else self._elements_to_explain(answer)
        return all(
            bool(is_rather(o[w], a[w], e[w]).all()) for o, a, e, w in zip(outputs, answer, expected, asked, strict=True)
        )

    def is_equal(self, outputs: Sequence[Array]) -> bool:
        """Whether `outputs` are bit for bit the failing backend's wrong answer, and of the right form.

        Less does not show that PyTorch contradicts itself: it may round otherwise from one call to another.
        """
        forms = [_form(e) for e in self.oracle.expected]
        if self.outputs is None or any([_form(o) for o in some] != forms for some in (outputs, self.outputs)):
            return False
        return any(w.any() for w in self.wrong) and all(
            bool(_is_equal(o[w], g[w]).all()) for o, g, w in zip(outputs, self.outputs, self.wrong, strict=True)
        )

    def is_corrected_by(self, outputs: Sequence[Array]) -> bool:
        """Whether `outputs` are PyTorch's answer where the failing backend is wrong, if not elsewhere.

        Numbers drawn at random have no right value: near values prove nothing.
        """
        if draws(self.judge):
            return False
        expected, answer = self.oracle.expected, self.outputs
        forms = [_form(e) for e in expected]
        if answer is None or [_form(o) for o in outputs] != forms or [_form(a) for a in answer] != forms:
            return False
        bad = wrong_elements(self.judge, self.oracle, outputs)
        return any(w.any() for w in self.wrong) and all(
            bool((~b[w] | is_rather(o[w], e[w], a[w])).all())
            for o, a, e, w, b in zip(outputs, answer, expected, self.wrong, bad, strict=True)
        )

    def is_as_wrong(self, outputs: Sequence[Array], plain: tuple[Array, ...] | None) -> bool:
        """Whether `outputs` are the failing backend's without optimisations, `plain`, and are wrong wherever it is
        wrong with them: the optimisations change a result that is wrong without them."""
        if self.outputs is None or plain is None or not self.is_same(outputs, plain):
            return False
        wrong = wrong_elements(self.judge, self.oracle, plain)
        return all(not (w & ~o).any() for w, o in zip(self.wrong, wrong, strict=True))


@dataclass(frozen=True, eq=False)
class WrongElements:
    """The outputs and elements that a failure is about.

    Attributes:
        names: Names of the outputs in the graph.
        expected: PyTorch's outputs.
        got: The failing backend's outputs.
        masks: The elements; None for an output of another form.
        indices: Indices of the outputs among all.
    """

    answer: WrongAnswer
    names: tuple[str, ...]
    expected: tuple[Array, ...]
    got: tuple[Array, ...]
    masks: tuple[Mask | None, ...]
    indices: tuple[int, ...]

    @classmethod
    def of(cls, answer: WrongAnswer, names: Sequence[str], comparison: OutputComparison | None) -> Self | None:
        """Return the wrong elements of an answer; None if it has another number of outputs.

        Args:
            answer: The answer.
            names: The names of the graph's outputs.
            comparison: The comparison of the answer.
        """
        assert answer.outputs is not None
        expected, got = answer.oracle.expected, answer.outputs
        if len(expected) != len(got):
            return None
        unlike = [form_of(e) != form_of(g) for e, g in zip(expected, got, strict=True)]
        # A wrong form ends the comparison: the failure is about it.
        asked = [i for i, w in enumerate(answer.wrong) if (unlike[i] if any(unlike) else w.any())]
        if any(unlike) and comparison is not None and comparison.problems:
            # Outputs that are wrong in another way are another failure.
            asked = [i for i in asked if i in comparison.problems[0].outputs]
        return cls(
            answer=answer,
            names=tuple(names[i] for i in asked),
            expected=tuple(expected[i] for i in asked),
            got=tuple(got[i] for i in asked),
            masks=tuple(None if unlike[i] else answer.wrong[i] for i in asked),
            indices=tuple(asked),
        )

    @property
    def is_about_form(self) -> bool:
        """Whether a shape or dtype is in question."""
        return any(mask is None for mask in self.masks)

    @property
    def counts(self) -> list[int]:
        """Return the number of elements of each output; 1 for a form."""
        return [1 if mask is None else int(mask.sum()) for mask in self.masks]

    def unexplained(self, found: Walk) -> tuple[Mask, ...]:
        """Return a mask per output of the model, true at the elements in question that are wrong after a walk."""
        outputs = list(self.answer.oracle.expected)
        for i, name in zip(self.indices, self.names, strict=True):
            outputs[i] = found.values[name]
        wrong = wrong_elements(self.answer.judge, self.answer.oracle, outputs)
        asked = {i: mask for i, mask in zip(self.indices, self.masks, strict=True) if mask is not None}
        return tuple(w & asked[i] if i in asked else np.zeros_like(w) for i, w in enumerate(wrong))

    def left(self, found: Walk) -> list[int]:
        """Return the number of wrong elements of each output after a walk; 1 for a wrong form."""
        counts: list[int] = []
        for i, name, e, mask in zip(self.indices, self.names, self.expected, self.masks, strict=True):
            final = found.values[name]
            if mask is None or form_of(e) != form_of(final):
                counts.append(int(form_of(e) != form_of(final)))
                continue
            outputs = list(self.answer.oracle.expected)
            outputs[i] = final
            wrong = wrong_elements(self.answer.judge, self.answer.oracle, outputs)[i]
            counts.append(int((wrong & mask).sum()))
        return counts

    def gives_the_same(self, found: Walk) -> bool:
        """Whether a walk gives the failing backend's answer: elements are mostly far nearer to it than it is
        to PyTorch's."""
        for e, got, name, mask in zip(self.expected, self.got, self.names, self.masks, strict=True):
            final = found.values[name]
            if form_of(final) != form_of(got):
                return False
            if mask is None or form_of(e) != form_of(got):
                continue
            with np.errstate(all="ignore"):
                o, g, p = (a[mask].astype(np.float64) for a in (final, got, e))
                near = are_same(o, g) | (MUCH_NEARER * np.abs(o - g) <= np.abs(p - g))
            if 2 * int(near.sum()) <= near.size:
                return False
        return True

    def among_wrong(self, fault: WrongStep) -> WrongStep:
        """Return a wrong node with only those of its wrong elements that the failure is about, if there are some.

        Others the comparison may have excused, which a definition does not.
        """
        masks = dict(zip(self.names, self.masks, strict=True))
        wrong = []
        for name, mask in zip(fault.definition.step.outputs, fault.wrong, strict=True):
            asked = masks.get(name)
            both = mask & asked if asked is not None and asked.shape == mask.shape else mask
            wrong.append(both if both.any() else mask)
        return replace(fault, wrong=tuple(wrong))


def _form(array: Array) -> tuple[tuple[int, ...], str]:
    return array.shape, str(array.dtype)


def _is_equal(other: Array, one: Array) -> Mask:
    """Return the mask of equal elements: all NaN are equal, +0 and −0 are not."""
    same = np.asarray(other == one)
    if str(one.dtype) not in PRECISION:
        return same
    o, a = other.astype(np.float64), one.astype(np.float64)
    return np.asarray((same & (np.signbit(o) == np.signbit(a))) | (np.isnan(o) & np.isnan(a)))


def is_rather(other: Array, one: Array, than: Array) -> Mask:
    """Return the mask of elements of `other` that agree with `one` rather than with `than`: equal, or much nearer,
    or nearer and within roundings. Infinities and NaN agree only with themselves."""
    same = _is_equal(other, one)
    dtype = str(one.dtype)
    if dtype not in PRECISION:
        return same
    tolerance = tolerance_of(CLOSE, dtype)
    with np.errstate(all="ignore"):
        # Wider than any dtype: between numbers near the largest the distance is finite, too.
        o, a, e = (array.astype(np.float64).astype(np.longdouble) for array in (other, one, than))
        distance, apart = np.abs(o - a), np.abs(e - a)
        near = distance <= tolerance.allowed(a)
        rather = (near & (2 * distance < apart)) | (MUCH_NEARER * distance <= apart)
        # Zeros of either sign are as far from each other as a zero is from itself.
        rather &= apart != 0
        # From an infinity or NaN every number is as far: half of the digits must be the same.
        rather = np.where(np.isfinite(e), rather, distance <= np.abs(a) * 2.0 ** (-PRECISION[dtype] / 2))
        return np.asarray(same | (rather & np.isfinite(o) & np.isfinite(a)))
