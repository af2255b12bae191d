"""Tensors and arguments as Python source that a person can read, bit for bit what they stand for.

NaN payloads are the exception: every NaN is ``nan``.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import torch

from harness.core import (
    PARTS,
    PRECISION,
    Argument,
    Enumerated,
    TensorSpec,
    build_tensor,
    is_float,
    is_integer,
)

#: Columns of a script.
WIDTH = 100

#: Tensors of more elements are looked at for a pattern that says them shorter.
_MANY = 8


def number(value: bool | int | float | complex) -> str:
    """A Python number; ``inf`` and ``nan`` are names to import."""
    if isinstance(value, complex):
        return f"complex({number(value.real)}, {number(value.imag)})"
    return repr(value)


def uses_inf_or_nan(source: str) -> tuple[str, ...]:
    """Which of the names ``inf`` and ``nan`` occur in `source`."""
    words = set(re.findall(r"\w+", source))
    return tuple(name for name in ("inf", "nan") if name in words)


def _rounded(value: float, dtype: str) -> float:
    """What PyTorch keeps of a Python float: the narrow types are reached through float32."""
    with np.errstate(all="ignore"):
        if dtype == "float64":
            return value
        single = np.float32(value)
        if dtype == "float16":
            return float(np.float16(single))
        return float(ml_dtypes.bfloat16(single)) if dtype == "bfloat16" else float(single)


def _shortest(value: float | complex, dtype: str) -> str:
    """The fewest digits that PyTorch reads back as `value`."""
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
    """An expression that makes the tensor of `spec`, on one line or several."""
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
    """The difference between each two neighbours, if they are integers with one that is not 0."""
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


def argument(value: Argument, *, float64: bool = False) -> str:
    """An argument that is no tensor; with `float64`, where it names a floating dtype, that one."""
    if isinstance(value, Enumerated):
        if value.kind == "device":
            return f"torch.device({value.name!r})"
        wide = float64 and value.kind == "dtype" and is_float(value.name)
        return f"torch.{'float64' if wide else value.name}"
    if isinstance(value, tuple):
        return f"[{', '.join(argument(v, float64=float64) for v in value)}]"
    if value is None or isinstance(value, str):
        return repr(value)
    assert not isinstance(value, TensorSpec)
    return number(value)
