"""Values that are overwritten: by a scatter, or in place through a view."""

from __future__ import annotations

from harness.core.invocation import Result
from harness.generate.draw import OMIT
from harness.generate.programs import ProgramDraw, pattern


@pattern("scatter-all", source="onnxscript rules redundant_scatter_nd; slice_scatter in torchlib")
def scatter_all(p: ProgramDraw) -> list[Result]:
    """A scatter that names every row once, or nearly so, and replaces or accumulates."""
    rows, columns = p.integer(1, 4), p.integer(1, 3)
    data = p.call(p.choose("aten.neg.default", "aten.clone.default"), self=p.input((rows, columns)))
    kind = p.choose("index_put", "index_put", "index_add", "index_copy", "slice_scatter", "scatter")
    indices = [*range(rows)]
    if p.sometimes():
        negative = [[i - rows for i in indices]] if kind == "index_put" else []
        indices = p.choose(indices[::-1], [0] * rows, *negative)
    index = p.given(indices, (rows,), "int64")
    updates = p.input((rows, columns))
    if kind == "index_put":
        accumulate = p.choose(True, False, OMIT)
        return [p.call("aten.index_put.default", self=data, indices=[index], values=updates, accumulate=accumulate)]
    if kind == "index_add":
        alpha = p.choose(OMIT, 1, 2)
        return [p.call("aten.index_add.default", self=data, dim=0, index=index, source=updates, alpha=alpha)]
    if kind == "index_copy":
        return [p.call("aten.index_copy.default", self=data, dim=0, index=index, source=updates)]
    if kind == "slice_scatter":
        end = p.choose(OMIT, rows, 2**63 - 1)
        return [p.call("aten.slice_scatter.default", self=data, src=updates, dim=p.choose(0, -2), start=0, end=end)]
    whole = p.given([i for i in indices for _ in range(columns)], (rows, columns), "int64")
    reduce = p.choose("add", "multiply")
    return [p.call("aten.scatter.reduce", self=data, dim=0, index=whole, src=updates, reduce=reduce)]


@pattern("in-place", source="torch.export functionalisation; onnxscript rules redundant_scatter_nd")
def in_place(p: ProgramDraw) -> list[Result]:
    """A view of a value is changed in place; the value and other views of it change, too."""
    x = p.input((3, 4))
    # A view of the input changes the input itself.
    kind = p.choose("neg", "clone", "clone", "alias", "detach")
    base = p.call(f"aten.{kind}.default", self=x)
    view = _view(p, base)
    if p.sometimes():
        view = p.call(p.choose("aten.alias.default", "aten.detach.default"), self=view)
    other: object = _view(p, base) if p.sometimes() else p.choose(base, base, x)
    changed = _changed(p, view)
    last = p.call("aten.mul.Scalar", self=other, other=2.0)
    return p.choose([last], [last, base], [changed, base], [base], [last, view])


def _view(p: ProgramDraw, base: Result) -> Result:
    kind = p.choose("select", "slice", "transpose", "view", "diagonal", "narrow", "unsqueeze", "expand")
    if kind == "select":
        return p.call("aten.select.int", self=base, dim=p.choose(0, 1, -1), index=p.choose(0, -1, 1))
    if kind == "slice":
        return p.call(
            "aten.slice.Tensor",
            self=base,
            dim=p.choose(0, 1),
            start=p.choose(OMIT, 1, -2),
            end=p.choose(OMIT, 2, 2**63 - 1),
            step=p.choose(1, 1, 2),
        )
    if kind == "transpose":
        return p.call("aten.transpose.int", self=base, dim0=0, dim1=1)
    if kind == "view":
        return p.call("aten.view.default", self=base, size=p.choose([12], [-1, 2], [2, 6]))
    if kind == "diagonal":
        return p.call("aten.diagonal.default", self=base, offset=p.choose(0, 1, -1))
    if kind == "narrow":
        return p.call("aten.narrow.default", self=base, dim=1, start=p.choose(0, 1), length=2)
    return p.call("aten.unsqueeze.default", self=base, dim=p.choose(0, 1, -1))


def _changed(p: ProgramDraw, view: Result) -> Result:
    kind = p.choose("add", "mul", "relu", "fill", "zero", "clamp", "sqrt")
    if kind in ("add", "mul"):
        return p.call(f"aten.{kind}_.Scalar", self=view, other=p.choose(2, 1.5, -1.0))
    if kind == "fill":
        return p.call("aten.fill_.Scalar", self=view, value=p.choose(0.0, 7.0))
    if kind == "clamp":
        return p.call("aten.clamp_.default", self=view, min=p.choose(None, -0.5), max=p.choose(0.5, 1.0))
    return p.call(f"aten.{kind}_.default", self=view)
