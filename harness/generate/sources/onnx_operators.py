"""Calls of ONNX's own operators, drawn from the operator cases in `cases/onnx/`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from harness.generate.case_library import load_onnx_cases
from harness.generate.draws import draw_cases, draw_examples
from harness.generate.sources.source import SIZES_PER_EXPORT, Request, SourceFinding


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
        return SourceFinding(tuple(drawn))
