"""Points of an operator's argument space, and the registry of the families that name them.

A family looks at an operator's schema and some of its draws, and names the points that are worth reaching. It does not
decide whether a point that no draw hits could be hit: it offers variants of drawn calls that hit the point, and PyTorch
is asked whether it accepts one of them (`harness.coverage.survey`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from harness.core.invocation import Argument, Invocation, TensorSpec, contiguous_strides
from harness.core.tensors import overload


@dataclass(frozen=True, slots=True)
class Acceptance:
    """PyTorch's answer to a call.

    Attributes:
        refusal: Its error message; "" if it accepted the call, ``died`` or ``hung`` if the process did.
        shapes: Shapes of the output tensors.
    """

    refusal: str
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def taken(self) -> bool:
        """Whether PyTorch accepted the call."""
        return not self.refusal


def _always(base: Acceptance, answer: Acceptance) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Point:
    """A property that a call may have.

    Attributes:
        name: Unique within an operator: ``keepdim=True``, ``self rank 0``.
        hit: Whether a call has the property.
        variants: Calls derived from a drawn one that have the property, if PyTorch accepts them; empty if there are
            none.
        confirm: Whether PyTorch's answer to a variant, compared with its answer to the drawn call, proves the property:
            that a shape was broadcast, for instance, and not just accepted.
    """

    name: str
    hit: Callable[[Invocation], bool]
    variants: Callable[[Invocation], Iterable[Invocation]]
    confirm: Callable[[Acceptance, Acceptance], bool] = _always


@dataclass(frozen=True)
class SurveyedOperator:
    """An operator as families see it: its name, and some calls that PyTorch accepts."""

    overload: str
    samples: tuple[Invocation, ...]

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of PyTorch's schema."""
        return tuple(overload(self.overload)._schema.arguments)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Names of the arguments that hold tensors, alone or in lists, in some sample."""
        return tuple(a.name for a in self.arguments if any(specs(s, a.name) for s in self.samples))

    @cached_property
    def single_tensors(self) -> tuple[str, ...]:
        """Names of the arguments that hold a single tensor."""
        return tuple(a.name for a in self.arguments if a.name in self.tensors and "List" not in str(a.type))


_CONSTANTS = {"ScalarType": "dtype", "Layout": "layout", "MemoryFormat": "memory_format"}

PointFamily: TypeAlias = Callable[[SurveyedOperator], Iterator[Point]]

#: Group of points → its family; filled at import.
FAMILIES: dict[str, PointFamily] = {}


def family(group: str) -> Callable[[PointFamily], PointFamily]:
    """Register the decorated function as the family of `group`, a word for reports."""
    return lambda function: FAMILIES.setdefault(group, function)


def kind_of(argument: Any) -> str:
    """Return a schema argument's type without ``Optional``: ``Tensor``, ``int``, ``List[int]``, ``dtype``."""
    # TorchScript's types, which `type` gives, represent dtypes, layouts and memory formats by integers.
    for constant, kind in _CONSTANTS.items():
        if constant in str(argument.real_type):
            return kind
    kind = str(argument.type)
    return kind[len("Optional[") : -1] if kind.startswith("Optional[") else kind


def value_of(invocation: Invocation, name: str) -> Argument:
    """Return the argument's value; None if it is omitted."""
    return dict(invocation.arguments).get(name)


def specs(invocation: Invocation, name: str) -> tuple[TensorSpec, ...]:
    """Return the tensors of an argument, in a list or alone."""
    argument = value_of(invocation, name)
    elements = argument if isinstance(argument, tuple) else (argument,)
    return tuple(element for element in elements if isinstance(element, TensorSpec))


def set_argument(subject: SurveyedOperator, invocation: Invocation, name: str, value: Argument) -> Invocation:
    """Return a copy with another value for the argument."""
    given = {**dict(invocation.arguments), name: value}
    return replace(invocation, arguments=tuple((a.name, given[a.name]) for a in subject.arguments if a.name in given))


def omit_argument(invocation: Invocation, name: str) -> Invocation:
    """Return a copy without the argument."""
    return replace(invocation, arguments=tuple((n, a) for n, a in invocation.arguments if n != name))


def change_specs(
    invocation: Invocation, names: Sequence[str], change: Callable[[TensorSpec], TensorSpec]
) -> Invocation:
    """Return a copy in which `change` has replaced the tensors of some arguments."""

    def changed(argument: Argument) -> Argument:
        if isinstance(argument, TensorSpec):
            return change(argument)
        if isinstance(argument, tuple):
            return tuple(changed(element) for element in argument)
        return argument

    return replace(invocation, arguments=tuple((n, changed(a) if n in names else a) for n, a in invocation.arguments))


def reshaped(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """Return a contiguous tensor of another shape."""
    return replace(spec, shape=shape, strides=contiguous_strides(shape), offset=0)
