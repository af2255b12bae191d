"""Invocations drawn from the operator cases in `cases/`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from harness.generate.draws import draw_cases, draw_examples
from harness.generate.operator_case import OPERATOR_CASES
from harness.generate.sources.source import SIZES_PER_EXPORT, Request, SourceFinding, resized

#: Structures drawn for each dynamic export: of some the sizes cannot change.
_TRIES = 3


@dataclass(frozen=True)
class Generated:
    """Draws, if the operator has a case."""

    name = "generated"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return OPERATOR_CASES

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        if request.overload not in OPERATOR_CASES:
            return SourceFinding()
        case = OPERATOR_CASES[request.overload]
        if not request.dynamic:
            drawn = draw_examples(
                case,
                seed=request.seed,
                examples=request.examples,
                values=request.values,
                dtypes=request.dtypes,
            )
            return SourceFinding(tuple(drawn))
        exports = -(-request.examples // (1 + SIZES_PER_EXPORT))
        drawn = draw_cases(
            case, seed=request.seed, structures=_TRIES * exports, values=1, dtypes=request.dtypes, by_use=True
        )
        return SourceFinding(resized(request, [group.exported for group in drawn])[:exports])
