"""Which outputs and elements of a wrong result are in question, and what becomes of them node by node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from harness.blame.nodes.node_verdict import form_of
from harness.blame.nodes.walk import Walk, WrongStep
from harness.blame.trial import Trial
from harness.compare import Mask, wrong_elements
from harness.core import Array

#: How much nearer an answer is to the backend's than PyTorch's is, to be the same.
_NEARER = 100


@dataclass(frozen=True, eq=False)
class ElementsInQuestion:
    """The outputs and elements that a failure is about.

    Attributes:
        names: Of the outputs in the graph.
        expected: PyTorch's outputs.
        got: The failing backend's.
        masks: The elements; None for an output of another form.
        indices: Of the outputs among all.
    """

    trial: Trial
    names: tuple[str, ...]
    expected: tuple[Array, ...]
    got: tuple[Array, ...]
    masks: tuple[Mask | None, ...]
    indices: tuple[int, ...]

    @classmethod
    def of(cls, trial: Trial) -> Self | None:
        """Those of a wrong result; None where the backend gives another number of outputs."""
        assert trial.got is not None
        expected, got = trial.reference.expected, trial.got
        if len(expected) != len(got):
            return None
        names = [o.name for o in trial.model.graph.output]
        unlike = [form_of(e) != form_of(g) for e, g in zip(expected, got, strict=True)]
        # A wrong form ends the comparison: it is what is in question.
        asked = [i for i, w in enumerate(trial.wrong) if (unlike[i] if any(unlike) else w.any())]
        if any(unlike) and trial.comparison is not None and trial.comparison.problems:
            # Outputs that are wrong in another way are another failure.
            asked = [i for i in asked if i in trial.comparison.problems[0].outputs]
        return cls(
            trial=trial,
            names=tuple(names[i] for i in asked),
            expected=tuple(expected[i] for i in asked),
            got=tuple(got[i] for i in asked),
            masks=tuple(None if unlike[i] else trial.wrong[i] for i in asked),
            indices=tuple(asked),
        )

    @property
    def of_form(self) -> bool:
        """Whether a shape or dtype is in question."""
        return any(mask is None for mask in self.masks)

    @property
    def counts(self) -> list[int]:
        """Of each output, how many elements; 1 for a form."""
        return [1 if mask is None else int(mask.sum()) for mask in self.masks]

    def left(self, found: Walk) -> list[int]:
        """Of each output, how many elements are wrong behind a walk; 1 for a wrong form."""
        counts: list[int] = []
        for i, name, e, mask in zip(self.indices, self.names, self.expected, self.masks, strict=True):
            final = found.values[name]
            if mask is None or form_of(e) != form_of(final):
                counts.append(int(form_of(e) != form_of(final)))
                continue
            outputs = list(self.trial.reference.expected)
            outputs[i] = final
            wrong = wrong_elements(self.trial.judge, self.trial.reference, outputs)[i]
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
                near = (o == g) | (np.isnan(o) & np.isnan(g)) | (_NEARER * np.abs(o - g) <= np.abs(p - g))
            if 2 * int(near.sum()) <= near.size:
                return False
        return True

    def among_wrong(self, fault: WrongStep) -> WrongStep:
        """A wrong node with those of its wrong elements alone that are in question, if some are.

        Others the comparison may have excused, which a definition does not.
        """
        masks = dict(zip(self.names, self.masks, strict=True))
        wrong = []
        for name, mask in zip(fault.definition.step.outputs, fault.wrong, strict=True):
            asked = masks.get(name)
            both = mask & asked if asked is not None and asked.shape == mask.shape else mask
            wrong.append(both if both.any() else mask)
        return replace(fault, wrong=tuple(wrong))
