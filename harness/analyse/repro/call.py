"""An invocation as source: a module that makes the call, and names for its tensors."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from harness.analyse.repro import literals
from harness.core import (
    COMPLEX,
    Argument,
    Invocation,
    TensorSpec,
    bind,
    build_tensors,
    output_tensors,
    overload,
)
from harness.execute import NothingToCompare

#: Names that a script uses for something else where the call is written.
_TAKEN = frozenset({"torch", "inf", "nan", "self", "out"})

#: How exporters represent what ONNX has no type for.
_PARTS = """\
def parts(tensor):
    \"""A complex tensor as ONNX has it: the real and the imaginary part in a last dimension.\"""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
"""


@dataclass(frozen=True)
class CallSource:
    """One operator call to be written down."""

    invocation: Invocation

    @cached_property
    def names(self) -> tuple[str, ...]:
        """One per tensor, in order: parameters of ``forward`` and graph inputs."""
        found: list[str] = []
        for name, argument in self.invocation.arguments:
            base = "x" if name == "self" else name
            for i in range(_count(argument)):
                chosen = f"{base}{i}" if isinstance(argument, tuple) else base
                while chosen in found or chosen in _TAKEN or keyword.iskeyword(chosen):
                    chosen += "_"
                found.append(chosen)
        return tuple(found)

    def call(self, *, float64: bool = False) -> str:
        """The call as an expression over `names`; with `float64`, dtypes are widened."""
        supply = iter(self.names)
        given = dict(self.invocation.arguments)
        words: list[str] = []
        positional = True
        # Tensors are named in the order in which the invocation gives its arguments.
        sources = {name: self._source(a, supply, float64) for name, a in given.items()}
        for argument in overload(self.invocation.overload)._schema.arguments:
            if argument.name not in given:
                positional = False
            elif positional and not argument.kwarg_only:
                words.append(sources[argument.name])
            elif keyword.iskeyword(argument.name):
                words.append(f"**{{{argument.name!r}: {sources[argument.name]}}}")
            else:
                words.append(f"{argument.name}={sources[argument.name]}")
        return f"torch.ops.{self.invocation.overload}({', '.join(words)})"

    def _source(self, argument: Argument, supply: Any, float64: bool) -> str:
        if isinstance(argument, TensorSpec):
            return str(next(supply))
        if isinstance(argument, tuple):
            return f"[{', '.join(self._source(a, supply, float64) for a in argument)}]"
        return literals.argument(argument, float64=float64)

    @cached_property
    def _result(self) -> Any:
        torch.default_generator.manual_seed(0)
        with torch.no_grad():
            return bind(self.invocation)(build_tensors(self.invocation))

    @property
    def picks(self) -> str:
        """What of the result of the call is returned, as an expression over ``out``; "" for all of it.

        Raises:
            NothingToCompare: no output is a tensor.
            Exception: PyTorch's own, where it rejects the call.
        """
        result = self._result
        parts = result if isinstance(result, list | tuple) else [result]
        if all(isinstance(part, torch.Tensor) for part in parts):
            return ""
        found = list(_picked(result, "out"))
        if not found:
            raise NothingToCompare("the call returned no tensor")
        return f"({', '.join(found)},)"

    def listed(self, call: str) -> str:
        """The outputs of an expression that calls the module or the operator, as a list; see `helpers`."""
        is_single = isinstance(self._result, torch.Tensor)
        if self.gives_complex:
            return f"[parts({call})]" if is_single else f"[parts(x) for x in {call}]"
        return f"[{call}]" if is_single else f"list({call})"

    @property
    def takes_complex(self) -> bool:
        """Whether an input is complex."""
        return any(spec.dtype in COMPLEX for spec in self.invocation.tensors())

    @property
    def gives_complex(self) -> bool:
        """Whether an output is complex."""
        # Half precision, which is never drawn, is what PyTorch promotes float16 to.
        return any(tensor.is_complex() for tensor in output_tensors(self._result))

    @property
    def eager_inputs(self) -> str:
        """What `fed` calls the dict of the tensors that PyTorch takes."""
        return "eager_inputs" if self.takes_complex else "inputs"

    @property
    def fed(self) -> list[str]:
        """Makes ``inputs`` what a model takes, where that differs from what PyTorch takes; see `helpers`."""
        if not self.takes_complex:
            return []
        return [f"{self.eager_inputs}, inputs = inputs, {{n: parts(x) for n, x in inputs.items()}}"]

    @property
    def helpers(self) -> list[str]:
        """Functions that `fed` and `listed` call."""
        return _PARTS.splitlines() if self.takes_complex or self.gives_complex else []

    @property
    def is_random(self) -> bool:
        """Whether the operator draws from PyTorch's generator."""
        return torch.Tag.nondeterministic_seeded in overload(self.invocation.overload).tags

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        """Of each tensor that the module returns, as PyTorch prints it without ``torch.``."""
        return tuple(str(t.dtype).removeprefix("torch.") for t in output_tensors(self._result))

    def module(self) -> list[str]:
        """The class ``Model``."""
        call, picks = self.call(), self.picks
        return [
            "class Model(torch.nn.Module):",
            f"    def forward({', '.join(('self', *self.names))}):",
            *([f"        out = {call}", f"        return {picks}"] if picks else [f"        return {call}"]),
        ]

    def inputs(self, name: str = "inputs") -> list[str]:
        """The dict of input tensors, called `name`."""
        specs = list(self.invocation.tensors())
        if not specs:
            return [f"{name} = {{}}"]
        entries = [f'"{n}": {literals.tensor(s)}' for n, s in zip(self.names, specs, strict=True)]
        single = f"{name} = {{{', '.join(entries)}}}"
        if len(entries) == 1 if "\n" in single else len(single) <= literals.WIDTH:
            return single.split("\n")
        return [
            f"{name} = {{",
            *(f"    {line}" for entry in entries for line in f"{entry},".split("\n")),
            "}",
        ]


def _count(argument: Argument) -> int:
    if isinstance(argument, tuple):
        return sum(_count(a) for a in argument)
    return int(isinstance(argument, TensorSpec))


def _picked(result: Any, path: str) -> Iterator[str]:
    """The tensors of a nested result, as expressions over `path`."""
    if isinstance(result, torch.Tensor):
        yield path
    elif isinstance(result, list | tuple):
        for i, element in enumerate(result):
            yield from _picked(element, f"{path}[{i}]")
