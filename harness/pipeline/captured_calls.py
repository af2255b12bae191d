"""Calls of a captured PyTorch program as invocations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from harness.core.described_tensor import describe_tensor
from harness.core.dtypes import ALL, COMPLEX, WIDE_UNSIGNED
from harness.core.invocation import Argument, Enumerated, Invocation
from harness.core.overloads import NAMESPACES
from harness.core.tensors import overload as overload_named
from harness.core.torch_operators import OpOverload

_DTYPES = frozenset((*ALL, *COMPLEX, *WIDE_UNSIGNED))


def module_path(node: torch.fx.Node) -> str:
    """Return the module that a node of an exported graph comes from, by its path below the model."""
    stack = node.meta.get("nn_module_stack") or {}
    last = list(stack.values())[-1:]
    path = str(last[0][0]) if last else ""
    return path.removeprefix("L['self']").removeprefix(".").removeprefix("model.").removeprefix("model")


class CannotKeep(Exception):
    """Why a call is not an invocation, for people."""


def invocation_of(
    target: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    describe: Callable[..., Any] = describe_tensor,
    *,
    in_place: bool = False,
) -> Invocation:
    """Return a call as an invocation; a call that writes into its argument becomes one that returns the result.

    Args:
        target: The operator.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        describe: Makes a `TensorSpec`, or another form of a tensor, of a tensor and its place among the arguments.
        in_place: Keep a call that writes into its argument.

    Raises:
        CannotKeep: an invocation cannot hold the call.
    """
    target = target if in_place else functional(target)
    given = {a.name: v for a, v in zip(target._schema.arguments, args, strict=False)} | dict(kwargs)
    if given.get("generator", ...) is None:
        del given["generator"]
    names = [argument.name for argument in target._schema.arguments if argument.name in given]
    return Invocation(str(target), tuple((name, _argument(given[name], name, describe)) for name in names))


def _argument(value: Any, place: str, describe: Callable[..., Any]) -> Argument:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in _DTYPES or value.layout is not torch.strided:
            raise CannotKeep(f"a {dtype} tensor ({value.layout})")
        spec: Argument = describe(value, place)
        return spec
    if isinstance(value, list | tuple):
        return tuple(_argument(element, f"{place}[{i}]", describe) for i, element in enumerate(value))
    for enumerated in (torch.dtype, torch.layout, torch.memory_format, torch.device):
        if isinstance(value, enumerated):
            return Enumerated(enumerated.__name__, str(value).removeprefix("torch."))
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise CannotKeep("a symbolic size")
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    raise CannotKeep(f"an argument of type {type(value).__name__}")


@cache
def functional(target: OpOverload) -> OpOverload:
    """Return `relu` for `relu_`: exporters treat a call that writes into its argument in this way.

    Raises:
        CannotKeep: the operator has no functional form.
    """
    if target.namespace not in NAMESPACES:
        raise CannotKeep(f"{target} is an operator of another library")
    if not target._schema.is_mutable:
        return target
    namespace, packet, name = str(target).split(".")
    with contextlib.suppress(LookupError):
        found = overload_named(f"{namespace}.{packet.removesuffix('_')}.{name}")
        mine, others = ([a.name for a in t._schema.arguments] for t in (target, found))
        if not found._schema.is_mutable and mine == others:
            return found
    raise CannotKeep(f"{target} writes into its argument and has no form that does not")
