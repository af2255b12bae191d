"""Where overloads are named that an export can meet: the sources that cost little to ask."""

from __future__ import annotations

from functools import cache

import torch

from harness.analyse.operator_coverage.functional import dotted, functional_overloads
from harness.convert import PrivatePartMissing, registered, script_registry
from harness.core import overload


class SourceMissing(Exception):
    """A source that this installation does not have; the message says what to install."""


@cache
def core() -> frozenset[str]:
    """PyTorch's core ATen opset: functional overloads with `torch.Tag.core`."""
    return frozenset(name for name in functional_overloads() if torch.Tag.core in overload(name).tags)


@cache
def torchlib() -> frozenset[str]:
    """Functional overloads for which torch.onnx's torchlib registry has a conversion.

    Raises:
        SourceMissing: PyTorch keeps its registry elsewhere now.
    """
    try:
        return registered() & functional_overloads()
    except PrivatePartMissing as error:
        raise SourceMissing(f"the torchlib registry of this PyTorch was not found: {error}") from None


@cache
def torchscript() -> frozenset[str]:
    """Functional overloads of the operators that TorchScript-based export has symbolic functions for.

    Symbolic functions are registered by operator, so that each stands for all overloads.

    Raises:
        SourceMissing: PyTorch keeps its registry elsewhere now.
    """
    try:
        registry = script_registry()
    except PrivatePartMissing as error:
        raise SourceMissing(f"the symbolic functions of this PyTorch were not found: {error}") from None
    packets = {dotted(name).rpartition(".")[0] for name in registry.all_functions()}
    return frozenset(name for name in functional_overloads() if name.rpartition(".")[0] in packets)
