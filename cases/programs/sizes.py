"""Arithmetic on sizes, as models compute the sizes of other tensors and places in them."""

from __future__ import annotations

from harness.core.invocation import Result
from harness.generate.programs import ProgramDraw, pattern


@pattern("sizes", source="symbolic integers in torch.export; operations on sizes in torchlib", dynamic=True)
def sizes(p: ProgramDraw) -> list[Result]:
    """One to three operations on a size, and a tensor that is made, cut, scaled or viewed by what they give."""
    x = p.call("aten.clone.default", self=p.input((p.integer(3, 7), p.choose(2, 4))))
    n = p.call("python.size.int", self=x, dim=0)
    value, is_whole = n, True
    for _ in range(p.choose(1, 2, 2, 3)):
        value, keeps = _computed(p, value, n)
        is_whole = is_whole and keeps
    number = p.choose("", "", "", "mul", "add", "full", "fill", "tensor", "clamp", "gt")
    if number:
        return [_with_number(p, number, x, value)]
    # A size is not negative, and nothing here is made large.
    if not is_whole or p.below(6) == 0:
        value = p.call("python.int.int", a=value)
    value = p.call("python.min.int", a=p.call("python.abs.int", a=value), b=16)
    kind = p.choose("new", "start", "end", "arange", "gather", "expand", "row", "pad", "repeat")
    if kind == "new":
        return [p.call("aten.new_ones.default", self=x, size=[value, 2])]
    if kind == "row":
        last = p.call("python.min.int", a=value, b=p.call("python.sub.int", a=n, b=1))
        return [p.call("aten.select.int", self=x, dim=0, index=last)]
    if kind == "pad":
        return [p.call("aten.constant_pad_nd.default", self=x, pad=[0, value], value=1.5)]
    if kind == "repeat":
        return [p.call("aten.repeat.default", self=x, repeats=[value, 1])]
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


def _with_number(p: ProgramDraw, kind: str, x: Result, value: Result) -> Result:
    """Use a number that was computed from a size as one, in place of a size."""
    if kind == "full":
        return p.call("aten.full.default", size=[2], fill_value=value)
    if kind == "fill":
        return p.call("aten.masked_fill.Scalar", self=x, mask=p.call("aten.gt.Scalar", self=x, other=0.0), value=value)
    if kind == "tensor":
        return p.call("aten.mul.Tensor", self=x, other=p.call("aten.scalar_tensor.default", s=value))
    if kind == "clamp":
        return p.call("aten.clamp.default", self=x, min=None, max=value)
    return p.call(f"aten.{kind}.Scalar", self=x, other=value)


def _computed(p: ProgramDraw, value: Result, n: Result) -> tuple[Result, bool]:
    """Compute another number from a size, and say whether it is an integer if the size is one."""
    kind = p.choose("neg", "floordiv", "floordiv", "mod", "truediv", "add", "sub", "mul", "max", "min", "int")
    if kind == "neg":
        return p.call("python.neg.int", a=value), True
    if kind == "int":
        return p.call("python.int.int", a=value), True
    if kind == "mul":
        return p.call("python.mul.int", a=value, b=p.choose(n, 2, -1)), True
    divides = kind in ("floordiv", "mod", "truediv")
    b = p.choose(2, 3, 4, -2) if divides else p.choose(n, 1, 4)
    return p.call(f"python.{kind}.int", a=value, b=b), kind != "truediv"
