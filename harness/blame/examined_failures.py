"""Which failures of a unit are examined, and what the others inherit.

1. Failures are sorted into kinds: the backend, the stage, the outcome and what they say.
2. Of wrong results of one kind, a few structures whose graphs are alike are examined first. Where these agree that it
   is the converter's or the runtime's, the rest inherits. Else each structure is examined, then each case, since
   PyTorch's own errors and what a specification leaves open depend on the values.
3. A model that cannot be loaded or run fails by its structure: the smallest structures are examined and some whose
   graphs are of other kinds. Where these agree the rest inherits, else more are examined.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, islice
from typing import Any, TypeAlias

from harness.blame.decide import SPECIALISED, at_once, decide, telling_findings
from harness.blame.inaccuracy import InaccuracyTask, explained_failures
from harness.blame.root_cause import diagnose
from harness.blame.testimony import Asking, Blamed, BlameTask, Failure
from harness.compare.diagnosis import Diagnosis, Finding, Role, Testimony
from harness.compare.output_comparison import VALUES
from harness.compare.signatures import normalise
from harness.compare.verdict import BACKEND, CONVERTER, PYTORCH, SPEC, UNKNOWN, Outcome, Stage
from harness.core.invocation import Invocation
from harness.core.isolation import preload_in_fork_server
from harness.core.program import calls_of, is_composed
from harness.core.route import Route
from harness.pipeline.case_run import CaseRun
from harness.pipeline.supervisor import Death, Supervisor, WorkerFailed
from harness.pipeline.task import Group, Task

#: What is testified, without words.
_Heard = frozenset[tuple[Role, Finding, bool]]
#: Of what other witnesses may say in addition, so many things at once; no row asks for more.
_AT_ONCE = 2


def can_change_blame(outcome: Outcome, heard: Sequence[Testimony], role: Role, others: Iterable[Role]) -> bool:
    """Whether a testimony of a witness in `role` may make another blame of `heard`, or of that and what
    witnesses in `others` may say."""
    known = frozenset((t.role, t.finding, t.independent) for t in heard)
    return _can_change(outcome, known, role, frozenset(others) - {role})


@cache
def _can_change(outcome: Outcome, known: _Heard, role: Role, others: frozenset[Role]) -> bool:
    others_too = [(other, finding, True) for other in others for finding in telling_findings(outcome, other)]
    findings = telling_findings(outcome, role)
    return any(
        _blame(outcome, known | {*combination, (role, finding, True)}) != _blame(outcome, known | {*combination})
        for count in range(_AT_ONCE + 1)
        for combination in combinations(others_too, count)
        for finding in findings
    )


@cache
def _blame(outcome: Outcome, known: _Heard) -> str:
    said = [Testimony(role, finding, independent=independent) for role, finding, independent in known]
    return decide(outcome, said).blame


preload_in_fork_server("harness.blame.preloaded_witnesses")

#: The share of the time limit that a witness is waited for: it asks about one call, where a step of a case
#: may be about a batch of them, and what it says is not the verdict.
_PATIENCE = 1 / 3
#: Deaths after which a witness is asked no more within a task; a hang counts as so many.
_BARRED_AT = 3
#: Of the failures to load or run that say the same, structures examined.
_STRUCTURES = 3
#: The same where these are not all blamed on the same.
_STRUCTURES_AT_ODDS = 16
#: Of the wrong results of one kind, cases examined.
_MISMATCHES = 64
#: Of these, structures whose graphs are of the same kind that are examined first.
_OF_A_KIND = 3
#: Of either, structures that witnesses export again.
_THOROUGH = 2

#: What is a matter of structure, so that another case of it may inherit it; where no value counts, so is what
#: PyTorch does wrong.
_OF_STRUCTURE = {CONVERTER, BACKEND}
_WHATEVER_THE_VALUES = {*_OF_STRUCTURE, PYTORCH}

#: Where failures of an operator end, how, and what they say.
FailureKind: TypeAlias = tuple[str, Stage, Outcome, str]


def signature(result: CaseRun) -> str:
    """What a failure says without what belongs to its case; "" for a pass."""
    traced = result.model_run.traced
    if traced is not None:
        refused = result.stage is Stage.CONVERT
        return f"{traced.what} depends on the data" if refused else f"specialised by tracing: {traced.what}"
    if result.comparison is not None and result.comparison.problem:
        return result.comparison.problem
    return normalise(result.message) if result.outcome is not Outcome.PASS else ""


def not_examined(result: CaseRun, invocation: Invocation, route: Route) -> CaseRun:
    """A failure of which no witness has been asked, or none could be."""
    decision = _known_at_once(result, route) or Diagnosis(UNKNOWN, "not-examined")
    further = tuple(not_examined(one, invocation, route) for one in result.further)
    return _with_diagnosis(replace(result, further=further), invocation, route, decision)


def _with_diagnosis(result: CaseRun, invocation: Invocation, route: Route, decision: Diagnosis) -> CaseRun:
    diagnosis = diagnose(result, invocation, route.converter, decision)
    return replace(result, blame=decision.blame, diagnosis=diagnosis)


def _known_at_once(result: CaseRun, route: Route) -> Diagnosis | None:
    """The decision on a failure that needs no witness."""
    if result.blame == SPEC:
        why = result.comparison.unsettled if result.comparison else ""
        left_open = Testimony(Role.SPECIFICATION, Finding.OPEN, "left-open", {"why": why})
        return Diagnosis(SPEC, "left-open", testimony=(left_open,))
    if result.model_run.traced is not None:
        return Diagnosis(CONVERTER, SPECIALISED, {"converter": route.converter, "what": result.model_run.traced.what})
    return at_once(result, route.converter)


def _of_calls(result: CaseRun) -> bool:
    """Whether a failure of a program that needs no witness may be that of one of its calls, or of an optimiser."""
    stopped = result.stage in (Stage.CONVERT, Stage.CHECK) and result.outcome in (Outcome.ERROR, Outcome.UNSUPPORTED)
    return stopped and not result.is_of_harness


def with_blame(
    results: Sequence[CaseRun], task: Task, supervisor: Supervisor, exemplified: set[FailureKind] | None = None
) -> list[CaseRun]:
    """The failures of `task` with whose they are, and whose all that is wrong in addition is.

    `exemplified` has the kinds of failure of the operator of which an example has been examined, and gets
    those that come.
    """
    exemplified = set() if exemplified is None else exemplified
    firsts, results = results, [one for result in results for one in (result, *result.further)]
    groups = {group.index: group for group in task.groups}
    inaccurate = _inaccurate(results, groups, task, supervisor)
    found = {i: _of_formula(results[i], node) for i, node in inaccurate.items()}
    kinds: defaultdict[FailureKind, list[int]] = defaultdict(list)
    for i, result in enumerate(results):
        if i in found:
            continue
        decision = _known_at_once(result, task.route)
        is_whole = is_composed(_invocation(result, groups).overload) and result.model_run.traced is None
        if decision is not None and not (is_whole and _of_calls(result)):
            found[i] = decision
        else:
            kinds[result.backend, result.stage, result.outcome, signature(result)].append(i)
    graphs = {kind: _graph_kinds(members, results, groups) for kind, members in kinds.items()}
    # First one case of some structures of each kind of graph, then of all where these do not agree, then what
    # is not settled by that.
    for _ in range(3):
        failures: list[Failure] = []
        for kind, members in kinds.items():
            known = kind in exemplified
            failures += _complaints(members, results, groups, graphs[kind], task, found, exemplified=known)
        blamed = (
            ask_witnesses(BlameTask(tuple(failures), task.settings, supervisor.serial), supervisor) if failures else {}
        )
        for failure in failures:
            answer = blamed.get(failure.index)
            found[failure.index] = answer.diagnosis if answer else Diagnosis(UNKNOWN, "examination-failed")
    exemplified.update(kinds)
    for kind, members in kinds.items():
        _inherit(members, results, groups, graphs[kind], found)
    results = [replace(r, outcome=Outcome.INACCURATE) if i in inaccurate else r for i, r in enumerate(results)]
    blamed_all = iter(_with_diagnosis(r, _invocation(r, groups), task.route, found[i]) for i, r in enumerate(results))
    return [replace(next(blamed_all), further=tuple(islice(blamed_all, len(first.further)))) for first in firsts]


def _inaccurate(
    results: Sequence[CaseRun], groups: Mapping[int, Group], task: Task, supervisor: Supervisor
) -> dict[int, Mapping[str, Any]]:
    """Index of each result that formulas explain → the node with the formula."""
    failures = tuple(
        _failure(i, result, groups, task)
        for i, result in enumerate(results)
        if result.graph_kind and not result.further and _is_of_values(result)
    )
    if not failures:
        return {}
    return explained_failures(
        supervisor.serve(InaccuracyTask(failures, task.settings, supervisor.serial), patience=_PATIENCE)
    )


def _is_of_values(result: CaseRun) -> bool:
    """Whether nothing is wrong but finite numbers."""
    comparison = result.comparison
    return comparison is not None and {problem.kind for problem in comparison.problems} == {VALUES}


def _of_formula(result: CaseRun, node: Mapping[str, Any]) -> Diagnosis:
    facts = {"backend": result.backend, "node": node, "kernel_fault": "inaccurate"}
    wrong = Testimony(Role.NODES, Finding.WRONG, "formula-rounded", facts)
    return Diagnosis(BACKEND, "rounded-formula", {"backend": result.backend}, (wrong,))


def ask_witnesses(task: BlameTask, supervisor: Supervisor) -> dict[int, Blamed]:
    """What witnesses say of each failure, by index.

    A witness that kills the process is passed over for the failure at hand, and for all others where
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


def _graph_kinds(
    members: Sequence[int], results: Sequence[CaseRun], groups: Mapping[int, Group]
) -> dict[int, Hashable]:
    """The kind of graph of each structure that `members` are cases of, or the structure itself where all
    structures are examined anyway.

    Of a program the calls count as well: an optimiser may leave nothing of them in the graph.
    """
    kinds = {results[i].case[0]: results[i].graph_kind for i in members}
    if results[members[0]].outcome is not Outcome.MISMATCH or len(kinds) <= _OF_A_KIND:
        return dict(zip(kinds, kinds, strict=True))
    return {structure: (kind, calls_of(groups[structure].exported)) for structure, kind in kinds.items()}


def _complaints(
    members: Sequence[int],
    results: Sequence[CaseRun],
    groups: dict[int, Group],
    graphs: Mapping[int, Hashable],
    task: Task,
    found: dict[int, Diagnosis],
    *,
    exemplified: bool,
) -> list[Failure]:
    """Those of `members` to look into, in view of what was `found` of others."""
    ordered = sorted(members, key=lambda i: _size(_invocation(results[i], groups)))
    firsts = list({results[i].case[0]: i for i in reversed(ordered)}.values())[::-1]
    known = {results[i].case[0]: found[i].blame for i in members if i in found}
    if not known:
        mismatch = results[members[0]].outcome is Outcome.MISMATCH
        if mismatch:
            chosen = _some_of_each(firsts, results, graphs)[:_MISMATCHES]
        else:
            chosen = [*firsts[:_STRUCTURES], *_of_other_kinds(firsts, results, graphs)[:_STRUCTURES]]
    elif results[members[0]].outcome is Outcome.MISMATCH:
        of_form = _is_of_form(results[members[0]])
        inheritable = _WHATEVER_THE_VALUES if of_form else _OF_STRUCTURE
        kinds = {results[i].case[0]: graphs[results[i].case[0]] for i in members}
        if of_form:
            dtypes = {results[i].case[0]: _invocation(results[i], groups).dtype for i in members}
            kinds = {structure: (kind, dtypes[structure]) for structure, kind in kinds.items()}
        blames: defaultdict[Hashable, set[str]] = defaultdict(set)
        for structure, blame in known.items():
            blames[kinds[structure]].add(blame)

        def is_settled(structure: int) -> bool:
            said = {known[structure]} if structure in known else blames[kinds[structure]]
            return len(said) == 1 and said <= inheritable

        open_ones = [i for i in ordered if i not in found and not is_settled(results[i].case[0])]
        new = [i for i in firsts if i in open_ones and results[i].case[0] not in known]
        chosen = (new or open_ones)[: max(_MISMATCHES - len(known), 0)]
    else:
        # Where they do not agree, it depends on more than the message.
        agreed = len(set(known.values())) == 1
        new = [] if agreed else [i for i in firsts if results[i].case[0] not in known]
        chosen = new[: max(_STRUCTURES_AT_ODDS - len(known), 0)]
    exported_again = {results[i].case[0] for i in firsts[:_THOROUGH]}
    return [
        replace(
            _failure(i, results[i], groups, task),
            thorough=results[i].case[0] in exported_again,
            example=i == firsts[0] and not exemplified,
        )
        for i in chosen
    ]


def _failure(index: int, result: CaseRun, groups: Mapping[int, Group], task: Task) -> Failure:
    return Failure(
        index=index,
        # Other problems of the case are failures of their own.
        result=replace(result, further=()),
        route=replace(task.route, backend=result.backend),
        group=groups[result.case[0]],
        source=task.model,
    )


def _some_of_each(firsts: Sequence[int], results: Sequence[CaseRun], graphs: Mapping[int, Hashable]) -> list[int]:
    """Of cases of one structure each, in order, the smallest and the largest of each kind of graph."""
    alike: defaultdict[Hashable, list[int]] = defaultdict(list)
    for i in firsts:
        alike[graphs[results[i].case[0]]].append(i)
    some = {i for same in alike.values() for i in (*same[: _OF_A_KIND - 1], same[-1])}
    return [i for i in firsts if i in some]


def _of_other_kinds(firsts: Sequence[int], results: Sequence[CaseRun], graphs: Mapping[int, Hashable]) -> list[int]:
    """Of cases of one structure each, one of each kind of graph that the first few are not of."""
    kinds = [graphs[results[i].case[0]] for i in firsts]
    seen = {*kinds[:_STRUCTURES]}
    others = {kind: i for kind, i in reversed([*zip(kinds, firsts, strict=True)]) if kind not in seen}
    return [i for i in firsts if i in {*others.values()}]


def _inherit(
    members: Sequence[int],
    results: Sequence[CaseRun],
    groups: dict[int, Group],
    graphs: Mapping[int, Hashable],
    found: dict[int, Diagnosis],
) -> None:
    """What those that were not examined have from those that were and fail in the same way.

    Only what is a matter of structure is inherited, and only where all that were examined agree: first
    those of the same structure, then those of the same kind of graph, then all. Of these it is that of a call
    in the same dtype, if there is one: what a kernel does wrong in one dtype it may do otherwise in another.
    A wrong dtype or shape does not depend on values, but on the dtype.
    """
    looked = {i: found[i] for i in members if i in found}
    dtypes = {i: _invocation(results[i], groups).dtype for i in looked}
    for i in members:
        if i in found:
            continue
        structure = results[i].case[0]
        alike = (
            {j: said for j, said in looked.items() if results[j].case[0] == structure}
            or {j: said for j, said in looked.items() if graphs[results[j].case[0]] == graphs[structure]}
            or looked
        )
        dtype = _invocation(results[i], groups).dtype
        inheritable = _OF_STRUCTURE if results[i].outcome is Outcome.MISMATCH else _WHATEVER_THE_VALUES
        same = {j: said for j, said in alike.items() if dtypes[j] == dtype}
        if same and _is_of_form(results[i]):
            alike, inheritable = same, _WHATEVER_THE_VALUES
        blames = {decision.blame for decision in alike.values()}
        if len(blames) == 1 and blames <= inheritable:
            first = next(iter(same or alike))
            case = _invocation(results[first], groups).case_id
            found[i] = replace(alike[first], inherited_from=case)
        else:
            found[i] = Diagnosis(UNKNOWN, "others-disagree", {"blames": sorted(blames)})


def _is_of_form(result: CaseRun) -> bool:
    """Whether a dtype or shape is wrong."""
    return result.comparison is not None and result.comparison.problem in ("dtype", "shape")


def _invocation(result: CaseRun, groups: dict[int, Group]) -> Invocation:
    group, case = result.case
    return dict(groups[group].cases)[case]


def _size(invocation: Invocation) -> tuple[int, int]:
    return sum(spec.numel for spec in invocation.tensors()), len(invocation.json)
