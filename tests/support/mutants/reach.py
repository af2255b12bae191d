"""Which operators' drawn cases run which expressions of conversion functions, and how these cases end."""

from __future__ import annotations

import fnmatch
import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.onnx._internal.exporter import _registration
from torch.onnx._internal.torchscript_exporter import registration

from harness.core.overloads import normalise
from harness.generate.operator_case import OPERATOR_CASES
from mutants.applied import reached
from mutants.ends import Ends, drawn_groups, ends_of
from mutants.mutation import Mutation

#: Seconds of processor time for one operator without a mutation.
PATIENCE = 25.0


@dataclass(frozen=True)
class Reached:
    """What the cases of one operator come to with one converter, without any mutation.

    Attributes:
        sites: Expressions that they run.
    """

    operator: str
    converter: str
    ends: Ends
    sites: frozenset[str]


def survey_reach(
    file: Path, converters: Sequence[str], seed: int, operators: Sequence[str] = (), count: int | None = None
) -> None:
    """Run the drawn cases of operators, a line of `file` for each; goes on where the file ends.

    Operators that converters know by name come first: the others only come to the same functions.

    Args:
        operators: Globs of names; all by default.
        count: Of operators and converters; all by default.
    """
    done = {(found.operator, found.converter) for found in read_reach(file)} if file.exists() else set()
    names = [name for name in sorted(OPERATOR_CASES) if not operators or _matches(name, operators)]
    pairs = [(operator, converter) for operator in names for converter in converters]
    random.Random(seed).shuffle(pairs)
    known = {converter: converted_operators(converter) for converter in converters}
    pairs.sort(key=lambda pair: pair[0] not in known[pair[1]])
    noticed: set[str] = set()
    with reached(noticed.add), file.open("a", encoding="utf-8") as out:
        for operator, converter in pairs[:count]:
            if (operator, converter) not in done:
                out.write(json.dumps(_reach(operator, converter, seed, noticed)) + "\n")
                out.flush()


def converted_operators(converter: str) -> frozenset[str]:
    """The operators with a case that a converter has a conversion function for."""
    if converter == "dynamo":
        table = {normalise(str(name)) for name in _registration.ONNXRegistry.from_torchlib().functions}
        return frozenset(name for name in OPERATOR_CASES if {name, name.removesuffix(".default")} & table)
    names = {name.removeprefix("aten::") for name in registration.registry.all_functions()}
    return frozenset(name for name in OPERATOR_CASES if name.split(".")[1] in names)


def _matches(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.removeprefix("aten."), glob) for glob in globs)


def read_reach(file: Path) -> Iterator[Reached]:
    """What `survey_reach` wrote."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            data = json.loads(line)
            sites = (f"{module}:{place}" for module, places in data["sites"].items() for place in places)
            yield Reached(
                data["operator"],
                data["converter"],
                Ends(data["cases"], data["died"]),
                frozenset(sites),
            )


def operators_that_reach(mutation: Mutation, found: Sequence[Reached]) -> list[Reached]:
    """Those whose cases run the mutated expression, those that do little else first."""
    reaching = [r for r in found if r.converter == mutation.converter and mutation.site in r.sites]

    def directness(one: Reached) -> tuple[bool, int, str]:
        packet = one.operator.split(".")[1]
        words = mutation.function.removeprefix("aten_")
        return not (words == packet or words.startswith(f"{packet}_")), len(one.sites), one.operator

    return sorted(reaching, key=directness)


def _reach(operator: str, converter: str, seed: int, noticed: set[str]) -> dict[str, Any]:
    # Whatever process writes to it, this one can read it.
    file = os.memfd_create("sites")

    @contextmanager
    def telling() -> Iterator[None]:
        noticed.clear()
        yield
        os.write(file, "".join(f"{site}\n" for site in noticed).encode())

    ends = ends_of(drawn_groups(operator, seed), converter, seconds=PATIENCE, within=telling)
    text = os.pread(file, os.fstat(file).st_size, 0).decode()
    os.close(file)
    sites: defaultdict[str, list[str]] = defaultdict(list)
    for site in sorted(set(text.split())):
        module, _, place = site.partition(":")
        sites[module].append(place)
    return {
        "operator": operator,
        "converter": converter,
        "cases": ends.cases,
        "died": ends.died,
        "sites": sites,
    }
