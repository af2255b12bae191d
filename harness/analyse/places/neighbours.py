"""Cases of other operators that the same conversion functions convert: where these pass, the functions do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harness.analyse.places.observed_case import ObservedCase
from harness.core import Invocation, packet
from harness.generate import OPERATOR_CASES, draw_cases

#: Operators that are asked about, and cases of each.
_OPERATORS, _CASES = 5, 2


def neighbours(cases: Sequence[ObservedCase]) -> list[Invocation]:
    """A few drawn cases of operators that take part in the export of some cases."""
    own = {case.invocation.overload for case in cases}
    names = [name for name in dict.fromkeys(_taking_part(cases)) if name not in own]
    return [
        drawn.invocations[0]
        for name in names[:_OPERATORS]
        for drawn in draw_cases(OPERATOR_CASES[name], seed=0, structures=_CASES, values=1)
    ]


def _taking_part(cases: Sequence[ObservedCase]) -> Iterator[str]:
    for case in cases:
        program = case.graph.program if case.graph else None
        for node in program.graph.nodes if program else ():
            if str(node.target) in OPERATOR_CASES:
                yield str(node.target)
    functions = {line.function.partition(".")[0] for case in cases for line, _ in case.executed}
    packets = {re.sub(r"^aten_", "", name) for name in functions}
    seen = {packet(case.invocation.overload) for case in cases}
    for name in OPERATOR_CASES:
        if packet(name).rpartition(".")[2] in packets and packet(name) not in seen:
            seen.add(packet(name))
            yield name
