"""PyTorch on one element at a time, for pointwise operators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.core import build_tensors, overload
from harness.execute import call_invocation, to_numpy

#: Wrong elements that are computed again; of a case with more nothing is said.
_MOST = 64


@witness("PyTorch on one element at a time", place=60)
def ask_one_element(trial: Trial) -> Iterator[Testimony]:
    """A pointwise result depends on its own operands only; vector and scalar kernels may differ."""
    tags = overload(trial.invocation.overload).tags
    if trial.got is None or len(trial.got) != 1 or torch.Tag.pointwise not in tags:
        return
    (expected,), (wrong,) = trial.reference.expected, trial.wrong
    places = np.argwhere(wrong)
    if not 0 < len(places) <= _MOST or expected.size < 2:
        return
    tensors = build_tensors(trial.invocation)
    shape = tuple(expected.shape)
    if np.broadcast_shapes(*(tuple(t.shape) for t in tensors)) != shape:
        return
    singly = expected.copy()
    for place in map(tuple, places):
        # A tensor of no dimension takes no part in type promotion: one stays what it is.
        operands = [t if t.dim() == 0 else t.expand(shape)[place].reshape(1).clone() for t in tensors]
        (result,) = call_invocation(trial.invocation, operands)
        singly[place] = to_numpy(result).reshape(())
    if trial.is_equal([singly]):
        facts = {"backend": trial.complaint.backend}
        yield Testimony(Role.PYTORCH, Finding.CONTRADICTS, "one-element", facts)
