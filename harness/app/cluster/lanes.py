"""A run's backends by what they need of a node: each kind of need is a lane with shards of its own.

TensorRT runs where a graphics card is; what needs none has no business there and runs anywhere. A lane is
`pytest harness` with some of the backends, so what several lanes run is exported once for each of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from harness.core import UnknownName
from harness.run import BACKENDS

_OPTION = "--backend"


@dataclass(frozen=True, kw_only=True)
class Lane:
    """Backends that need the same.

    Attributes:
        arguments: Of `pytest harness` for it.
        backends: By name; empty for those that a run without ``--backend`` has.
        resources: What an attempt takes of a node beside a CPU.
    """

    arguments: tuple[str, ...]
    backends: tuple[str, ...] = ()
    resources: Mapping[str, float] = field(default_factory=dict)


def lanes(arguments: Sequence[str]) -> tuple[Lane, ...]:
    """The lanes of `pytest harness` with `arguments`; the one that needs most first."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument(_OPTION, action="append", default=[], dest="backends")
    given, rest = parser.parse_known_args(list(arguments))
    named: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for word in dict.fromkeys(given.backends):
        needs: Mapping[str, float] = {}
        # A node may know a backend that this machine does not.
        with suppress(UnknownName):
            needs = BACKENDS.find(word)[0].resources
        named.setdefault(tuple(sorted(needs.items())), []).append(word)
    if len(named) < 2:
        needs = dict(next(iter(named), ()))
        return (Lane(arguments=tuple(arguments), backends=tuple(given.backends), resources=needs),)
    return tuple(
        Lane(
            arguments=(*rest, *(word for name in some for word in (_OPTION, name))),
            backends=tuple(some),
            resources=dict(need),
        )
        for need, some in sorted(named.items(), key=lambda item: (-sum(n for _, n in item[0]), item))
    )
