"""What torchlib converts, and what PyTorch decomposes for it: asked of the installed exporter.

Every function raises `PrivatePartMissing` where PyTorch keeps what it needs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from harness.convert.silence import quiet
from harness.convert.torch_private import part
from harness.core import OpOverload, is_composite, overload


@cache
def registered() -> frozenset[str]:
    """Dotted overloads that torchlib converts."""
    return frozenset(str(t) for t in _implemented() if isinstance(t, OpOverload))


def torchlib_functions(name: str) -> tuple[str, ...]:
    """torchlib's conversions of an overload: ``aten_celu (opset 18)``."""
    metas = _registry().get_decomps(overload(name))
    return tuple(
        f"{_function_name(meta.onnx_function)} (opset {meta.opset_introduced}"
        f"{', complex' if meta.is_complex else ''})"
        for meta in metas
    )


def _function_name(function: Any) -> str:
    function = getattr(function, "func", None) or getattr(function, "function", None) or function
    return str(getattr(function, "__name__", None) or getattr(function, "name", function))


@cache
def _registry() -> Any:
    with quiet():
        return part("from_torchlib")()


@cache
def _implemented() -> frozenset[Any]:
    return frozenset(part("implemented")(_registry()))


@cache
def decomposition_functions() -> Mapping[Any, Callable[..., Any]]:
    """Every decomposition function that the exporter may use, as if torchlib converted nothing."""
    with quiet():
        # Composite operators are in the table too, with their kernels: those are another answer.
        composite = {op for op in torch.export.default_decompositions() if is_composite(op)}
        whole = part("decompositions")(set())
    return {op: f for op, f in whole.items() if op not in composite}


@cache
def decomposition_table() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions that the exporter uses."""
    with quiet():
        return dict(part("decompositions")(set(_implemented())))
