"""How well the draws of one operator cover its argument space.

The calls are drawn as a run draws them. PyTorch is asked whether it takes them. Every point that the
families name is looked for in those that it takes; for a point in none of them, PyTorch is asked whether
it would take a variant of a drawn call that hits it. If so the point is reachable and the operator case
fails to draw it: a defect, unless `cases/unreachable.toml` excuses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from harness.analyse.argument_coverage.asker import Asker
from harness.analyse.argument_coverage.families import FAMILIES
from harness.analyse.argument_coverage.point import Acceptance, Point, SurveyedOperator
from harness.analyse.argument_coverage.unreachable import Excuse
from harness.core import Invocation
from harness.generate import OperatorCase, draw_invocations

#: Name of the point that sizes can change between export and run.
DYNAMIC = "run sizes other than the exported ones"
DRAWS = 500
#: Share of draws that PyTorch must take.
ACCEPTED = 0.95
#: Draws after which PyTorch is asked which of the points that are still open are worth waiting for.
_FIRST = 40
#: Drawn calls of which variants are tried.
_BASES = 8
_BASES_AT_ONCE = 4
#: Drawn calls that are tried for other sizes.
_RESIZED = 24


@dataclass(frozen=True, kw_only=True)
class Missed:
    """A point that PyTorch takes and no draw hits.

    Attributes:
        group: Of the point.
        point: Its name.
        example: A call that hits it and that PyTorch takes.
    """

    group: str
    point: str
    example: str


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What was found of one operator.

    Attributes:
        overload: Its name.
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
    draws: int
    asked: int
    accepted: int
    refusal: str
    structures: int
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
        case: The operator.
        asker: Asks PyTorch.
        seed: Of the draws.
        draws: How many a point may take.
        excuses: Points that need not be drawn.
        thorough: Make all draws and ask PyTorch about each. Otherwise PyTorch is asked about the first
            few, and more are drawn only while a reachable point is open.
        groups: Look for the points of these groups alone.
    """
    first = draws if thorough else min(draws, _FIRST)
    calls: list[Invocation] = []
    looks: list[_Look] = []

    def enough(drawn: Invocation) -> bool:
        calls.append(drawn)
        if len(calls) == first:
            looks.append(_Look.at(case, calls, asker, excuses, groups))
        elif looks:
            # Only to see whether they come: PyTorch is not asked about each.
            looks[0].see(drawn)
        return bool(looks) and not looks[0].missed

    draw_invocations(case, seed=seed, count=draws, enough=enough)
    look = looks[0] if looks else _Look.at(case, calls, asker, excuses, groups)
    return Survey(
        overload=case.overload,
        draws=len(calls),
        asked=look.asked,
        accepted=look.accepted,
        refusal=look.refusal,
        structures=len({call.structure_id for call in calls}),
        hit=look.hit,
        missed=[missed for _, missed in look.missed],
        excused=look.excused,
        ranks=dict(sorted(Counter(_rank(call) for call in calls).items())),
    )


@dataclass(kw_only=True)
class _Look:
    """What PyTorch says of some draws, and which points are still open after them."""

    asked: int
    accepted: int
    refusal: str
    hit: dict[str, list[str]]
    missed: list[tuple[Point, Missed]]
    excused: list[tuple[str, int]]

    @classmethod
    def at(
        cls,
        case: OperatorCase,
        calls: Sequence[Invocation],
        asker: Asker,
        excuses: Sequence[Excuse],
        groups: Collection[str] | None,
    ) -> _Look:
        """Ask PyTorch about `calls`, and about variants of them for the points that none hits."""
        answers = asker.ask(calls)
        refusals = Counter(answer.refusal for answer in answers if not answer.taken)
        taken = [(call, answer) for call, answer in zip(calls, answers, strict=True) if answer.taken]
        subject = SurveyedOperator(case.overload, tuple(call for call, _ in taken[:_FIRST]))
        hit: dict[str, list[str]] = {}
        unhit: list[tuple[str, Point]] = []
        excused: list[tuple[str, int]] = []
        ours = [(i, excuse) for i, excuse in enumerate(excuses) if excuse.concerns(case.overload)]
        families = {**FAMILIES, "dynamic": _Dynamic([call for call, _ in taken], asker).points}
        for group, points in families.items():
            if groups is not None and group not in groups:
                continue
            for point in points(subject):
                excuse = next((i for i, excuse in ours if excuse.covers(point.name)), None)
                if any(point.hit(call) for call, _ in taken):
                    hit.setdefault(group, []).append(point.name)
                elif excuse is not None:
                    excused.append((point.name, excuse))
                else:
                    unhit.append((group, point))
        return cls(
            asked=len(answers),
            accepted=len(taken),
            refusal=refusals.most_common(1)[0][0] if refusals else "",
            hit=hit,
            missed=_reachable(unhit, taken, asker),
            excused=excused,
        )

    def see(self, call: Invocation) -> None:
        """Look for the open points in one more draw."""
        for found in [found for found in self.missed if found[0].hit(call)]:
            self.missed.remove(found)
            self.hit.setdefault(found[1].group, []).append(found[0].name)


def _rank(call: Invocation) -> int:
    return next((len(spec.shape) for spec in call.tensors()), 0)


def _reachable(
    unhit: Sequence[tuple[str, Point]], taken: Sequence[tuple[Invocation, Acceptance]], asker: Asker
) -> list[tuple[Point, Missed]]:
    """Those of `unhit` that PyTorch takes, going through more and more drawn calls."""
    missed: dict[str, tuple[Point, Missed]] = {}
    bases = _varied([call for call, _ in taken])
    answered = dict(taken)
    for start in range(0, len(bases), _BASES_AT_ONCE):
        questions = [
            (group, point, base, variant)
            for group, point in unhit
            if point.name not in missed
            for base in bases[start : start + _BASES_AT_ONCE]
            for variant in point.variants(base)
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
    by_rank: dict[int, list[Invocation]] = {}
    for call in ordered:
        by_rank.setdefault(_rank(call), []).append(call)
    found: list[Invocation] = []
    while len(found) < _BASES and any(by_rank.values()):
        for members in by_rank.values():
            if members:
                found.append(members.pop(0))
    return found[:_BASES]


class _Dynamic:
    """The point that a call stays valid with other sizes, which PyTorch must be asked."""

    def __init__(self, calls: Sequence[Invocation], asker: Asker) -> None:
        self._calls = [c for c in calls if any(n > 1 for spec in c.tensors() for n in spec.shape)][:_RESIZED]
        self._asker = asker

    def points(self, subject: SurveyedOperator) -> Iterator[Point]:
        """That one, where some tensor has a size that could change."""
        if self._calls:
            found = self._found()
            yield Point(name=DYNAMIC, hit=lambda call: found, variants=lambda base: self._calls[:1])

    def _found(self) -> bool:
        return any(
            any(self._asker.resizable(self._calls[start : start + _BASES_AT_ONCE]))
            for start in range(0, len(self._calls), _BASES_AT_ONCE)
        )
