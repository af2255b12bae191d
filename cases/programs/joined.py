"""Pieces that optimisers join into one operator: masks before a softmax, cuts of one tensor, sums of products."""

from __future__ import annotations

from harness.core.invocation import Result
from harness.generate.draw import OMIT
from harness.generate.programs import ProgramDraw, dtype_of, pattern


@pattern("bias-softmax", source="onnxruntime bias_softmax_fusion.cc")
def bias_softmax(p: ProgramDraw) -> list[Result]:
    """A softmax of scores and a mask that broadcasts over the batch, the heads or the rows."""
    batch, heads, rows, keys = p.integer(1, 2), p.integer(1, 2), p.integer(2, 3), p.integer(2, 4)
    scores = p.call("aten.mul.Scalar", self=p.input((batch, heads, rows, keys)), other=p.choose(0.5, 2.0))
    mask = p.input(p.usually((batch, 1, 1, keys), (rows, keys), (1, 1, rows, keys), (batch, heads, rows, keys)))
    masked = p.call("aten.add.Tensor", self=scores, other=mask, alpha=p.usually(OMIT, 2))
    return [p.call("aten.softmax.int", self=masked, dim=p.usually(-1, -2, 1))]


@pattern("space-to-depth", source="onnxruntime slice_concat_to_space_to_depth_fusion.cc")
def space_to_depth(p: ProgramDraw) -> list[Result]:
    """Every second row and column, four times, joined along the channels, in one of several orders."""
    x = p.input((1, p.choose(1, 2, 3), 4, p.choose(4, 6)))
    starts = p.usually(
        ((0, 0), (1, 0), (0, 1), (1, 1)), ((0, 0), (0, 1), (1, 0), (1, 1)), ((1, 1), (0, 1), (1, 0), (0, 0))
    )
    parts = []
    for row, column in starts:
        cut = p.call("aten.slice.Tensor", self=x, dim=2, start=row, end=2**63 - 1, step=2)
        parts.append(p.call("aten.slice.Tensor", self=cut, dim=3, start=column, end=2**63 - 1, step=2))
    joined = p.call("aten.cat.default", tensors=parts, dim=p.usually(1, -3, 0))
    return [p.call("aten.mul.Tensor", self=joined, other=p.weight(()))] if p.sometimes() else [joined]


@pattern("selects", source="onnxruntime gather_fusion.cc (GatherSliceToSplit, GatherToSlice)")
def selects(p: ProgramDraw) -> list[Result]:
    """Each row of one tensor, selected, cut or gathered by a range, all of them or not all."""
    rows = p.integer(2, 3)
    x = p.call("aten.neg.default", self=p.input((rows, 2, 3)))
    if p.sometimes():
        index = p.call("aten.arange.start_step", start=p.choose(0, 1), end=rows, step=1, dtype=dtype_of("int64"))
        return [p.call("aten.index_select.default", self=x, dim=0, index=index)]
    kept = rows if p.usually(True, False) else rows - 1
    kind = p.choose("select", "select", "index")

    def part(row: int) -> Result:
        if kind == "select":
            return p.call("aten.select.int", self=x, dim=0, index=row)
        return p.call("aten.index_select.default", self=x, dim=0, index=p.given([row], (1,), "int64"))

    return [p.call("aten.relu.default", self=part(row)) for row in range(kept)]


@pattern("gemm-sum", source="onnxruntime gemm_sum_fusion.cc, gemm_transpose_fusion.cc")
def gemm_sum(p: ProgramDraw) -> list[Result]:
    """A product of matrices, transposed before or after, with a sum that it may take in."""
    rows, inner, columns = p.integer(1, 4), p.integer(1, 4), p.integer(1, 4)
    left: object = p.input((rows, inner))
    if p.sometimes():
        left = p.call("aten.t.default", self=p.input((inner, rows)))
    zeros = p.number(0.0, (columns,))
    y = p.call(
        "aten.addmm.default",
        self=p.usually(zeros, p.operand((columns,))),
        mat1=left,
        mat2=p.operand((inner, columns)),
        beta=p.usually(1, 0, 2),
        alpha=p.usually(1, 0.5),
    )
    if p.sometimes():
        return [p.call("aten.t.default", self=y)]
    shape = p.usually((rows, columns), (columns,), (1, columns), (rows, 1), (2, rows, columns))
    return [p.call("aten.add.Tensor", self=y, other=p.operand(shape), alpha=p.usually(OMIT, 2))]


#: Operators of one operand between quantised values, and their other arguments.
_UNARY_CALLS: dict[str, dict[str, object]] = {
    "max_pool2d.default": {"kernel_size": [2, 2]},
    "avg_pool2d.default": {"kernel_size": [2, 2]},
    "softmax.int": {"dim": -1},
    "sigmoid.default": {},
    "reshape.default": {"shape": [1, -1]},
    "mean.dim": {"dim": [2, 3], "keepdim": True},
}


@pattern("quantised", source="onnxruntime qdq_transformer; relu and clip before QuantizeLinear")
def quantised(p: ProgramDraw) -> list[Result]:
    """Values rounded to eight bits and back before and after an operator, as in quantised models."""

    def rounded(value: object) -> Result:
        low, high = p.usually((0, 255), (-128, 127))
        zero = p.usually(p.choose(0, 128), 3) if low == 0 else 0
        return p.call(
            "aten.fake_quantize_per_tensor_affine.default",
            self=value,
            scale=p.usually(0.05, 1.0, 1e-3),
            zero_point=zero,
            quant_min=low,
            quant_max=high,
        )

    kind = p.choose("relu", "clamp", "matmul", "conv", "transpose", "add", "twice", *_UNARY_CALLS, "where", "cat")
    x = rounded(p.input((1, 2, 4, 4), dtype="float32", domain=("range", -4.0, 4.0)))
    if kind == "twice":
        return [rounded(x)]
    if kind == "relu":
        y = p.call("aten.relu.default", self=x)
    elif kind == "clamp":
        y = p.call("aten.clamp.default", self=x, min=p.usually(0.0, -1.0), max=p.choose(6.0, 1.0))
    elif kind == "transpose":
        y = p.call("aten.transpose.int", self=x, dim0=2, dim1=3)
    elif kind == "add":
        y = p.call("aten.add.Tensor", self=x, other=rounded(p.input((1, 2, 4, 4), dtype="float32")))
    elif kind in _UNARY_CALLS:
        y = p.call(f"aten.{kind}", self=x, **_UNARY_CALLS[kind])
    elif kind == "where":
        condition = p.call("aten.gt.Scalar", self=p.input((1, 2, 4, 4), dtype="float32"), other=0.0)
        sides = p.choose((x, p.number(p.choose(0.0, -5.0), (), "float32")), (p.number(1.0, (), "float32"), x))
        y = p.call("aten.where.self", condition=condition, self=sides[0], other=sides[1])
    elif kind == "cat":
        other = p.usually(rounded(p.input((1, 2, 4, 4), dtype="float32")), p.input((1, 2, 4, 4), dtype="float32"))
        y = p.call("aten.cat.default", tensors=[x, other], dim=p.choose(1, -1))
    elif kind == "matmul":
        y = p.call("aten.matmul.default", self=x, other=rounded(p.weight((4, 3), dtype="float32")))
    else:
        weight = rounded(p.weight((2, 2, 1, 1), dtype="float32"))
        y = p.call("aten.conv2d.default", input=x, weight=weight, bias=p.weight((2,), dtype="float32"))
    return [rounded(y)]


@pattern("embeddings", source="onnxruntime embed_layer_norm_fusion.cc, attention_fusion.cc")
def embeddings(p: ProgramDraw) -> list[Result]:
    """A layer norm of the sum of the embeddings of words, of their places and perhaps of their segments."""
    batch, length, width = p.usually(1, 2), 2, 4
    # The first rows only: a table may be made shorter by a twist.
    words = p.input((batch, length), dtype=p.usually("int64", "int32"), domain=("index", 2))
    value = p.call("aten.embedding.default", weight=p.weight((5, width)), indices=words)
    places = p.given([*range(length)] * batch, (batch, length), "int64")
    if p.usually(True, False):
        other = p.call("aten.embedding.default", weight=p.weight((6, width)), indices=places)
    else:
        other = p.call("aten.slice.Tensor", self=p.weight((6, width)), dim=0, start=0, end=length)
    value = p.call("aten.add.Tensor", self=value, other=other)
    if p.choose(True, False):
        segments = p.input((batch, length), dtype="int64", domain=("index", 2))
        third = p.call("aten.embedding.default", weight=p.weight((2, width)), indices=segments)
        value = p.call("aten.add.Tensor", self=value, other=third)
    row = (width,)
    norm = {"normalized_shape": [width], "weight": p.weight(row), "bias": p.weight(row)}
    normed = p.call("aten.layer_norm.default", input=value, **norm)
    return [normed, value] if p.sometimes() else [normed]
