"""Arguments of a call as PyTorch's dispatcher shows them to what intercepts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.core import OpOverload


class NotDirect(Exception):
    """Capturing the call would rewrite it, or it fails: it must be captured by `torch.export`."""


class ValuesDecide(NotDirect):
    """What the call returns, or its size, depends on the values of its tensors."""


@dataclass(frozen=True)
class TensorInput:
    """The place of a tensor among those of the call."""

    index: int


def as_dispatched(
    target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as PyTorch's dispatcher shows them to what intercepts a call.

    It converts them to the types of the schema, passes by position what may be, and leaves out what equals
    its default: of positional arguments the last ones only.
    """
    positional: list[Any] = []
    defaults: list[bool] = []
    keywords: dict[str, Any] = {}
    parameters: Sequence[Any] = target._schema.arguments
    for i, parameter in enumerate(parameters):
        given = i < len(args) or parameter.name in kwargs
        value = parameter.default_value
        if given:
            value = _convert(args[i] if i < len(args) else kwargs[parameter.name], parameter.real_type, parameter.N)
        elif not parameter.has_default_value():
            raise NotDirect
        is_default = not given or (
            parameter.has_default_value() and _same(value, parameter.default_value, parameter.real_type)
        )
        if not parameter.kwarg_only:
            positional.append(value)
            defaults.append(is_default)
        elif not is_default:
            keywords[parameter.name] = value
    while defaults and defaults[-1]:
        positional.pop()
        defaults.pop()
    for i, parameter in enumerate(parameters[: len(positional)]):
        if defaults[i]:
            positional[i] = _convert(positional[i], parameter.real_type, parameter.N)
    return tuple(positional), keywords


def _convert(value: Any, kind: Any, size: int | None = None) -> Any:
    """A value as the dispatcher holds it for a parameter of a type."""
    if value is None or isinstance(value, TensorInput):
        return value
    name = kind.kind()
    if name == "OptionalType":
        return _convert(value, kind.getElementType(), size)
    if name == "ListType":
        element = kind.getElementType()
        if not isinstance(value, list | tuple):
            if size is None:
                raise NotDirect
            value = [value] * size
        return [_convert(one, element) for one in value]
    if name in ("IntType", "SymIntType"):
        return int(value)
    if name == "FloatType":
        return float(value)
    if name == "BoolType":
        return bool(value)
    if name == "DeviceObjType":
        return torch.device(value)
    if isinstance(value, int) and not isinstance(value, bool) and name in _ENUMERATIONS:
        # A default is shown as the number that stands for it.
        raise NotDirect
    return value


_ENUMERATIONS = {"ScalarTypeType", "LayoutType", "MemoryFormatType"}


def _same(value: Any, default: Any, kind: Any) -> bool:
    """Whether the dispatcher takes a converted value for the default."""
    if value is None or default is None:
        return value is default
    default = _convert(default, kind, len(value) if isinstance(value, list) else None)
    if isinstance(value, list):
        return (
            isinstance(default, list)
            and len(value) == len(default)
            and all(type(a) is type(b) and a == b for a, b in zip(value, default, strict=True))
        )
    return type(value) is type(default) and bool(value == default)
