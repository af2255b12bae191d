"""Draw arguments again that never reached a comparison.

A case ends at the first stage that fails: an attribute that comes with an unsupported dtype is never compared. After
the drawn cases of an operator have run, each condition on an argument that only failing calls met is drawn again in two
ways: its call in a dtype that was compared, and a compared call with its argument. The result depends on what failed,
and so on the installed versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from harness.compare.verdict import Stage, Verdict
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation, TensorSpec
from harness.generate.operator_case import OPERATOR_CASES
from harness.generate.pairs.conditions import Condition, ConditionKind
from harness.generate.pairs.table import structure_conditions
from harness.generate.value_draws import ValueDraws
from harness.generate.variations import give_argument

#: One structure is drawn again for so many cases of an operator, at most.
_CASES_PER_STRUCTURE = 12
#: Compared calls that an argument is tried in.
_BASES = 2
#: Value draws of each structure.
_VALUES = 2
#: Conditions that are not drawn again: a dtype that fails is a verdict by itself.
_DTYPES = (ConditionKind.DTYPE, ConditionKind.PROMOTION)


@dataclass
class DrawnStructures:
    """The drawn structures of an operator that have run: those that were compared, and the others."""

    _compared: dict[str, Invocation]
    _others: dict[str, Invocation]

    @classmethod
    def none(cls) -> DrawnStructures:
        """Return the structures before any case has run."""
        return cls({}, {})

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Add the structures of some verdicts. One counts as compared if an element of one of its cases was."""
        for verdict in verdicts:
            structure = verdict.structure_id
            is_compared = verdict.stage is Stage.COMPARE and verdict.total_elements > 0
            if structure in self._compared or (structure in self._others and not is_compared):
                continue
            call = self._others.pop(structure, None) or Invocation.from_json(verdict.invocation)
            (self._compared if is_compared else self._others)[structure] = call

    def draw(self, seed: int, overload: str, examples: int) -> tuple[CaseGroup, ...]:
        """Return calls with arguments that no compared call has, one for several of the `examples` drawn."""
        most = examples // _CASES_PER_STRUCTURE
        if not self._compared or not most:
            return ()
        known = {*self._compared, *self._others}
        refused = OPERATOR_CASES[overload].refused
        calls = (c for c in self._calls(refused) if c.structure_id not in known)
        distinct = {call.structure_id: call for call in islice(calls, most)}
        values = ValueDraws(f"{seed}/{overload}/redrawn")
        return tuple(CaseGroup.of(call, values.of(call, _VALUES)) for call in distinct.values())

    def _calls(self, refused: Collection[str]) -> Iterator[Invocation]:
        compared = [(call, {c.name for c in structure_conditions(call)}) for call in self._compared.values()]
        reached = frozenset().union(*(names for _, names in compared))
        dtypes = Counter(call.dtype for call, _ in compared)
        for condition, call in _unreached(self._others.values(), reached | frozenset(refused)).items():
            yield from (_cast(call, dtype) for dtype, _ in dtypes.most_common(1) if dtype != call.dtype)
            value = dict(call.arguments).get(condition.subject)
            if value is not None and not isinstance(value, TensorSpec):
                bases = [base for base, _ in compared if _ranks(base) == _ranks(call)] or [b for b, _ in compared]
                yield from (give_argument(base, condition.subject, value) for base in bases[:_BASES])


def _unreached(calls: Iterable[Invocation], reached: Collection[str]) -> Mapping[Condition, Invocation]:
    """Return the conditions on arguments that only these calls have, each with the first of them."""
    found: dict[Condition, Invocation] = {}
    for call in calls:
        for condition in structure_conditions(call):
            if condition.subject and condition.kind not in _DTYPES and condition.name not in reached:
                found.setdefault(condition, call)
    return found


def _cast(call: Invocation, dtype: str) -> Invocation:
    """Return a call with another dtype in place of its main one."""
    main = call.dtype
    return call.map_tensors(lambda spec: replace(spec, dtype=dtype) if spec.dtype == main else spec)


def _ranks(call: Invocation) -> Sequence[int]:
    return [len(spec.shape) for spec in call.tensors()]
