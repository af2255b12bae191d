"""Arguments drawn from the schema alone, for operators that need no more said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.core.dtypes import FLOATS
from harness.generate.draw import OMIT, Draw

#: Arguments that say where and how a result is stored; exporters take no part in them.
_STORAGE = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator")


def draw_by_schema(
    d: Draw, name: str, fixed: Mapping[str, Callable[[Draw], Any]], promote: Sequence[str] = ()
) -> dict[str, Any]:
    """Draw arguments for the overload `name`.

    The first Tensor gets any shape; further Tensors broadcast with it, on either side; a `dim` or
    `dims` is valid for its rank; optional arguments are given, omitted or None.

    Args:
        d: The source of draws.
        name: Dotted overload name.
        fixed: Argument name → function that draws it instead.
        promote: Dtypes that one of several Tensors may have instead of the invocation's.

    Raises:
        TypeError: the schema has an argument that its type says too little about.
    """
    # Operator cases are also read for their judges, on machines that lack PyTorch.
    from harness.core.tensors import overload

    arguments: dict[str, Any] = {}
    schema = overload(name)._schema
    tensors = [a.name for a in schema.arguments if str(a.type) == "Tensor" and a.name not in fixed]
    operands = d.operands(*tensors, promote=promote) if tensors else {}
    common = max((spec.shape for spec in operands.values()), key=len, default=())
    for argument in schema.arguments:
        d.about = argument.name
        if argument.name in fixed:
            arguments[argument.name] = fixed[argument.name](d)
        elif argument.name in operands:
            arguments[argument.name] = operands[argument.name]
        elif argument.name not in _STORAGE:
            arguments[argument.name] = _draw_argument(d, name, argument, len(common))
    d.about = ""
    return arguments


def _draw_argument(d: Draw, name: str, argument: Any, rank: int) -> Any:
    kind = str(argument.type)
    optional = kind.startswith("Optional[")
    if optional:
        kind = kind[len("Optional[") : -1]
    if argument.has_default_value() and d.choose("omit", "give", "give") == "omit":
        return OMIT
    if optional and d.choose("omit", "give", "give") == "omit":
        return None
    if argument.name == "dim" and kind == "int":
        return d.dim(rank)
    if argument.name == "dim" and kind == "List[int]":
        return d.dims(rank)
    if kind == "bool":
        return d.boolean()
    if kind == "number":
        return d.number()
    if kind == "float":
        return d.float()
    if "ScalarType" in str(argument.real_type):
        return d.dtype_argument(*FLOATS[:3])
    if kind == "int":
        return d.int()
    raise TypeError(f"{name}: say how to draw {argument.name!r}; {argument.type} says too little")
