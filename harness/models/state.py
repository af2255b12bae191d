"""Detect state that a model changes when it runs, which an ONNX graph cannot keep."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass

import torch

from harness.pipeline.model_loading import LoadedModel
from harness.pipeline.torch_call import quiet_call


@dataclass(frozen=True)
class StateChange:
    """The differences that a second call of a model reveals.

    Attributes:
        names: Paths of buffers and parameters that a call changes.
        inputs: Names of inputs that a call overwrites.
        changes_result: Whether a second call with the same inputs returns another result.
    """

    names: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    changes_result: bool = False

    def __bool__(self) -> bool:
        return bool(self.names or self.inputs or self.changes_result)


def state_change(model: LoadedModel) -> StateChange:
    """Call a copy of a model twice with its example inputs and compare.

    Raises:
        Exception: The model's exception.
    """
    with warnings.catch_warnings():
        # Copying a TreeSpec gives a warning.
        warnings.simplefilter("ignore")
        program = copy.deepcopy(model.program)
    state = {**dict(program.model.named_parameters()), **dict(program.model.named_buffers())}
    before = {name: tensor.detach().clone() for name, tensor in state.items()}
    inputs = tuple(tensor.clone() for tensor in model.inputs)
    with quiet_call():
        first = [tensor.clone() for tensor in program(*inputs)]
    written = tuple(
        name
        for name, given, after in zip(model.input_names, model.inputs, inputs, strict=True)
        if not _same(given, after)
    )
    now = {**dict(program.model.named_parameters()), **dict(program.model.named_buffers())}
    changed = tuple(name for name, tensor in now.items() if name not in before or not _same(before[name], tensor))
    with quiet_call():
        second = program(*(tensor.clone() for tensor in model.inputs))
    differs = len(first) != len(second) or not all(map(_same, first, second))
    return StateChange(changed, written, differs)


def training_changes_result(model: LoadedModel) -> bool:
    """Whether the user's module was in training mode and gives another result there than in evaluation mode.

    Raises:
        Exception: The model's exception.
    """
    if not model.given_in_training:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = copy.deepcopy(model.program)
    with quiet_call():
        evaluated = [tensor.clone() for tensor in program(*(tensor.clone() for tensor in model.inputs))]
    program.train()
    with quiet_call():
        trained = program(*(tensor.clone() for tensor in model.inputs))
    return len(evaluated) != len(trained) or not all(map(_same, evaluated, trained))


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))
