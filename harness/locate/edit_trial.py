"""What a change of a converter does to failing cases, to passing ones and to other operators.

A changed function in place of a converter's, for a while and in this process alone.

What becomes of failing and passing cases with a change of a converter.

Cases of other operators that the same conversion functions convert.

Where these pass, the functions do; where they fail as well, what they have in common may be wrong.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import gc
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import TypeAlias

from harness.compare.verdict import Outcome, Stage
from harness.convert.provenance import traced_functions
from harness.core.invocation import Invocation
from harness.core.overloads import packet
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.locate.edits import Edit
from harness.locate.observed_case import GraphRunner, ObservedCase
from harness.locate.source_code import Callers, SourceCode


class CannotApply(Exception):
    """The change cannot be put in place of what runs."""


#: A function's file, first line and name → the functions that have its code.
Holders: TypeAlias = "dict[tuple[str, int, str], list[FunctionType]]"


def holders(codes: Collection[CodeType]) -> Holders:
    """The functions that have some codes."""
    # What a process had before it was forked is hidden from a search.
    gc.unfreeze()
    found: Holders = {}
    for thing in gc.get_referrers(*codes):
        if isinstance(thing, FunctionType) and thing.__code__ in codes:
            code = thing.__code__
            found.setdefault((code.co_filename, code.co_firstlineno, code.co_name), []).append(thing)
    return found


@contextlib.contextmanager
def applied_edit(file: str, changed: ast.FunctionDef, known: Holders) -> Iterator[None]:
    """Run `changed` wherever its original is called.

    Whoever holds the function, a registry or a kept table, gets the change, since its code is replaced. One
    that onnxscript has built from its source is run instead.

    Args:
        file: That the function is in.
        changed: It, with the lines of its file.
        known: Functions that run, its original among them.

    Raises:
        CannotApply: it is none of them, or does not compile.
    """
    module = ast.fix_missing_locations(ast.Module([changed], []))
    # Annotations name what modules import for a type checker only.
    flags = __future__.annotations.compiler_flag
    try:
        compiled = compile(module, file, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise CannotApply(str(error)) from None
    functions = [
        (function, code)
        for code in _codes_of(compiled)
        for function in known.get((file, code.co_firstlineno, code.co_name), [])
        if function.__code__.co_freevars == code.co_freevars
    ]
    if not functions:
        raise CannotApply(f"{changed.name} is not a function that is kept")
    before = [(function, function.__code__) for function, _ in functions]
    for function, code in functions:
        function.__code__ = code
    try:
        with traced_functions(lambda function: any(function is one for one, _ in functions)):
            yield
    finally:
        for function, code in before:
            function.__code__ = code


def _codes_of(code: CodeType) -> Iterator[CodeType]:
    """The code of the functions that some code defines, and of those within them: a function that makes
    another one has done so long ago, and it is the other one that runs."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            # What has no name is made again whenever its function runs.
            if not inner.co_name.startswith("<"):
                yield inner
            yield from _codes_of(inner)


#: Stages at which a graph is refused.
_REFUSING = (Stage.CHECK, Stage.LOAD, Stage.RUN)
_STAGES = (Stage.CONVERT, Stage.CHECK, Stage.LOAD, Stage.RUN, Stage.COMPARE)
#: What is said of results whose elements cannot be compared.
_OF_FORM = ("number of outputs", "dtype", "shape")
#: Failing cases that a change is tried on first; the others only if it makes something of these.
_FIRST = 3

#: How far a case got: its stage, whether its elements were compared, and what was said.
_Reached: TypeAlias = tuple[int, bool, str]


@dataclass(frozen=True)
class TriedEdit:
    """What became of the failing cases with a change.

    Attributes:
        passed: Numbers of those that pass.
        further: Numbers of those that get further than without it, and fail.
        changed: Whether something else is said of one of the others.
        breaks: Whether a passing case fails with it, as far as was looked; True where it cannot be applied.
        every: How many failing cases there are.
    """

    edit: Edit
    passed: frozenset[int]
    further: frozenset[int]
    changed: bool
    breaks: bool
    every: int

    @property
    def repairs(self) -> bool:
        """Whether every failing case passes and nothing breaks."""
        return len(self.passed) == self.every and not self.breaks


@dataclass(frozen=True)
class EditTrial:
    """Failing and passing cases, and what runs them.

    Attributes:
        reached: How far each failing case gets without a change.
        optimising: With the converter's optimiser.
        evaluator: Runs what the backend has no kernel for; None to do without.
        known: The functions of the converter.
        users: Passing cases of other operators whose conversion calls a function.
    """

    failing: Sequence[Invocation]
    passing: Sequence[Invocation]
    reached: Mapping[str, _Reached]
    runner: GraphRunner
    optimising: GraphRunner
    evaluator: GraphRunner | None
    source: SourceCode
    known: Holders
    users: Callable[[str], Sequence[Invocation]]

    @classmethod
    def of(
        cls,
        failing: Sequence[Invocation],
        passing: Sequence[Invocation],
        runner: GraphRunner,
        optimising: GraphRunner,
        evaluator: GraphRunner | None,
        source: SourceCode,
        known: Holders,
        users: Callable[[str], Sequence[Invocation]],
    ) -> EditTrial:
        """Of the cases, which are run once without a change."""
        reached = {call.case_id: _reached(*runner.outcome(call)[:3]) for call in failing}
        return cls(failing, passing, reached, runner, optimising, evaluator, source, known, users)

    def of_edit(self, edit: Edit, *, thorough: bool) -> TriedEdit:
        """What becomes of the cases with a change.

        Args:
            thorough: Whether it matters what becomes of the rest where one case fails.
        """
        nothing = TriedEdit(edit, frozenset(), frozenset(), False, True, len(self.failing))
        function = edit.function(self.source)
        if function is None:
            return nothing
        try:
            with applied_edit(edit.statement.file, function, self.known):
                found = self._of_failing(edit, thorough=thorough)
                if found.breaks or not (found.passed or found.further or found.changed):
                    return found
                breaks = not all(self.passes(call) for call in self.passing)
            if not breaks and found.repairs:
                # What others call may be right for them as it is. They are looked for without the change.
                users = self.users(edit.statement.function)
                with applied_edit(edit.statement.file, function, self.known):
                    breaks = not all(self.passes(call) for call in users)
        except CannotApply:
            return nothing
        return TriedEdit(edit, found.passed, found.further, found.changed, breaks, found.every)

    def _of_failing(self, edit: Edit, *, thorough: bool) -> TriedEdit:
        """What becomes of the failing cases with a change that is in place, as if it broke nothing."""
        passed, further, changed = set(), set(), False
        for number, call in enumerate(self.failing):
            ended = self.runner.outcome(call)[:3]
            reached, before = _reached(*ended), self.reached[call.case_id]
            if ended[1] is Outcome.PASS or self._passes_otherwise(call, *ended):
                passed.add(number)
                continue
            if not thorough:
                return TriedEdit(edit, frozenset(), frozenset(), False, True, len(self.failing))
            if reached[:2] > before[:2]:
                further.add(number)
            changed |= reached[:2] == before[:2] and reached[2] != before[2] and before[0] < len(_STAGES) - 1
            if number == _FIRST - 1 and not (passed or further or changed):
                break
        return TriedEdit(edit, frozenset(passed), frozenset(further), changed, False, len(self.failing))

    def passes(self, call: Invocation) -> bool:
        """Whether a case passes as things are now."""
        ended = self.runner.outcome(call)[:3]
        return ended[1] is Outcome.PASS or self._passes_otherwise(call, *ended)

    def _passes_otherwise(self, call: Invocation, stage: Stage, outcome: Outcome, message: str) -> bool:
        """Whether a failing case passes where more is done with its graph."""
        before = self.reached.get(call.case_id)
        # Whoever passes without a change has to go on in the same way.
        if before is None or stage not in _REFUSING or message == before[2]:
            return False
        return any(runner.outcome(call)[1] is Outcome.PASS for runner in self._otherwise(outcome))

    def _otherwise(self, outcome: Outcome) -> Iterator[GraphRunner]:
        # Some graphs are accepted only once the optimiser has been over them.
        yield self.optimising
        # A right graph may be one that the backend has no kernel for.
        if outcome is Outcome.UNSUPPORTED and self.evaluator is not None:
            yield self.evaluator


def _reached(stage: Stage, outcome: Outcome, message: str) -> _Reached:
    return _STAGES.index(stage), stage is Stage.COMPARE and not message.startswith(_OF_FORM), message


#: Operators that are asked about, and cases of each.
_OPERATORS, _CASES = 5, 2
#: Operators for each function that others call, and how many of them in all.
_OF_FUNCTION, _OF_FUNCTIONS = 2, 8
#: Operators that must not be harmed by a change of a function.
_HARMED = 4


def neighbours(cases: Sequence[ObservedCase], functions: Iterable[str], source: SourceCode) -> list[Invocation]:
    """A few drawn cases of operators that take part in the export of some cases, or whose conversion calls
    the same functions.

    Args:
        functions: That ran; those that matter most first.
    """
    own = {case.invocation.overload for case in cases}
    names = [name for name in dict.fromkeys(_taking_part(cases)) if name not in own][:_OPERATORS]
    others = _with_same_functions(cases, functions, source, _OF_FUNCTION)[:_OF_FUNCTIONS]
    return _drawn(dict.fromkeys([*names, *others]))


def users_of(function: str, cases: Sequence[ObservedCase], source: SourceCode) -> list[Invocation]:
    """A few drawn cases of other operators than those of `cases` whose conversion calls a function."""
    return _drawn(_with_same_functions(cases, [function], source, _HARMED))


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


def _with_same_functions(
    cases: Sequence[ObservedCase], functions: Iterable[str], source: SourceCode, most: int
) -> list[str]:
    """Operators whose conversion calls one of some functions, so many of each."""
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
        chosen.update(dict.fromkeys(others[:most]))
    return [overloads[name] for name in chosen]


def _functions(cases: Sequence[ObservedCase]) -> dict[str, None]:
    return dict.fromkeys(line.function.partition(".")[0] for case in cases for line, _ in case.executed)
