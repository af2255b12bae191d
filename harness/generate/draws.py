"""Draw the invocations of one operator case."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, count, cycle, islice

from hypothesis import strategies as st

from harness.core.case_group import CaseGroup
from harness.core.dtypes import COMPLEX
from harness.core.invocation import Argument, Invocation
from harness.core.tensors import argument_names
from harness.generate import provider
from harness.generate.call_traits import is_ordinary
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import OperatorCase
from harness.generate.pairs.table import structure_conditions
from harness.generate.promotion import promoted
from harness.generate.scalars import respelled
from harness.generate.value_draws import ValueDraws
from harness.generate.variations import Transplants, filled_call, scalar_names, smallest_calls


@cache
def invocations(case: OperatorCase, dtype: str) -> st.SearchStrategy[Invocation]:
    """Return a Hypothesis strategy for the invocations of `case` in `dtype`."""
    return _hypothesis_invocations(case, dtype)


# One for all: Hypothesis reads the source of each function that is made a strategy, which takes it longer
# than several draws.
@st.composite
def _hypothesis_invocations(draw: st.DrawFn, case: OperatorCase, dtype: str) -> Invocation:
    return draw_invocation(Draw(lambda bound: draw(_below(bound)), dtype, case.schema), case)


@cache
def _below(bound: int) -> st.SearchStrategy[int]:
    # Kept: checking a new strategy takes Hypothesis longer than drawing from it.
    return st.integers(0, bound - 1)


def draw_invocation(d: Draw, case: OperatorCase) -> Invocation:
    """Draw one invocation of an operator.

    Raises:
        TypeError: the operator case names an argument that the schema lacks.
    """
    names = argument_names(case.overload)
    given_arguments = dict(case.arguments(d))
    for name in scalar_names(case.overload):
        d.about = name
        given_arguments[name] = respelled(d, given_arguments.get(name, OMIT))
    d.about = "promotion"
    given_arguments = promoted(d, given_arguments, case.promotions)
    unknown = set(given_arguments) - set(names)
    if unknown:
        raise TypeError(f"case of {case.overload} draws {sorted(unknown)}, which its schema lacks")
    return Invocation(
        case.overload,
        tuple((name, _frozen(given_arguments[name])) for name in names if given_arguments.get(name, OMIT) is not OMIT),
    )


def _frozen(argument: object) -> Argument:
    if isinstance(argument, list | tuple):
        return tuple(_frozen(element) for element in argument)
    return argument  # type: ignore[return-value]


#: Value draws of a structure where no number is asked for; and at most, where its export is slow.
VALUES, _MOST_VALUES = 4, 8
#: Value draws of a structure of an operator that models call: more structures serve such an operator better.
_VALUES_OF_USED = 2
#: Structures that every operator has before a slow one has more values of each, and each its share of cases.
_ENOUGH = 32


def draw_examples(
    case: OperatorCase,
    *,
    seed: int,
    examples: int,
    values: int | None = None,
    dtypes: Sequence[str] | None = None,
) -> list[CaseGroup]:
    """Draw about so many cases of one operator, as a run does: the structures, with their value draws.

    The operator's dtypes come as often as models use them, ordinary calls come first, and few structures are of the
    kinds that no exporter or runtime takes (`OperatorCase.used`, `OperatorCase.refused`). A large budget has the
    cases of a small one.

    Args:
        case: The operator.
        seed: Any integer.
        examples: Cases at most. Fewer come if no more exist, or if values cannot vary.
        values: Value draws per structure. None for the best number for the operator: an operator that models
            call has more structures with fewer values, a slow one more values and fewer structures.
        dtypes: Restrict to these.

    Raises:
        TypeError: the operator case names an argument that the schema lacks.
    """
    if values is None:
        values = _VALUES_OF_USED if case.used else VALUES
        if case.slow and not case.used:
            values = min(max(examples // _ENOUGH, VALUES), _MOST_VALUES)
        if examples > _ENOUGH * VALUES:
            examples = max(int(examples * case.share), _ENOUGH * VALUES)
    structures = -(-examples // values)
    found = draw_cases(case, seed=seed, structures=structures, values=values, dtypes=dtypes, by_use=True)
    if all(len(one.invocations) == 1 for one in found):
        # Only structures: they do the work that values do for others.
        structures = min(2 * structures, examples)
        found = draw_cases(case, seed=seed, structures=structures, values=1, dtypes=dtypes, by_use=True)
    left = [examples - count for count in accumulate((len(one.invocations) for one in found), initial=0)]
    return [replace(one, cases=one.cases[:rest]) for one, rest in zip(found, left, strict=False) if rest > 0]


def draw_cases(
    case: OperatorCase,
    *,
    seed: int,
    structures: int,
    values: int,
    dtypes: Sequence[str] | None = None,
    by_use: bool = False,
) -> list[CaseGroup]:
    """Draw the structures of one operator, with their value draws: the same ones for the same arguments, everywhere.

    Args:
        case: The operator.
        seed: Any integer.
        structures: How many distinct structures to aim at; fewer come if no more exist.
        values: Value draws per structure, the first included. Structures without elements, whose
            values cannot vary, have one; further structures come in place of the others.
        dtypes: Restrict to these; dtypes take turns, so that few structures still visit each.
        by_use: Draw the dtypes that models use more often, as `draw_examples` does.

    Raises:
        TypeError: the operator case names an argument that the schema lacks.
    """
    found: dict[str, CaseGroup] = {}
    if structures < 1:
        return []
    drawn_values = ValueDraws(f"{seed}/{case.overload}")
    # Some draws repeat an earlier structure, some are passed over.
    draws = _draws(case, seed, structures * 2, dtypes)
    if by_use:
        draws = _ordinary_first(
            _few_refused(case, _draws(case, seed, structures * 4 + _ORDINARY * _LOOK, dtypes, by_use=True))
        )
    left = structures * values
    for drawn in _fill(_add_smallest(draws) if by_use else draws):
        if drawn.structure_id not in found:
            is_empty = _has_no_element(drawn)
            found[drawn.structure_id] = CaseGroup.of(drawn, drawn_values.of(drawn, 1 if is_empty else values))
            left -= 1 if is_empty else values
        if left <= 0:
            break
    return list(found.values())


def _has_no_element(call: Invocation) -> bool:
    specs = list(call.tensors())
    return bool(specs) and not any(spec.numel for spec in specs)


def _fill(draws: Iterator[Invocation]) -> Iterator[Invocation]:
    """Add to each draw with Scalars and without elements the same call with some."""
    for drawn in draws:
        yield drawn
        filled = filled_call(drawn)
        if filled is not None:
            yield filled


def draw_invocations(
    case: OperatorCase,
    *,
    seed: int,
    count: int,
    enough: Callable[[Invocation], bool] = lambda drawn: False,
) -> list[Invocation]:
    """Return the first `count` draws that `draw_cases` makes, including those that repeat an earlier structure.

    Args:
        case: The operator.
        seed: Any integer.
        count: How many at most.
        enough: Told of each; ends the drawing by returning True.

    Raises:
        TypeError: the operator case names an argument that the schema lacks.
    """
    found: list[Invocation] = []
    for drawn in _draws(case, seed, count, None):
        found.append(drawn)
        if enough(drawn):
            break
    return found


def _draws(
    case: OperatorCase, seed: int, count: int, dtypes: Sequence[str] | None, *, by_use: bool = False
) -> Iterator[Invocation]:
    """Draw `count` times."""
    allowed = [d for d in case.dtypes if dtypes is None or d in dtypes]
    if not allowed:
        return
    name = f"{seed}/{case.overload}"
    about = _dtypes_by_use(allowed, case, name) if by_use else _dtypes_in_turn(allowed, case.rare, name, case.gaps)

    transplants = Transplants(name, case.overload)
    # The plainest call first. Hypothesis, which shrinks these calls, would draw five times as slowly.
    with provider.stream(name) as stream:
        for turn in range(count):
            dtype = next(about)
            stream.begin(dtype)
            yield transplants.vary(draw_invocation(Draw(stream.below if turn else _plainest, dtype, case.schema), case))


#: How the names of conditions of the main dtype begin.
_DTYPE = "dtype "
#: Of so many structures one may be of a kind that nothing takes: enough to report it.
_PER_REFUSED = 10


def _few_refused(case: OperatorCase, draws: Iterator[Invocation]) -> Iterator[Invocation]:
    """Drop most of the draws that an exporter or runtime refuses."""
    # Dtypes have their turns.
    conditions = {name for name in case.refused if not name.startswith(_DTYPE)}
    refused = kept = 0
    for drawn in draws:
        if conditions and not conditions.isdisjoint(c.name for c in structure_conditions(drawn)):
            if refused * _PER_REFUSED > kept:
                continue
            refused += 1
        kept += 1
        yield drawn


#: Draws after which smallest calls come that are not among them.
_BEFORE_SMALLEST = 16


def _add_smallest(draws: Iterator[Invocation]) -> Iterator[Invocation]:
    """Add calls of 0-d tensors, without elements and of one element to the draws if the first of them have none."""
    first = list(islice(draws, _BEFORE_SMALLEST))
    yield from first
    yield from smallest_calls(first)
    yield from draws


#: Ordinary calls that come first, each followed by any other; draws among which the next is looked for.
_ORDINARY, _LOOK = 12, 24


def _ordinary_first(draws: Iterator[Invocation]) -> Iterator[Invocation]:
    """Reorder the draws so that small budgets try the calls that models make."""
    waiting: deque[Invocation] = deque()
    for _ in range(_ORDINARY):
        for drawn in islice(draws, _LOOK):
            if is_ordinary(drawn):
                yield drawn
                break
            waiting.append(drawn)
        if waiting:
            yield waiting.popleft()
    yield from waiting
    yield from draws


def _plainest(bound: int) -> int:
    return 0


#: One draw of so many is about a wide unsigned integer where these are rare, and one of half as many about a
#: complex number: few models have them and few kernels take them, though converters have functions of their
#: own for these. Five dtypes more would take a third of the draws from those that models are made of.
_RARELY = 16
#: One draw of so many is about a dtype that no converter takes: one answer is all that there is to say.
_FOR_A_GAP = 64
#: The same of the draws in any dtype of an operator that models call, which are a quarter of its draws; these dtypes
#: are then those, too, that no runtime takes.
_FOR_A_REFUSAL = 4


#: The share of dtypes of an operator that models call: of 12 draws four are in float32 where models call it so, two
#: each in the short floats that ``.half()`` and ``.bfloat16()`` make of them, one in the other dtypes in which models
#: call it, and three in any dtype.
_FLOAT32, _HALF, _BRAIN, _USED, _OTHER = range(5)
_BY_USE = (_FLOAT32, _HALF, _OTHER, _FLOAT32, _BRAIN, _USED, _FLOAT32, _HALF, _OTHER, _FLOAT32, _BRAIN, _OTHER)


def _dtypes_by_use(dtypes: Sequence[str], case: OperatorCase, name: str) -> Iterator[str]:
    """Yield the dtypes without end, as often as models use them; those that no converter takes come rarely."""
    refused = [d for d in dtypes if _DTYPE + d in case.refused]
    taken = [d for d in dtypes if d not in refused] or list(dtypes)
    gaps = (*case.gaps, *(d for d in refused if d not in case.gaps))
    used = [d for d in case.used if d in taken]
    all_in_turn = _dtypes_in_turn(
        [*taken, *(d for d in refused if d not in taken)],
        case.rare,
        name,
        gaps,
        _FOR_A_REFUSAL if used else _FOR_A_GAP,
    )
    if not used:
        yield from all_in_turn
    rest = [d for d in used if d not in ("float32", "float16", "bfloat16")]
    short = "float32" in used
    turns = {
        _FLOAT32: cycle(["float32"]) if short else cycle(used),
        _HALF: cycle(["float16"]) if short and "float16" in taken else all_in_turn,
        _BRAIN: cycle(["bfloat16"]) if short and "bfloat16" in taken else all_in_turn,
        _USED: cycle(rest) if rest else all_in_turn,
        _OTHER: all_in_turn,
    }
    for kind in cycle(_BY_USE):
        yield next(turns[kind])


def _dtypes_in_turn(
    dtypes: Sequence[str], rare: Collection[str], name: str, gaps: Collection[str] = (), every: int = _FOR_A_GAP
) -> Iterator[str]:
    """Yield the dtypes in turn, without end. Rare ones of a kind share one turn in `_RARELY`, or in half of that;
    those that no converter takes get one turn in `every`.

    Args:
        dtypes: One or more dtypes.
        rare: The members of `dtypes` that are drawn rarely.
        gaps: The members of `dtypes` that no converter takes.
        name: Name of the collection. It decides which rare dtype comes first, so that short collections of many
            operators have each.
    """
    start = zlib.crc32(name.encode())
    lacking = [dtype for dtype in dtypes if dtype in gaps]
    if lacking and len(lacking) < len(dtypes):
        others = _dtypes_in_turn([dtype for dtype in dtypes if dtype not in gaps], rare, name)
        missing = cycle(_rotated(lacking, start))
        for turn in count(1):
            yield next(missing if turn % every == min(every, _RARELY) - 1 else others)
    common = [dtype for dtype in dtypes if dtype not in rare]
    if not common or len(common) == len(dtypes):
        yield from cycle(dtypes)
    wide = [dtype for dtype in dtypes if dtype in rare and dtype not in COMPLEX]
    pairs = [dtype for dtype in dtypes if dtype in rare and dtype in COMPLEX]
    # In the middle, so that a collection of few draws has one.
    turns = {
        **({_RARELY // 2: cycle(_rotated(wide, start))} if wide else {}),
        **(dict.fromkeys((_RARELY // 2 - 2, _RARELY - 2), cycle(_rotated(pairs, start))) if pairs else {}),
    }
    ordinary = cycle(common)
    for turn in count(1):
        yield next(turns.get(turn % _RARELY, ordinary))


def _rotated(dtypes: Sequence[str], by: int) -> list[str]:
    start = by % len(dtypes)
    return [*dtypes[start:], *dtypes[:start]]
