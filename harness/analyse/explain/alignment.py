"""The arguments of an ATen schema beside the inputs and attributes of an ONNX operator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.analyse.explain.conversion_trial import Emitted
from harness.analyse.explain.known import Candidate, Meaning, same_name, synonyms
from harness.analyse.explain.onnx_operator import OnnxOperator, Slot
from harness.convert import Parameter, Signature


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One line of the comparison.

    Attributes:
        aten: Argument of the schema with its type and default; "" where ONNX alone has such a thing.
        onnx: Input or attribute; "" where PyTorch alone has it.
        kind: ``input`` or ``attribute``; "" without `onnx`.
        type: Of the ONNX side, with its default.
        why: Why they are beside each other, or what to do where one side is empty.
        emitted: Converter → what it gave the ONNX side in the tried call.
    """

    aten: str
    onnx: str
    kind: str
    type: str
    why: str
    emitted: dict[str, str]


def align(
    signature: Signature, operator: OnnxOperator, candidate: Candidate, emitted: Iterable[Emitted] = ()
) -> tuple[Pair, ...]:
    """Each argument with its counterpart, then what of the ONNX operator is left."""
    slots = {slot.name: slot for slot in operator.node_slots}
    given = {one.converter: _given(one, operator) for one in emitted}
    pairs: list[Pair] = []
    taken: set[str] = set()
    for place, parameter in enumerate(signature.parameters):
        meaning = candidate.arguments.get(parameter.name) or _meaning(parameter, place, slots.values(), taken)
        slot = slots.get(meaning.onnx)
        if slot is not None:
            taken.add(slot.name)
        pairs.append(_pair(_aten(parameter), slot, meaning.why, given))
    for slot in slots.values():
        if slot.name not in taken:
            pairs.append(_pair("", slot, candidate.others.get(slot.name, _left_over(slot)), given))
    return tuple(pairs)


def _pair(aten: str, slot: Slot | None, why: str, given: dict[str, dict[str, str]]) -> Pair:
    if slot is None:
        return Pair(aten=aten, onnx="", kind="", type="", why=why, emitted={})
    default = f" = {slot.default}" if slot.default else ""
    optional = "" if slot.required or default else ", optional"
    seen = {name: values[slot.name] for name, values in given.items() if slot.name in values}
    kind = f"{slot.type}{default}{optional}"
    return Pair(aten=aten, onnx=slot.name, kind=slot.kind, type=kind, why=why, emitted=seen)


def _aten(parameter: Parameter) -> str:
    default = "" if parameter.default is None else f"={parameter.default}"
    return f"{parameter.type} {parameter.name}{default}"


def _meaning(parameter: Parameter, place: int, slots: Iterable[Slot], taken: set[str]) -> Meaning:
    free = [slot for slot in slots if slot.name not in taken]
    for slot in free:
        if same_name(slot.name, parameter.name) and _fits(parameter, slot):
            return Meaning(onnx=slot.name, why="the same name")
    by_name = {slot.name: slot for slot in free}
    for meaning in synonyms(parameter.name):
        found = by_name.get(meaning.onnx)
        if found is not None and _fits(parameter, found):
            return meaning
    if place == 0 and parameter.kind in ("Tensor", "Tensor[]") and free and free[0].kind == "input":
        return Meaning(onnx=free[0].name, why="the first tensor")
    return Meaning(onnx="", why="no counterpart is known")


def _fits(parameter: Parameter, slot: Slot) -> bool:
    """A tensor is never an attribute."""
    return slot.kind == "input" or not parameter.kind.startswith("Tensor")


def _left_over(slot: Slot) -> str:
    if slot.required:
        return "required, and no argument is known to stand for it"
    return f"left at its default, {slot.default}" if slot.default else "may be left out"


def _given(one: Emitted, operator: OnnxOperator) -> dict[str, str]:
    """What the first node of that operator was given, by the names of the specification."""
    for node in one.nodes:
        if node.operator == operator.name and node.domain == operator.domain:
            inputs = [slot.name for slot in operator.slots if slot.kind == "input"]
            named = {name: text for name, text in zip(inputs, node.inputs, strict=False) if text}
            return {**named, **node.attributes}
    return {}
