"""PyTorch's answer to one run of a model, and how a backend's outputs compare with it.

An element is right by the rules of `harness.compare.nearness`, where roundings of each operator give its sensitivity
(`harness.pipeline.rounding_oracle`), or if its error is within the dtype's tolerance of the largest element of its
output: the errors of a model's operators are those of the tensors that they work on, and no user of a model can rely on
more. A user's own tolerance replaces both, and steps of quantisation excuse the errors that they explain. An output
that differs between two runs of PyTorch is random: only its shape, its dtype and that its numbers are finite is
compared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from harness.compare.judge import CLOSE, Evidence, Judge, Leeway, Mask
from harness.compare.largest import error_and_largest
from harness.compare.nearness import tolerance_of
from harness.compare.output_comparison import OutputComparison
from harness.compare.tolerances import Tolerance
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Invocation
from harness.core.tensors import build_tensors
from harness.core.torch_arrays import to_numpy
from harness.pipeline.model_loading import LoadedModel
from harness.pipeline.model_task import ErrorGrowth, OutputError
from harness.pipeline.quantised import WITHIN_STEPS, is_within_steps, moved_by_steps
from harness.pipeline.reference import ProgramOracle
from harness.pipeline.rounding_oracle import Move, RoundingOracle
from harness.pipeline.torch_call import CallRejected, quiet_call

#: Why the values of an output are not compared: two runs of PyTorch give different ones.
RANDOM = "random: not comparable by value"
#: Why an output that is not PyTorch's element by element is right.
WITHIN_LARGEST = "within the tolerance of the output's largest element"


#: A seed that no other run of PyTorch has.
_OTHER_SEED = 20261128


def _do_nothing() -> None:
    pass


@dataclass(frozen=True)
class ModelOracle(ProgramOracle):
    """One run of a model in PyTorch.

    Attributes:
        model: The model.
        tolerance: The user's tolerance; None for the effect of roundings.
        alive: Called before each run in float64, so that a slow one is not taken for a hang.
        random: Indices of the outputs that another seed changes.
    """

    model: LoadedModel
    tolerance: Tolerance | None = None
    alive: Callable[[], None] = _do_nothing
    random: frozenset[int] = frozenset()

    @property
    def judge(self) -> Judge:
        """Accept close results, any result that roundings decide, and any finite numbers for random ones."""
        judge = super().judge
        return replace(judge, rules=dict.fromkeys(self.random, _not_finite)) if self.random else judge

    @cached_property
    def _rounding(self) -> RoundingOracle:
        @contextmanager
        def wide() -> Iterator[Callable[[Move], Sequence[torch.Tensor]]]:
            program = copy.deepcopy(self.model.program).double()
            inputs = [t.double() if t.is_floating_point() else t for t in build_tensors(self.invocation)]
            # A model's inputs are fixed: masks must keep their values.
            yield lambda move: program(*(t.clone() for t in inputs))

        oracle = RoundingOracle(self.expected, self.dtypes, wide)
        oracle.alive = self.alive
        return oracle

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Return no arguments: no rule of an operator applies."""
        return {}

    @cached_property
    def steps(self) -> list[float] | None:
        """Return how much each output moves if quantised values move by a step; None if nothing is quantised."""
        inputs = build_tensors(self.invocation)
        return moved_by_steps(lambda: self.model.program(*(t.clone() for t in inputs)), self.expected)

    def compare(self, outputs: Sequence[Array], leeway: Leeway | None = None) -> OutputComparison:
        """Compare a backend's outputs with PyTorch's; `tolerance` takes the place of the user's."""
        by_user = None if self.tolerance is None else Leeway(tolerance=self.tolerance)
        comparison = super().compare(outputs, leeway or by_user)
        if self.random:
            count = sum(self.expected[i].size for i in self.random)
            comparison = replace(comparison, excused=(*comparison.excused, (RANDOM, count)))
        if comparison.problem is None or leeway is not None or by_user is not None:
            return comparison
        if comparison.within_largest:
            return comparison.excused_as(WITHIN_LARGEST)
        if self.steps is not None and is_within_steps(self.steps, self.expected, outputs):
            return comparison.excused_as(WITHIN_STEPS)
        return comparison

    def output_errors(self, outputs: Sequence[Array]) -> Iterator[OutputError]:
        """Yield the error of each floating output of the right form, and the allowed error."""
        for i, (e, g) in enumerate(zip(self.expected, outputs, strict=False)):
            dtype = str(e.dtype)
            if i not in self.random and dtype in PRECISION and e.shape == g.shape and e.size:
                error, largest = error_and_largest(e, g)
                allowed = (self.tolerance or tolerance_of(CLOSE, dtype)).allowed(np.asarray(largest))
                yield OutputError(i, f"{dtype}[{','.join(map(str, e.shape))}]", error, largest, float(allowed))

    def error_growth(self, outputs: Sequence[Array]) -> ErrorGrowth | None:
        """Return the growth of errors; None if float64 has no answer or no output is floating."""
        truth, moved = self.truth, self.sensitivity
        if truth is None or moved is None:
            return None
        found = []
        for i, (e, g, o, s) in enumerate(zip(self.expected, outputs, truth, moved, strict=True)):
            if (
                i in self.random
                or o is None
                or s is None
                or str(e.dtype) not in PRECISION
                or not o.size
                or g.shape != o.shape
            ):
                continue
            with np.errstate(all="ignore"):
                errors = (np.abs(g.astype(np.float64) - o), np.abs(e.astype(np.float64) - o), s.condition)
                finite = np.isfinite(o) & np.isfinite(errors[0]) & np.isfinite(errors[1])
                # A mask's lowest number is not a scale.
                scale = float(np.abs(o[finite]).max(initial=0.0))
                if scale > 0:
                    found.append(tuple(float(error[finite].max()) / scale for error in errors))
        return ErrorGrowth(*max(found)) if found else None

    @property
    def is_nan_throughout(self) -> bool:
        """Whether there is nothing that a result could be compared with."""
        elements = [array for array in self.expected if array.size]
        return bool(elements) and all(
            str(array.dtype) in PRECISION and bool(np.isnan(array.astype(np.float64)).all()) for array in elements
        )


def run_model(
    model: LoadedModel,
    invocation: Invocation,
    tolerance: Tolerance | None = None,
    alive: Callable[[], None] = _do_nothing,
) -> ModelOracle:
    """Run a model in PyTorch on the CPU; see `ModelOracle` for the arguments.

    Raises:
        CallRejected: the model raises, returns no tensor, or returns NaN throughout.
    """
    tensors = build_tensors(invocation)
    feeds = tuple(to_numpy(t) for t in tensors)
    try:
        with quiet_call():
            before = torch.default_generator.get_state()
            outputs = model.program(*(t.clone() for t in tensors))
            draws = not torch.equal(before, torch.default_generator.get_state())
        expected = tuple(to_numpy(t) for t in outputs)
        random = _random_outputs(model, tensors, expected) if draws else frozenset[int]()
        oracle = ModelOracle(invocation, feeds, expected, model, tolerance, alive, random)
        if oracle.is_nan_throughout:
            raise ValueError("PyTorch's own result is NaN throughout")
    except Exception as error:
        raise CallRejected(str(error)) from error
    return oracle


def _random_outputs(model: LoadedModel, tensors: Sequence[torch.Tensor], expected: Sequence[Array]) -> frozenset[int]:
    """Return the indices of the outputs that another seed changes."""
    with quiet_call():
        torch.default_generator.manual_seed(_OTHER_SEED)
        others = [to_numpy(t) for t in model.program(*(t.clone() for t in tensors))]
    same = [e.shape == o.shape and e.tobytes() == o.tobytes() for e, o in zip(expected, others, strict=True)]
    return frozenset(i for i, is_same in enumerate(same) if not is_same)


def _not_finite(evidence: Evidence, output: int) -> Mask:
    """Mark infinities and NaN of a random output, all of whose numbers are finite in PyTorch."""
    e, g = (array.astype(np.float64) for array in (evidence.expected[output], evidence.got[output]))
    return ~np.isfinite(g) if np.isfinite(e).all() else np.zeros(g.shape, bool)


def largest_element(arrays: Sequence[Array]) -> float:
    """Return the largest finite magnitude among numbers; 0 if there is none."""
    wide = [array.astype(np.float64) for array in arrays if array.dtype.kind != "b" and array.dtype.kind != "c"]
    return max((float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) for a in wide), default=0.0)
