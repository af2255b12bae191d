"""Windows of a model: programs of a few successive calls, as the model makes them.

1. Run the program that exporters translate, and record each call with the nodes that it takes.
2. Grow a window from each call: the next call that takes a result of the window joins it, up to the longest of
   `LENGTHS`.
3. A value from outside becomes an input of the program, or a weight if the model holds it. A result that is used
   outside the window, or nowhere, is returned.
4. Keep one window of each kind: the same calls with the same connections, shapes and dtypes.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch

from harness.core.described_tensor import describe_tensor
from harness.core.invocation import Argument, Invocation, Literal, Result, TensorSpec, Weight
from harness.core.program import Program, calls_of, map_arguments, share_inputs
from harness.core.text import first_line
from harness.core.torch_operators import OpOverload
from harness.generate.regressions.corpus_store import CorpusEntry, write_entries
from harness.models.capture import BOOKKEEPING, captured_program
from harness.pipeline.captured_calls import CannotKeep, invocation_of, module_path
from harness.pipeline.model_loading import LoadedModel, ModelProblem, load_model

#: Numbers of calls in a window.
LENGTHS = (2, 3, 4, 6)
#: Largest number of tensor elements of a window, since float64 runs it many times.
_MOST = 2**21


@dataclass(frozen=True)
class _Taken:
    """A placeholder for the value of a node among the arguments of a call."""

    node: torch.fx.Node


@dataclass
class _Notes:
    """The calls of a run in order, and a description of each tensor."""

    calls: dict[torch.fx.Node, Invocation] = field(default_factory=dict)
    tensors: dict[torch.fx.Node, TensorSpec] = field(default_factory=dict)


class _Noting(torch.fx.Interpreter):
    """Runs an exported program's graph and records its calls."""

    def __init__(self, module: torch.nn.Module, notes: _Notes) -> None:
        super().__init__(module)
        self._notes = notes

    def run_node(self, n: torch.fx.Node) -> Any:
        """Record a call before it is made, and its result."""
        if _computes(n) and isinstance(n.target, OpOverload) and not _is_passing(n) and not _changes_shared(n):
            nodes = {id(self.env[taken]): taken for taken in n.all_input_nodes if taken in self.env}
            args, kwargs = self.fetch_args_kwargs_from_env(n)

            def taken(tensor: torch.Tensor, place: str) -> TensorSpec:
                if id(tensor) not in nodes:
                    raise CannotKeep("a tensor of no node")
                return cast(TensorSpec, _Taken(nodes[id(tensor)]))

            with contextlib.suppress(CannotKeep):
                self._notes.calls[n] = invocation_of(n.target, args, kwargs, taken)
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            self._notes.tensors[n] = describe_tensor(value, n.name)
        return value


def find_windows(model: LoadedModel) -> list[CorpusEntry]:
    """Return one window of each kind of a model's captured program, as corpus entries.

    Raises:
        Exception: PyTorch's exception if it cannot capture or run the model.
    """
    module, inputs = captured_program(model)
    notes = _Notes()
    with torch.no_grad():
        _Noting(module, notes).run(*inputs, enable_io_processing=False)
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in model.name)
    entries: dict[str, CorpusEntry] = {}
    for members in _windows(notes):
        program = _program(name, members, notes)
        if program is not None:
            where = module_path(members[0])
            note = f"{model.name}{f' ({where})' if where else ''}"
            entries.setdefault(_kind(program), CorpusEntry(invocation=program, origin="captured", note=note))
    return list(entries.values())


def save_windows(names: Sequence[str], path: Path, containing: Collection[str] = ()) -> int:
    """Write the windows of models to a file for ``--source corpus:FILE`` and return their number.

    Args:
        names: The models.
        path: The file.
        containing: Keep only windows with a call of one of these overloads; empty keeps all.

    Raises:
        UnknownName: No model has that name.
        ModelProblem: A model cannot be loaded, captured or run.
        ResultsError: The file cannot be written.
    """
    entries: list[CorpusEntry] = []
    for name in names:
        model = load_model(name)
        try:
            entries += find_windows(model)
        except Exception as error:
            raise ModelProblem(f"{name} cannot be captured: {first_line(error)}") from None
    if containing:
        entries = [entry for entry in entries if not set(calls_of(entry.invocation)).isdisjoint(containing)]
    write_entries(path, entries)
    return len(entries)


def _windows(notes: _Notes) -> Iterator[list[torch.fx.Node]]:
    calls = list(notes.calls)
    for start, first in enumerate(calls):
        members = [first]
        for node in calls[start + 1 :]:
            if any(_origin(taken)[0] in members for taken in node.all_input_nodes):
                members.append(node)
                if len(members) in LENGTHS:
                    yield list(members)
            if len(members) == LENGTHS[-1]:
                break


def _program(name: str, members: Sequence[torch.fx.Node], notes: _Notes) -> Invocation | None:
    """Return the program of some nodes' calls; None if a value cannot be described or is too large."""
    places = {node: place for place, node in enumerate(members)}
    outside: dict[tuple[torch.fx.Node, int], TensorSpec | Weight] = {}

    def resolved(argument: Argument) -> Argument:
        if not isinstance(argument, _Taken):
            return argument
        origin, output = _origin(argument.node)
        if origin in places:
            return Result(places[origin], output)
        spec = notes.tensors[argument.node]
        return outside.setdefault((origin, output), Weight(spec) if origin.op == "get_attr" else spec)

    try:
        calls = tuple(map_arguments(notes.calls[node], resolved) for node in members)
    except KeyError:
        return None
    held = (value.spec if isinstance(value, Weight) else value for value in outside.values())
    if sum(spec.numel for spec in held) > _MOST:
        return None
    return share_inputs(Program(name, calls, tuple(_returned(places)))).invocation


def _kind(program: Invocation) -> str:
    """Return a key that is equal for programs that differ only in tensor values."""

    def blank(argument: Argument) -> Argument:
        if isinstance(argument, Weight):
            return Weight(replace(argument.spec, values=Literal(())))
        return replace(argument, values=Literal(())) if isinstance(argument, TensorSpec) else argument

    return map_arguments(program, blank).json


def _returned(places: Mapping[torch.fx.Node, int]) -> Iterator[Result]:
    """Yield the results of a window that are used outside it, or nowhere."""
    for node, place in places.items():
        outputs = {user: user.args[1] for user in node.users if user.target is operator.getitem}
        for value, output in outputs.items() or [(node, 0)]:
            users = list(filter(_computes, value.users))
            if not users or any(user not in places for user in users):
                yield Result(place, int(cast(int, output)))


def _origin(node: torch.fx.Node) -> tuple[torch.fx.Node, int]:
    """Return the node that computes a node's value, and the index of that value among its outputs."""
    while _is_passing(node):
        node = node.all_input_nodes[0]
    if node.target is operator.getitem:
        return cast(torch.fx.Node, node.args[0]), int(cast(int, node.args[1]))
    return node, 0


def _computes(node: torch.fx.Node) -> bool:
    """Whether a node has a value, unlike an assertion."""
    return not isinstance(node.target, OpOverload) or bool(node.target._schema.returns)


def _is_passing(node: torch.fx.Node) -> bool:
    return str(node.target) in BOOKKEEPING


def _changes_shared(node: torch.fx.Node) -> bool:
    """Whether a call overwrites a value that others use too: outside its context it would be another program."""
    return cast(OpOverload, node.target)._schema.is_mutable and len(node.all_input_nodes[0].users) > 1
