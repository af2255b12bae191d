"""An invocation as a PyTorch call with literal values, without importing PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from harness.core import values
from harness.core.dtypes import PARTS, is_float
from harness.core.invocation import Argument, Enumerated, Input, Invocation, Literal, Result, TensorSpec, Weight
from harness.core.program import Program, is_program, results_in
from harness.core.size_operators import format_size_call, is_size_operator

#: Tensors with more elements than this are described rather than written out.
_MOST = 64
_NARROW = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def torch_call(invocation: Invocation) -> str:
    """Return lines of Python that make the call; tensors come first, under the schema's names.

    Of a program a line for each call, with the tensors that it is the first to take before it.
    """
    if is_program(invocation):
        return _program(Program.of(invocation))
    lines: list[str] = []
    words: list[str] = []
    for position, (name, argument) in enumerate(invocation.arguments):
        written = _argument(name, argument, lines)
        # The first argument is never keyword-only, and `self` is ugly as a keyword.
        words.append(written if position == 0 else f"{name}={written}")
    return "\n".join([*lines, f"torch.ops.{invocation.overload}({', '.join(words)})"])


def _program(program: Program) -> str:
    lines: list[str] = []
    # Without PyTorch the schema is not known: a call has several outputs if a later one of them is taken.
    returned = [value for value in program.returns if isinstance(value, Result)]
    taken = [*returned, *(result for call in program.calls for result in results_in(call))]
    several = {result.call for result in taken if result.output}
    inputs: list[str] = []
    variables: dict[Weight, str] = {}

    def result_name(result: Result) -> str:
        return f"v{result.call}[{result.output}]" if result.call in several else f"v{result.call}"

    def written(argument: Argument) -> str:
        if isinstance(argument, Result):
            return result_name(argument)
        if isinstance(argument, TensorSpec):
            inputs.append(f"x{len(inputs)}")
            lines.append(f"{inputs[-1]} = {_tensor(argument)}")
            return inputs[-1]
        if isinstance(argument, Input):
            return inputs[argument.place]
        if isinstance(argument, Weight):
            if argument not in variables:
                variables[argument] = f"w{len(variables)}"
                cast = f".to(torch.{argument.dtype})" if argument.dtype else ""
                lines.append(f"{variables[argument]} = {_tensor(argument.spec)}{cast}")
            return variables[argument]
        return f"[{', '.join(map(written, argument))}]" if isinstance(argument, tuple) else _plain(argument)

    for place, call in enumerate(program.calls):
        if is_size_operator(call.overload):
            lines.append(f"v{place} = {format_size_call(call.overload, {n: written(a) for n, a in call.arguments})}")
            continue
        words = [written(a) if i == 0 else f"{name}={written(a)}" for i, (name, a) in enumerate(call.arguments)]
        lines.append(f"v{place} = torch.ops.{call.overload}({', '.join(words)})")
    last = ", ".join(map(written, program.returns))
    return "\n".join([*lines, last])


def _argument(name: str, argument: Argument, lines: list[str]) -> str:
    if isinstance(argument, TensorSpec):
        variable = "x" if name == "self" else name
        lines.append(f"{variable} = {_tensor(argument)}")
        return variable
    if isinstance(argument, tuple):
        return f"[{', '.join(_argument(f'{name}_{i}', a, lines) for i, a in enumerate(argument))}]"
    return _plain(argument)


def _plain(argument: Argument) -> str:
    """Format an argument that is neither a tensor nor a sequence."""
    if isinstance(argument, Enumerated):
        return f"torch.device({argument.name!r})" if argument.kind == "device" else f"torch.{argument.name}"
    if isinstance(argument, float | complex):
        return _number(argument)
    return repr(argument)


def _tensor(spec: TensorSpec) -> str:
    size, dtype = spec.storage_size, f"dtype=torch.{spec.dtype}"
    dense = spec.offset == 0 and spec.is_contiguous
    if not spec.numel:
        return f"torch.empty({list(spec.shape)}, {dtype})"
    if size > _MOST:
        return f"torch.empty({list(spec.shape)}, {dtype})  # its {size} values: `conformance repro` writes them"
    texts = _texts(spec, size)
    if dense:
        return f"torch.tensor({_nested(texts, spec.shape)}, {dtype})"
    storage = f"torch.tensor([{', '.join(texts)}], {dtype})"
    return f"{storage}.as_strided({list(spec.shape)}, {list(spec.strides)}, {spec.offset})"


def _texts(spec: TensorSpec, size: int) -> list[str]:
    if isinstance(spec.values, Literal):
        numbers: Sequence[Any] = spec.values.values[:size]
    else:
        numbers = values.compute(spec.values, spec.dtype, size).tolist()
    if spec.dtype in PARTS:
        narrow = np.dtype(spec.dtype).type
        with np.errstate(all="ignore"):
            return [_number(complex(str(narrow(n)))) for n in numbers]
    if spec.dtype not in _NARROW:
        return [_number(float(n)) if is_float(spec.dtype) else repr(n) for n in numbers]
    with np.errstate(all="ignore"):
        # The fewest digits that name the value that the dtype keeps.
        return [_number(float(str(_NARROW[spec.dtype](np.float32(n))))) for n in numbers]


def _number(value: complex) -> str:
    if isinstance(value, complex):
        # The literal of a negative zero or an infinity as a part gives another number.
        return f"complex({_number(value.real)}, {_number(value.imag)})"
    return repr(value) if math.isfinite(value) else f"float('{value}')"


def _nested(texts: Sequence[str], shape: Sequence[int]) -> str:
    if not shape:
        return texts[0]
    if len(shape) == 1:
        return f"[{', '.join(texts)}]"
    step = len(texts) // shape[0]
    return f"[{', '.join(_nested(texts[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))}]"
