"""Weights larger than what optimisers compute beforehand."""

from __future__ import annotations

from harness.core.invocation import Result
from harness.generate.programs import ProgramDraw, dtype_of, pattern


@pattern("large-weights", source="size limits of onnxscript constant folding; onnxruntime constant_folding.cc")
def large_weights(p: ProgramDraw) -> list[Result]:
    """An expression of weights, of more than 8,192 elements or of about so many, and a product with it."""
    columns, rows = p.choose((96, 96), (128, 64), (64, 129), (1, 8193), (91, 91))
    weight = p.weight((rows, columns), domain=("range", -1.0, 1.0))
    kind = p.choose("scaled", "sum", "turned", "reshaped", "cut", "cast", "repeated", "longer")
    if kind == "scaled":
        held = p.call("aten.mul.Scalar", self=weight, other=p.choose(2.0, 1.0, -1.0, 0.5))
    elif kind == "sum":
        held = p.call("aten.add.Tensor", self=weight, other=p.weight(p.choose((rows, columns), (columns,), (1,))))
    elif kind == "turned":
        turned = p.weight((columns, rows), domain=("range", -1.0, 1.0))
        held = p.call("aten.transpose.int", self=turned, dim0=0, dim1=1)
    elif kind == "reshaped":
        flat = p.weight((rows * columns,), domain=("range", -1.0, 1.0))
        held = p.call("aten.reshape.default", self=flat, shape=p.choose([rows, columns], [-1, columns]))
    elif kind == "cut":
        larger = p.weight((rows + 2, columns), domain=("range", -1.0, 1.0))
        held = p.call("aten.slice.Tensor", self=larger, dim=0, start=p.choose(0, 2), end=p.choose(rows, -2))
    elif kind == "cast":
        wide = p.weight((rows, columns), "float64", ("range", -1.0, 1.0))
        held = p.call("aten.to.dtype", self=wide, dtype=dtype_of(p.dtype))
    elif kind == "longer":
        longer = p.call("aten.unsqueeze.default", self=weight, dim=p.choose(0, -1, 1))
        held = p.call("aten.squeeze.default", self=p.call("aten.relu.default", self=longer))
    else:
        row = p.weight((1, columns), domain=("range", -1.0, 1.0))
        held = p.call("aten.expand.default", self=row, size=[rows, -1])
    x = p.input((2, columns), domain=("range", -2.0, 2.0))
    y = p.call("aten.linear.default", input=x, weight=held)
    return [y, p.call("aten.sum.dim_IntList", self=held, dim=[0])] if p.sometimes() else [y]
