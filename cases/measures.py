"""Operators that return a number instead of a tensor: sizes, strides, one element, equality as a whole.

A program returns the number as a 0-d tensor (`harness.core.tensors.output_tensors`).
"""

from __future__ import annotations

from harness.compare.judge import EXACT
from harness.core.dtypes import ALL, FLOATS
from harness.core.invocation import Enumerated
from harness.generate.draw import ANY, OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("measures")

ops.simple(*("dim", "numel", "sym_numel", "sym_storage_offset", "is_floating_point"), dtypes=ALL, judge=EXACT)


@ops.case("size.int", "sym_size.int", "sym_stride.int", dtypes=ALL, judge=EXACT)
def size(d: Draw) -> Arguments:
    shape = d.shape(1)
    return {"self": d.tensor(shape), "dim": d.dim(len(shape))}


@ops.case("sym_is_contiguous", dtypes=ALL, judge=EXACT)
def is_contiguous(d: Draw) -> Arguments:
    tensor = d.any_tensor()
    formats = ["contiguous_format", *(["channels_last"] if len(tensor.shape) == 4 else [])]
    return {"self": tensor, "memory_format": d.choose(OMIT, Enumerated("memory_format", d.choose(*formats)))}


@ops.case("item", "_local_scalar_dense", "is_nonzero", dtypes=ALL, judge=EXACT)
def element(d: Draw) -> Arguments:
    return {"self": d.tensor((1,) * d.integer(0, 5))}


@ops.case("equal", dtypes=ALL, judge=EXACT)
def equal(d: Draw) -> Arguments:
    shape = d.shape()
    other = d.choose(shape, shape, shape, d.shape())
    # Few values, so that equal tensors occur.
    domain = d.choose(ANY, ANY, between(0, 1), between(1, 1))
    return {"self": d.tensor(shape, domain=domain), "other": d.tensor(other, d.other_dtype(), domain)}


@ops.case("allclose", dtypes=FLOATS, judge=EXACT)
def allclose(d: Draw) -> Arguments:
    shape = d.shape()
    domain = d.choose(ANY, ANY, between(0.0, 1.0), between(1.0, 1.5))
    return {
        "self": d.tensor(shape, domain=domain),
        "other": d.tensor(d.broadcastable(shape), domain=domain),
        "rtol": d.choose(OMIT, 1e-5, 0.0, 0.75),
        "atol": d.choose(OMIT, 1e-8, 0.0, 2.0),
        "equal_nan": d.maybe(d.boolean),
    }
