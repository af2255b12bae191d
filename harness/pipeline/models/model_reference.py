"""PyTorch's answer to one run of a model; see `harness.pipeline.rounding_oracle`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import torch

from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.tensors import build_tensors
from harness.core.torch_arrays import to_numpy
from harness.pipeline.models.model_loading import LoadedModel
from harness.pipeline.models.quantised import moved_by_steps
from harness.pipeline.rounding_oracle import Move, RoundingOracle
from harness.pipeline.torch_call import quiet_call


class ModelReference(RoundingOracle):
    """One run of a model in PyTorch; `feeds` are the inputs of the invocation, as arrays."""

    def __init__(
        self,
        model: LoadedModel,
        invocation: Invocation,
        feeds: tuple[Array, ...],
        expected: tuple[Array, ...],
    ) -> None:
        @contextmanager
        def wide() -> Iterator[Callable[[Move], Sequence[torch.Tensor]]]:
            program = copy.deepcopy(model.program).double()
            inputs = [t.double() if t.is_floating_point() else t for t in build_tensors(invocation)]
            # A model's inputs are given: masks are to stay what they are.
            yield lambda move: program(*(t.clone() for t in inputs))

        super().__init__(expected, {str(a.dtype) for a in (*feeds, *expected)}, wide)
        self.invocation = invocation
        self.feeds = feeds
        self._model = model

    @cached_property
    def steps(self) -> list[float] | None:
        """How far each output moves where quantised values move by a step; None where there are none."""
        inputs = build_tensors(self.invocation)
        return moved_by_steps(lambda: self._model.program(*(t.clone() for t in inputs)), self.expected)


def run_model(model: LoadedModel, invocation: Invocation) -> ModelReference:
    """Run a model in PyTorch on the CPU; raises `ValueError` where no output is a tensor."""
    tensors = build_tensors(invocation)
    feeds = tuple(to_numpy(t) for t in tensors)
    with quiet_call():
        outputs = model.program(*(t.clone() for t in tensors))
    if not outputs:
        raise ValueError(f"{model.name} returned no tensor")
    return ModelReference(model, invocation, feeds, tuple(to_numpy(t) for t in outputs))
