"""The lists that `slow_sources` writes: read, write, and whether they are of this PyTorch."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from harness.analyse.operator_coverage.functional import functional_overloads
from harness.generate import cases_directory

_HEADER = "# Made by `python -m harness.analyse.operator_coverage.slow_sources` with torch "
#: Source name → its file, which is in the directory of the operator cases.
FILES = {name: cases_directory() / f"{name}.txt" for name in ("opinfo", "exported")}


def read(name: str) -> frozenset[str]:
    """The overloads of source `name` that this PyTorch has; one that is gone is no operator to cover."""
    lines = FILES[name].read_text(encoding="utf-8").splitlines()
    return frozenset(lines[1:]) & functional_overloads()


def made_with(name: str) -> str:
    """The version of PyTorch that source `name` was made with."""
    return FILES[name].read_text(encoding="utf-8").splitlines()[0].removeprefix(_HEADER)


def write(name: str, overloads: Iterable[str]) -> None:
    """Replace the list of source `name`."""
    FILES[name].write_text("\n".join([_HEADER + release(), *sorted(overloads)]) + "\n", encoding="utf-8")


def release() -> str:
    """This PyTorch's version without its build: ``2.13.0`` of ``2.13.0+cpu``."""
    return torch.__version__.partition("+")[0]
