"""An invocation as a PyTorch call with literal values, without importing PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from harness.core import values
from harness.core.dtypes import PARTS, is_float
from harness.core.invocation import Argument, Enumerated, Invocation, Literal, TensorSpec

#: Tensors with more elements than this are described rather than written out.
_MOST = 64
_NARROW = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def torch_call(invocation: Invocation) -> str:
    """Lines of Python that make the call; tensors come first, under the schema's names."""
    lines: list[str] = []
    words: list[str] = []
    for position, (name, argument) in enumerate(invocation.arguments):
        written = _argument(name, argument, lines)
        # The first argument is never keyword-only, and `self` is ugly as a keyword.
        words.append(written if position == 0 else f"{name}={written}")
    return "\n".join([*lines, f"torch.ops.{invocation.overload}({', '.join(words)})"])


def _argument(name: str, argument: Argument, lines: list[str]) -> str:
    if isinstance(argument, TensorSpec):
        variable = "x" if name == "self" else name
        lines.append(f"{variable} = {_tensor(argument)}")
        return variable
    if isinstance(argument, tuple):
        return f"[{', '.join(_argument(f'{name}_{i}', a, lines) for i, a in enumerate(argument))}]"
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
