"""A point of an operator's argument space, and the registry of the families that name points.

A family looks at an operator's schema and at some of its draws and names the points that are worth
reaching. Whether a point that no draw has hit could be hit is not for the family to say: it offers
variants of drawn calls that hit the point, and PyTorch is asked whether it takes one
(`harness.analyse.argument_coverage.survey`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from harness.core import Argument, Invocation, TensorSpec, overload


@dataclass(frozen=True, slots=True)
class Acceptance:
    """PyTorch's answer to a call.

    Attributes:
        refusal: Its message; "" where it took the call, and ``died`` or ``hung`` where the process did.
        shapes: Of the output tensors.
    """

    refusal: str
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def taken(self) -> bool:
        """Whether PyTorch took the call."""
        return not self.refusal


def _always(base: Acceptance, answer: Acceptance) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Point:
    """Something that a call may do.

    Attributes:
        name: Unique within an operator: ``keepdim=True``, ``self rank 0``.
        hit: Whether a call does it.
        variants: Calls like a drawn one that do it, PyTorch willing; none where this one has none.
        confirm: Whether PyTorch's answer to a variant, given its answer to the drawn call, means what the
            name says (that a shape was broadcast, and not merely taken).
    """

    name: str
    hit: Callable[[Invocation], bool]
    variants: Callable[[Invocation], Iterable[Invocation]]
    confirm: Callable[[Acceptance, Acceptance], bool] = _always


@dataclass(frozen=True)
class SurveyedOperator:
    """An operator as families see it: its dotted name and some calls that PyTorch takes."""

    overload: str
    samples: tuple[Invocation, ...]

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """PyTorch's schema."""
        return tuple(overload(self.overload)._schema.arguments)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Names of the arguments that hold tensors, alone or in lists, in some sample."""
        return tuple(a.name for a in self.arguments if any(specs(s, a.name) for s in self.samples))

    @cached_property
    def single_tensors(self) -> tuple[str, ...]:
        """Those that are one tensor."""
        return tuple(a.name for a in self.arguments if a.name in self.tensors and "List" not in str(a.type))


_CONSTANTS = {"ScalarType": "dtype", "Layout": "layout", "MemoryFormat": "memory_format"}

PointFamily: TypeAlias = Callable[[SurveyedOperator], Iterator[Point]]

#: Group of points → its family, filled at import.
FAMILIES: dict[str, PointFamily] = {}


def family(group: str) -> Callable[[PointFamily], PointFamily]:
    """Decorate the family of `group`, a word for reports."""
    return lambda function: FAMILIES.setdefault(group, function)


def kind_of(argument: Any) -> str:
    """A schema argument's type without ``Optional``: ``Tensor``, ``int``, ``List[int]``, ``dtype``."""
    # The constants that schemas speak of are integers to TorchScript, whose types `type` gives.
    for constant, kind in _CONSTANTS.items():
        if constant in str(argument.real_type):
            return kind
    kind = str(argument.type)
    return kind[len("Optional[") : -1] if kind.startswith("Optional[") else kind


def value_of(invocation: Invocation, name: str) -> Argument:
    """The argument as given, None where it is omitted."""
    return dict(invocation.arguments).get(name)


def specs(invocation: Invocation, name: str) -> tuple[TensorSpec, ...]:
    """The tensors of an argument, in a list or alone."""
    argument = value_of(invocation, name)
    elements = argument if isinstance(argument, tuple) else (argument,)
    return tuple(element for element in elements if isinstance(element, TensorSpec))


def with_argument(subject: SurveyedOperator, invocation: Invocation, name: str, value: Argument) -> Invocation:
    """A copy with the argument given as `value`."""
    given = {**dict(invocation.arguments), name: value}
    return replace(invocation, arguments=tuple((a.name, given[a.name]) for a in subject.arguments if a.name in given))


def without_argument(invocation: Invocation, name: str) -> Invocation:
    """A copy with the argument omitted."""
    return replace(invocation, arguments=tuple((n, a) for n, a in invocation.arguments if n != name))


def with_specs(invocation: Invocation, names: Sequence[str], change: Callable[[TensorSpec], TensorSpec]) -> Invocation:
    """A copy in which the tensors of the arguments `names` are replaced by `change` of them."""

    def changed(argument: Argument) -> Argument:
        if isinstance(argument, TensorSpec):
            return change(argument)
        if isinstance(argument, tuple):
            return tuple(changed(element) for element in argument)
        return argument

    return replace(invocation, arguments=tuple((n, changed(a) if n in names else a) for n, a in invocation.arguments))
