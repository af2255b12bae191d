"""Cases of other operators that go through the same conversion functions.

If they pass, the functions are right; if they fail too, what they have in common may be wrong.
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

#: Number of operators that take part in an export, and of cases of each.
_OPERATORS, _CASES = 5, 2
#: Number of operators per shared function, and for all of them.
_PER_FUNCTION, _IN_ALL = 2, 8


def neighbours(cases: Sequence[ObservedCase], functions: Iterable[str], source: SourceCode) -> list[Invocation]:
    """Draw a few cases of operators that take part in the export of some cases or share conversion functions with them.

    Args:
        cases: The cases.
        functions: Conversion functions that ran, the most important first.
        source: Their source.
    """
    own = {case.invocation.overload for case in cases}
    names = [name for name in dict.fromkeys(_taking_part(cases)) if name not in own][:_OPERATORS]
    others = _sharing_functions(cases, functions, source)[:_IN_ALL]
    return _draw(dict.fromkeys([*names, *others]))


def _draw(names: Iterable[str]) -> list[Invocation]:
    known = load_cases()
    return [drawn.exported for name in names for drawn in draw_cases(known[name], seed=0, structures=_CASES, values=1)]


def _taking_part(cases: Sequence[ObservedCase]) -> Iterator[str]:
    known = load_cases()
    for case in cases:
        program = case.graph.program if case.graph else None
        nodes = list(program.graph.nodes) if program else []
        # Nodes that compute the first wrong value come first.
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


def _sharing_functions(cases: Sequence[ObservedCase], functions: Iterable[str], source: SourceCode) -> list[str]:
    """Return operators whose conversion calls one of the functions, a few for each."""
    files = dict.fromkeys(line.file for case in cases for line, _ in case.executed)
    callers = Callers(source.file(path).tree for path in files)
    overloads: dict[str, str] = {}
    for name in load_cases():
        overloads.setdefault(packet(name), name)
    own = {packet(case.invocation.overload) for case in cases}
    chosen: dict[str, None] = {}
    for function in functions:
        operators = dict.fromkeys(name for name in callers.operators(function) if name in overloads)
        others = [name for name in operators if name not in own and name not in chosen]
        chosen.update(dict.fromkeys(others[:_PER_FUNCTION]))
    return [overloads[name] for name in chosen]


def _functions(cases: Sequence[ObservedCase]) -> dict[str, None]:
    return dict.fromkeys(line.function.partition(".")[0] for case in cases for line, _ in case.executed)
