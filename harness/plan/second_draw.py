"""Draw arguments again that never reached a comparison, in calls that do.

A case ends at the first stage that fails: an attribute that comes with an unsupported dtype says nothing about the
numbers that it leads to. After the drawn cases of an operator have run, each condition on an argument that some call
has, but none that was compared, is drawn again in two ways: the call in a dtype that was compared, and a compared call
with the argument. What is drawn depends on what failed, and so on the installed versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from harness.compare.verdict import Stage, Verdict
from harness.core.invocation import Argument, Invocation, TensorSpec
from harness.core.tensors import argument_names
from harness.generate.operator_case import OPERATOR_CASES
from harness.generate.pairs.conditions import Condition, ConditionKind
from harness.generate.pairs.table import structure_conditions
from harness.generate.sources.source import Structure
from harness.generate.value_draws import ValueDraws

#: One structure is drawn again for so many cases of an operator, at most.
_CASES_PER_STRUCTURE = 12
#: Compared calls that an argument is tried in.
_BASES = 2
#: Value draws of each structure.
_VALUES = 2
#: A dtype that fails is a verdict by itself, and a value may be spelled in any call.
_ALONE = (ConditionKind.DTYPE, ConditionKind.PROMOTION)


@dataclass
class Reached:
    """The structures of an operator that have run, and which of them were compared."""

    _compared: dict[str, Invocation]
    _others: dict[str, Invocation]

    @classmethod
    def nothing(cls) -> Reached:
        """Return the state before any case has run."""
        return cls({}, {})

    def note(self, verdicts: Iterable[Verdict]) -> None:
        """Take note of some verdicts on drawn cases."""
        for verdict in verdicts:
            if verdict.structure_id in self._compared:
                continue
            call = Invocation.from_json(verdict.invocation)
            if verdict.stage == Stage.COMPARE and (verdict.total_elements or 0) > 0:
                self._compared[verdict.structure_id] = call
                self._others.pop(verdict.structure_id, None)
            else:
                self._others[verdict.structure_id] = call

    def draw(self, seed: int, overload: str, examples: int) -> tuple[Structure, ...]:
        """Return calls with the arguments that no compared call has, a few for the `examples` that were drawn."""
        most = examples // _CASES_PER_STRUCTURE
        if not self._compared or not most:
            return ()
        known = {*self._compared, *self._others}
        refused = OPERATOR_CASES[overload].refused
        calls = (c for c in self._calls(refused) if c.structure_id not in known)
        distinct = {call.structure_id: call for call in islice(calls, most)}
        values = ValueDraws(f"{seed}/{overload}/redrawn")
        return tuple(Structure(call, values.of(call, _VALUES)) for call in distinct.values())

    def _calls(self, refused: Collection[str]) -> Iterator[Invocation]:
        compared = [(call, {c.name for c in structure_conditions(call)}) for call in self._compared.values()]
        reached = frozenset().union(*(names for _, names in compared))
        dtypes = Counter(call.dtype for call, _ in compared)
        for condition, call in _unreached(self._others.values(), reached | frozenset(refused)).items():
            yield from (_in_dtype(call, dtype) for dtype, _ in dtypes.most_common(1) if dtype != call.dtype)
            value = dict(call.arguments).get(condition.subject)
            if value is not None and not isinstance(value, TensorSpec):
                bases = [base for base, _ in compared if _ranks(base) == _ranks(call)] or [b for b, _ in compared]
                yield from (_with_argument(base, condition.subject, value) for base in bases[:_BASES])


def _unreached(calls: Iterable[Invocation], reached: Collection[str]) -> Mapping[Condition, Invocation]:
    """Return the conditions on arguments that only these calls have, each with the first of them."""
    found: dict[Condition, Invocation] = {}
    for call in calls:
        for condition in structure_conditions(call):
            if condition.subject and condition.kind not in _ALONE and condition.name not in reached:
                found.setdefault(condition, call)
    return found


def _in_dtype(call: Invocation, dtype: str) -> Invocation:
    """Return a call with tensors of its main dtype in another one."""
    main = call.dtype
    return call.map_tensors(lambda spec: replace(spec, dtype=dtype) if spec.dtype == main else spec)


def _with_argument(call: Invocation, name: str, value: Argument) -> Invocation:
    given = {**dict(call.arguments), name: value}
    return replace(call, arguments=tuple((n, given[n]) for n in argument_names(call.overload) if n in given))


def _ranks(call: Invocation) -> Sequence[int]:
    return [len(spec.shape) for spec in call.tensors()]
