"""A model that draws at random, with what it draws as inputs, so that its result can be compared by value.

The draws of the example's run become further inputs, in their order. Only functions that draw without weights can be
replaced: `torch.rand` and its relatives, `torch.randn`, `torch.normal`, and the in-place methods of tensors. A model
whose result still depends on the seed draws in another way, such as by dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.core.torch_operators import pytree
from harness.pipeline.model_loading import Flat, LoadedModel
from harness.pipeline.torch_call import quiet_call

#: Functions whose result is drawn.
_DRAWING = frozenset(
    {
        *(torch.rand, torch.randn, torch.randint, torch.normal),
        *(torch.rand_like, torch.randn_like, torch.randint_like),
    }
)
#: Methods that overwrite a tensor with what they draw.
_FILLING = frozenset(
    {
        *(torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.exponential_, torch.Tensor.cauchy_),
        *(torch.Tensor.log_normal_, torch.Tensor.geometric_, torch.Tensor.random_),
    }
)


class _Recording(TorchFunctionMode):
    """Keeps what is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[torch.Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _DRAWING or func in _FILLING:
            self.drawn.append(result.detach().clone())
        return result


class _Feeding(TorchFunctionMode):
    """Gives the next of some tensors for each that would be drawn."""

    def __init__(self, noise: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._noise: Iterator[torch.Tensor] = iter(noise)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _DRAWING:
            return next(self._noise)
        if func in _FILLING:
            return args[0].copy_(next(self._noise))
        return func(*args, **(kwargs or {}))


class FedModel(torch.nn.Module):
    """A model whose last `count` arguments are what it draws."""

    def __init__(self, model: torch.nn.Module, count: int) -> None:
        super().__init__()
        self.model = model
        self._count = count

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the tensors in the model's result."""
        with _Feeding(tensors[-self._count :]):
            result: tuple[torch.Tensor, ...] = self.model(*tensors[: -self._count])
            return result


def feed_noise(model: LoadedModel) -> LoadedModel | None:
    """Return a model with its draws as further inputs; None if it draws nothing, or in a way that no input replaces.

    Its sizes are fixed: those of the draws depend on them.
    """
    if model.exported is not None:
        return None
    recording = _Recording()
    with quiet_call(), recording:
        model.program(*(t.clone() for t in model.inputs))
    if not recording.drawn:
        return None
    inputs = (*model.inputs, *recording.drawn)
    module = FedModel(model.program, len(recording.drawn))
    _, structure = pytree.tree_flatten((inputs, {}))
    program = Flat(module, structure, {})
    program.training = False
    if _depends_on_seed(program, inputs):
        return None
    names = (*model.input_names, *(f"noise{i}" for i in range(len(recording.drawn))))
    fed = replace(model, module=module, program=program, inputs=inputs, input_names=names, arguments=inputs)
    return replace(fed, axes=(), declared=(), keywords={})


def _depends_on_seed(program: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether the result changes with the seed."""
    results = []
    for seed in (0, 1):
        with quiet_call():
            torch.default_generator.manual_seed(seed)
            results.append(program(*(t.clone() for t in inputs)))
    return not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(*results, strict=True))
