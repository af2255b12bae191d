"""How many of the pairs of conditions that PyTorch accepts the draws of an operator reach.

Calls in which a condition of another call is put into a call, so that PyTorch can be asked about both.

How many of the pairs of conditions that an operator's calls can have its draws have.

A pair is reachable if PyTorch takes some call that has both conditions: one of a long draw, or a drawn call
into which a condition of another was put. What no draw has at all is for `survey` to find: a pair is of two
conditions that are drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise

import numpy as np
import numpy.typing as npt

from harness.core import values as recipes
from harness.core.dtypes import INT_RANGE, PRECISION, UNSIGNED
from harness.core.invocation import Argument, Invocation, Literal, Recipe, TensorSpec, contiguous_strides
from harness.coverage.asker import Asker
from harness.coverage.exceptions import Excuse
from harness.coverage.points import (
    FLOATS,
    INTS,
    SurveyedOperator,
    expanded,
    stepped,
    value_of,
    with_argument,
    with_size,
    with_specs,
)
from harness.generate.draws import draw_examples
from harness.generate.operator_case import OperatorCase
from harness.generate.pairs.conditions import FLOAT_CLASSES, INT_CLASSES, Condition, ConditionKind, held_tensors
from harness.generate.pairs.table import PairTable, pair_table

#: Styles of other values that are tried.
_REDRAWN = ("mixed", "special", "tied", "wide")
#: Elements of a tensor whose values are written down.
_STORAGE = 4096
_SIZES = {"size 0": 0, "size 1": 1, "long": 65}
_LAYOUTS: dict[str, Callable[[TensorSpec], TensorSpec]] = {
    "contiguous": lambda spec: replace(spec, strides=contiguous_strides(spec.shape), offset=0),
    "offset": lambda spec: replace(spec, strides=contiguous_strides(spec.shape), offset=3),
    "non-contiguous": stepped,
    "expanded": expanded,
}
#: Domains in which a tensor may hold any number.
_FREE = ("any", "at_least", "nonzero")
_NOT_FINITE = ("NaN", "+inf", "-inf")
_ALL = {"all true": True, "all false": False}
_STYLES = {"ordinary": "plain", "one special": "one"}


def spliced(subject: SurveyedOperator, base: Invocation, donor: Invocation, wanted: Condition) -> Iterator[Invocation]:
    """Calls like `base` in which `wanted` may be so, as it is of `donor`; none where there is no way."""
    name = wanted.subject
    word = wanted.name.removeprefix(name).strip()
    if wanted.kind is ConditionKind.DTYPE:
        dtype, main = donor.dtype, base.dtype
        yield base.map_tensors(lambda spec: replace(spec, dtype=dtype) if spec.dtype == main else spec)
    elif wanted.kind is ConditionKind.PROMOTION and name:
        for spec in held_tensors(value_of(donor, name))[:1]:
            dtype = base.dtype if word == "of the first dtype" else spec.dtype
            yield with_specs(base, (name,), partial(_of_dtype, dtype))
    elif wanted.kind is ConditionKind.LAYOUT:
        yield with_specs(base, (name,), _LAYOUTS[word])
    elif wanted.kind is ConditionKind.SIZE and word in _SIZES and held_tensors(value_of(base, name)):
        yield from with_size(subject, name, _SIZES[word], base)
    elif wanted.is_of_values:
        yield from _with_values(base, name, word)
    elif (name and name not in subject.tensors) or wanted.kind is ConditionKind.PRESENCE:
        yield _given_as(subject, base, donor, name)


def _of_dtype(dtype: str, spec: TensorSpec) -> TensorSpec:
    return replace(spec, dtype=dtype)


def _given_as(subject: SurveyedOperator, base: Invocation, donor: Invocation, name: str) -> Invocation:
    given: dict[str, Argument] = dict(donor.arguments)
    if name in given:
        return with_argument(subject, base, name, given[name])
    return replace(base, arguments=tuple((n, a) for n, a in base.arguments if n != name))


def _with_values(base: Invocation, name: str, word: str) -> Iterator[Invocation]:
    held = held_tensors(value_of(base, name))[:1]
    if held and held[0].numel and held[0].storage_size <= _STORAGE:
        for values in islice(_values(held[0], word), len(_REDRAWN)):
            yield with_specs(base, (name,), lambda spec: replace(spec, values=values))  # noqa: B023 (called at once)


def _values(spec: TensorSpec, word: str) -> Iterator[Recipe | Literal]:
    """Values of which `word` may be so, within the domain that the operator case gives the tensor."""
    recipe = spec.values
    if isinstance(recipe, Literal):
        return
    example = _example(spec.dtype, word)
    domain = recipe.domain[0]
    if domain in _FREE or (domain == "finite" and word not in _NOT_FINITE):
        storage = recipes.compute(recipe, spec.dtype, spec.storage_size).tolist()
        if word == "one true":
            storage = [False] * len(storage)
            example = True
        if example is not None:
            storage[spec.offset] = example
            yield Literal(tuple(storage))
        elif word in (*_ALL, "all equal"):
            yield Literal((_ALL.get(word, storage[spec.offset]),) * len(storage))
    style = _STYLES.get(word)
    if style is not None:
        yield replace(recipe, style=style)
    if example is None or domain not in _FREE:
        yield from (replace(recipe, style=style, seed=recipe.seed + number) for number, style in enumerate(_REDRAWN, 1))


def _example(dtype: str, word: str) -> float | None:
    """A number of that class; None where the dtype has none, and for what is so of several elements."""
    if dtype in PRECISION and word in FLOAT_CLASSES:
        return {"zero": 0.0, "negative": -3.0}[word] if word not in FLOATS else FLOATS[word](dtype)
    if dtype in INT_RANGE and word in INT_CLASSES and not (word[0] == "n" and dtype in UNSIGNED):
        return INTS[word.removesuffix(" integer")](dtype)
    return None


#: How many times the default budget draws are counted at, too.
TIMES = 10
#: Structures of the long draw, and value draws of each.
_LONG, _VALUES = 400, 2
#: Seed of the long draw, from that of the draws: what is reachable does not follow from what is drawn.
_FURTHER = 1009
#: Calls that a condition is put into, and how often at most for each pair.
_BASES, _TRIES = 2, 2
#: Calls that PyTorch is asked about beside those drawn, for pairs of structure and for those with values.
_QUESTIONS = 250
#: Pairs not drawn that are named.
_SHOWN = 5
#: Elements of a call that PyTorch is asked about.
_ELEMENTS = 2**20
#: Calls in which a condition has to come with but one of some others to count as bringing it along.
_ALWAYS = 8

Matrix = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class PairShare:
    """Pairs drawn of those reachable."""

    reachable: int = 0
    drawn: int = 0
    drawn_at_ten: int | None = None


@dataclass(frozen=True, kw_only=True)
class PairSurvey:
    """What was found of the pairs of one operator.

    Attributes:
        structures: That the default budget draws.
        structural: Pairs of conditions of the structure.
        with_values: Pairs of which a condition is of the values of tensors.
        undrawn: Kinds of two conditions of the structure → pairs that the default budget does not draw.
        examples: Some of these pairs.
        excused: Reachable pairs not drawn that an exception covers, each with its place among the exceptions.
    """

    structures: int
    structural: PairShare
    with_values: PairShare
    undrawn: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    excused: list[tuple[str, int]] = field(default_factory=list)


def survey_pairs(
    case: OperatorCase,
    asker: Asker,
    *,
    seed: int,
    examples: int,
    values: int | None,
    at_ten: bool,
    excuses: Sequence[Excuse] = (),
) -> PairSurvey:
    """Survey the pairs of one operator.

    Args:
        examples: Cases that the default budget draws.
        values: Value draws of a structure among them; None for the usual number.
        at_ten: Draw ten times as many, too.
        excuses: Pairs that need not be drawn.
    """
    default = _drawn(case, seed, examples, values)
    more = _drawn(case, seed, TIMES * examples, values) if at_ten else []
    long = _drawn(case, seed + _FURTHER, _LONG * _VALUES, _VALUES)
    budgets = [_taken(calls, asker) for calls in (default, more, long)]
    found = pair_table([group for calls in budgets for group in calls])
    ends = np.cumsum([0, *(sum(map(len, calls)) for calls in budgets)])
    drawn, at_most, _ = (found.counts(range(start, end)) > 0 for start, end in pairwise(ends.tolist()))
    counts = found.counts()
    counts += _asked(case, asker, found, [call for calls in budgets for group in calls for call in group])
    reachable = (counts > 0) & found.pairs & ~_implied(found, counts)
    excused = list(_excused(found, reachable & ~drawn, case, excuses))
    for i, j, _ in excused:
        reachable[i, j] = False
    undrawn = reachable & ~drawn & ~found.with_values

    def share(which: Matrix) -> PairShare:
        mine = reachable & which
        ten = int(np.count_nonzero(mine & (drawn | at_most))) if at_ten else None
        return PairShare(
            reachable=int(np.count_nonzero(mine)), drawn=int(np.count_nonzero(mine & drawn)), drawn_at_ten=ten
        )

    return PairSurvey(
        structures=len(default),
        structural=share(~found.with_values),
        with_values=share(found.with_values),
        undrawn=dict(Counter(_kinds(found.conditions, i, j) for i, j in np.argwhere(undrawn).tolist())),
        examples=[_name(found.conditions, i, j) for i, j in np.argwhere(undrawn)[:_SHOWN].tolist()],
        excused=[(_name(found.conditions, i, j), place) for i, j, place in excused],
    )


def _drawn(case: OperatorCase, seed: int, examples: int, values: int | None) -> list[list[Invocation]]:
    """As a run draws them, structure by structure."""
    return [list(example.invocations) for example in draw_examples(case, seed=seed, examples=examples, values=values)]


def _taken(structures: Sequence[Sequence[Invocation]], asker: Asker) -> list[Sequence[Invocation]]:
    """Those that PyTorch takes, of which it is asked about the first."""
    answers = asker.ask([group[0] for group in structures])
    return [group for group, answer in zip(structures, answers, strict=True) if answer.taken]


def _implied(found: PairTable, counts: npt.NDArray[np.int64]) -> Matrix:
    """Pairs of which one condition brings the other along: whoever draws the one draws both."""
    both = (counts + counts.T) > 0
    about = {name: place for place, name in enumerate(dict.fromkeys(c.about for c in found.conditions))}
    of_about = np.zeros((len(found.conditions), len(about)), np.int64)
    for place, condition in enumerate(found.conditions):
        of_about[place, about[condition.about]] = 1
    often = found.has.sum(axis=0) >= _ALWAYS
    # Condition × what is asked → how many answers it comes with.
    answers = both.astype(np.int64) @ of_about
    where = [about[condition.about] for condition in found.conditions]
    single = (answers[:, where] == 1) & often[:, None]
    # Of values a call may have several, and none.
    of_values = np.array([condition.is_of_values for condition in found.conditions], bool)
    single[:, of_values] = False
    return np.asarray(single | single.T, bool)


def _asked(case: OperatorCase, asker: Asker, found: PairTable, calls: Sequence[Invocation]) -> npt.NDArray[np.int64]:
    """Pairs of calls that PyTorch takes and that are made for the pairs that no draw has."""
    subject = SurveyedOperator(case.overload, tuple(calls[:40]))
    counts = np.zeros((len(found.conditions),) * 2, np.int64)
    bases = [_bases(found, calls, place) for place in range(len(found.conditions))]
    seen = found.counts() > 0
    for which in (~found.with_values, found.with_values):
        for attempt in range(_TRIES):
            missing = np.argwhere(found.pairs & which & ~seen & (counts == 0)).tolist()
            questions = list(
                islice(_questions(subject, found.conditions, bases, missing, attempt), _QUESTIONS // _TRIES)
            )
            answers = asker.ask(questions)
            taken = [[call] for call, answer in zip(questions, answers, strict=True) if answer.taken]
            size = len(found.conditions)
            counts += pair_table(taken, known=found.conditions).counts()[:size, :size] if taken else 0
    return counts


def _bases(found: PairTable, calls: Sequence[Invocation], place: int) -> list[Invocation]:
    """Few calls that have a condition: larger ones first, as kernels check little of empty ones."""
    having = [calls[row] for row in np.flatnonzero(found.has[:, place])[: 8 * _BASES].tolist()]
    having = [call for call in having if sum(spec.numel for spec in call.tensors()) <= _ELEMENTS]
    return sorted(having, key=lambda call: not all(spec.numel > 1 for spec in call.tensors()))[:_BASES]


def _questions(
    subject: SurveyedOperator,
    conditions: Sequence[Condition],
    bases: Sequence[Sequence[Invocation]],
    pairs: Sequence[Sequence[int]],
    attempt: int,
) -> Iterator[Invocation]:
    """A call for each pair, if there is a way to make one: at every attempt another."""
    for i, j in pairs:
        ways = list(islice(_ways(subject, conditions, bases, i, j), 2 * _TRIES))
        yield from ways[attempt::_TRIES][:1]


def _ways(
    subject: SurveyedOperator,
    conditions: Sequence[Condition],
    bases: Sequence[Sequence[Invocation]],
    i: int,
    j: int,
) -> Iterator[Invocation]:
    one, other = conditions[i], conditions[j]
    if one.is_of_values and other.is_of_values:
        # In one element each, that they face each other.
        for base in (*bases[i], *bases[j]):
            for halfway in islice(spliced(subject, base, base, one), 1):
                yield from islice(spliced(subject, halfway, base, other), 1)
        return
    for mine, theirs, wanted in ((i, j, other), (j, i, one)):
        for base, donor in zip(bases[mine], bases[theirs], strict=False):
            yield from islice(spliced(subject, base, donor, wanted), 2)


def _excused(
    found: PairTable, open_pairs: Matrix, case: OperatorCase, excuses: Sequence[Excuse]
) -> Iterator[tuple[int, int, int]]:
    ours = [(place, e) for place, e in enumerate(excuses) if e.pairs and e.concerns(case.overload)]
    for i, j in np.argwhere(open_pairs).tolist() if ours else ():
        first, second = found.conditions[i].name, found.conditions[j].name
        place = next((place for place, excuse in ours if excuse.covers_pair(first, second)), None)
        if place is not None:
            yield i, j, place


def _name(conditions: Sequence[Condition], i: int, j: int) -> str:
    return f"{conditions[i].name} × {conditions[j].name}"


def _kinds(conditions: Sequence[Condition], i: int, j: int) -> str:
    return " × ".join(sorted((conditions[i].kind, conditions[j].kind)))
