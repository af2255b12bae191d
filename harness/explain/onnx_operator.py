"""ONNX operators in the specification of the installed `onnx`, and their ATen counterparts.

Correspondences that cannot be read off names, of operators and of their arguments, are in
`cases/onnx_counterparts.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import onnx
import onnx.defs

from harness.generate.cases_home import cases_directory


@dataclass(frozen=True, kw_only=True)
class Slot:
    """An input, an output or an attribute of an ONNX operator.

    Attributes:
        kind: ``input``, ``output`` or ``attribute``.
        name: Its name.
        type: ``T`` or ``tensor(float)`` for an input, ``float`` or ``ints`` for an attribute.
        required: Whether a node must have it.
        default: An attribute's default as text; "" if it has none.
    """

    kind: str
    name: str
    type: str
    required: bool
    default: str = ""


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of an ONNX operator.

    Attributes:
        opset: The first opset that has it.
        deprecated: Whether it withdraws the operator.
        types: Type parameter → allowed types, without ``tensor()``.
        changes: Differences from the previous version.
    """

    opset: int
    deprecated: bool
    types: tuple[tuple[str, tuple[str, ...]], ...]
    changes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OnnxOperator:
    """The newest version of an operator of the specification.

    Attributes:
        name: Its name.
        domain: Its domain, ``ai.onnx`` for the default one.
        versions: All versions, oldest first.
        slots: Inputs, then attributes, then outputs.
        composed: Whether the specification also defines it by other operators (a function).
        doc: The first paragraph of its documentation.
    """

    name: str
    domain: str
    versions: tuple[Version, ...]
    slots: tuple[Slot, ...]
    composed: bool
    doc: str

    @property
    def first_opset(self) -> int:
        """The opset of the first version."""
        return self.versions[0].opset

    @property
    def node_slots(self) -> tuple[Slot, ...]:
        """The slots that a node fills: inputs and attributes."""
        return tuple(slot for slot in self.slots if slot.kind != "output")


@cache
def _histories() -> dict[tuple[str, str], list[Any]]:
    histories: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        histories[schema.domain or "ai.onnx", schema.name].append(schema)
    return {key: sorted(schemas, key=lambda s: s.since_version) for key, schemas in histories.items()}


def names() -> tuple[str, ...]:
    """Return the operators of the default domain that are not withdrawn."""
    return tuple(
        name for (domain, name), schemas in _histories().items() if domain == "ai.onnx" and not schemas[-1].deprecated
    )


def find(name: str, domain: str = "ai.onnx") -> OnnxOperator:
    """Return an operator.

    Raises:
        LookupError: The specification has no operator of that name.
    """
    history = _histories().get((domain, name))
    if history is None:
        raise LookupError(f"ONNX {onnx.__version__} has no operator {domain}.{name}")
    # The version that withdraws an operator has few details.
    newest = history[-1]
    return OnnxOperator(
        name=name,
        domain=domain,
        versions=tuple(map(_version, history, [None, *history])),
        slots=(
            *map(_input, newest.inputs),
            *(_attribute(attribute) for _, attribute in sorted(newest.attributes.items())),
            *(Slot(kind="output", name=o.name, type=o.type_str, required=True) for o in newest.outputs),
        ),
        composed=bool(newest.has_function or newest.has_context_dependent_function),
        doc=_first_paragraph(newest.doc),
    )


def _version(schema: Any, before: Any) -> Version:
    types = _types(schema)
    changes: list[str] = []
    if before is not None:
        old = dict(_types(before))
        for parameter, allowed in types:
            new = [t for t in allowed if t not in old.get(parameter, ())]
            if new and parameter in old:
                changes.append(f"{parameter} also {', '.join(new)}")
        for what, now, then in (
            ("attribute", set(schema.attributes), set(before.attributes)),
            ("input", {i.name for i in schema.inputs}, {i.name for i in before.inputs}),
        ):
            if not schema.deprecated:
                changes += [f"{what} {name} added" for name in sorted(now - then)]
                changes += [f"{what} {name} removed" for name in sorted(then - now)]
    if schema.deprecated:
        changes.append("withdrawn")
    return Version(opset=schema.since_version, deprecated=schema.deprecated, types=types, changes=tuple(changes))


def _types(schema: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(
        (c.type_param_str, tuple(sorted(re.sub(r"^tensor\((.*)\)$", r"\1", t) for t in c.allowed_type_strs)))
        for c in schema.type_constraints
    )


def _input(parameter: Any) -> Slot:
    option = onnx.defs.OpSchema.FormalParameterOption
    return Slot(
        kind="input",
        name=parameter.name,
        type=parameter.type_str + ("…" if parameter.option == option.Variadic else ""),
        required=parameter.option != option.Optional,
    )


def _attribute(attribute: Any) -> Slot:
    value = attribute.default_value
    default = shown(onnx.helper.get_attribute_value(value)) if value.name else ""
    kind = str(attribute.type).rpartition(".")[2].lower()
    return Slot(kind="attribute", name=attribute.name, type=kind, required=attribute.required, default=default)


def shown(value: Any) -> str:
    """Return an attribute's value as text; a float32 with as few digits as identify it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(v) for v in value)}]"
    return str(value)


def _first_paragraph(doc: str) -> str:
    return " ".join(re.split(r"\n\s*\n", doc.strip())[0].split())


#: The file in the directory of the operator cases.
_TABLE = "onnx_counterparts.toml"


class TableError(Exception):
    """`cases/onnx_counterparts.toml` is invalid; the message says where."""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The ONNX input or attribute that an argument corresponds to ("" if none), and why."""

    onnx: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An ONNX operator that may correspond to an ATen operator.

    Attributes:
        onnx: The ONNX operator.
        why: How it was found.
        arguments: ATen argument → meaning, as the table states it for this operator.
        others: ONNX input or attribute without a corresponding argument → what to pass, and why.
    """

    onnx: str
    why: str
    arguments: Mapping[str, Meaning] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((cases_directory() / _TABLE).read_text(encoding="utf-8"))


def candidate(packet: str) -> Candidate | None:
    """Return the ONNX operator for an ATen operator such as ``aten::celu``, from the table or by its name.

    Raises:
        TableError: The table names an ONNX operator that the installed specification lacks.
    """
    name = packet.partition("::")[2]
    for entry in _table()["operator"]:
        if name in entry["aten"]:
            if not entry["onnx"]:
                return None
            if entry["onnx"] not in names():
                raise TableError(f"{_TABLE}: {entry['onnx']} of {name} is not an operator of this ONNX")
            meanings = {name: Meaning(**meaning) for name, meaning in entry.get("arguments", {}).items()}
            others = entry.get("others", {})
            return Candidate(onnx=entry["onnx"], why=entry["why"], arguments=meanings, others=others)
    by_name = {_normalised(known): known for known in names()}
    same = by_name.get(_normalised(name)) or by_name.get(_normalised(_general(name)))
    return Candidate(onnx=same, why="the same name") if same else None


def synonyms(argument: str) -> list[Meaning]:
    """Return the ONNX names that the table lists for an argument of any operator, likeliest first."""
    return [
        Meaning(onnx=name, why=entry["why"])
        for entry in _table()["synonym"]
        if argument in entry["aten"]
        for name in entry["onnx"]
    ]


def same_name(a: str, b: str) -> bool:
    """Whether two names differ only in case, underscores or a plural."""
    return _normalised(a).removesuffix("s") == _normalised(b).removesuffix("s")


def _normalised(name: str) -> str:
    return name.replace("_", "").lower()


def _general(name: str) -> str:
    """Remove PyTorch's prefixes and suffixes from a name: ``max_unpool2d``, ``_log_softmax``, ``special_erf``."""
    name = re.sub(r"^(special|linalg|fft|native)_", "", name.lstrip("_"))
    return re.sub(r"_?\d?d$", "", name)
