"""Chains that move, cast or select elements, which optimisers shorten, and arithmetic that changes nothing."""

from __future__ import annotations

from harness.core.invocation import Result
from harness.generate.draw import ANY, OMIT
from harness.generate.programs import ProgramDraw, dtype_of, pattern


@pattern("transposes", source="onnxruntime transpose_optimizer; onnxscript rules transpose_transpose, identity")
def transposes(p: ProgramDraw) -> list[Result]:
    """Permutations around an operator that reduces, joins or broadcasts along a dimension."""
    shape = (2, 3, 1, 4)[: p.choose(3, 4, 4)]
    y: object = p.input(shape)
    sizes = list(shape)
    for _ in range(p.choose(1, 2)):
        order = p.choose([0, 2, 1, 3], [0, 2, 3, 1], [3, 2, 1, 0], [1, 0, 2, 3])
        order = [i for i in order if i < len(sizes)]
        y, sizes = p.call("aten.permute.default", self=y, dims=order), [sizes[i] for i in order]
        kind = p.choose("nothing", "relu", "sum", "softmax", "add", "cat", "mean", "argmax", "unsqueeze")
        dim = p.integer(-len(sizes), len(sizes) - 1)
        if kind == "nothing":
            continue
        if kind == "relu":
            y = p.call("aten.relu.default", self=y)
        elif kind in ("sum", "mean"):
            name = "aten.sum.dim_IntList" if kind == "sum" else "aten.mean.dim"
            y = p.call(name, self=y, dim=[dim], keepdim=True)
            sizes[dim] = 1
        elif kind == "softmax":
            y = p.call("aten.softmax.int", self=y, dim=dim)
        elif kind == "add":
            y = p.call("aten.add.Tensor", self=y, other=p.operand(p.choose(sizes[-1:], (1,), sizes[1:], sizes)))
        elif kind == "cat":
            y = p.call("aten.cat.default", tensors=[y, y], dim=dim)
            sizes[dim] *= 2
        elif kind == "argmax":
            return [p.call("aten.argmax.default", self=y, dim=dim, keepdim=p.choose(OMIT, True))]
        else:
            y = p.call("aten.unsqueeze.default", self=y, dim=dim)
            sizes.insert(dim if dim >= 0 else dim + len(sizes) + 1, 1)
            return [p.call("aten.sum.dim_IntList", self=y, dim=[0])]
    if len(sizes) == len(shape):
        y = p.call("aten.permute.default", self=y, dims=[*range(len(sizes))][::-1])
    return [y]  # type: ignore[list-item]


@pattern("casts", source="onnxruntime cast_elimination.cc, cast_chain; onnxscript rules cast_cast")
def casts(p: ProgramDraw) -> list[Result]:
    """Chains of casts through narrower dtypes, with an operator between."""
    names = ("float32", "float16", "float64", "int64", "int32", "int8", "uint8", "bool")
    y: object = p.input((2, 3), dtype=p.choose("float32", "float64", "int64", "int32"), domain=("range", 0.0, 200.0))
    for _ in range(p.choose(2, 2, 3)):
        y = p.call("aten.to.dtype", self=y, dtype=dtype_of(p.choose(*names)))
        if p.sometimes():
            y = p.call(p.choose("aten.abs.default", "aten.clone.default"), self=y)
    return [y]  # type: ignore[list-item]


@pattern("neutral", source="onnxruntime eliminate_identity, noop_elimination; onnxscript constant folding, identity of")
def neutral(p: ProgramDraw) -> list[Result]:
    """Arithmetic with numbers that change nothing, or nearly nothing, or another shape."""
    shape = (2, 3)
    # Next to small numbers a small one counts.
    small = p.choose(ANY, ANY, ("range", -1e-8, 1e-8))
    y: object = p.call("aten.neg.default", self=p.input(shape, domain=small))
    zero = (0.0, 0.0, -0.0, 5e-9, 1e-8, 1e-6)
    one = (1.0, 1.0, 1.0 + 1e-7, 1.0 + 9e-6, 1.0 + 1e-4, -1.0)
    for _ in range(p.choose(1, 1, 2)):
        kind = p.choose("add", "sub", "mul", "div", "pow")
        number = p.choose(*(zero if kind in ("add", "sub") else one))
        if kind == "pow":
            y = p.call("aten.pow.Tensor_Scalar", self=y, exponent=p.choose(1, 1.0, 1.0001, 0, 2))
        elif p.choose(True, False):
            y = p.call(f"aten.{kind}.Scalar", self=y, other=number)
        else:
            # The same number as a tensor, which may broadcast the result.
            wide = p.number(number, p.choose((), (), (), (1,), (1, 1, 1), (2, 1, 3), (3,)))
            left, right = p.choose((y, wide), (y, wide), (wide, y))
            y = p.call(f"aten.{kind}.Tensor", self=left, other=right)
    return [p.call(p.choose("aten.reciprocal.default", "aten.relu.default", "aten.clone.default"), self=y)]


@pattern("slices", source="onnxscript rules slices; onnxruntime slice_elimination, concat_slice_elimination.cc")
def slices(p: ProgramDraw) -> list[Result]:
    """Slices of slices, and slices that are joined again."""
    size = p.integer(4, 7)
    x = p.input((2, size, 3))

    def cut(value: object) -> Result:
        start = p.choose(OMIT, 0, 1, -3, -100)
        end = p.choose(OMIT, size, 2**63 - 1, -1, 3, 100)
        return p.call(
            "aten.slice.Tensor", self=value, dim=p.choose(1, 1, -2, 0), start=start, end=end, step=p.choose(1, 1, 2)
        )

    kind = p.choose("chain", "joined", "split", "flip")
    if kind == "chain":
        return [cut(cut(x))]
    if kind == "joined":
        middle = p.integer(1, size - 1)
        parts = [
            p.call("aten.slice.Tensor", self=x, dim=1, start=0, end=middle),
            p.call("aten.slice.Tensor", self=x, dim=1, start=p.choose(middle, middle, middle - 1), end=size),
        ]
        return [p.call("aten.cat.default", tensors=p.choose(parts, parts, parts[::-1]), dim=p.choose(1, 1, -2))]
    if kind == "split":
        first = p.call("aten.split.Tensor", self=x, split_size=p.choose(2, 3), dim=1)
        parts = [first, Result(first.call, 1)]
        return [p.call("aten.cat.default", tensors=p.choose(parts, parts[::-1]), dim=p.choose(1, 0, 2))]
    return [cut(p.call("aten.flip.default", self=cut(x), dims=p.choose([1], [0, 1], [-1])))]


@pattern("reshapes", source="onnxruntime reshape_fusion.cc, unsqueeze_elimination; onnxscript rules reshape_reshape")
def reshapes(p: ProgramDraw) -> list[Result]:
    """Views of views, sizes of one and none among them."""
    shape = p.choose((2, 3, 4), (1, 6), (2, 0, 3), (4, 1, 3), (12,))
    total = 1
    for n in shape:
        total *= n
    y: object = p.input(shape)
    choices = [[-1], [1, total], [total, 1]] if total else [[0, 5], [3, 0]]
    if total % 2 == 0 and total:
        choices += [[2, -1], [-1, 2], [1, 2, total // 2]]
    for _ in range(p.choose(2, 3)):
        kind = p.choose("reshape", "reshape", "flatten", "unsqueeze", "squeeze", "expand")
        if kind == "reshape":
            y = p.call("aten.reshape.default", self=y, shape=p.choose(*choices))
        elif kind == "flatten":
            y = p.call("aten.flatten.using_ints", self=y)
        elif kind == "unsqueeze":
            y = p.call("aten.unsqueeze.default", self=y, dim=p.choose(0, -1))
        elif kind == "squeeze":
            y = p.call("aten.squeeze.default", self=y)
        else:
            y = p.call("aten.unsqueeze.default", self=y, dim=0)
            y = p.call("aten.relu.default", self=y) if p.sometimes() else y
            times = p.choose(1, 2, 0)
            y = p.call("aten.repeat_interleave.self_int", self=y, repeats=times, dim=0)
            total *= times
            choices = [[-1]] if total else [[0, 5], [3, 0]]
    return [p.call("aten.relu.default", self=y)]


@pattern("not-where", source="onnxruntime not_where_fusion.cc; double negation in onnxscript")
def not_where(p: ProgramDraw) -> list[Result]:
    """A choice by a negated condition that may broadcast, and negations of negations."""
    condition: object = p.input((2, 3), dtype="bool")
    if p.choose(True, False):
        numbers = p.input(p.usually((2, 3), (1, 3), (2, 1)))
        condition = p.call("aten.gt.Scalar", self=numbers, other=p.choose(0.0, 0.5))
    for _ in range(p.choose(1, 1, 2)):
        condition = p.call("aten.logical_not.default", self=condition)
    left, right = p.operand(p.choose((2, 3), (), (1, 3))), p.input(p.choose((2, 3), (3,), (2, 2, 3)))
    y = p.call("aten.where.self", condition=condition, self=left, other=right)
    if p.sometimes():
        y = p.call("aten.neg.default", self=p.call("aten.neg.default", self=y))
    return [p.call("aten.reciprocal.default", self=y)] if p.sometimes() else [y]


@pattern("reductions", source="onnxruntime reduce fusions; onnxscript rules reduce; isinf_reducesum_fusion.cc")
def reductions(p: ProgramDraw) -> list[Result]:
    """A reduction of a reduction, the dimensions of which shift or stay."""
    shape = (2, 3, 4)
    y: object = p.input(shape)
    rank = 3
    for _ in range(2):
        name = p.choose("sum.dim_IntList", "mean.dim", "amax.default", "prod.dim_int", "logsumexp.default")
        keep = p.choose(True, False)
        dim = p.integer(-rank, rank - 1)
        one = dim if name == "prod.dim_int" else [dim]
        y = p.call(f"aten.{name}", self=y, dim=one, keepdim=keep)
        rank -= not keep
        if p.sometimes():
            y = p.call(p.choose("aten.abs.default", "aten.exp.default", "aten.neg.default"), self=y)
    return [y]  # type: ignore[list-item]


@pattern("dropout", source="onnxscript rules dropout, identity; onnxruntime dropout_elimination")
def dropout(p: ProgramDraw) -> list[Result]:
    """Layers that do nothing in evaluation, between others, their inputs returned unchanged."""
    x = p.input((2, 3))
    y: object = p.call("aten.dropout.default", input=x, p=p.choose(0.5, 0.0, 1.0), train=False)
    if p.sometimes():
        y = p.call("aten.alias.default", self=y)
    z = p.call("aten.add.Tensor", self=y, other=p.choose(x, p.operand((3,))))
    return [z, y] if p.sometimes() else [z]  # type: ignore[list-item]
