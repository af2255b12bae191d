"""What a rule is, and the decorators that make one."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.core import all_overloads, declaring_place, near_names, normalise, packet

_Function = TypeVar("_Function", bound=Callable[..., Any])


class RuleProblem(Exception):
    """A rule or a file of rules that cannot be used; the message is one line for a person."""


@dataclass(frozen=True)
class Rule:
    """One conversion function for one operator.

    Attributes:
        converter: Whose conversion it takes the place of.
        overload: Dotted name: ``aten.celu.default``.
        function: What the converter calls; its signature is the converter's matter.
        label: ``my_rules.py:celu``, for the record.
        declared: File and line of the statement that makes it a rule.
    """

    converter: str
    overload: str
    function: Callable[..., Any]
    label: str
    declared: tuple[str, int] = ("", 0)

    @property
    def name(self) -> str:
        """The function's."""
        return self.label.rpartition(":")[2]


#: Where the decorators put their rules while a file is loaded; None elsewhere.
collecting: ContextVar[list[Rule] | None] = ContextVar("collecting", default=None)


def rule(converter: str, *operators: str) -> Callable[[_Function], _Function]:
    """Decorate a conversion function for `converter`.

    Args:
        converter: Its name: ``dynamo``, ``torchscript``, or that of another which takes rules.
        operators: Overloads (``aten.add.Tensor``); a packet (``aten::celu``) means all its overloads that
            return something new.

    Raises:
        RuleProblem: PyTorch has no such operator.
    """
    if not operators:
        raise RuleProblem(f"@{converter}() names no operator: write @{converter}('aten::celu')")
    overloads = [overload for operator in operators for overload in _overloads(operator)]

    def decorate(function: _Function) -> _Function:
        rules = collecting.get()
        if rules is not None:
            name = str(getattr(function, "__name__", "") or getattr(function, "name", "function"))
            place = declaring_place()
            rules += [Rule(converter, overload, function, name, place) for overload in overloads]
        return function

    return decorate


def dynamo(*operators: str) -> Callable[[_Function], _Function]:
    """Decorate an onnxscript function for ``torch.onnx.export(dynamo=True)``.

    It is called with the arguments of the operator's schema: tensors as onnxscript values, the rest as Python
    values; see `custom_translation_table` in the documentation of `torch.onnx.export`.
    """
    return rule("dynamo", *operators)


def torchscript(*operators: str) -> Callable[[_Function], _Function]:
    """Decorate a symbolic function for ``torch.onnx.export(dynamo=False)``.

    It is called with the graph and the arguments of the operator's schema; the TorchScript exporter knows
    operators by packet, so that a rule for one overload is called for the others too.
    """
    return rule("torchscript", *operators)


def _overloads(operator: str) -> list[str]:
    from harness.core import overload as find_overload

    dotted = normalise(operator)
    known = all_overloads()
    if dotted in known:
        return [dotted]
    found = [n for n in known if packet(n) == dotted and not find_overload(n)._schema.is_mutable]
    if found:
        return found
    near = ", ".join(near_names(dotted, known))
    problem = f"a rule is for {operator!r}, which PyTorch does not have"
    raise RuleProblem(f"{problem}; near: {near}" if near else problem)
