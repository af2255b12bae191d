"""A small model as a program of the calls that exporters see, for a failure that no call of it shows alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.core.described_tensor import describe_tensor
from harness.core.invocation import Argument, Input, Invocation, Result, Weight
from harness.core.program import Program, Returned
from harness.core.torch_operators import HigherOrderOperator, OpOverload, pytree
from harness.models.capture import captured_program
from harness.pipeline.captured_calls import CannotKeep, invocation_of
from harness.pipeline.model_loading import LoadedModel

#: Calls above which a model is not written as a program: such a program would show little.
_MOST_CALLS = 80
#: Elements of a weight or an input that are kept as they are.
_EXACT = 4096


def program_of(model: LoadedModel) -> Invocation | None:
    """Return a model's example run as a program; None if it has too many calls, or calls that a program cannot hold.

    Calls that write into their argument stay as they are, and so do views, so that a write through a view is seen where
    the model sees it.
    """
    try:
        module, arguments = captured_program(model)
        calls = _Calls(module, arguments)
        with torch.no_grad():
            results = calls.run(*arguments, enable_io_processing=False)
        returned = tuple(calls.named(leaf) for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor))
        program = Program(model.name.rpartition(".")[2] or "model", tuple(calls.made), returned)
        # Raises for a program that takes what nothing describes.
        return Program.of(program.invocation).invocation
    except Exception:
        # Whatever it is, the model is then shown as a whole.
        return None


class _Calls(torch.fx.Interpreter):
    """Runs an exported program's graph and writes down its calls, with the tensors that they take by their origin."""

    def __init__(self, module: torch.nn.Module, inputs: Sequence[Any]) -> None:
        super().__init__(module)
        self.made: list[Invocation] = []
        self._places = {id(t): place for place, t in enumerate(t for t in inputs if isinstance(t, torch.Tensor))}
        #: Identity of an input → its index among those that were described.
        self._described: dict[int, int] = {}
        #: Identity of a tensor → where it is from; the tensors are kept so that no other gets their identity.
        self._origins: dict[int, Result] = {}
        self._kept: list[torch.Tensor] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Write an operator down, and run it."""
        if isinstance(target, HigherOrderOperator):
            raise CannotKeep(f"torch.{target}")
        if not isinstance(target, OpOverload):
            return super().call_function(target, args, kwargs)
        if len(self.made) == _MOST_CALLS:
            raise CannotKeep(f"more than {_MOST_CALLS} calls")
        self.made.append(invocation_of(target, args, kwargs, self._described_as, in_place=True))
        result = super().call_function(target, args, kwargs)
        number = len(self.made) - 1
        for output, tensor in enumerate(t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)):
            self._origins[id(tensor)] = Result(number, output)
            self._kept.append(tensor)
        return result

    def _described_as(self, tensor: torch.Tensor, place: str) -> Argument:
        origin = self._origins.get(id(tensor))
        if origin is not None:
            return origin
        spec = describe_tensor(tensor, place, exact=_EXACT)
        if id(tensor) not in self._places:
            self._kept.append(tensor)
            return Weight(spec)
        if id(tensor) in self._described:
            return Input(self._described[id(tensor)])
        self._described[id(tensor)] = len(self._described)
        return spec

    def named(self, tensor: torch.Tensor) -> Returned:
        """Return a result by its origin.

        Raises:
            CannotKeep: it is neither a call's nor an input that a call takes.
        """
        origin = self._origins.get(id(tensor))
        if origin is not None:
            return origin
        if id(tensor) in self._described:
            return Input(self._described[id(tensor)])
        raise CannotKeep("a result that no call gives")
