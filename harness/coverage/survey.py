"""Measure how well the draws of one operator cover its argument space.

1. Draw calls as a run does, and ask PyTorch which it accepts.
2. Look for every point that the families name among the accepted calls.
3. For a point without a call, ask PyTorch about variants of drawn calls that hit it. If it accepts one, the operator
   case fails to draw the point: a defect, unless `cases/unreachable.toml` excuses it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest

from harness.core.invocation import Invocation

# Imported to register their families of points.
from harness.coverage import argument_points, dtype_points, shape_points, value_points, window_points  # noqa: F401
from harness.coverage.asker import Asker
from harness.coverage.exceptions import Excuse
from harness.coverage.points import FAMILIES, Acceptance, Point, PointFamily, SurveyedOperator
from harness.generate.draws import draw_invocations
from harness.generate.operator_case import OperatorCase

#: The point that sizes can differ between export and run.
DYNAMIC = "run sizes other than the exported ones"
DRAWS = 1000
#: The share of draws that PyTorch must accept.
ACCEPTED = 0.95
#: Number of draws after which PyTorch is asked which missing points are reachable.
_FIRST = 40
#: Number of drawn calls whose variants are tried, in all and at a time.
_BASES = 8
_BASES_AT_ONCE = 4
#: Number of drawn calls that are tried with other sizes.
_RESIZED = 24
#: Largest number of elements of a variant: a tensor of 32⁵ elements takes as long as all other questions about an
#: operator, and a smaller variant hits the same point.
_ELEMENTS = 2**20


@dataclass(frozen=True, kw_only=True)
class Missed:
    """A point that no draw hits, with a call that hits it and that PyTorch accepts."""

    group: str
    point: str
    example: str


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The coverage of one operator.

    Attributes:
        overload: The operator.
        draws: Number of drawn calls.
        asked: Number of draws that PyTorch was asked about.
        accepted: Number of those that it accepted.
        refusal: Its most frequent error message.
        structures: Number of distinct structures among the draws.
        hit: Group → names of the points that were hit.
        missed: Reachable points that were neither hit nor excused.
        excused: Points that were not hit but excused, each with the index of its exception.
        ranks: Rank of the first tensor → number of draws.
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
        """One line per defect of the operator case; empty if it is good enough."""
        lines = [f"no draw has {m.point}, though PyTorch takes {m.example}" for m in self.missed]
        if self.accepted < ACCEPTED * self.asked:
            lines.insert(0, f"PyTorch takes {self.accepted} of {self.asked} draws: {self.refusal}")
        return lines


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
        case: The operator case.
        asker: Asks PyTorch about calls.
        seed: The seed of the draws.
        draws: Largest number of draws.
        excuses: Points that need not be drawn.
        thorough: Make all draws and ask PyTorch about each. Otherwise it is asked about the first few only, and more
            are drawn only while a reachable point has not been hit.
        groups: Look only for points of these groups; None means all.
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
            # Only checked for missing points: PyTorch is not asked about these draws.
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
    """Ask PyTorch about `calls`, and about variants of them for the points that none of them hits."""
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
    """Return those of `unhit` that PyTorch accepts, trying variants of more and more drawn calls."""
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
                missing = Missed(group=group, point=point.name, example=str(variant))
                missed.setdefault(point.name, (point, missing))
    return list(missed.values())


def _varied(calls: Sequence[Invocation]) -> list[Invocation]:
    """Return a few different calls, alternating between ranks, those with larger tensors first."""
    # Kernels check little for empty tensors.
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
    """Yield the point that a call stays valid with other sizes, if PyTorch accepts them."""
    calls = [c for c in calls if any(n > 1 for spec in c.tensors() for n in spec.shape)][:_RESIZED]
    if calls:
        is_resizable = any(any(asker.resizable(batch)) for batch in _batches(calls))
        yield Point(name=DYNAMIC, hit=lambda call: is_resizable, variants=lambda base: calls[:1])
