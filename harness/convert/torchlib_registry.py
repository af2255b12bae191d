"""What torchlib converts, and what PyTorch decomposes for it: asked of the installed exporter."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from harness.convert.silence import quiet
from harness.core import overload

_EXPORTER = "torch.onnx._internal.exporter"


@cache
def registered() -> frozenset[str]:
    """Dotted overloads that torchlib converts."""
    return frozenset(str(t) for t in _implemented() if isinstance(t, torch._ops.OpOverload))


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
    registration = importlib.import_module(f"{_EXPORTER}._registration")
    with quiet():
        return registration.ONNXRegistry.from_torchlib()


@cache
def _implemented() -> frozenset[Any]:
    decomp = importlib.import_module(f"{_EXPORTER}._decomp")
    return frozenset(decomp.get_onnx_implemented_overloads(_registry()))


@cache
def decomposition_functions() -> Mapping[Any, Callable[..., Any]]:
    """Every decomposition function that the exporter may use, as if torchlib converted nothing."""
    decomp = importlib.import_module(f"{_EXPORTER}._decomp")
    with quiet():
        # Composite operators are in the table too, with their kernels: those are another answer.
        composite = {op for op in torch.export.default_decompositions() if is_composite(op)}
        whole = decomp.create_onnx_friendly_decomposition_table(set())
    return {op: f for op, f in whole.items() if op not in composite}


@cache
def decomposition_table() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions that the exporter uses."""
    decomp = importlib.import_module(f"{_EXPORTER}._decomp")
    with quiet():
        return dict(decomp.create_onnx_friendly_decomposition_table(set(_implemented())))


def is_composite(target: Any) -> bool:
    """Whether the operator's kernel is made of other operators."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name: str = target.name()  # type: ignore[no-untyped-call]
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))
