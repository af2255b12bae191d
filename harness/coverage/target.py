"""The target set: the overloads that should have an operator case, computed and never listed by hand.

An operator is in the set, with all of its functional overloads, if any source names one of its overloads: a model that
calls ``stft`` uses whichever overload fits its arguments. Sources that cost little are computed here; others are lists
that `ci/tables/called_overloads.py` writes.

An overload is functional if its whole effect is what it returns:

1. It is an operator of the dispatcher in the namespace ``aten``. TorchScript registers further names there for
   Python's ints, strings, lists and dicts (``aten::append.t``, ``aten::len.str``), which are instructions of its
   interpreter.
2. Its schema writes to no argument: it has no alias annotation with an exclamation mark (``Tensor(a!)``), unlike
   in-place variants (``add_``) and ``out=`` variants (`FunctionSchema.is_mutable`). A view (``Tensor(a)``) only reads.
3. Its name does not mark it as a formula of automatic differentiation: a backward or double backward function, a
   Jacobian-vector product, the gradient of a sampling function, or packing of dual tensors (`_AUTOGRAD`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

import torch

from harness.convert.torch_private import PrivatePartMissing, registered, script_registry
from harness.core.tensors import overload
from harness.core.torch_operators import dispatched_names
from harness.generate.cases_home import cases_directory

_AUTOGRAD = re.compile(r"backward|_jvp$|_grad$|^_fw_primal|^_make_dual|^_unpack_dual")


def dotted(name: str) -> str:
    """Return ``aten.add.Tensor`` for ``aten::add.Tensor``, and ``aten.celu.default`` for ``aten::celu``."""
    name = name.replace("::", ".", 1)
    return name if name.count(".") == 2 else f"{name}.default"


@cache
def functional_overloads() -> frozenset[str]:
    """Return every functional overload of ATen."""
    names = (dotted(n) for n in dispatched_names() if n.startswith("aten::"))
    return frozenset(
        name for name in names if not _AUTOGRAD.search(name.split(".")[1]) and not overload(name)._schema.is_mutable
    )


_HEADER = "# Made by `python ci/tables/called_overloads.py` with torch "
#: Recorded source → its file, in the directory of the operator cases.
FILES = {name: cases_directory() / f"{name}.txt" for name in ("opinfo", "exported")}


class SourceMissing(Exception):
    """A source is not available here; the message says what to install."""


@cache
def core() -> frozenset[str]:
    """Return PyTorch's core ATen opset: functional overloads with `torch.Tag.core`."""
    return frozenset(name for name in functional_overloads() if torch.Tag.core in overload(name).tags)


@cache
def torchlib() -> frozenset[str]:
    """Return the functional overloads that torch.onnx's torchlib registry can convert.

    Raises:
        SourceMissing: This PyTorch has its registry elsewhere.
    """
    try:
        return registered() & functional_overloads()
    except PrivatePartMissing as error:
        raise SourceMissing(f"the torchlib registry of this PyTorch was not found: {error}") from None


@cache
def torchscript() -> frozenset[str]:
    """Return the functional overloads of the operators for which TorchScript-based export has symbolic functions.

    Symbolic functions are registered by operator, so each of them represents all overloads.

    Raises:
        SourceMissing: This PyTorch has its registry elsewhere.
    """
    try:
        registry = script_registry()
    except PrivatePartMissing as error:
        raise SourceMissing(f"the symbolic functions of this PyTorch were not found: {error}") from None
    return _all_overloads(map(dotted, registry.all_functions()))


def _all_overloads(names: Iterable[str]) -> frozenset[str]:
    """Return every functional overload of the operators of `names`."""
    packets = {name.rpartition(".")[0] for name in names}
    return frozenset(name for name in functional_overloads() if name.rpartition(".")[0] in packets)


def recorded(name: str) -> frozenset[str]:
    """Return the overloads of a recorded source that this PyTorch still has."""
    lines = FILES[name].read_text(encoding="utf-8").splitlines()
    return frozenset(lines[1:]) & functional_overloads()


def made_with(name: str) -> str:
    """Return the version of PyTorch that a recorded source was generated with."""
    return FILES[name].read_text(encoding="utf-8").splitlines()[0].removeprefix(_HEADER)


def record(name: str, overloads: Iterable[str]) -> None:
    """Replace the list of a recorded source."""
    FILES[name].write_text("\n".join([_HEADER + release(), *sorted(overloads)]) + "\n", encoding="utf-8")


def release() -> str:
    """Return this PyTorch's version without its build: ``2.13.0`` for ``2.13.0+cpu``."""
    return torch.__version__.partition("+")[0]


@cache
def named_by() -> dict[str, frozenset[str]]:
    """Return the functional overloads that each source names.

    Raises:
        SourceMissing: A source is not available.
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
    """Return every functional overload of every operator that a source names."""
    return _all_overloads(name for named in named_by().values() for name in named)


def outdated() -> list[str]:
    """Return one line for each recorded source that was generated with another PyTorch."""
    return [
        f"{path.name} was made with torch {made_with(name)}, this is torch {release()}: "
        "regenerate it with python ci/tables/called_overloads.py"
        for name, path in FILES.items()
        if made_with(name) != release()
    ]
