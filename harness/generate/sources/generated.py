"""Invocations drawn from the operator cases in `cases/`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from harness.generate.draws import DrawnCase, draw_cases
from harness.generate.operator_case import OPERATOR_CASES
from harness.generate.sources.source import SIZES_PER_EXPORT, Request, SourceFinding, Structure, resized


@dataclass(frozen=True)
class Generated:
    """Draws, where the operator has a case."""

    name = "generated"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return OPERATOR_CASES

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        if request.overload not in OPERATOR_CASES:
            return SourceFinding()
        if not request.dynamic:
            drawn = _draw(request, -(-request.examples // request.values), request.values)
            return SourceFinding(tuple(Structure(d.invocations[0], d.invocations) for d in drawn))
        drawn = _draw(request, -(-request.examples // (1 + SIZES_PER_EXPORT)), 1)
        return SourceFinding(resized(request, [d.invocations[0] for d in drawn]))


def _draw(request: Request, structures: int, values: int) -> list[DrawnCase]:
    return draw_cases(
        OPERATOR_CASES[request.overload],
        seed=request.seed,
        structures=structures,
        values=values,
        dtypes=request.dtypes,
    )
