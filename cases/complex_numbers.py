"""Complex numbers made, decomposed and conjugated. They reach an exported model as pairs of reals."""

from __future__ import annotations

from harness.compare.judge import EXACT
from harness.core.dtypes import ALL, COMPLEX, FULL_FLOATS
from harness.generate.draw import Draw
from harness.generate.operator_case import Arguments, Family

ops = Family("complex")

ops.simple("view_as_real", "view_as_real_copy", "imag", "_conj", dtypes=COMPLEX, judge=EXACT)


@ops.case("view_as_complex", "view_as_complex_copy", dtypes=FULL_FLOATS, judge=EXACT)
def pairs(d: Draw) -> Arguments:
    # Parts must lie side by side.
    return {"self": d.tensor((*d.shape(0, 4), 2), contiguous=True)}


@ops.case("complex", dtypes=(*FULL_FLOATS, "float16"), judge=EXACT)
def complex_parts(d: Draw) -> Arguments:
    return d.operands("real", "imag")


@ops.case("polar", dtypes=FULL_FLOATS)
def polar_parts(d: Draw) -> Arguments:
    return d.operands("abs", "angle")


ops.simple("chalf", dtypes=ALL)
