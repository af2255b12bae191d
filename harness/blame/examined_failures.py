"""Choose the failures of a unit to examine, and the diagnosis that the others inherit.

1. Failures are sorted into kinds: the backend, the stage, the outcome and the message.
2. For a kind of wrong results a few structures of each kind of graph are examined, for programs all structures. For a
   kind of models that cannot be loaded or run the smallest structures are examined, and the largest of some graphs.
3. If these do not agree on the culprit, one case of each structure is examined; if a structure is still open, all
   of its cases are, since PyTorch's errors and gaps in a specification depend on the values.
4. The rest inherits from the nearest examined failure. One in twenty is examined all the same; if its result differs
   from the one it would inherit, the other heirs of its structure are examined, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, TypeAlias

from harness.blame.decide import SPECIALISED, decide_directly
from harness.blame.inaccuracy import InaccuracyTask, explained_failures
from harness.blame.root_cause import BY_PASS, diagnose
from harness.blame.testimony import Asking, Blamed, BlameTask, Failure
from harness.compare.diagnosis import Diagnosis, Finding, Role, Testimony
from harness.compare.faults import Fault
from harness.compare.problem_kinds import VALUES
from harness.compare.verdict import BACKEND, CONVERTER, PYTORCH, SPEC, TRANSFORM, UNKNOWN, Outcome, Stage
from harness.convert.exporter_messages import ends_in_optimiser
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.core.isolation import preload_in_fork_server
from harness.core.program import is_composed
from harness.core.route import Route
from harness.generate.call_traits import is_ordinary
from harness.pipeline.case_run import CaseRun
from harness.pipeline.supervisor import Death, Supervisor, WorkerFailed
from harness.pipeline.task import Task

preload_in_fork_server("harness.blame.preloaded_witnesses")

#: The share of the time limit for a witness: it asks about one call, while a step of a case may be about a batch of
#: them, and its answer is not the verdict.
_PATIENCE = 1 / 3
#: Deaths after which a witness is no longer asked within a task; a hang counts as this many.
_BARRED_AT = 3
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

#: Backend, stage, outcome and message of failures.
_Kind: TypeAlias = tuple[str, Stage, Outcome, str]
#: The component to blame, and the rule if it blames an optimiser.
_Culprit: TypeAlias = tuple[str, str]


def not_examined(result: CaseRun, invocation: Invocation, route: Route) -> CaseRun:
    """Return a failure with the diagnosis that no witness examined it."""
    decision = _known_at_once(result, route) or Diagnosis(UNKNOWN, "not-examined")
    further = tuple(not_examined(one, invocation, route) for one in result.further)
    return _add_diagnosis(replace(result, further=further), invocation, route, decision)


def _add_diagnosis(result: CaseRun, invocation: Invocation, route: Route, decision: Diagnosis) -> CaseRun:
    diagnosis = diagnose(result, invocation, route.converter, decision)
    return replace(result, blame=decision.blame, diagnosis=diagnosis)


def _known_at_once(result: CaseRun, route: Route) -> Diagnosis | None:
    """Return the decision on a failure that needs no witness."""
    if result.blame == SPEC:
        why = result.comparison.unsettled if result.comparison else ""
        left_open = Testimony(Role.SPECIFICATION, Finding.OPEN, "left-open", {"why": why})
        return Diagnosis(SPEC, "left-open", testimony=(left_open,))
    if result.model_run.traced is not None:
        return Diagnosis(CONVERTER, SPECIALISED, {"converter": route.converter, "what": result.model_run.traced.what})
    return decide_directly(result, route)


def _is_to_be_examined(result: CaseRun, invocation: Invocation) -> bool:
    """Whether a failure that needs no witness may be an optimiser's, or that of one of a program's calls."""
    if result.is_of_harness or result.model_run.traced is not None:
        return False
    if result.outcome not in (Outcome.ERROR, Outcome.UNSUPPORTED):
        return False
    if result.stage is Stage.CONVERT:
        return is_composed(invocation.overload) or ends_in_optimiser(result.message)
    return result.stage is Stage.CHECK


@dataclass
class _Failures:
    """The failures of a task, and their diagnoses.

    Attributes:
        results: The failures.
        diagnoses: Index of a failure → its diagnosis.
    """

    results: Sequence[CaseRun]
    task: Task
    supervisor: Supervisor
    diagnoses: dict[int, Diagnosis] = field(default_factory=dict)

    @cached_property
    def groups(self) -> Mapping[int, CaseGroup]:
        """Index → group."""
        return {group.index: group for group in self.task.groups}

    def invocation(self, index: int) -> Invocation:
        """Return the case of a failure."""
        group, case = self.results[index].case
        return dict(self.groups[group].cases)[case]

    def structure(self, index: int) -> int:
        """Return the index of the group that the case of a failure is in."""
        return self.results[index].case[0]

    def failure(self, index: int) -> Failure:
        """Return a failure in the form that witnesses get."""
        result = self.results[index]
        return Failure(
            index=index,
            # Other problems of the case are failures of their own.
            result=replace(result, further=()),
            route=replace(self.task.route, backend=result.backend),
            group=self.groups[result.case[0]],
            source=self.task.model,
        )

    def diagnosed(self, index: int, diagnosis: Diagnosis | None = None) -> CaseRun:
        """Return a failure with a diagnosis, by default its own."""
        diagnosis = diagnosis or self.diagnoses[index]
        return _add_diagnosis(self.results[index], self.invocation(index), self.task.route, diagnosis)

    def diagnosed_rest(self, index: int) -> list[CaseRun]:
        """Return a failure again with the diagnosis of what the first one does not explain; empty if it explains
        all."""
        rest = self.diagnoses[index].rest
        return [] if rest is None else [self.diagnosed(index, rest)]

    def examine(self, chosen: Iterable[int]) -> None:
        """Ask the witnesses about some failures."""
        failures = tuple(map(self.failure, chosen))
        if not failures:
            return
        answers = ask_witnesses(BlameTask(failures, self.task.settings, self.supervisor.serial), self.supervisor)
        for failure in failures:
            answer = answers.get(failure.index)
            self.diagnoses[failure.index] = answer.diagnosis if answer else Diagnosis(UNKNOWN, "examination-failed")


def assign_blame(results: Sequence[CaseRun], task: Task, supervisor: Supervisor) -> list[CaseRun]:
    """Return the failures of `task`, each problem of each with a diagnosis."""
    firsts, results = results, [one for result in results for one in (result, *result.further)]
    failures = _Failures(results, task, supervisor)
    inaccurate = _inaccurate(failures)
    failures.diagnoses |= {i: _formula_diagnosis(results[i], node) for i, node in inaccurate.items()}
    kinds: defaultdict[_Kind, list[int]] = defaultdict(list)
    for i, result in enumerate(results):
        if i in inaccurate:
            continue
        diagnosis = _known_at_once(result, task.route)
        if diagnosis is not None and not _is_to_be_examined(result, failures.invocation(i)):
            failures.diagnoses[i] = diagnosis
        else:
            kinds[result.backend, *result.ending].append(i)
    selections = [_Selection(failures, tuple(members)) for members in kinds.values()]
    for _ in range(3):
        failures.examine([i for selection in selections for i in selection.choose()])
    failures.examine([i for selection in selections for i in selection.audited()])
    failures.examine([i for selection in selections for i in selection.distrusted()])
    failures.diagnoses |= {i: heir for selection in selections for i, heir in selection.heirs().items()}
    _accuse_of_contradiction(failures)
    near = {*inaccurate, *_near_largest(failures, firsts)}
    failures.results = [replace(r, outcome=Outcome.INACCURATE) if i in near else r for i, r in enumerate(results)]
    diagnosed = map(failures.diagnosed, range(len(results)))
    rest = map(failures.diagnosed_rest, range(len(results)))
    problems = ([run, *others] for run, others in zip(diagnosed, rest, strict=True))
    cases = (chain.from_iterable(islice(problems, 1 + len(first.further))) for first in firsts)
    return [replace(run, further=tuple(further)) for run, *further in cases]


def _accuse_of_contradiction(failures: _Failures) -> None:
    """Blame a runtime for a result that the specification leaves open if its own optimisations change it.

    One case of each structure is run without them; the others inherit.
    """
    by_structure: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for i, result in enumerate(failures.results):
        if result.blame == SPEC and result.graph_kind:
            by_structure[result.backend, failures.structure(i)].append(i)
    firsts = [members[0] for members in by_structure.values()]
    left_open = {i: failures.diagnoses[i] for i in firsts}
    failures.examine(firsts)
    for first, *others in by_structure.values():
        diagnosis = failures.diagnoses[first]
        if diagnosis.blame != BACKEND:
            failures.diagnoses[first] = left_open[first]
            continue
        heir = replace(diagnosis, inherited_from=failures.invocation(first).case_id)
        failures.diagnoses |= dict.fromkeys(others, heir)


def _near_largest(failures: _Failures, firsts: Sequence[CaseRun]) -> Iterator[int]:
    """Yield the indices of problems of ordinary calls whose errors are small next to the output's largest element.

    Models rely on no more. Of an edge case the single element is the question.
    """
    index = 0
    for first in firsts:
        indices = range(index, index := index + 1 + len(first.further))
        near = first.comparison is not None and first.comparison.within_largest and first.blame != SPEC
        if near and is_ordinary(failures.invocation(indices[0])):
            yield from indices


def _inaccurate(failures: _Failures) -> dict[int, Mapping[str, Any]]:
    """Return index → the node with the formula of each failure that formulas explain."""
    candidates = tuple(
        failures.failure(i)
        for i, result in enumerate(failures.results)
        if (result.graph_kind or failures.task.model is not None)
        and not result.further
        and result.blame != SPEC
        and _is_of_values(result)
    )
    if not candidates:
        return {}
    task = InaccuracyTask(candidates, failures.task.settings, failures.supervisor.serial)
    return explained_failures(failures.supervisor.serve(task, patience=_PATIENCE))


def _is_of_values(result: CaseRun) -> bool:
    """Whether only finite numbers are wrong."""
    comparison = result.comparison
    return comparison is not None and {problem.kind for problem in comparison.problems} == {VALUES}


def _formula_diagnosis(result: CaseRun, node: Mapping[str, Any]) -> Diagnosis:
    facts = {"backend": result.backend, "node": node, "kernel_fault": Fault.INACCURATE}
    wrong = Testimony(Role.NODES, Finding.WRONG, "formula-rounded", facts)
    return Diagnosis(BACKEND, "rounded-formula", {"backend": result.backend}, (wrong,))


def ask_witnesses(task: BlameTask, supervisor: Supervisor) -> dict[int, Blamed]:
    """Return the diagnosis of each failure by the witnesses, by index.

    A witness that kills the process is skipped for the failure at hand, and for all others if
    it does so repeatedly or hangs. A failure that cannot be examined at all is absent.
    """
    found: dict[int, Blamed] = {}
    deaths: Counter[str] = Counter()
    left = task
    while left.failures:
        death: Death | None = None
        for message in supervisor.serve(left, patience=_PATIENCE):
            if isinstance(message, Blamed):
                found[message.index] = message
            elif isinstance(message, Death):
                death = message
        if death is None:
            break
        asking = death.announced
        if not isinstance(asking, Asking):
            raise WorkerFailed(death.message)
        lost = (asking.index, asking.witness)
        given_up = {i for i, witness in left.dead if (i, witness) == lost or not asking.witness}
        deaths[asking.witness] += _BARRED_AT if death.outcome is Outcome.TIMEOUT else 1
        left = replace(
            left,
            failures=tuple(
                c
                for c in left.failures
                if c.index not in found and c.index not in given_up and (asking.witness or c.index != asking.index)
            ),
            dead=(*left.dead, lost),
            barred=left.barred | {w for w, count in deaths.items() if w and count >= _BARRED_AT},
        )
    return found


@dataclass
class _Selection:
    """The failures of one kind: those to examine, and the diagnoses that the others inherit.

    Attributes:
        members: Their indices.
        audits: Members that were examined although they would have inherited → the diagnosis that they would inherit.
    """

    failures: _Failures
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
