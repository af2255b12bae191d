"""Overload names as users write them, and the overloads that PyTorch registers."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from functools import cache

from harness.core.control_flow import FLOW
from harness.core.invocation import GRAPH, MODEL, ONNX_DOMAINS, PROGRAM

#: The libraries whose operators are covered: PyTorch's own, ONNX's under PyTorch, quantised operators, and those
#: that take functions, whose schemas are in `harness.core.control_flow`.
NAMESPACES = ("aten", "onnx", "quantized_decomposed", FLOW)


class UnknownOperator(LookupError):
    """A name or glob matches no overload; the message suggests similar names."""


@cache
def all_overloads() -> tuple[str, ...]:
    """Return every overload that this PyTorch registers in the `NAMESPACES`, sorted; empty without PyTorch."""
    try:
        from harness.core.torch_operators import register_all_operators, registered_schemas
    except ImportError:
        # Goldens can be checked without PyTorch.
        return ()
    register_all_operators()
    names = set()
    for schema in registered_schemas():
        namespace, _, name = schema.name.partition("::")
        if namespace in NAMESPACES:
            names.add(f"{namespace}.{name}.{schema.overload_name or 'default'}")
    return tuple(sorted(names))


def normalise(pattern: str) -> str:
    """Return the dotted name for ``aten::celu``, ``aten::add.Tensor`` or ``torch.ops.aten.celu``.

    A name from another of the `NAMESPACES`, and names of models, programs, ONNX operators and graphs, are returned
    unchanged.
    """
    pattern = pattern.strip().removeprefix("torch.ops.").replace("::", ".")
    is_dotted = pattern.partition(".")[0] in NAMESPACES or pattern.startswith(_OTHER_PREFIXES)
    return pattern if is_dotted else f"aten.{pattern}"


#: Prefixes of names that belong to no library of PyTorch.
_OTHER_PREFIXES = (MODEL, PROGRAM, GRAPH, *ONNX_DOMAINS)


def _full_names(pattern: str) -> tuple[str, ...]:
    return (normalise(pattern), *(f"{domain}{pattern}" for domain in ONNX_DOMAINS))


def find_matches(pattern: str, known: Sequence[str]) -> list[str]:
    """Return the names in `known` that a pattern names, as `match` does; none if nothing matches.

    A name that PyTorch does not have may be an ONNX operator's (``Resize``, ``Resize.19``): in ``ai.onnx``, or else in
    ``com.microsoft``.
    """
    for full in _full_names(pattern):
        matches = [n for n in known if fnmatch.fnmatchcase(n, full) or fnmatch.fnmatchcase(packet(n), full)]
        if matches:
            return matches
    return []


def match(pattern: str, known: Sequence[str]) -> list[str]:
    """Return the overloads in `known` that a user's pattern names, in the order of `known`.

    Args:
        pattern: An overload (``aten.add.Tensor``), a packet (``aten::celu``, ``celu``), or a glob
            (``aten.upsample_*``); a packet or a glob without an overload matches all overloads.
        known: Dotted names to choose from.

    Raises:
        UnknownOperator: Nothing matches.
    """
    dotted, matches = normalise(pattern), find_matches(pattern, known)
    if matches:
        return matches
    if any(c in dotted for c in "*?["):
        raise UnknownOperator(f"--op {pattern!r} matches none of {len(known)} operators")
    message = f"--op {pattern!r}: no operator of that name here"
    uncovered = [n for n in all_overloads() if n == dotted or packet(n) == dotted]
    if uncovered:
        message = f"--op {pattern!r}: PyTorch has {uncovered[0]}, but no operator case covers it"
    near = near_names(pattern, known)
    raise UnknownOperator(message + (f"; near: {', '.join(near)}" if near else ""))


def packet(name: str) -> str:
    """Return ``aten.add`` for ``aten.add.Tensor``; the name of a program is returned unchanged."""
    return name if name.startswith("program.") else name.rpartition(".")[0]


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three of `known` that resemble `name`, which may lack a library and an overload."""
    by_packet: dict[str, str] = {}
    for candidate in known:
        by_packet.setdefault(packet(candidate), candidate)
        by_packet[candidate] = candidate
    for full in _full_names(name):
        if hits := difflib.get_close_matches(full, list(by_packet), n=6, cutoff=0.7):
            return list(dict.fromkeys(by_packet[hit] for hit in hits))[:3]
    return []
