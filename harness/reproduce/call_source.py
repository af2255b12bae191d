"""Write an operator call as Python source that a person can read: its tensors, its arguments, and a module.

The source stands for the same values bit for bit. NaN payloads are the exception: every NaN is ``nan``.
"""

from __future__ import annotations

import keyword
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import torch

from harness.core.control_flow import FLOW_OPERATORS, is_flow_operator
from harness.core.dtypes import COMPLEX, PARTS, PRECISION, is_float, is_integer
from harness.core.invocation import Argument, Enumerated, Input, Invocation, Result, TensorSpec, Weight
from harness.core.program import Program, is_program, weights_of
from harness.core.size_operators import format_size_call, is_size_operator
from harness.core.tensors import (
    argument_names,
    bind,
    build_tensor,
    build_tensors,
    draws_at_random,
    output_tensors,
    overload,
    python_form,
)
from harness.pipeline.torch_call import NothingToCompare

#: Columns of a script.
WIDTH = 100

#: Tensors of more elements are written as a pattern, if they have one.
_MANY = 8


def number(value: bool | int | float | complex) -> str:
    """Write a Python number; ``inf`` and ``nan`` are names to import."""
    if isinstance(value, complex):
        return f"complex({number(value.real)}, {number(value.imag)})"
    return repr(value)


def uses_inf_or_nan(source: str) -> tuple[str, ...]:
    """Return the names among ``inf`` and ``nan`` that occur in `source`."""
    words = set(re.findall(r"\w+", source))
    return tuple(name for name in ("inf", "nan") if name in words)


def _rounded(value: float, dtype: str) -> float:
    """Round a Python float as PyTorch does: it reaches the narrow types through float32."""
    with np.errstate(all="ignore"):
        if dtype == "float64":
            return value
        single = np.float32(value)
        if dtype == "float16":
            return float(np.float16(single))
        return float(ml_dtypes.bfloat16(single)) if dtype == "bfloat16" else float(single)


def _shortest(value: float | complex, dtype: str) -> str:
    """Write the fewest digits that PyTorch reads back as `value`."""
    if isinstance(value, complex):
        return f"complex({_shortest(value.real, PARTS[dtype])}, {_shortest(value.imag, PARTS[dtype])})"
    if not math.isfinite(value) or (value == int(value) and abs(value) < 1e6):
        return number(value)
    for digits in range(1, 17 if dtype in PRECISION else 1):
        text = f"{value:.{digits}g}"
        if _rounded(float(text), dtype) == value:
            return number(float(text))
    return number(value)


def tensor(spec: TensorSpec) -> str:
    """Write an expression that makes the tensor of `spec`, on one line or several."""
    built = build_tensor(spec)
    dtype = f"dtype=torch.{spec.dtype}"
    if spec.offset == 0 and spec.is_contiguous:
        return _dense(built.reshape(-1), spec.shape, spec.dtype, dtype)
    storage = torch.as_strided(built, (spec.storage_size,), (1,), 0)
    flat = _dense(storage, (spec.storage_size,), spec.dtype, dtype)
    return f"{flat}.as_strided({spec.shape}, {spec.strides}, {spec.offset})"


def _dense(flat: torch.Tensor, shape: tuple[int, ...], kind: str, dtype: str) -> str:
    count = flat.numel()
    if not count:
        return f"torch.empty({shape}, {dtype})"
    texts = [_shortest(v, kind) if is_float(kind) or kind in PARTS else number(v) for v in flat.tolist()]
    if not shape:
        return f"torch.tensor({texts[0]}, {dtype})"
    if count > _MANY:
        if len(set(texts)) == 1:
            return f"torch.full({shape}, {texts[0]}, {dtype})"
        step = _step(flat, kind)
        if step is not None:
            start = int(flat[0])
            made = f"torch.arange({start}, {start + step * count}, {step}, {dtype})"
            return made if len(shape) == 1 else f"{made}.reshape({shape})"
    nested = f"torch.tensor({_nested(texts, shape)}, {dtype})"
    if len(nested) <= WIDTH - 20:
        return nested
    flat_text = f"torch.tensor([{', '.join(texts)}], {dtype})"
    if len(shape) != 1 and len(flat_text) <= WIDTH - 35:
        return f"{flat_text}.reshape({shape})"
    lines = textwrap.wrap(", ".join(texts), WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    body = "\n".join(f"    {line}" for line in lines)
    made = f"torch.tensor([\n{body}\n], {dtype})"
    return made if len(shape) == 1 else f"{made}.reshape({shape})"


def _step(flat: torch.Tensor, kind: str) -> int | None:
    """Return the difference between each two neighbours, if they are integers with one step that is not 0."""
    if not is_integer(kind) or kind == "uint64":
        return None
    first, second = int(flat[0]), int(flat[1])
    step = second - first
    progression = all(int(v) == first + step * i for i, v in enumerate(flat.tolist()))
    return step if step and progression and max(abs(first), abs(step)) < 2**31 else None


def _nested(texts: Sequence[str], shape: Sequence[int]) -> str:
    if len(shape) > 1:
        step = len(texts) // shape[0]
        texts = [_nested(texts[i : i + step], shape[1:]) for i in range(0, len(texts), step)]
    return f"[{', '.join(texts)}]"


def argument_source(value: Argument, *, float64: bool = False) -> str:
    """Write an argument that is not a tensor; with `float64`, a floating dtype becomes that one."""
    if isinstance(value, Enumerated):
        if value.kind == "device":
            return f"torch.device({value.name!r})"
        wide = float64 and value.kind == "dtype" and is_float(value.name)
        return f"torch.{'float64' if wide else value.name}"
    if isinstance(value, tuple):
        return f"[{', '.join(argument_source(v, float64=float64) for v in value)}]"
    if value is None or isinstance(value, str):
        return repr(value)
    assert not isinstance(value, TensorSpec | Weight | Result | Input)
    return number(value)


#: Names that a script uses for something else where the call is written.
_TAKEN = frozenset({"torch", "inf", "nan", "self", "out"})

#: Exporters' representation of dtypes that ONNX lacks.
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
        """Write the call as an expression over `names`; with `float64`, dtypes are widened."""
        supply = iter(self.names)
        given = dict(self.invocation.arguments)
        words: list[str] = []
        positional = True
        # Tensors are named in the order in which the invocation gives its arguments.
        sources = {name: self._source(a, supply, float64) for name, a in given.items()}
        if is_flow_operator(self.invocation.overload):
            bodies = {name: a for name, a in given.items() if isinstance(a, str)}
            return FLOW_OPERATORS[self.invocation.overload].format_call(sources, bodies)
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
        return argument_source(argument, float64=float64)

    @cached_property
    def _result(self) -> Any:
        torch.default_generator.manual_seed(0)
        with torch.no_grad():
            return bind(self.invocation)(build_tensors(self.invocation))

    @property
    def picks(self) -> str:
        """Return the expression over ``out`` for the part of the result that is returned; "" for all of it.

        Raises:
            NothingToCompare: no output is a tensor.
            Exception: PyTorch's own, if it rejects the call.
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
        """Write the outputs of an expression that calls the module or the operator, as a list; see `helpers`."""
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
        # Half precision, which is never drawn, is the dtype that PyTorch promotes float16 to.
        return any(tensor.is_complex() for tensor in output_tensors(self._result))

    @property
    def eager_inputs(self) -> str:
        """Return the name in `fed` of the dict of tensors that PyTorch takes."""
        return "eager_inputs" if self.takes_complex else "inputs"

    @property
    def fed(self) -> list[str]:
        """Lines that turn ``inputs`` into a model's inputs, if those differ from PyTorch's; see `helpers`."""
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
        """Return the dtype of each tensor that the module returns, as PyTorch prints it without ``torch.``."""
        return tuple(str(t.dtype).removeprefix("torch.") for t in output_tensors(self._result))

    def module(self) -> list[str]:
        """Write the class ``Model``."""
        call, picks = self.call(), self.picks
        return [
            "class Model(torch.nn.Module):",
            f"    def forward({', '.join(('self', *self.names))}):",
            *([f"        out = {call}", f"        return {picks}"] if picks else [f"        return {call}"]),
        ]

    def inputs(self, name: str = "inputs") -> list[str]:
        """Write the dict of input tensors, called `name`."""
        specs = list(self.invocation.tensors())
        if not specs:
            return [f"{name} = {{}}"]
        entries = [f'"{n}": {tensor(s)}' for n, s in zip(self.names, specs, strict=True)]
        single = f"{name} = {{{', '.join(entries)}}}"
        if len(entries) == 1 if "\n" in single else len(single) <= WIDTH:
            return single.split("\n")
        return [
            f"{name} = {{",
            *(f"    {line}" for entry in entries for line in f"{entry},".split("\n")),
            "}",
        ]


class ProgramSource(CallSource):
    """A program of several calls to be written down, as the module that a person would write."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """One per input, in order."""
        return tuple(f"x{i}" for i, _ in enumerate(self.invocation.tensors()))

    @cached_property
    def _weights(self) -> dict[Weight, str]:
        found = dict.fromkeys(weights_of(Program.of(self.invocation)))
        names: dict[Weight, str] = {}
        for i, weight in enumerate(found):
            is_free = weight.name and weight.name not in names.values()
            names[weight] = weight.name if is_free else f"w{i}"
        return names

    def call(self, *, float64: bool = False) -> str:
        """Write the module called with `names`; with `float64`, its weights are widened."""
        return f"Model(){'.double()' if float64 else ''}({', '.join(self.names)})"

    @property
    def picks(self) -> str:
        """Return "": a program returns tensors only."""
        return ""

    @property
    def is_random(self) -> bool:
        """Whether a call draws from PyTorch's generator."""
        return any(map(draws_at_random, Program.of(self.invocation).calls))

    def module(self) -> list[str]:
        """Write the class ``Model``: its weights, and a line for each call."""
        program = Program.of(self.invocation)
        held = [
            f'        self.register_buffer("{name}", {_widened_text(weight)})'.replace("\n", "\n        ")
            for weight, name in self._weights.items()
        ]
        made = ["    def __init__(self):", "        super().__init__()", *held, ""] if held else []
        supply, lines = iter(self.names), []
        for place, call in enumerate(program.calls):
            sources = {name: self._source(argument, supply, False) for name, argument in call.arguments}
            if is_size_operator(call.overload):
                lines.append(f"        v{place} = {format_size_call(call.overload, sources)}")
                continue
            function = python_form(call, program)
            words = [f"{name}={source}" for name, source in sources.items()]
            if function:
                # The function has other names for some of the overload's arguments.
                words = [
                    source if name == expected else f"{name}={source}"
                    for (name, source), expected in zip(sources.items(), argument_names(call.overload), strict=False)
                ]
            lines.append(f"        v{place} = {function or f'torch.ops.{call.overload}'}({', '.join(words)})")
        returned = ", ".join(self._source(value, supply, False) for value in program.returns)
        return [
            "class Model(torch.nn.Module):",
            *made,
            f"    def forward({', '.join(('self', *self.names))}):",
            *lines,
            f"        return {returned}{',' if len(program.returns) == 1 else ''}",
        ]

    def _source(self, argument: Argument, supply: Any, float64: bool) -> str:
        if isinstance(argument, Result):
            return self._result_name(argument)
        if isinstance(argument, Weight):
            return f"self.{self._weights[argument]}"
        if isinstance(argument, Input):
            return self.names[argument.place]
        return super()._source(argument, supply, float64)

    def _result_name(self, result: Result) -> str:
        name = Program.of(self.invocation).calls[result.call].overload
        if is_size_operator(name):
            return f"v{result.call}"
        returns = overload(name)._schema.returns
        is_single = len(returns) == 1 and str(returns[0].type) == "Tensor"
        return f"v{result.call}" if is_single else f"v{result.call}[{result.output}]"


def _widened_text(weight: Weight) -> str:
    return f"{tensor(weight.spec)}{f'.to(torch.{weight.dtype})' if weight.dtype else ''}"


def source_of(invocation: Invocation) -> CallSource:
    """Return the source of an invocation."""
    return ProgramSource(invocation) if is_program(invocation) else CallSource(invocation)


def _count(argument: Argument) -> int:
    if isinstance(argument, tuple):
        return sum(_count(a) for a in argument)
    return int(isinstance(argument, TensorSpec))


def _picked(result: Any, path: str) -> Iterator[str]:
    """Yield the tensors of a nested result, as expressions over `path`."""
    if isinstance(result, torch.Tensor):
        yield path
    elif isinstance(result, list | tuple):
        for i, element in enumerate(result):
            yield from _picked(element, f"{path}[{i}]")
