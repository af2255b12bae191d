"""Whether the drawn cases of the operators that reach a mutated expression notice the mutation."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from mutants.applied import applied
from mutants.ends import Ends, drawn_groups, ends_of
from mutants.mutation import MODULES, Mutation, find_mutation, mutations
from mutants.reach import Reached, operators_that_reach

#: Structures of an operator that are tried before the others: most mutations show in them.
_FIRST = 6
#: Seconds of processor time for one operator's cases: what is mutated may hang.
_PATIENCE = 20.0


@dataclass(frozen=True)
class Tried:
    """What became of one mutation.

    Attributes:
        operators: Whose cases were run.
        noticed: The operator of the case that ended in another way; "" for none.
        case: Its id, and how it ended without the mutation and with it.
        unreached: Whether an exception in place of the expression changes nothing either: its function is
            called in vain.
    """

    mutation: str
    kind: str
    converter: str
    operators: tuple[str, ...]
    noticed: str = ""
    case: tuple[str, str, str] = ("", "", "")
    unreached: bool = False


def chosen_mutations(seed: int, per_function: int) -> list[Mutation]:
    """All mutations in an order that the seed gives: at most one of a site, and a few of a function."""
    chance = random.Random(seed)
    by_site: defaultdict[str, list[Mutation]] = defaultdict(list)
    for converter in MODULES:
        for mutation in mutations(converter):
            by_site[mutation.site].append(mutation)
    chosen = [chance.choice(found) for _, found in sorted(by_site.items())]
    chance.shuffle(chosen)
    of_function: Counter[tuple[str, str]] = Counter()
    kept = []
    for mutation in chosen:
        of_function[mutation.module, mutation.function] += 1
        if of_function[mutation.module, mutation.function] <= per_function:
            kept.append(mutation)
    return kept


def try_mutation(
    mutation: Mutation, found: Sequence[Reached], seed: int, operators: int, without: Sequence[str] = ()
) -> Tried:
    """Run the cases of those that reach it, the most direct ones first, until a case notices it."""
    reaching = [r for r in operators_that_reach(mutation, found) if r.operator not in without]
    tried = []
    for one in reaching[:operators]:
        tried.append(one.operator)
        noticed = _first_other(mutation, one, seed, raises=False)
        if noticed is not None:
            return Tried(mutation.id, mutation.kind, mutation.converter, tuple(tried), one.operator, noticed)
    raising = (_first_other(mutation, one, seed, raises=True) for one in reaching[:operators])
    return Tried(mutation.id, mutation.kind, mutation.converter, tuple(tried), unreached=not any(raising))


def _first_other(mutation: Mutation, one: Reached, seed: int, *, raises: bool) -> tuple[str, str, str] | None:
    groups = drawn_groups(one.operator, seed)
    within = partial(applied, mutation, raises=raises)
    for some in (groups[:_FIRST], groups[_FIRST:]):
        ends = ends_of(some, mutation.converter, seconds=_PATIENCE, within=within)
        noticed = one.ends.first_other(ends)
        if noticed is not None:
            return noticed
    return None


def survey(
    file: Path, chosen: Sequence[Mutation], found: Sequence[Reached], *, seed: int, count: int, operators: int
) -> Iterator[Tried]:
    """Try mutations that some case reaches until there are `count`; a line of `file` for each."""
    done = {tried.mutation for tried in read_survey(file)} if file.exists() else set()
    sites = {site for one in found for site in one.sites}
    reached = [mutation for mutation in chosen if mutation.site in sites][:count]
    with file.open("a", encoding="utf-8") as out:
        for mutation in reached:
            if mutation.id not in done:
                tried = try_mutation(mutation, found, seed, operators)
                out.write(json.dumps(asdict(tried)) + "\n")
                out.flush()
                yield tried


def try_again(
    file: Path, found: Sequence[Reached], seed: int, operators: int, without: Collection[str]
) -> Iterator[Tried]:
    """Try those that survived with other operators; a line of `file` for each."""
    survivors = [t for t in read_survey(file) if not t.noticed and t.mutation not in without]
    with file.open("a", encoding="utf-8") as out:
        for survivor in survivors:
            mutation = find_mutation(survivor.mutation)
            more = try_mutation(mutation, found, seed, operators, survivor.operators)
            if not more.noticed:
                # Those that were tried before may reach it.
                first = [one for one in found if one.operator in survivor.operators]
                raising = (
                    _first_other(mutation, one, seed, raises=True) for one in operators_that_reach(mutation, first)
                )
                more = replace(more, unreached=more.unreached and not any(raising))
            more = replace(more, operators=(*survivor.operators, *more.operators))
            out.write(json.dumps(asdict(more)) + "\n")
            out.flush()
            yield more


def read_survey(file: Path) -> Iterator[Tried]:
    """What `survey` wrote; of a mutation that was tried twice, the later."""
    last: dict[str, Tried] = {}
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            data = json.loads(line)
            case = tuple(data.pop("case"))
            tried = Tried(operators=tuple(data.pop("operators")), case=case, **data)
            last[tried.mutation] = tried
    yield from last.values()


def same_without(found: Sequence[Reached], seed: int) -> list[tuple[str, str, str]]:
    """Cases that end in another way when nothing is mutated: what is noticed then means nothing."""
    noticed = []
    for one in found:
        ends: Ends = ends_of(drawn_groups(one.operator, seed), one.converter, seconds=_PATIENCE)
        other = one.ends.first_other(ends)
        if other is not None:
            noticed.append((f"{one.operator} {one.converter}", other[1], other[2]))
    return noticed
