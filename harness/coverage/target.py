"""Which operators should have an operator case, and why some have none.

Which overloads are functional: those whose whole effect is what they return.

An overload is functional if all of this holds:

1. It is an operator of the dispatcher in the namespace ``aten``. TorchScript registers further names there
   for Python's own ints, strings, lists and dicts (``aten::append.t``, ``aten::len.str``); these are
   instructions of its interpreter, no operators.
2. Its schema writes to no argument: no alias annotation with an exclamation mark (``Tensor(a!)``), which is
   what in-place variants (``add_``) and ``out=`` variants have (`FunctionSchema.is_mutable`). A view
   (``Tensor(a)``) reads, and is functional.
3. Its name does not say that it is a formula of automatic differentiation: a backward or double backward
   function, a Jacobian-vector product, the gradient of a sampling function, or what packs and unpacks dual
   tensors (`_AUTOGRAD`).

The overloads that are to have an operator case: computed, never listed by hand.

An operator is in the set if any source names one of its overloads, and it is in with all its functional
overloads: a model that calls ``stft`` calls whichever overload fits its arguments. Sources that cost little
are asked here; the lists that `ci/tables/called_overloads.py` writes are read.

Why some overloads of the target set have no operator case: `cases/not_covered.toml`, read and checked.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import torch

from harness.convert.torch_private import PrivatePartMissing, registered, script_registry
from harness.core.tensors import overload
from harness.core.torch_operators import dispatched_names
from harness.generate.cases_home import cases_directory

_AUTOGRAD = re.compile(r"backward|_jvp$|_grad$|^_fw_primal|^_make_dual|^_unpack_dual")


def dotted(name: str) -> str:
    """``aten.add.Tensor`` of ``aten::add.Tensor``, ``aten.celu.default`` of ``aten::celu``."""
    name = name.replace("::", ".", 1)
    return name if name.count(".") == 2 else f"{name}.default"


@cache
def functional_overloads() -> frozenset[str]:
    """Every functional overload of ATen, dotted."""
    names = (dotted(n) for n in dispatched_names() if n.startswith("aten::"))
    return frozenset(
        name for name in names if not _AUTOGRAD.search(name.split(".")[1]) and not overload(name)._schema.is_mutable
    )


_HEADER = "# Made by `python ci/tables/called_overloads.py` with torch "
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
    """The overloads of a recorded source that this PyTorch has; one that is gone is not an operator to cover."""
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
        "python ci/tables/called_overloads.py makes it again"
        for name, path in FILES.items()
        if made_with(name) != release()
    ]


FILE = cases_directory() / "not_covered.toml"


class ReasonsError(Exception):
    """The file of reasons is malformed; the message is one line that says where and how."""


class Kind(StrEnum):
    """The reasons that count.

    `STORAGE`: needs sparse, quantised or nested storage, which ONNX has no type for. `COMPLEX`: needs complex
    numbers in a way that pairs of reals do not represent.
    """

    NO_TENSOR = "no tensor result"
    DEVICE = "absent device"
    STORAGE = "storage"
    COMPLEX = "complex without pairs"

    __str__ = str.__str__


@dataclass(frozen=True)
class Reason:
    """Why one overload is not covered; `because` is for a person."""

    family: str
    kind: Kind
    because: str


def read(path: Path = FILE) -> dict[str, Reason]:
    """Overload → its reason.

    Raises:
        ReasonsError: no TOML, an entry without a field, an unknown reason, an overload named twice, or one
            that returns tensors after all.
    """
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("not_covered", [])
    except tomllib.TOMLDecodeError as error:
        raise ReasonsError(f"{path.name}: {error}") from None
    reasons: dict[str, Reason] = {}
    for number, entry in enumerate(entries, 1):
        reason = _reason(f"{path.name}, entry {number}", entry)
        for name in entry["overloads"]:
            if name in reasons:
                raise ReasonsError(f"{path.name}: {name} is named twice")
            if reason.kind is Kind.NO_TENSOR and _returns_tensor(name):
                raise ReasonsError(f"{path.name}: {name} returns tensors, its reason says that it does not")
            reasons[name] = reason
    return reasons


def _reason(where: str, entry: Mapping[str, Any]) -> Reason:
    missing = {"family", "reason", "because", "overloads"} - set(entry)
    if missing:
        raise ReasonsError(f"{where}: lacks {', '.join(sorted(missing))}")
    try:
        kind = Kind(entry["reason"])
    except ValueError:
        known = ", ".join(repr(str(kind)) for kind in Kind)
        wrong = f"{entry['reason']!r} is not a reason that counts"
        raise ReasonsError(f"{where}: {wrong}; these do: {known}") from None
    return Reason(entry["family"], kind, entry["because"])


def _returns_tensor(name: str) -> bool:
    try:
        returns = overload(name)._schema.returns
    except LookupError:
        # Reported as stale.
        return False
    return any("Tensor" in str(value.type) for value in returns)
