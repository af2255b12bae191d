"""Arithmetic on sizes, as models compute the sizes of other tensors and places in them."""

from __future__ import annotations

from harness.core.invocation import Result
from harness.generate.programs import ProgramDraw, pattern


@pattern("sizes", source="symbolic integers in torch.export; operations on sizes in torchlib", dynamic=True)
def sizes(p: ProgramDraw) -> list[Result]:
    """One to three operations on a size, and a tensor that is made, cut, scaled or viewed by what they give."""
    x = p.call("aten.clone.default", self=p.input((p.integer(3, 7), p.choose(2, 4))))
    n = p.call("python.size.int", self=x, dim=0)
    value = n
    for _ in range(p.choose(1, 2, 2, 3)):
        value = _computed(p, value, n)
    kind = p.choose("new", "scale", "scale", "start", "end", "arange", "gather", "expand")
    if kind == "scale":
        return [p.call("aten.mul.Scalar", self=x, other=value)]
    # A size is not negative, and nothing here is made large.
    value = p.call("python.abs.int", a=p.call("python.int.int", a=value))
    value = p.call("python.min.int", a=value, b=16)
    if kind == "new":
        return [p.call("aten.new_ones.default", self=x, size=[value, 2])]
    if kind == "start":
        return [p.call("aten.slice.Tensor", self=x, dim=0, start=value)]
    if kind == "end":
        return [p.call("aten.slice.Tensor", self=x, dim=0, start=0, end=value)]
    if kind == "gather":
        # The first rows by their indices.
        rows = p.call("aten.arange.default", end=p.call("python.min.int", a=value, b=n))
        return [p.call("aten.index_select.default", self=x, dim=0, index=rows)]
    if kind == "arange":
        return [p.call("aten.arange.default", end=value)]
    row = p.call("aten.select.int", self=x, dim=0, index=0)
    return [p.call("aten.expand.default", self=row, size=[value, -1])]


def _computed(p: ProgramDraw, value: Result, n: Result) -> Result:
    kind = p.choose("neg", "floordiv", "floordiv", "mod", "truediv", "add", "sub", "mul", "max", "min", "int")
    if kind == "neg":
        return p.call("python.neg.int", a=value)
    if kind == "int":
        return p.call("python.int.int", a=value)
    if kind == "mul":
        return p.call("python.mul.int", a=value, b=p.choose(n, 2, -1))
    divides = kind in ("floordiv", "mod", "truediv")
    return p.call(f"python.{kind}.int", a=value, b=p.choose(2, 3, 4, -2) if divides else p.choose(n, 1, 4))
