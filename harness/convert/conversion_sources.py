"""Find the conversion function of an overload in the exporters' source files.

No exporter is imported, which would take seconds: a report that names functions stays quick. The decorators
above a function register it, so this module reads those.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

#: Converter → packages of conversion functions, the one that the exporter prefers first.
SOURCES = {
    "dynamo": (
        ("torchlib", "torch/onnx/_internal/exporter/_torchlib/ops"),
        ("torchlib", "onnxscript/function_libs/torch_lib/ops"),
    ),
    "torchscript": (("TorchScript", "torch/onnx/_internal/torchscript_exporter"),),
}
#: Functions for later opsets than the exporters emit unless they are asked are not in use.
_OPSET = 20
_SCRIPT_MODULE = re.compile(r"symbolic_opset(\d+)$")
#: A name in a decorator: ``"aten::add.Tensor"`` or ``aten.add.Tensor``.
_REGISTERS = re.compile(r"@(?:torch_op|onnx_impl|_onnx_symbolic)\(")
_LATER = re.compile(r"\bopset_introduced=(\d+)")
_QUOTED = re.compile(r'"(\w+)::(\w+)(?:\.(\w+))?"')
_DOTTED = re.compile(r"\b(aten|prims|quantized_decomposed)\.(\w+)\.(\w+)\b")
#: ``__lshift_``.
_DUNDER = re.compile(r"__\w*[^_]_$")
_FUNCTION = re.compile(r"def (\w+)\(")


@dataclass(frozen=True, order=True)
class ConversionFunction:
    """A function that translates calls of operators.

    Attributes:
        library: ``torchlib`` or ``TorchScript``.
        file: Relative to the folder of its package.
    """

    library: str
    name: str
    file: str


#: Modules of helpers for all kinds of conversion functions.
_HELPERS = frozenset({"common", "symbolic_helper"})


def function_at(file: str, function: str) -> ConversionFunction | None:
    """Return the conversion function that some code is in; None for other code, and for helpers of all functions.

    Args:
        file: The path of its file.
        function: The qualified name of its function; ``<module>`` if it is in none.
    """
    for library, folder in chain.from_iterable(SOURCES.values()):
        _, found, rest = file.partition(f"/{folder}/")
        if found and Path(rest).stem not in _HELPERS and not function.startswith("<"):
            return ConversionFunction(library, function.partition(".<locals>")[0], f"{folder}/{rest}")
    return None


@cache
def conversion_functions(converter: str, *, is_complex: bool = False) -> Mapping[str, ConversionFunction]:
    """Return the operators that a converter translates whole, without decomposing them, with their functions.

    The result is empty for a converter that uses another's functions, or that is not installed.

    The keys are dotted overloads, as ``aten.add.Tensor``, or packets if a function covers all overloads.

    Args:
        is_complex: Whether the calls have complex tensors. Many operators have a second function for them.
    """
    real, complex_ = _functions(converter)
    return {**real, **complex_} if is_complex else {**complex_, **real}


@cache
def _functions(
    converter: str,
) -> tuple[Mapping[str, ConversionFunction], Mapping[str, ConversionFunction]]:
    """Return the functions for real numbers, and those for complex numbers."""
    found: dict[str, ConversionFunction] = {}
    is_complex: dict[str, ConversionFunction] = {}
    for library, folder in SOURCES.get(converter, ()):
        place = found_folder(folder)
        for path in _files(place) if place else ():
            for decorators, function in _registered(path.read_text(encoding="utf-8")):
                names = is_complex if "complex=True" in decorators else found
                for name in _names(decorators):
                    names.setdefault(name, ConversionFunction(library, function, f"{folder}/{path.name}"))
    return found, is_complex


def found_folder(folder: str) -> Path | None:
    """Return a folder of an installed package."""
    package, _, rest = folder.partition("/")
    spec = importlib.util.find_spec(package)
    roots = (spec.submodule_search_locations or ()) if spec else ()
    return next((Path(root, rest) for root in roots if Path(root, rest).is_dir()), None)


def _files(folder: Path) -> list[Path]:
    """Modules, those for later opsets first."""
    opsets = {path: _SCRIPT_MODULE.search(path.stem) for path in sorted(folder.glob("*.py"))}
    if not any(opsets.values()):
        return list(opsets)
    in_use = {path: int(found[1]) for path, found in opsets.items() if found}
    return sorted((p for p, opset in in_use.items() if opset <= _OPSET), key=lambda p: -in_use[p])


def _registered(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines above each function that has decorators, and its name."""
    above: list[str] = []
    for line in text.splitlines():
        if line.startswith("@") or (above and line[:1] in (" ", ")", "#")):
            above.append(line)
            continue
        head = _FUNCTION.match(line)
        if head and above:
            yield "\n".join(above), head[1]
        above = []


def _names(decorators: str) -> Iterator[str]:
    for part in re.split(r"^(?=@)", decorators, flags=re.MULTILINE):
        later = _LATER.search(part)
        if not _REGISTERS.match(part) or (later and int(later[1]) > _OPSET):
            continue
        script = part.startswith("@_onnx_symbolic")
        for namespace, name, overload in [*_QUOTED.findall(part), *_DOTTED.findall(part)]:
            if script:
                # The last underscore is that of operators in place, which it leaves off.
                yield f"{namespace}.{name}" + ("_" if _DUNDER.match(name) else "")
            else:
                yield f"{namespace}.{name}.{overload or 'default'}"
