"""Calls of ONNX's own operators that their texts forbid: drawn ones with one thing changed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random

from harness.core.case_group import CaseGroup
from harness.generate.case_library import load_onnx_cases
from harness.generate.draws import draw_invocations
from harness.generate.forbidden_draws import forbid
from harness.generate.sources.source import FORBIDDEN, Request, SourceFinding

#: Forbidden calls of an operator for each call that is drawn, and the least number of them.
_SHARE, _LEAST = 0.06, 4
#: Draws that are changed for each call that is wanted.
_TRIES = 2


@dataclass(frozen=True)
class ForbiddenNodes:
    """Draws and breaks, if the operator is one of ONNX and has a case. A run only looks at what is really forbidden."""

    name = FORBIDDEN

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return load_onnx_cases()

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`; nothing for dynamic exports."""
        case = load_onnx_cases().get(request.overload)
        if case is None or request.dynamic:
            return SourceFinding()
        random, found = Random(f"{request.seed}/{request.overload}/forbidden"), dict[str, CaseGroup]()
        wanted = max(int(request.examples * _SHARE), _LEAST)
        for drawn in draw_invocations(case, seed=request.seed, count=_TRIES * wanted):
            broken = forbid(drawn, random)
            if broken is None or (request.dtypes is not None and drawn.dtype not in request.dtypes):
                continue
            found.setdefault(broken.case_id, replace(CaseGroup.of(broken), is_forbidden=True))
            if len(found) >= wanted:
                break
        return SourceFinding(tuple(found.values()))
