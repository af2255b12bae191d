"""Cases of other operators that the same conversion functions convert.

Where these pass, the functions do; where they fail as well, what they have in common may be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from harness.core.invocation import Invocation
from harness.core.overloads import packet
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.locate.observed_case import ObservedCase
from harness.locate.source_code import Callers, SourceCode

#: Operators that are asked about, and cases of each.
_OPERATORS, _CASES = 5, 2
#: Operators for each function that others call, and how many of them in all.
_OF_FUNCTION, _OF_FUNCTIONS = 2, 8


def neighbours(cases: Sequence[ObservedCase], functions: Iterable[str], source: SourceCode) -> list[Invocation]:
    """A few drawn cases of operators that take part in the export of some cases, or whose conversion calls
    the same functions.

    Args:
        functions: That ran; those that matter most first.
    """
    own = {case.invocation.overload for case in cases}
    names = [name for name in dict.fromkeys(_taking_part(cases)) if name not in own][:_OPERATORS]
    others = _with_same_functions(cases, functions, source)[:_OF_FUNCTIONS]
    return _drawn(dict.fromkeys([*names, *others]))


def _drawn(names: Iterable[str]) -> list[Invocation]:
    known = load_cases()
    return [
        drawn.invocations[0] for name in names for drawn in draw_cases(known[name], seed=0, structures=_CASES, values=1)
    ]


def _taking_part(cases: Sequence[ObservedCase]) -> Iterator[str]:
    known = load_cases()
    for case in cases:
        program = case.graph.program if case.graph else None
        nodes = list(program.graph.nodes) if program else []
        # Those that compute the first wrong value matter most.
        for node in sorted(nodes, key=lambda node: node.name not in case.first_wrong_nodes):
            if str(node.target) in known:
                yield str(node.target)
    functions = _functions(cases)
    packets = {re.sub(r"^aten_", "", name) for name in functions}
    seen = {packet(case.invocation.overload) for case in cases}
    for name in known:
        if packet(name).rpartition(".")[2] in packets and packet(name) not in seen:
            seen.add(packet(name))
            yield name


def _with_same_functions(cases: Sequence[ObservedCase], functions: Iterable[str], source: SourceCode) -> list[str]:
    """Operators whose conversion calls one of some functions, a few of each."""
    files = dict.fromkeys(line.file for case in cases for line, _ in case.executed)
    callers = Callers(source.file(path).tree for path in files)
    overloads: dict[str, str] = {}
    for name in load_cases():
        overloads.setdefault(packet(name), name)
    own = {packet(case.invocation.overload) for case in cases}
    chosen: dict[str, None] = {}
    for function in functions:
        found = dict.fromkeys(name for name in callers.operators(function) if name in overloads)
        others = [name for name in found if name not in own and name not in chosen]
        chosen.update(dict.fromkeys(others[:_OF_FUNCTION]))
    return [overloads[name] for name in chosen]


def _functions(cases: Sequence[ObservedCase]) -> dict[str, None]:
    return dict.fromkeys(line.function.partition(".")[0] for case in cases for line, _ in case.executed)
