"""Overload names as users write them, and the schemas that PyTorch has for them."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from functools import cache

from harness.core.control_flow import FLOW

#: The libraries whose operators are covered: PyTorch's own, ONNX's under PyTorch, quantised ones, and those
#: that take functions, to which `harness.core.control_flow` gives schemas.
NAMESPACES = ("aten", "onnx", "quantized_decomposed", FLOW)


class UnknownOperator(LookupError):
    """A name or glob that no known overload matches; the message names near ones."""


@cache
def all_overloads() -> tuple[str, ...]:
    """Every overload that this PyTorch registers in the `NAMESPACES`, as it prints them, sorted; none without
    PyTorch."""
    try:
        from harness.core.torch_operators import register_all_operators, registered_schemas
    except ImportError:
        # Goldens are checked without PyTorch.
        return ()
    register_all_operators()
    names = set()
    for schema in registered_schemas():
        namespace, _, name = schema.name.partition("::")
        if namespace in NAMESPACES:
            names.add(f"{namespace}.{name}.{schema.overload_name or 'default'}")
    return tuple(sorted(names))


def normalise(pattern: str) -> str:
    """``aten::celu``, ``aten::add.Tensor`` and ``torch.ops.aten.celu`` as dotted names.

    A name in another of the `NAMESPACES`, and ``model.NAME``, a whole model, is one already.
    """
    pattern = pattern.strip().removeprefix("torch.ops.").replace("::", ".")
    return pattern if pattern.partition(".")[0] in (*NAMESPACES, "model") else f"aten.{pattern}"


def match(pattern: str, known: Sequence[str]) -> list[str]:
    """The overloads in `known` that a user's word names, in the order of `known`.

    Args:
        pattern: An overload (``aten.add.Tensor``), a packet (``aten::celu``, ``celu``), or a glob
            (``aten.upsample_*``); a packet or a glob without overload takes all overloads.
        known: Dotted names to choose from.

    Raises:
        UnknownOperator: nothing matches.
    """
    dotted = normalise(pattern)
    found = [n for n in known if fnmatch.fnmatchcase(n, dotted) or fnmatch.fnmatchcase(packet(n), dotted)]
    if found:
        return found
    if any(c in dotted for c in "*?["):
        raise UnknownOperator(f"--op {pattern!r} matches none of {len(known)} operators")
    message = f"--op {pattern!r}: no operator of that name here"
    matching = [n for n in all_overloads() if n == dotted or packet(n) == dotted]
    if matching:
        message = f"--op {pattern!r}: PyTorch has {matching[0]}, but no operator case covers it"
    near = near_names(dotted, known)
    raise UnknownOperator(message + (f"; near: {', '.join(near)}" if near else ""))


def packet(name: str) -> str:
    """``aten.add`` of ``aten.add.Tensor``; a program's name as it is."""
    return name if name.startswith("program.") else name.rpartition(".")[0]


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """At most three of `known` that look like `name`, whether it has an overload or not."""
    by_packet: dict[str, str] = {}
    for candidate in known:
        by_packet.setdefault(packet(candidate), candidate)
        by_packet[candidate] = candidate
    hits = difflib.get_close_matches(name, list(by_packet), n=6, cutoff=0.7)
    return list(dict.fromkeys(by_packet[hit] for hit in hits))[:3]
