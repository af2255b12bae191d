"""Where tensors stand among the arguments of an invocation, and how to put others there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TypeAlias

from harness.core import Argument, Invocation, TensorSpec, overload

#: Argument name, and the place within a list of tensors; None for an argument that is a tensor.
Path: TypeAlias = tuple[str, "int | None"]
#: Changes an invocation; None where it does not apply to it.
Rewrite: TypeAlias = Callable[[Invocation], "Invocation | None"]


def tensors(invocation: Invocation) -> dict[Path, TensorSpec]:
    """Every tensor by its place, in order."""
    found: dict[Path, TensorSpec] = {}
    for name, argument in invocation.arguments:
        if isinstance(argument, TensorSpec):
            found[name, None] = argument
        elif isinstance(argument, tuple):
            found.update({(name, i): e for i, e in enumerate(argument) if isinstance(e, TensorSpec)})
    return found


def with_tensors(invocation: Invocation, changed: Mapping[Path, TensorSpec]) -> Invocation:
    """A copy with other tensors at some places."""

    def change(name: str, argument: Argument) -> Argument:
        if isinstance(argument, tuple):
            return tuple(changed.get((name, i), element) for i, element in enumerate(argument))
        return changed.get((name, None), argument)

    return map_arguments(invocation, change)


def changing(path: Path, change: Callable[[TensorSpec], TensorSpec | None]) -> Rewrite:
    """Changes the tensor at `path`; it does not apply where there is none, or where `change` gives None."""

    def rewrite(invocation: Invocation) -> Invocation | None:
        spec = tensors(invocation).get(path)
        changed = None if spec is None else change(spec)
        return None if changed is None else with_tensors(invocation, {path: changed})

    return rewrite


def map_tensors(invocation: Invocation, change: Callable[[TensorSpec], TensorSpec]) -> Invocation:
    """A copy with every tensor changed; the invocation itself where none is."""
    changed = invocation.map_tensors(change)
    return invocation if changed == invocation else changed


def map_arguments(invocation: Invocation, change: Callable[[str, Argument], Argument]) -> Invocation:
    """A copy with every argument changed, given its name."""
    return replace(invocation, arguments=tuple((n, change(n, a)) for n, a in invocation.arguments))


def with_argument(invocation: Invocation, name: str, argument: Argument) -> Invocation:
    """A copy with another value for an argument that is given."""
    return map_arguments(invocation, lambda n, a: argument if n == name else a)


def without_argument(invocation: Invocation, name: str) -> Invocation:
    """A copy that leaves an argument to its default."""
    return replace(invocation, arguments=tuple((n, a) for n, a in invocation.arguments if n != name))


@cache
def optional(name: str) -> dict[str, object]:
    """The arguments of an overload that may be left out, with their defaults."""
    arguments = overload(name)._schema.arguments
    return {a.name: a.default_value for a in arguments if a.has_default_value()}
