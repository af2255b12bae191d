"""Where overloads are named that an export can meet: the sources that cost little to ask."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from harness.analyse.operator_coverage.functional import dotted, functional_overloads
from harness.convert import registered_symbolics
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
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError as error:
        raise SourceMissing(f"the torchlib registry of this PyTorch was not found: {error}") from None
    with _quiet("torch.onnx"):
        targets = ONNXRegistry.from_torchlib().functions
    names = {dotted(target) for target in targets if isinstance(target, str)}
    names |= {str(target) for target in targets if isinstance(target, torch._ops.OpOverload)}
    return frozenset(names & functional_overloads())


@cache
def torchscript() -> frozenset[str]:
    """Functional overloads of the operators that TorchScript-based export has symbolic functions for.

    Symbolic functions are registered by operator, so that each stands for all overloads.

    Raises:
        SourceMissing: PyTorch keeps its registry elsewhere now.
    """
    try:
        registry = registered_symbolics()
    except ImportError as error:
        raise SourceMissing(f"the symbolic functions of this PyTorch were not found: {error}") from None
    packets = {dotted(name).rpartition(".")[0] for name in registry.all_functions()}
    return frozenset(name for name in functional_overloads() if name.rpartition(".")[0] in packets)


@contextmanager
def _quiet(logger: str) -> Iterator[None]:
    """Without warnings of `logger`, which speaks of packages that nobody asked for."""
    before = logging.getLogger(logger).level
    logging.getLogger(logger).setLevel(logging.ERROR)
    try:
        yield
    finally:
        logging.getLogger(logger).setLevel(before)
