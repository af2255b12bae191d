"""Contractions over any dims, products of groups of matrices and of three tensors.

`cases.matmul` has the common products.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.judge import ACCUMULATES
from harness.core.dtypes import FULL_FLOATS, NUMBERS
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import Arguments, Family

ops = Family("matmul")


@ops.case("_grouped_mm", dtypes=("float32", "bfloat16", "float16"), judge=ACCUMULATES)
def grouped_mm(d: Draw) -> Arguments:
    # Rows must begin at multiples of 16 bytes.
    groups, (m, k, n) = d.integer(1, 4), (8 * d.choose(1, 2, 3, 4, 1, 2, 3, 17) for _ in range(3))
    kind = d.choose("batch", "rows", "columns", "inner")
    total = {"rows": m, "columns": n, "inner": k}.get(kind)
    left = (groups, m, k) if kind in ("batch", "columns") else (m, k)
    right = (groups, k, n) if kind in ("batch", "rows") else (k, n)
    ends = None if total is None else d.tensor((groups,), "int32", ("offsets", total, 1), contiguous=True)
    return {
        "self": d.tensor(left, contiguous=True),
        "mat2": d.tensor(right, contiguous=True),
        "offs": ends if ends is not None else d.choose(OMIT, None),
        "out_dtype": d.choose(OMIT, None, d.dtype_argument(d.dtype)),
    }


@ops.case("_trilinear", dtypes=NUMBERS, judge=ACCUMULATES)
def trilinear(d: Draw) -> Arguments:
    # Each operand lacks some of the product's dims; `bilinear` lacks these.
    sizes = [d.size(1, 4) for _ in range(4)]
    if d.integer(0, 11) == 11:
        sizes[d.integer(0, 3)] = 0
    absent = d.choose(([1, 3], [0], [1, 2]), ([], [0], [1]), ([0, 1], [], [3]), ([], [], []))
    operands = [[size for i, size in enumerate(sizes) if i not in gone] for gone in absent]
    return {
        **{f"i{i}": d.tensor(shape) for i, shape in enumerate(operands, 1)},
        **{f"expand{i}": gone for i, gone in enumerate(absent, 1)},
        "sumdim": d.choose([2, 3], [3], [], [0, 2]),
        "unroll_dim": d.choose(OMIT, 0, 1, 2, 3),
    }


@ops.case("_sparse_mm", dtypes=FULL_FLOATS, judge=ACCUMULATES)
def sparse_mm(d: Draw) -> Arguments:
    # Takes dense matrices too.
    m, k, n = (129 if d.integer(0, 19) == 19 else d.size(0, 17) for _ in range(3))
    return {"sparse": d.tensor((m, k)), "dense": d.tensor((k, n))}


# Contractions

_EQUATIONS = (
    "ij,jk->ik",
    "ij,kj->ik",
    "bij,bjk->bik",
    "bhqd,bhkd->bhqk",
    "i,j->ij",
    "i,i->",
    "ij->ji",
    "ij->j",
    "ijk->",
    "ii->i",
    "ii",
    "iij->j",
    "ij,ij->ij",
    "ij,j",
    "ba,cb",
    "...ij,...jk->...ik",
    "...i->i...",
    "i...,i...->...",
    "ij,kj,k->i",
    "bn,anm,bm->ba",
    " a b , b C -> C a ",
    ",ij->ij",
)


def _term(d: Draw, term: str, sizes: dict[str, int], ellipsis: Sequence[int]) -> tuple[int, ...]:
    """The shape of one operand; a size of 1 broadcasts, save on a diagonal."""
    letters = term.replace("...", ".")
    shape: list[int] = []
    for letter in letters:
        if letter == ".":
            shape.extend(d.broadcastable(ellipsis))
        elif letters.count(letter) == 1 and d.integer(0, 11) == 11:
            shape.append(1)
        else:
            shape.append(sizes[letter])
    return tuple(shape)


@ops.case("einsum", dtypes=NUMBERS, judge=ACCUMULATES)
def einsum(d: Draw) -> Arguments:
    # One of them long now and then, where the order of accumulation matters.
    long = d.integer(0, 15) == 15
    equation = "ij,jk->ik" if long else d.choose(*_EQUATIONS)
    terms = equation.replace(" ", "").split("->")[0].split(",")
    sizes = {letter: d.size(high=9) for letter in "".join(terms) if letter.isalpha()}
    sizes |= {"j": 129} if long else {}
    ellipsis = d.shape(0, 2, max_size=3)
    tensors = [d.tensor(_term(d, term, sizes, ellipsis)) for term in terms]
    return {"equation": equation, "tensors": tensors, "path": d.choose(OMIT, None)}


@ops.case("tensordot", dtypes=NUMBERS, judge=ACCUMULATES)
def tensordot(d: Draw) -> Arguments:
    shape = (d.size(high=5), 129) if d.integer(0, 15) == 15 else d.shape(0, 5, max_size=5)
    dims = d.dims(len(shape)) if shape else []
    free = d.shape(0, 2, max_size=5)
    other = [*(shape[i] for i in dims), *free]
    order = [i % max(len(other), 1) for i in d.dims(len(other), min_count=len(other))] if other else []
    places = [order.index(i) - (len(other) if d.boolean() else 0) for i in range(len(dims))]
    return {
        "self": d.tensor(shape),
        "other": d.tensor([other[i] for i in order]),
        "dims_self": dims,
        "dims_other": places,
    }
