"""How well the draws of one operator cover its argument space.

The calls are drawn as a run draws them. PyTorch is asked whether it takes them. Every point that the
families name is looked for in those that it takes; for a point in none of them, PyTorch is asked whether
it would take a variant of a drawn call that hits it. If so the point is reachable and the operator case
fails to draw it: a defect, unless `cases/unreachable.toml` excuses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.generate.draws import draw_invocations
from harness.generate.operator_case import OperatorCase
from harness.invocation import Invocation
from harness.reach.asker import Asker
from harness.reach.families import FAMILIES
from harness.reach.point import Point, Subject
from harness.reach.unreachable import Excuse

#: Name of the point that sizes can change between export and run.
DYNAMIC = "run sizes other than the exported ones"
DRAWS = 500
#: Share of draws that PyTorch must take.
ACCEPTED = 0.95
#: Draws after which PyTorch is asked which of the points that are still open are worth waiting for.
_FIRST = 64
#: Drawn calls of which variants are tried.
_BASES = 8
#: Drawn calls that are tried for other sizes.
_RESIZED = 24


@dataclass(frozen=True, kw_only=True)
class Missed:
    """A point that PyTorch takes and no draw hits.

    Attributes:
        group: Of the point.
        point: Its name.
        example: A call that hits it and that PyTorch takes.
        excuse: Why it is not drawn, "" if nothing says so.
    """

    group: str
    point: str
    example: str
    excuse: str = ""


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
        missed: Reachable points that are not.
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
    ranks: dict[int, int] = field(default_factory=dict)

    @property
    def defects(self) -> list[str]:
        """One line each; none for an operator case that is good enough."""
        found = [
            f"no draw has {m.point}, though PyTorch takes {m.example}" for m in self.missed if not m.excuse
        ]
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
    """
    count = draws if thorough else min(draws, _FIRST)
    calls = draw_invocations(case, seed=seed, count=count)
    answers = asker.ask(calls)
    refusals = Counter(answer.refusal for answer in answers if not answer.taken)
    taken = [(call, answer) for call, answer in zip(calls, answers, strict=True) if answer.taken]
    subject = Subject(case.overload, tuple(call for call, _ in taken[:_FIRST]))
    hit: dict[str, list[str]] = {}
    unhit: list[tuple[str, Point]] = []
    for group, points in FAMILIES.items():
        for point in points(subject):
            if any(point.hit(call) for call, _ in taken):
                hit.setdefault(group, []).append(point.name)
            else:
                unhit.append((group, point))
    missed = _reachable(case.overload, unhit, taken, asker, excuses)
    if missed and count < draws:
        # Only to see whether they come: PyTorch is not asked about each.
        more = draw_invocations(case, seed=seed, count=draws)[count:]
        named = {point.name: point for _, point in unhit}
        for miss in list(missed):
            if not miss.excuse and any(named[miss.point].hit(call) for call in more):
                missed.remove(miss)
                hit.setdefault(miss.group, []).append(miss.point)
        calls = calls + more if any(not miss.excuse for miss in missed) else calls
    _dynamic(case.overload, [call for call, _ in taken], asker, excuses, hit, missed)
    return Survey(
        overload=case.overload,
        draws=len(calls),
        asked=len(answers),
        accepted=len(taken),
        refusal=refusals.most_common(1)[0][0] if refusals else "",
        structures=len({call.structure_id for call in calls}),
        hit=hit,
        missed=missed,
        ranks=dict(sorted(Counter(_rank(call) for call in calls).items())),
    )


def _rank(call: Invocation) -> int:
    return next((len(spec.shape) for spec in call.tensors()), 0)


def _excuse(overload: str, point: str, excuses: Sequence[Excuse]) -> str:
    return next((e.reason for e in excuses if e.covers(overload, point)), "")


def _reachable(
    overload: str,
    unhit: Sequence[tuple[str, Point]],
    taken: Sequence[tuple[Invocation, object]],
    asker: Asker,
    excuses: Sequence[Excuse],
) -> list[Missed]:
    """Those of `unhit` that PyTorch takes, going through more and more drawn calls."""
    missed: list[Missed] = []
    still = [(group, point) for group, point in unhit]
    bases = _varied([call for call, _ in taken])
    answered = dict(taken)
    for start in range(0, len(bases), 4):
        questions = [
            (group, point, base, variant)
            for group, point in still
            for base in bases[start : start + 4]
            for variant in point.variants(base)
        ]
        if not questions:
            continue
        for (group, point, base, variant), answer in zip(
            questions, asker.ask([variant for *_, variant in questions]), strict=True
        ):
            known = {miss.point for miss in missed}
            if answer.taken and point.name not in known and point.confirm(answered[base], answer):  # type: ignore[arg-type]
                excuse = _excuse(overload, point.name, excuses)
                missed.append(Missed(group=group, point=point.name, example=str(variant), excuse=excuse))
        found = {miss.point for miss in missed}
        still = [(group, point) for group, point in still if point.name not in found]
    return missed


def _varied(calls: Sequence[Invocation]) -> list[Invocation]:
    """Few calls that differ: one of each rank first, the larger ones before the empty ones."""
    ordered = sorted(calls, key=lambda call: not all(spec.numel > 1 for spec in call.tensors()))
    by_rank: dict[int, list[Invocation]] = {}
    for call in ordered:
        by_rank.setdefault(_rank(call), []).append(call)
    found: list[Invocation] = []
    while len(found) < _BASES and any(by_rank.values()):
        for members in by_rank.values():
            if members:
                found.append(members.pop(0))
    return found[:_BASES]


def _dynamic(
    overload: str,
    calls: Sequence[Invocation],
    asker: Asker,
    excuses: Sequence[Excuse],
    hit: dict[str, list[str]],
    missed: list[Missed],
) -> None:
    candidates = [c for c in calls if any(n > 1 for spec in c.tensors() for n in spec.shape)][:_RESIZED]
    for start in range(0, len(candidates), 4):
        if any(asker.resizable(candidates[start : start + 4])):
            hit.setdefault("dynamic", []).append(DYNAMIC)
            return
    if candidates:
        excuse = _excuse(overload, DYNAMIC, excuses)
        missed.append(Missed(group="dynamic", point=DYNAMIC, example=str(candidates[0]), excuse=excuse))
