"""Products of vectors, matrices and batches of them, and what contracts dims otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from harness.compare.judge import ACCUMULATES, EXACT, Allowance, Judge, Mask
from harness.core.dtypes import ALL, FLOATS, FULL_FLOATS, NUMBERS, Array, is_float
from harness.core.invocation import TensorSpec
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import Arguments, Family

ops = Family("matmul")


def _size(d: Draw) -> int:
    """A side of a matrix; a long one now and then, where the order of accumulation matters."""
    return d.choose(129, 33, 64) if d.integer(0, 19) == 19 else d.size(high=17)


def _sides(d: Draw) -> tuple[int, int, int]:
    m, k = _size(d), _size(d)
    # Of a square matrix the shape does not tell that it was transposed.
    return m, k, k if d.integer(0, 2) == 2 else _size(d)


def _lead(d: Draw, max_rank: int = 3) -> tuple[int, ...]:
    """Batch dims."""
    return d.shape(0, max_rank, max_size=3)


def _scales(d: Draw) -> dict[str, Any]:
    """`alpha` and `beta`; integer tensors take no fractions."""
    return {"beta": d.maybe(d.like_dtype), "alpha": d.maybe(d.like_dtype)}


@ops.case("mm", dtypes=NUMBERS, judge=ACCUMULATES)
def mm(d: Draw) -> Arguments:
    m, k, n = _sides(d)
    return {"self": d.tensor((m, k)), "mat2": d.tensor((k, n))}


@ops.case("bmm", dtypes=NUMBERS, judge=ACCUMULATES)
def bmm(d: Draw) -> Arguments:
    b, (m, k, n) = d.size(high=5), _sides(d)
    return {"self": d.tensor((b, m, k)), "mat2": d.tensor((b, k, n))}


def _operands(d: Draw) -> tuple[TensorSpec, TensorSpec]:
    """Operands as `matmul` takes them: vectors, matrices, batches that broadcast."""
    m, k, n = _sides(d)
    lead = _lead(d)
    full_left = d.boolean()
    left, right = (lead, d.broadcastable(lead)) if full_left else (d.broadcastable(lead), lead)
    kind = d.choose("matrices", "matrices", "matrices", "vector left", "vector right", "vectors")
    first = (k,) if kind in ("vector left", "vectors") else (*left, m, k)
    second = (k,) if kind in ("vector right", "vectors") else (*right, k, n)
    return d.tensor(first), d.tensor(second)


@ops.case("matmul", "linalg_matmul", dtypes=NUMBERS, judge=ACCUMULATES)
def matmul(d: Draw) -> Arguments:
    left, right = _operands(d)
    return {"self": left, "other": right}


@ops.case("mv", dtypes=NUMBERS, judge=ACCUMULATES)
def mv(d: Draw) -> Arguments:
    m, k, _ = _sides(d)
    return {"self": d.tensor((m, k)), "vec": d.tensor((k,))}


@ops.case("dot", dtypes=NUMBERS, judge=ACCUMULATES)
def dot(d: Draw) -> Arguments:
    k = _size(d)
    return {"self": d.tensor((k,)), "tensor": d.tensor((k,))}


@ops.case("vdot", dtypes=NUMBERS, judge=ACCUMULATES)
def vdot(d: Draw) -> Arguments:
    k = _size(d)
    return {"self": d.tensor((k,)), "other": d.tensor((k,))}


@ops.case("outer", "ger", dtypes=ALL, judge=Judge(complex_judge=ACCUMULATES))
def outer(d: Draw) -> Arguments:
    m, n, _ = _sides(d)
    return {"self": d.tensor((m,)), "vec2": d.tensor((n,), d.other_dtype(*FLOATS[:2], "int64"))}


@ops.case("inner", dtypes=NUMBERS, judge=ACCUMULATES)
def inner(d: Draw) -> Arguments:
    k = _size(d)
    left, right = _lead(d, 4), _lead(d, 4)
    kind = d.choose("both", "both", "left", "right")
    return {
        "self": d.tensor(() if kind == "right" else (*left, k)),
        "other": d.tensor(() if kind == "left" else (*right, k)),
    }


@ops.case("linalg_vecdot", dtypes=FLOATS, judge=ACCUMULATES)
def vecdot(d: Draw) -> Arguments:
    shape = (d.size(high=5), 129) if d.integer(0, 15) == 15 else d.shape(1)
    dim = d.maybe(lambda: d.dim(len(shape)))
    axis = (-1 if dim is OMIT else dim) % len(shape)
    # The contracted dim does not broadcast, and `dim` counts from where both operands have it.
    other = tuple(size if i == axis or d.boolean() else 1 for i, size in enumerate(shape))
    x, y = (shape, other) if d.boolean() else (other, shape)
    return {"x": d.tensor(x), "y": d.tensor(y), "dim": dim}


# Products with a summand


@ops.case("addmm", dtypes=NUMBERS, judge=ACCUMULATES)
def addmm(d: Draw) -> Arguments:
    m, k, n = _sides(d)
    return {
        "self": d.tensor(d.broadcastable((m, n))),
        "mat1": d.tensor((m, k)),
        "mat2": d.tensor((k, n)),
        **_scales(d),
    }


def _addmm_terms(arguments: Mapping[str, Any]) -> Array:
    product = np.abs(arguments["mat1"]) @ np.abs(arguments["mat2"])
    scaled = abs(arguments.get("beta", 1)) * np.abs(arguments["self"])
    return np.asarray(scaled + abs(arguments.get("alpha", 1)) * product)


# Neither activation amplifies: the sum's terms bound the error, cut off or not.
@ops.case("_addmm_activation", dtypes=NUMBERS, judge=Judge(terms=_addmm_terms))
def addmm_activation(d: Draw) -> Arguments:
    return {**addmm(d), "use_gelu": d.maybe(d.boolean) if is_float(d.dtype) else d.choose(OMIT, False)}


@ops.case("baddbmm", dtypes=NUMBERS, judge=ACCUMULATES)
def baddbmm(d: Draw) -> Arguments:
    b, (m, k, n) = d.size(high=5), _sides(d)
    return {
        "self": d.tensor(d.broadcastable((b, m, n))),
        "batch1": d.tensor((b, m, k)),
        "batch2": d.tensor((b, k, n)),
        **_scales(d),
    }


@ops.case("addbmm", dtypes=NUMBERS, judge=ACCUMULATES)
def addbmm(d: Draw) -> Arguments:
    b, (m, k, n) = d.size(high=5), _sides(d)
    return {
        "self": d.tensor(d.broadcastable((m, n))),
        "batch1": d.tensor((b, m, k)),
        "batch2": d.tensor((b, k, n)),
        **_scales(d),
    }


@ops.case("addmv", dtypes=NUMBERS, judge=ACCUMULATES)
def addmv(d: Draw) -> Arguments:
    m, k, _ = _sides(d)
    return {
        "self": d.tensor(d.choose((m,), (m,), (1,), ())),
        "mat": d.tensor((m, k)),
        "vec": d.tensor((k,)),
        **_scales(d),
    }


@ops.case("addr", dtypes=ALL, judge=ACCUMULATES)
def addr(d: Draw) -> Arguments:
    m, n, _ = _sides(d)
    return {
        "self": d.tensor(d.broadcastable((m, n))),
        "vec1": d.tensor((m,)),
        "vec2": d.tensor((n,)),
        # Python ints never stand for a bool, which is refused next to floats.
        **{name: int(v) if isinstance(v, float) and v in (0.0, 1.0) else v for name, v in _scales(d).items()},
    }


@ops.case("linear", dtypes=NUMBERS, judge=ACCUMULATES)
def linear(d: Draw) -> Arguments:
    features, outputs, _ = _sides(d)
    vector = d.integer(0, 9) == 9
    return {
        "input": d.tensor((*d.shape(0, 4, max_size=5), features)),
        "weight": d.tensor((features,) if vector else (outputs, features)),
        "bias": d.maybe(lambda: d.tensor(() if vector else (outputs,)), none=True),
    }


@ops.case("bilinear", dtypes=NUMBERS, judge=ACCUMULATES)
def bilinear(d: Draw) -> Arguments:
    # PyTorch cannot flatten batches of nothing.
    lead = d.shape(0, 2, min_size=1, max_size=3)
    first, second, outputs = 129 if d.integer(0, 19) == 19 else d.size(1, 9), d.size(1, 9), d.size(0, 9)
    return {
        "input1": d.tensor((*lead, first)),
        "input2": d.tensor((*lead, second)),
        "weight": d.tensor((outputs, first, second)),
        "bias": d.maybe(lambda: d.tensor((outputs,)), none=True),
    }


@ops.case("chain_matmul", dtypes=NUMBERS, judge=ACCUMULATES)
def chain_matmul(d: Draw) -> Arguments:
    sides = [129 if d.integer(0, 19) == 19 else d.size(high=9) for _ in range(d.integer(2, 5))]
    return {"matrices": [d.tensor(pair) for pair in pairwise(sides)]}


@ops.case("linalg_multi_dot", dtypes=NUMBERS, judge=ACCUMULATES)
def multi_dot(d: Draw) -> Arguments:
    sides = [129 if d.integer(0, 19) == 19 else d.size(high=9) for _ in range(d.integer(3, 5))]
    shapes: list[tuple[int, ...]] = list(pairwise(sides))
    if d.boolean():
        shapes[0] = shapes[0][1:]
    if d.boolean():
        shapes[-1] = shapes[-1][:1]
    return {"tensors": [d.tensor(shape) for shape in shapes]}


# Products of other shapes


@ops.case("kron", dtypes=ALL, judge=Judge(complex_judge=ACCUMULATES))
def kron(d: Draw) -> Arguments:
    # PyTorch views the product: few other layouts will do.
    contiguous = d.choose(True, True, False)
    other = d.other_dtype(*FLOATS[:2], "int64", "bool")
    return {
        "self": d.tensor(d.shape(max_size=4), contiguous=contiguous),
        "other": d.tensor(d.shape(max_size=4), other, contiguous=contiguous),
    }


def _shape_with_three(d: Draw, dim: int) -> tuple[int, ...]:
    shape = list(d.shape(max(1, -dim, dim + 1)))
    shape[dim] = 3
    return tuple(shape)


def _cross(default: int | None) -> Judge:
    """Each element is a difference of two products; without `dim`, along `default` or the first of size 3."""

    def products(a: Mapping[str, Any]) -> Array:
        left, right = np.broadcast_arrays(abs(a["self"]), abs(a["other"]))
        dim = a.get("dim", default)
        axis = left.shape.index(3) if dim is None else dim
        return np.stack([np.roll(left, -n, axis) * np.roll(right, n - 3, axis) for n in (1, 2)])

    def undefined(a: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
        # A fused multiply-add takes the difference before a product is rounded to infinity.
        if expected[0].dtype.kind in "iu":
            return [None]
        finite = {name: np.isfinite(a[name]).astype(np.float64) for name in ("self", "other")}
        with np.errstate(all="ignore"):
            factors = products({**a, **finite}) > 0
            return [np.asarray((factors & np.isinf(products(a))).any(axis=0))]

    return Judge(
        terms=lambda a: np.asarray(products(a).sum(axis=0)),
        undefined=Allowance("a product that overflows before the difference", undefined),
    )


@ops.case("linalg_cross", dtypes=NUMBERS, judge=_cross(-1))
def cross(d: Draw) -> Arguments:
    dim = d.maybe(lambda: d.choose(-1, 0, 1, -2))
    axis = -1 if dim is OMIT else dim
    shape = _shape_with_three(d, axis)
    other = tuple(n if i == axis % len(shape) or d.boolean() else 1 for i, n in enumerate(shape))
    left, right = (shape, other) if d.boolean() else (other, shape)
    return {"self": d.tensor(left), "other": d.tensor(right), "dim": dim}


@ops.case("cross", dtypes=NUMBERS, judge=_cross(None))
def cross_at_first_three(d: Draw) -> Arguments:
    axis = d.choose(-1, 0, 1, -2)
    shape = _shape_with_three(d, axis)
    return {"self": d.tensor(shape), "other": d.tensor(shape), "dim": d.choose(axis, OMIT, None)}


# Distances


def _p(d: Draw) -> float:
    return d.choose(2.0, 1.0, 0.0, 3.0, 0.5, float("inf"))


def _points(d: Draw, *, batches: bool) -> dict[str, Any]:
    lead, features = _lead(d, 3) if batches else (), d.size(high=9)
    full_left = d.boolean()
    left, right = (lead, d.broadcastable(lead)) if full_left else (d.broadcastable(lead), lead)
    # Beyond 25 points PyTorch multiplies matrices by default.
    return {
        "x1": d.tensor((*left, d.choose(1, 2, 5, 0, 27, 64), features)),
        "x2": d.tensor((*right, d.choose(1, 3, 4, 0, 28), features)),
    }


@ops.case("cdist", dtypes=FULL_FLOATS)
def cdist(d: Draw) -> Arguments:
    mode = d.maybe(lambda: d.choose(0, 1, 2), none=True)
    return {**_points(d, batches=True), "p": d.maybe(lambda: _p(d)), "compute_mode": mode}


@ops.case("_cdist_forward", dtypes=FULL_FLOATS)
def cdist_kernel(d: Draw) -> Arguments:
    return {**_points(d, batches=True), "p": _p(d), "compute_mode": d.choose(None, 0, 1, 2)}


@ops.case("_euclidean_dist", dtypes=FLOATS)
def euclidean_distance(d: Draw) -> Arguments:
    return _points(d, batches=False)


@ops.case("pdist", dtypes=FULL_FLOATS)
def pdist(d: Draw) -> Arguments:
    return {"self": d.tensor((d.size(high=9), d.size(high=9))), "p": d.maybe(lambda: _p(d))}


@ops.case("_pdist_forward", dtypes=FULL_FLOATS)
def pdist_kernel(d: Draw) -> Arguments:
    points = d.tensor((d.size(high=9), d.size(high=9)), contiguous=True)
    return {"self": points, "p": d.maybe(lambda: _p(d))}


@ops.case("pairwise_distance", dtypes=NUMBERS)
def pairwise_distance(d: Draw) -> Arguments:
    return {
        **d.operands("x1", "x2"),
        "p": d.maybe(lambda: d.choose(2.0, 1.0, 3.0, 0.5)),
        "eps": d.maybe(lambda: d.choose(1e-6, 0.0, 0.1)),
        "keepdim": d.maybe(d.boolean),
    }


@ops.case("_int_mm", dtypes=("int8",), judge=EXACT)
def int_mm(d: Draw) -> Arguments:
    m, k, n = (d.size(0, 17) for _ in range(3))
    return {"self": d.tensor((m, k)), "mat2": d.tensor((k, n))}
