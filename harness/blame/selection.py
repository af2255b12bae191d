"""Choose the failures of one kind to examine, and the diagnoses that the others inherit.

1. Failures are sorted into kinds: the backend, the stage, the outcome and the message.
2. For a kind of wrong results a few structures of each kind of graph are examined, for programs all structures. For a
   kind of models that cannot be loaded or run the smallest structures are examined, and the largest of some graphs.
3. If these do not agree on the culprit, one case of each structure is examined; if a structure is still open, all
   of its cases are, since PyTorch's errors and gaps in a specification depend on the values.
4. The rest inherits from the nearest examined failure. One in twenty is examined anyway; if its result differs
   from the one it would inherit, the other heirs of its structure are examined, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from harness.blame.root_cause import BY_PASS
from harness.blame.task_failures import TaskFailures
from harness.compare.diagnosis import Diagnosis
from harness.compare.verdict import BACKEND, CONVERTER, PYTORCH, TRANSFORM, UNKNOWN, Outcome, Stage
from harness.core.invocation import Invocation
from harness.core.program import is_composed
from harness.pipeline.case_run import CaseRun

#: Structures to examine among failures to load or run with the same message.
_STRUCTURES = 3
#: The same if these do not agree on the culprit.
_STRUCTURES_AT_ODDS = 16
#: Cases to examine among wrong results of one kind.
_MISMATCHES = 64
#: The same for programs.
_PROGRAMS = 256
#: Structures per kind of graph to examine first.
_OF_A_KIND = 3
#: One in so many of the cases that would inherit is examined.
_AUDITED = 20

#: Components whose failures depend on the structure, so that another case of it may inherit them. If values do not
#: matter, the same is true of PyTorch's failures.
_OF_STRUCTURE = {CONVERTER, TRANSFORM, BACKEND}
_WHATEVER_THE_VALUES = {*_OF_STRUCTURE, PYTORCH}

#: The component to blame, and the rule if it blames an optimiser.
_Culprit: TypeAlias = tuple[str, str]


@dataclass
class Selection:
    """The failures of one kind: those to examine, and the diagnoses that the others inherit.

    Attributes:
        members: Their indices.
        audits: Members that were examined although they would have inherited → the diagnosis that they would inherit.
    """

    failures: TaskFailures
    members: tuple[int, ...]
    audits: dict[int, Diagnosis] = field(default_factory=dict)

    @cached_property
    def ordered(self) -> list[int]:
        """The members, the smallest case first."""
        return sorted(self.members, key=lambda i: _size(self.failures.invocation(i)))

    @cached_property
    def firsts(self) -> list[int]:
        """The smallest member of each structure, in order."""
        return list({self.failures.structure(i): i for i in reversed(self.ordered)}.values())[::-1]

    @property
    def _first(self) -> CaseRun:
        return self.failures.results[self.members[0]]

    @property
    def is_mismatch(self) -> bool:
        """Whether the members are wrong results."""
        return self._first.outcome is Outcome.MISMATCH

    @property
    def is_of_form(self) -> bool:
        """Whether a dtype or shape is wrong."""
        return self._first.comparison is not None and self._first.comparison.problem in ("dtype", "shape")

    @cached_property
    def is_of_programs(self) -> bool:
        """Whether the members are programs."""
        return is_composed(self.failures.invocation(self.members[0]).overload)

    @property
    def most(self) -> int:
        """Return the maximum number of members to examine."""
        return _PROGRAMS if self.is_of_programs else _MISMATCHES

    def likeness(self, index: int) -> Hashable:
        """Return a key that members share if they may inherit from each other.

        The effect of an optimiser on a program depends on its constants, dtypes and sizes, so programs share their
        structure. A wrong form depends on the dtype, too.
        """
        if self.is_of_programs:
            return self.failures.structure(index)
        kind = self.failures.results[index].graph_kind
        return (kind, self.failures.invocation(index).dtype) if self.is_of_form else kind

    def _culprits(self) -> dict[int, _Culprit]:
        """Return the culprit of each member that was examined."""
        known = ((i, self.failures.diagnoses[i]) for i in self.members if i in self.failures.diagnoses)
        return {i: (d.blame, d.rule if d.rule in BY_PASS else "") for i, d in known}

    def choose(self) -> list[int]:
        """Return the members to examine next, given the diagnoses of the others."""
        culprits = self._culprits()
        if not culprits:
            return self._sample()
        if self.is_mismatch:
            return self._unsettled(culprits)
        # If they do not agree, the culprit depends on more than the message.
        structures = {self.failures.structure(i) for i in culprits}
        left = [i for i in self.firsts if self.failures.structure(i) not in structures]
        return left[: max(_STRUCTURES_AT_ODDS - len(structures), 0)] if len({*culprits.values()}) > 1 else []

    def _sample(self) -> list[int]:
        alike: defaultdict[Hashable, list[int]] = defaultdict(list)
        for i in self.firsts:
            alike[self.likeness(i)].append(i)
        if self.is_mismatch or (self.is_of_programs and self._first.stage is Stage.CHECK):
            # The smallest and the largest of each kind.
            chosen = {i for same in alike.values() for i in (*same[: _OF_A_KIND - 1], same[-1])}
            return [i for i in self.firsts if i in chosen][: self.most]
        largest = [same[-1] for same in alike.values()][:_STRUCTURES]
        return [*dict.fromkeys((*self.firsts[:_STRUCTURES], *largest))]

    def _unsettled(self, culprits: Mapping[int, _Culprit]) -> list[int]:
        """Return wrong results of structures whose culprit is not known yet: one each, then all."""
        inheritable = _WHATEVER_THE_VALUES if self.is_of_form else _OF_STRUCTURE
        by_structure, by_likeness = defaultdict[int, set[_Culprit]](set), defaultdict[Hashable, set[_Culprit]](set)
        for i, culprit in culprits.items():
            by_structure[self.failures.structure(i)].add(culprit)
            by_likeness[self.likeness(i)].add(culprit)

        def is_settled(index: int) -> bool:
            found = by_structure.get(self.failures.structure(index)) or by_likeness[self.likeness(index)]
            return len(found) == 1 and {blame for blame, _ in found} <= inheritable

        left = [i for i in self.ordered if i not in culprits and not is_settled(i)]
        new = [i for i in self.firsts if i in left and self.failures.structure(i) not in by_structure]
        return (new or left)[: max(self.most - len(by_structure), 0)]

    def audited(self) -> list[int]:
        """Return some of the members that would inherit, and note the diagnosis of each."""
        self.audits |= {
            i: heir
            for i, heir in self.heirs().items()
            if heir.blame != UNKNOWN and int(self.failures.invocation(i).case_id, 16) % _AUDITED == 0
        }
        return [*self.audits]

    def distrusted(self) -> list[int]:
        """Return the heirs of structures in which an audit refutes the inheritance."""
        refuted = {self.failures.structure(i) for i, heir in self.audits.items() if self._is_refuted(i, heir)}
        return [i for i in self.heirs() if self.failures.structure(i) in refuted][: self.most]

    def _is_refuted(self, index: int, heir: Diagnosis) -> bool:
        """Whether a failure has another root cause than it would have inherited."""
        own, inherited = (self.failures.diagnosed(index, d).diagnosis for d in (None, heir))
        assert own is not None
        assert inherited is not None
        return (own.blame, own.component, own.place) != (inherited.blame, inherited.component, inherited.place)

    def heirs(self) -> dict[int, Diagnosis]:
        """Return the diagnoses that the other members inherit.

        A member inherits only a blame that depends on the structure, and only if all examined members agree on it:
        those of the same structure first, then similar ones, then, except for programs, all. Among these a call in the
        same dtype comes first, if there is one: a kernel may be wrong in one dtype and right in another.
        """
        examined = [i for i in self.members if i in self.failures.diagnoses]
        return {i: self._heir(i, examined) for i in self.members if i not in self.failures.diagnoses}

    def _heir(self, index: int, examined: Sequence[int]) -> Diagnosis:
        failures = self.failures
        nearest = [i for i in examined if failures.structure(i) == failures.structure(index)]
        nearest = nearest or [i for i in examined if self.likeness(i) == self.likeness(index)]
        if not self.is_of_programs or not self.is_mismatch:
            nearest = nearest or list(examined)
        dtype = failures.invocation(index).dtype
        same = [i for i in nearest if failures.invocation(i).dtype == dtype]
        inheritable = _OF_STRUCTURE if self.is_mismatch else _WHATEVER_THE_VALUES
        if same and self.is_of_form:
            nearest, inheritable = same, _WHATEVER_THE_VALUES
        blames = {failures.diagnoses[i].blame for i in nearest}
        if len(blames) != 1 or not blames <= inheritable:
            return Diagnosis(UNKNOWN, "others-disagree", {"blames": sorted(blames)})
        first = (same or nearest)[0]
        return replace(failures.diagnoses[first], inherited_from=failures.invocation(first).case_id, rest=None)


def _size(invocation: Invocation) -> tuple[int, int]:
    return sum(spec.numel for spec in invocation.tensors()), len(invocation.json)
