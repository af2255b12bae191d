"""Products of groups of matrices and of three tensors; `cases.matmul` has the common products."""

from __future__ import annotations

from harness.dtypes import FULL_FLOATS, NUMBERS
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import Arguments, Family
from harness.verdict.judge import ACCUMULATES

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
