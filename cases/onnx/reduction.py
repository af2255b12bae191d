"""Reductions, running sums, orders and normalised exponentials."""

from __future__ import annotations

from harness.generate.draw import OMIT, Draw, between
from harness.generate.onnx_case import OnnxFamily
from harness.generate.operator_case import Arguments

ops = OnnxFamily("reduction")


@ops.case(
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
    *("ReduceSum", "ReduceSumSquare"),
)
def reduction(d: Draw) -> Arguments:
    shape = d.shape()
    axes = d.maybe(lambda: _axes(d, len(shape)))
    takes_none = d.schema is not None and d.schema.attribute("noop_with_empty_axes") is not None
    return {
        "data": d.tensor(shape),
        "axes": axes if axes is OMIT or axes or takes_none else OMIT,
        "keepdims": d.flag(),
        "noop_with_empty_axes": d.flag(),
    }


def _axes(d: Draw, rank: int) -> list[int]:
    assert d.schema is not None
    axes = d.dims(rank) if rank else []
    # Before version 11 the text does not speak of negative axes.
    return axes if d.schema.version >= 11 else [axis % max(rank, 1) for axis in axes]


@ops.case("ArgMax", "ArgMin")
def place_of_extreme(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1, min_size=1)
    return {
        "data": d.tensor(shape),
        "axis": d.maybe(lambda: _axis(d, len(shape))),
        "keepdims": d.flag(),
        "select_last_index": d.flag(),
    }


def _axis(d: Draw, rank: int) -> int:
    assert d.schema is not None
    axis = d.dim(rank)
    return axis if d.schema.version >= 11 else axis % max(rank, 1)


@ops.case("CumSum", "CumProd")
def running(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1)
    return {"x": d.tensor(shape), "axis": d.dim(len(shape)), "exclusive": d.flag(), "reverse": d.flag()}


@ops.case("Softmax", "LogSoftmax", "Hardmax")
def exponentials(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1)
    return {"input": d.tensor(shape), "axis": d.maybe(lambda: _axis(d, len(shape)))}


@ops.case("LpNormalization")
def lp_normalization(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1)
    return {"input": d.tensor(shape), "axis": d.maybe(lambda: d.dim(len(shape))), "p": d.choose(OMIT, 1, 2)}


@ops.case("MeanVarianceNormalization")
def mean_variance_normalization(d: Draw) -> Arguments:
    shape = d.shape(min_rank=4, max_rank=4) if d.boolean() else d.shape(min_rank=1)
    usual = OMIT if len(shape) == 4 and d.boolean() else d.dims(len(shape), min_count=1)
    return {"X": d.tensor(shape), "axes": usual}


@ops.case("TopK")
def top_k(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1, min_size=1)
    axis = d.dim(len(shape))
    assert d.schema is not None
    count = d.integer(1, min(shape[axis], 8))
    arguments = {"X": d.tensor(shape), "axis": axis, "largest": d.flag(), "sorted": d.choose(OMIT, 1)}
    if d.schema.version < 10:
        return {**arguments, "axis": axis % len(shape), "k": count}
    return {**arguments, "K": [count]}


@ops.case("Unique", strings=True)
def unique(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1)
    return {"X": d.tensor(shape), "axis": d.maybe(lambda: d.dim(len(shape))), "sorted": d.flag()}


@ops.case("NonZero", strings=False)
def non_zero(d: Draw) -> Arguments:
    return {"X": d.any_tensor()}


@ops.case("Det")
def determinant(d: Draw) -> Arguments:
    side = d.size(0, 5)
    return {"X": d.tensor((*d.shape(max_rank=2, max_size=4), side, side), domain=("dominant", side, 0))}


@ops.case("NegativeLogLikelihoodLoss")
def negative_log_likelihood(d: Draw) -> Arguments:
    scores, labels, arguments = _classified(d, log_probabilities=True)
    return {"input": scores, "target": labels, **arguments}


@ops.case("SoftmaxCrossEntropyLoss")
def cross_entropy(d: Draw) -> Arguments:
    scores, labels, arguments = _classified(d, log_probabilities=False)
    weight = arguments.pop("weight")
    return {"scores": scores, "labels": labels, "weights": weight, **arguments}


def _classified(d: Draw, *, log_probabilities: bool) -> tuple[object, object, dict[str, object]]:
    batch, classes = d.size(1, 5), d.size(1, 5)
    rest = d.shape(max_rank=2, max_size=4, min_size=1)
    ignored = d.choose(OMIT, 0, -1, 100)
    domain = ("index", classes) if ignored is OMIT else ("index_or", classes, ignored)
    scores = d.tensor((batch, classes, *rest), domain=between(-8.0, 0.0) if log_probabilities else ("any",))
    arguments = {
        "weight": d.maybe(lambda: d.tensor((classes,), domain=between(0.25, 2.0))),
        "ignore_index": ignored,
        "reduction": d.choose(OMIT, "none", "sum", "mean"),
    }
    return scores, d.tensor((batch, *rest), d.choose("int64", "int32"), domain), arguments
