"""How well the draws of one operator cover its argument space.

The calls are drawn as a run draws them. PyTorch is asked whether it takes them. Every point that the
families name is looked for in those that it takes; for a point in none of them, PyTorch is asked whether
it would take a variant of a drawn call that hits it. If so the point is reachable and the operator case
fails to draw it: a defect, unless `cases/unreachable.toml` excuses it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest

from harness.core.invocation import Invocation

# Each registers its families of points.
from harness.coverage.asker import Asker
from harness.coverage.exceptions import Excuse
from harness.coverage.points import FAMILIES, Acceptance, Point, PointFamily, SurveyedOperator
from harness.generate.draws import draw_invocations
from harness.generate.operator_case import OperatorCase

#: Name of the point that sizes can change between export and run.
DYNAMIC = "run sizes other than the exported ones"
DRAWS = 1000
#: Share of draws that PyTorch must take.
ACCEPTED = 0.95
#: Draws after which PyTorch is asked which of the points that are still open are worth waiting for.
_FIRST = 40
#: Drawn calls of which variants are tried.
_BASES = 8
_BASES_AT_ONCE = 4
#: Drawn calls that are tried for other sizes.
_RESIZED = 24
#: Elements of a variant that PyTorch is asked about: one of 32⁵ takes as long as all else that it is asked of
#: an operator, and who takes it takes the same point of a smaller call.
_ELEMENTS = 2**20


@dataclass(frozen=True, kw_only=True)
class Missed:
    """A point that PyTorch takes and no draw hits, with a call that hits it and that PyTorch takes."""

    group: str
    point: str
    example: str


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What was found of one operator.

    Attributes:
        draws: Calls drawn in all.
        asked: Of these, how many PyTorch was asked about.
        accepted: How many of those it took.
        refusal: What it said most often.
        structures: Distinct ones among the draws.
        hit: Group → names of the points hit.
        missed: Reachable points that are not, nor excused.
        excused: Points not hit that an exception covers, each with its place among the exceptions.
        ranks: Rank of the first tensor → draws.
    """

    overload: str
    draws: int = 0
    asked: int
    accepted: int
    refusal: str
    structures: int = 0
    hit: dict[str, list[str]] = field(default_factory=dict)
    missed: list[Missed] = field(default_factory=list)
    excused: list[tuple[str, int]] = field(default_factory=list)
    ranks: dict[int, int] = field(default_factory=dict)

    @property
    def defects(self) -> list[str]:
        """One line each; none for an operator case that is good enough."""
        found = [f"no draw has {m.point}, though PyTorch takes {m.example}" for m in self.missed]
        if self.accepted < ACCEPTED * self.asked:
            found.insert(0, f"PyTorch takes {self.accepted} of {self.asked} draws: {self.refusal}")
        return found


def survey(
    case: OperatorCase,
    asker: Asker,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    excuses: Sequence[Excuse] = (),
    thorough: bool = True,
    groups: Collection[str] | None = None,
) -> Survey:
    """Survey one operator.

    Args:
        draws: How many a point may take.
        excuses: Points that need not be drawn.
        thorough: Make all draws and ask PyTorch about each. Otherwise PyTorch is asked about the first
            few, and more are drawn only while a reachable point is open.
        groups: Look for the points of these groups alone.
    """
    first = draws if thorough else min(draws, _FIRST)
    calls: list[Invocation] = []
    found: Survey | None = None
    missed: list[tuple[Point, Missed]] = []

    def enough(drawn: Invocation) -> bool:
        nonlocal found, missed
        calls.append(drawn)
        if len(calls) == first:
            found, missed = _look(case, calls, asker, excuses, groups)
        elif found is not None:
            # Only to see whether they come: PyTorch is not asked about each.
            for reached in [(point, miss) for point, miss in missed if point.hit(drawn)]:
                missed.remove(reached)
                found.hit.setdefault(reached[1].group, []).append(reached[1].point)
        return found is not None and not missed

    draw_invocations(case, seed=seed, count=draws, enough=enough)
    if found is None:
        found, missed = _look(case, calls, asker, excuses, groups)
    return replace(
        found,
        draws=len(calls),
        structures=len({call.structure_id for call in calls}),
        missed=[miss for _, miss in missed],
        ranks=dict(sorted(Counter(map(_rank, calls)).items())),
    )


def _look(
    case: OperatorCase,
    calls: Sequence[Invocation],
    asker: Asker,
    excuses: Sequence[Excuse],
    groups: Collection[str] | None,
) -> tuple[Survey, list[tuple[Point, Missed]]]:
    """What PyTorch says of `calls`, and of variants of them for the points that none hits."""
    answers = asker.ask(calls)
    refusals = Counter(answer.refusal for answer in answers if not answer.taken)
    taken = [(call, answer) for call, answer in zip(calls, answers, strict=True) if answer.taken]
    subject = SurveyedOperator(case.overload, tuple(call for call, _ in taken[:_FIRST]))
    survey = Survey(
        overload=case.overload,
        asked=len(answers),
        accepted=len(taken),
        refusal=refusals.most_common(1)[0][0] if refusals else "",
    )
    unhit: list[tuple[str, Point]] = []
    ours = [(i, excuse) for i, excuse in enumerate(excuses) if excuse.concerns(case.overload)]
    dynamic: PointFamily = partial(_dynamic, [call for call, _ in taken], asker)
    for group, points in {**FAMILIES, "dynamic": dynamic}.items():
        for point in points(subject) if groups is None or group in groups else ():
            excuse = next((i for i, excuse in ours if excuse.covers(point.name)), None)
            if any(point.hit(call) for call, _ in taken):
                survey.hit.setdefault(group, []).append(point.name)
            elif excuse is not None:
                survey.excused.append((point.name, excuse))
            else:
                unhit.append((group, point))
    return survey, _reachable(unhit, taken, asker)


def _rank(call: Invocation) -> int:
    return next((len(spec.shape) for spec in call.tensors()), 0)


def _reachable(
    unhit: Sequence[tuple[str, Point]], taken: Sequence[tuple[Invocation, Acceptance]], asker: Asker
) -> list[tuple[Point, Missed]]:
    """Those of `unhit` that PyTorch takes, going through more and more drawn calls."""
    missed: dict[str, tuple[Point, Missed]] = {}
    bases = _varied([call for call, _ in taken])
    answered = dict(taken)
    for batch in _batches(bases):
        questions = [
            (group, point, base, variant)
            for group, point in unhit
            if point.name not in missed
            for base in batch
            for variant in point.variants(base)
            if sum(spec.numel for spec in variant.tensors()) <= _ELEMENTS
        ]
        answers = asker.ask([variant for *_, variant in questions])
        for (group, point, base, variant), answer in zip(questions, answers, strict=True):
            if answer.taken and point.confirm(answered[base], answer):
                found = Missed(group=group, point=point.name, example=str(variant))
                missed.setdefault(point.name, (point, found))
    return list(missed.values())


def _varied(calls: Sequence[Invocation]) -> list[Invocation]:
    """Few calls that differ: one of each rank first, the larger ones before the empty ones."""
    # Of empty tensors kernels check little.
    full = [call for call in calls if all(spec.numel for spec in call.tensors())] or calls
    ordered = sorted(full, key=lambda call: not all(spec.numel > 1 for spec in call.tensors()))
    by_rank: defaultdict[int, list[Invocation]] = defaultdict(list)
    for call in ordered:
        by_rank[_rank(call)].append(call)
    in_turn = chain.from_iterable(zip_longest(*by_rank.values()))
    return [call for call in in_turn if call is not None][:_BASES]


def _batches(calls: Sequence[Invocation]) -> Iterator[Sequence[Invocation]]:
    return (calls[start : start + _BASES_AT_ONCE] for start in range(0, len(calls), _BASES_AT_ONCE))


def _dynamic(calls: Sequence[Invocation], asker: Asker, subject: SurveyedOperator) -> Iterator[Point]:
    """The point that a call stays valid with other sizes, which PyTorch must be asked."""
    calls = [c for c in calls if any(n > 1 for spec in c.tensors() for n in spec.shape)][:_RESIZED]
    if calls:
        found = any(any(asker.resizable(batch)) for batch in _batches(calls))
        yield Point(name=DYNAMIC, hit=lambda call: found, variants=lambda base: calls[:1])
