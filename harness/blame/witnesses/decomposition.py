"""PyTorch's own definition of the operator by simpler operators."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import Turn, register
from harness.pipeline.call import to_numpy
from harness.tensors import bind, build_tensors, output_tensors, overload
from harness.verdict.compare import compare


class Decomposition:
    """What PyTorch's compilers compute in the kernel's place; no part of the kernel."""

    name = "PyTorch's decomposition"
    turn = Turn.FIRST

    def testify(self, trial: Trial) -> Iterator[Testimony]:
        """See `harness.blame.witness.Witness`."""
        call = bind(trial.invocation)
        definition = _definition(overload(trial.invocation.overload))
        if trial.got is None or definition is None:
            return
        torch.default_generator.manual_seed(0)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = output_tensors(call.with_target(definition)(build_tensors(trial.invocation)))
        outputs = [to_numpy(t) for t in results]
        if compare(trial.judge, trial.reference, outputs).problem is None:
            yield Testimony(
                Role.DECOMPOSITION,
                Finding.CONFIRMS,
                "PyTorch's decomposition of the operator gives the kernel's result.",
            )
        elif trial.is_same(outputs):
            yield Testimony(
                Role.DECOMPOSITION,
                Finding.CONTRADICTS,
                f"PyTorch's decomposition of the operator gives {trial.complaint.backend}'s result.",
            )


def _definition(target: torch._ops.OpOverload) -> Callable[..., Any] | None:
    # Registers many on import.
    from torch._decomp import decomposition_table

    return decomposition_table.get(target)


register(lambda settings: [Decomposition()])
