"""Chooses pairs of conditions that some call meets which PyTorch takes, and which passes as it is."""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, zip_longest

from planted.pair_conditions import Condition, Conjunction, Seen, conditions_of, seen
from planted.pair_list import DYNAMO, RUNTIME, TORCHSCRIPT, PlantedPair, spoiled

from harness.compare.comparison import compare
from harness.compare.verdict import Outcome
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.core.tensors import overload
from harness.generate.draws import draw_cases
from harness.generate.operator_case import OPERATOR_CASES, judge_of
from harness.pipeline.reference import run_reference
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Settings, Task
from planted_pairs.made_calls import made_calls

#: The draws among which a call is looked for; no run has this seed.
_SEED, _STRUCTURES, _VALUES = 9_999, 100, 4
#: Pairs that are tried of one operator.
_TRIED = 12
#: Calls of a pair that are exported, to see whether one gets through.
_EXPORTED = 4
#: The same of calls that were made, of which PyTorch may refuse most.
_MADE = 12


def chosen_pairs(seed: int, without: Collection[str] = ()) -> Iterator[PlantedPair]:
    """A pair of each operator, families in turn, but of those no call of which gets through."""
    families: dict[str, list[str]] = {}
    for name, case in sorted(OPERATOR_CASES.items()):
        families.setdefault(case.family, []).append(name)
    turns = random.Random(seed)
    for names in families.values():
        turns.shuffle(names)
    for name in chain.from_iterable(zip_longest(*families.values())):
        pair = choose_pair(name, seed) if name is not None and name not in without else None
        if pair is not None:
            yield pair


def choose_pair(operator: str, seed: int) -> PlantedPair | None:
    """Return a pair of one operator; None if none is found."""
    chance = random.Random(zlib.crc32(f"{seed} {operator}".encode()))
    drawn = draw_cases(OPERATOR_CASES[operator], seed=_SEED, structures=_STRUCTURES, values=_VALUES)
    calls = [call for one in drawn for call in one.invocations]
    looked_at = [(call, seen(call)) for call in calls]
    arguments = overload(operator)._schema.arguments
    conditions = conditions_of([found for _, found in looked_at[::_VALUES]], arguments)
    structural = [c for c in conditions if c.is_structural]
    of_values = [c for c in conditions if not c.is_structural]
    if len(structural) < 2:
        return None
    for _ in range(_TRIED):
        pair = _random_pair(operator, structural, of_values, chance)
        wrong = chance.choice((DYNAMO, TORCHSCRIPT)) if pair.is_structural else RUNTIME
        if not _is_telling(pair, [found for _, found in looked_at]):
            continue
        found = next(_through(pair, wrong, looked_at), None)
        if found is not None:
            return PlantedPair(pair, wrong, found[0].json, found[1])
    return None


def _random_pair(
    operator: str, structural: Sequence[Condition], of_values: Sequence[Condition], chance: random.Random
) -> Conjunction:
    """Draw a pair of one of four kinds: structure, structure and values, values, or values that meet."""
    kind = chance.randrange(4) if of_values else 0
    if kind == 3:
        elements = [condition for condition in of_values if condition.is_of_elements]
        first = chance.choice(elements or of_values)
        others = [condition for condition in elements if condition.argument != first.argument]
        if others:
            return Conjunction(operator, first, chance.choice(others), facing=True)
    first = chance.choice(structural if kind < 2 else of_values)
    second = chance.choice(of_values if kind else structural)
    # Two of one argument are likelier to come together anyway.
    if first.argument == second.argument and chance.random() < 0.5:
        second = chance.choice(of_values if kind else structural)
    return Conjunction(operator, first, second)


def _is_telling(pair: Conjunction, calls: Sequence[Seen]) -> bool:
    """Whether both conditions are needed: neither comes with the other always, and neither is all calls'."""
    first = [pair.first.holds(call) for call in calls]
    second = [pair.second.holds(call) for call in calls]
    if pair.first == pair.second or all(first) or all(second):
        return False
    both = [one for one, other in zip(first, second, strict=True) if one and other]
    return not (both and (len(both) == sum(first) or len(both) == sum(second)))


def _through(
    pair: Conjunction, wrong: str, looked_at: Sequence[tuple[Invocation, Seen]]
) -> Iterator[tuple[Invocation, bool]]:
    """Calls that meet the pair and pass without the defect, and whether they were drawn."""
    drawn = [call for call, found in looked_at if pair.holds(found)]
    yield from ((call, True) for call in passing(drawn[:: max(len(drawn) // _EXPORTED, 1)], wrong))
    if drawn:
        return
    bases = [call for call, found in looked_at if pair.first.holds(found) or pair.second.holds(found)]
    made = [call for base in bases[:: max(len(bases) // 6, 1)] for call in made_calls(base, pair) if _meets(call, pair)]
    yield from ((call, False) for call in passing(made, wrong, _MADE))


def _meets(call: Invocation, pair: Conjunction) -> bool:
    try:
        return pair.holds(seen(call))
    except (RuntimeError, ValueError, OverflowError, TypeError):
        # A number that the tensor's new dtype cannot hold.
        return False


def passing(calls: Sequence[Invocation], wrong: str, most: int = _EXPORTED) -> list[Invocation]:
    """Return the first few calls that pass without the defect, and fail with it."""
    if not calls:
        return []
    groups = tuple(CaseGroup.of(call, index=i) for i, call in enumerate(calls[:most]))
    route = Route(converter="torchscript" if wrong == TORCHSCRIPT else "dynamo")
    task = Task(groups, route, ("ort-cpu",), Settings(blame=False))
    # PyTorch is asked in another process, too: it may die of a call.
    with Supervisor(timeout=30.0) as supervisor:
        passed = {r.case[0] for results in supervisor.run(task) for r in results if r.outcome is Outcome.PASS}
    return [call for i, call in enumerate(calls[:most]) if i in passed and would_show(call)]


def would_show(call: Invocation) -> bool:
    """Whether wrong numbers are noticed: not in a result without elements, or with arbitrary ones."""
    reference = run_reference(call)
    wrong = [spoiled(right) for right in reference.expected]
    return compare(judge_of(call).without_unsettled, reference, wrong).problem is not None
