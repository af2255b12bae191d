"""Calls of ONNX's own operators, drawn from the operator cases in `cases/onnx/`."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation
from harness.core.onnx_operators import NEIGHBOURS
from harness.generate.case_library import load_onnx_cases
from harness.generate.draws import draw_cases, draw_examples
from harness.generate.sources.source import SIZES_PER_EXPORT, Request, SourceFinding

#: Of so many groups one has its node among others, and the kinds of these.
_PER_SURROUNDED, _KINDS = 6, ("reader", "cast", "twice", "identity")


@dataclass(frozen=True)
class OnnxOperators:
    """Draws, if the operator is one of ONNX and has a case."""

    name = "onnx"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return load_onnx_cases()

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`; a graph with open sizes is run at the sizes that it is drawn
        for, since nothing but its text tells which others are valid."""
        case = load_onnx_cases().get(request.overload)
        if case is None:
            return SourceFinding()
        examples, values = request.examples, request.values
        if request.dynamic:
            structures = -(-examples // (1 + SIZES_PER_EXPORT))
            drawn = draw_cases(case, seed=request.seed, structures=structures, values=1, dtypes=request.dtypes)
        else:
            drawn = draw_examples(case, seed=request.seed, examples=examples, values=values, dtypes=request.dtypes)
        return SourceFinding(tuple(_surround(drawn)))


def _surround(groups: Sequence[CaseGroup]) -> Iterator[CaseGroup]:
    """Yield the groups, about one in `_PER_SURROUNDED` of them with its node among others; the structure decides."""
    for group in groups:
        chance, place = divmod(zlib.crc32(group.exported.structure_id.encode()), _PER_SURROUNDED)
        if place:
            yield group
            continue
        kind = _KINDS[chance % len(_KINDS)]
        yield CaseGroup.of(_place_among(group.exported, kind), [_place_among(case, kind) for case in group.invocations])


def _place_among(invocation: Invocation, kind: str) -> Invocation:
    return replace(invocation, arguments=(*invocation.arguments, (NEIGHBOURS, kind)))
