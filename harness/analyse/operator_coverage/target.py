"""The overloads that are to have an operator case: computed, never listed by hand.

An operator is in the set if any source names one of its overloads, and it is in with all its functional
overloads: a model that calls ``stft`` calls whichever overload fits its arguments. Sources that cost little
are asked here; the lists that `slow_sources` writes are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch

from harness.analyse.operator_coverage.functional import dotted, functional_overloads
from harness.convert import PrivatePartMissing, registered, script_registry
from harness.core import overload
from harness.generate import cases_directory

_HEADER = "# Made by `python -m harness.analyse.operator_coverage.slow_sources` with torch "
#: Recorded source → its file, which is in the directory of the operator cases.
FILES = {name: cases_directory() / f"{name}.txt" for name in ("opinfo", "exported")}


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
    return _all_overloads(map(dotted, registry.all_functions()))


def _all_overloads(names: Iterable[str]) -> frozenset[str]:
    """Every functional overload of the operators of `names`."""
    packets = {name.rpartition(".")[0] for name in names}
    return frozenset(name for name in functional_overloads() if name.rpartition(".")[0] in packets)


def recorded(name: str) -> frozenset[str]:
    """The overloads of a recorded source that this PyTorch has; one that is gone is no operator to cover."""
    lines = FILES[name].read_text(encoding="utf-8").splitlines()
    return frozenset(lines[1:]) & functional_overloads()


def made_with(name: str) -> str:
    """The version of PyTorch that a recorded source was made with."""
    return FILES[name].read_text(encoding="utf-8").splitlines()[0].removeprefix(_HEADER)


def record(name: str, overloads: Iterable[str]) -> None:
    """Replace the list of a recorded source."""
    FILES[name].write_text("\n".join([_HEADER + release(), *sorted(overloads)]) + "\n", encoding="utf-8")


def release() -> str:
    """This PyTorch's version without its build: ``2.13.0`` of ``2.13.0+cpu``."""
    return torch.__version__.partition("+")[0]


@cache
def named_by() -> dict[str, frozenset[str]]:
    """Source → the functional overloads that it names.

    Raises:
        SourceMissing: a source cannot be asked.
    """
    return {
        "core": core(),
        "torchlib": torchlib(),
        "torchscript": torchscript(),
        "exported": recorded("exported"),
        "opinfo": recorded("opinfo"),
    }


@cache
def target() -> frozenset[str]:
    """Every functional overload of every operator that a source names."""
    return _all_overloads(name for named in named_by().values() for name in named)


def outdated() -> list[str]:
    """One line per recorded source that was made with another PyTorch than this."""
    return [
        f"{path.name} was made with torch {made_with(name)}, this is torch {release()}: "
        "python -m harness.analyse.operator_coverage.slow_sources makes it again"
        for name, path in FILES.items()
        if made_with(name) != release()
    ]
