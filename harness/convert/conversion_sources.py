"""Find the conversion function of an overload in the exporters' source files.

No exporter is imported, which would take seconds: a report that names functions stays quick. The decorators
above a function register it, so this module reads those.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
#: The folder of the file that states the exporters' default opset, and the opset to assume without that file.
_CONSTANTS, _USUAL_OPSET = "torch/onnx", 20
_DEFAULT_OPSET = re.compile(r"^ONNX_DEFAULT_OPSET = (\d+)$", re.MULTILINE)
_SCRIPT_MODULE = re.compile(r"symbolic_opset(\d+)$")
#: A name in a decorator: ``"aten::add.Tensor"`` or ``aten.add.Tensor``.
_REGISTERS = re.compile(r"@(?:torch_op|onnx_impl|_onnx_symbolic)\(")
_LATER = re.compile(r"\bopset_introduced=(\d+)")
QUOTED_NAME = re.compile(r"""['"](\w+)::(\w+)(?:\.(\w+))?['"]""")
DOTTED_NAME = re.compile(r"\b(aten|prims|quantized_decomposed)\.(\w+)\.(\w+)\b")
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
    found = _functions(converter)
    return {**found.real, **found.complex} if is_complex else {**found.complex, **found.real}


@cache
def functions_by_name(converter: str) -> Mapping[str, ConversionFunction]:
    """Return all conversion functions of a converter, those for later opsets too, by their own names."""
    found = _functions(converter)
    kinds = (found.later, found.complex, found.real)
    return {function.name: function for functions in kinds for function in functions.values()}


@cache
def later_conversions(converter: str) -> Mapping[str, int]:
    """Return the operators that have another function at an opset above the default: dotted overload → that opset."""
    return _functions(converter).opsets


@cache
def default_opset() -> int:
    """Return the opset that PyTorch's exporters emit by default."""
    place = found_folder(_CONSTANTS)
    file = place / "_constants.py" if place else None
    stated = _DEFAULT_OPSET.search(file.read_text(encoding="utf-8")) if file and file.is_file() else None
    return int(stated[1]) if stated else _USUAL_OPSET


@dataclass
class _Functions:
    """The conversion functions of a converter, by operator.

    Attributes:
        real: Functions for real numbers.
        complex: Functions for complex numbers.
        later: Functions that start at an opset above the default one.
        opsets: The first opset of each function in `later`.
    """

    real: dict[str, ConversionFunction] = field(default_factory=dict)
    complex: dict[str, ConversionFunction] = field(default_factory=dict)
    later: dict[str, ConversionFunction] = field(default_factory=dict)
    opsets: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, opset: int, function: ConversionFunction, *, is_complex: bool) -> None:
        """Add the function of an operator, unless it has one of the same kind."""
        if opset <= default_opset():
            (self.complex if is_complex else self.real).setdefault(name, function)
        elif opset > self.opsets.get(name, 0):
            self.opsets[name], self.later[name] = opset, function


@cache
def _functions(converter: str) -> _Functions:
    found = _Functions()
    for library, folder in SOURCES.get(converter, ()):
        place = found_folder(folder)
        for path in _files(place) if place else ():
            for decorators, name in _registered(path.read_text(encoding="utf-8")):
                function = ConversionFunction(library, name, f"{folder}/{path.name}")
                for operator, opset in _names(decorators):
                    found.add(operator, opset, function, is_complex="complex=True" in decorators)
    return found


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
    return sorted((p for p, opset in in_use.items() if opset <= default_opset()), key=lambda p: -in_use[p])


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


def _names(decorators: str) -> Iterator[tuple[str, int]]:
    """Yield the operators that decorators register a function for, and the first opset of the function if it is stated,
    else 0."""
    for part in re.split(r"^(?=@)", decorators, flags=re.MULTILINE):
        if not _REGISTERS.match(part):
            continue
        later = _LATER.search(part)
        opset = int(later[1]) if later else 0
        script = part.startswith("@_onnx_symbolic")
        for namespace, name, overload in [*QUOTED_NAME.findall(part), *DOTTED_NAME.findall(part)]:
            if script:
                # The last underscore is that of operators in place, which it leaves off.
                yield f"{namespace}.{name}" + ("_" if _DUNDER.match(name) else ""), opset
            else:
                yield f"{namespace}.{name}.{overload or 'default'}", opset
