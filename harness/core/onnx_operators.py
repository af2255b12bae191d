"""ONNX operators under the names that invocations give them, and their schemas.

A name is domain, operator and the version that the operator got in its domain: ``ai.onnx.Resize.19``,
``com.microsoft.MatMulNBits.1``. The schemas of ``ai.onnx`` come from the onnx package, those of ``com.microsoft`` from
ONNX Runtime, if it is installed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx

from harness.core.invocation import ONNX_DOMAINS
from harness.core.overloads import find_matches

#: Domain as names have it → domain as a model imports it.
DOMAINS: Mapping[str, str] = {"ai.onnx": "", "com.microsoft": "com.microsoft"}
#: ONNX's name of an element type → the name of the NumPy dtype.
_DTYPES = {"float": "float32", "double": "float64"} | {
    name.replace("_", ""): name
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
}
_DTYPES |= {"float4e2m1": "float4_e2m1fn", "float8e8m0": "float8_e8m0fnu"}


class UnknownOnnxOperator(LookupError):
    """A name matches no ONNX operator; the message suggests similar names."""


@dataclass(frozen=True)
class Parameter:
    """An input or an output of an operator.

    Attributes:
        name: Its name in the schema.
        variable: The type variable that it shares with others, or its only type.
        types: The allowed types: dtypes of tensors by their NumPy names, other types as ONNX writes them
            (``seq(tensor(float))``).
        is_optional: Whether it may be left out.
        is_variadic: Whether it may be repeated.
    """

    name: str
    variable: str
    types: tuple[str, ...]
    is_optional: bool = False
    is_variadic: bool = False

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The allowed dtypes of tensors; if no tensor is allowed, of elements of sequences and of optional values."""
        plain = tuple(name for name in self.types if "(" not in name)
        return plain or tuple(dict.fromkeys(_type_name(_innermost(name)) for name in self.types))

    def is_only(self, kind: str) -> bool:
        """Whether only sequences are allowed (``seq``), or only optional values (``optional``)."""
        return bool(self.types) and all(name.startswith(f"{kind}(") for name in self.types)


@dataclass(frozen=True)
class AttributeSchema:
    """An attribute of an operator.

    Attributes:
        name: Its name.
        kind: Its type as ONNX names it, in lower case: ``int``, ``floats``, ``tensor``, ``graph``.
        is_required: Whether a node must have it.
    """

    name: str
    kind: str
    is_required: bool


@dataclass(frozen=True)
class OnnxSchema:
    """One version of an operator.

    Attributes:
        domain: The domain as a model imports it; "" for ``ai.onnx``.
        operator: The operator's name.
        version: The version of the domain that introduced this form of it.
        until: The first version of the domain that has another form; None if this is the newest.
        inputs: Its inputs, in order.
        outputs: Its outputs, in order.
        attributes: Its attributes, in alphabetical order.
        least_outputs: The number of outputs that a node must name at least.
    """

    domain: str
    operator: str
    version: int
    until: int | None
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: tuple[AttributeSchema, ...]
    least_outputs: int

    @property
    def overload(self) -> str:
        """The name of this version in invocations."""
        return f"{self.domain or 'ai.onnx'}.{self.operator}.{self.version}"

    def is_current_at(self, version: int) -> bool:
        """Whether a node means this version in a model that imports a version of the domain."""
        return self.version <= version and (self.until is None or version < self.until)

    def attribute(self, name: str) -> AttributeSchema | None:
        """Return the attribute of a name; None if this version has none."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Names of inputs and attributes, and those under which an invocation says which outputs it asks for and what
        nodes are around it."""
        return (*(i.name for i in self.inputs), *(a.name for a in self.attributes), OUTPUTS, NEIGHBOURS)


#: The argument of an invocation that tells its outputs: their number, or the places of those that are named.
OUTPUTS = "outputs"
#: The argument of an invocation that names the kind of nodes around its own; see `harness.pipeline.neighbours`.
NEIGHBOURS = "neighbours"


def is_onnx_operator(overload: str) -> bool:
    """Whether an overload is an operator of ONNX rather than of PyTorch."""
    return overload.startswith(ONNX_DOMAINS)


@cache
def onnx_schemas() -> Mapping[str, OnnxSchema]:
    """Return every version of every operator that is not deprecated, by its name in invocations, sorted."""
    versions: dict[tuple[str, str], dict[int, Any]] = {}
    for schema in (*_standard_schemas(), *_contrib_schemas()):
        versions.setdefault((schema.domain, schema.name), {})[schema.since_version] = schema
    found = {}
    for (domain, _), by_version in versions.items():
        numbers = sorted(by_version)
        for number, following in zip(numbers, [*numbers[1:], None], strict=True):
            if not by_version[number].deprecated:
                schema = _read(by_version[number], domain, following)
                found[schema.overload] = schema
    return dict(sorted(found.items()))


def find_schema(overload: str) -> OnnxSchema:
    """Return the schema of an operator.

    Raises:
        LookupError: the installed packages have no such operator.
    """
    try:
        return onnx_schemas()[overload]
    except KeyError:
        raise LookupError(f"onnx {onnx.__version__} has no operator {overload}") from None


def match_onnx(pattern: str, known: Sequence[str]) -> list[str]:
    """Return the operators in `known` that a user's pattern names, in the order of `known`.

    Args:
        pattern: An operator (``Resize``), one version of it (``Resize.19``), either with its domain in front, or a
            glob; without a domain ``ai.onnx`` is meant, or else any domain.
        known: Names to choose from.

    Raises:
        UnknownOnnxOperator: nothing matches; similar names are named.
    """
    matches = find_matches(pattern, known)
    if matches:
        return matches
    short = {name.rpartition(".")[0].rpartition(".")[2]: name for name in known}
    operator = pattern.removeprefix("ai.onnx.").removeprefix("com.microsoft.").partition(".")[0]
    near = difflib.get_close_matches(operator, short, n=3, cutoff=0.6)
    versions = sorted(int(n.rpartition(".")[2]) for n in known if n.split(".")[-2] == operator)
    hint = f"; it has the versions {', '.join(map(str, versions))}" if versions else ""
    hint = hint or (f"; near: {', '.join(near)}" if near else "")
    raise UnknownOnnxOperator(f"--op {pattern!r}: no ONNX operator of that name here{hint}")


def _standard_schemas() -> list[Any]:
    return [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""]


def _contrib_schemas() -> list[Any]:
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
    except ImportError:
        return []
    return [schema for schema in get_all_operator_schema() if schema.domain == "com.microsoft"]


def _read(schema: Any, domain: str, until: int | None) -> OnnxSchema:
    allowed = {c.type_param_str: tuple(map(_type_name, c.allowed_type_strs)) for c in schema.type_constraints}
    return OnnxSchema(
        domain=domain,
        operator=schema.name,
        version=schema.since_version,
        until=until,
        inputs=tuple(_parameter(p, allowed) for p in schema.inputs),
        outputs=tuple(_parameter(p, allowed) for p in schema.outputs),
        attributes=tuple(
            AttributeSchema(name, str(a.type).rpartition(".")[2].lower(), bool(a.required))
            for name, a in sorted(schema.attributes.items())
        ),
        least_outputs=int(schema.min_output),
    )


def _parameter(parameter: Any, allowed: Mapping[str, tuple[str, ...]]) -> Parameter:
    # onnx and ONNX Runtime name the same facts differently.
    variable = parameter.type_str if hasattr(parameter, "type_str") else parameter.typeStr
    option = str(parameter.option).rpartition(".")[2].partition(":")[0]
    return Parameter(
        name=parameter.name,
        variable=variable,
        types=tuple(sorted(allowed.get(variable, (_type_name(variable),)))),
        is_optional="Optional" in option,
        is_variadic="Variadic" in option,
    )


def text_type(dtype: str) -> str:
    """Return the name of a dtype in ONNX's text form: ``float`` for ``float32``."""
    return {"float32": "float", "float64": "double"}.get(dtype, dtype)


def _innermost(text: str) -> str:
    """Return ``tensor(float)`` for ``optional(seq(tensor(float)))``."""
    return text[text.rindex("tensor(") :].rstrip(")") + ")"


def _type_name(text: str) -> str:
    """Return the dtype of a tensor type, ``float32`` for ``tensor(float)``; other types as they are written."""
    inner = text.removeprefix("tensor(").removesuffix(")")
    return _DTYPES.get(inner, inner) if text.startswith("tensor(") else text
