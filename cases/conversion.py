"""Conversions of dtype and copies: every value arrives unchanged, or rounded once."""

from __future__ import annotations

from typing import Any

from cases.rules.undefined_elements import conversion_undefined
from harness.compare.judge import EXACT, Judge
from harness.core.dtypes import ALL, FLOATS, INTEGRAL, INTS
from harness.core.invocation import Enumerated
from harness.generate.draw import FINITE, OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("conversion")

CONVERSION = Judge(exact=True, signed_zeros=True, undefined=conversion_undefined())
CPU = Enumerated("device", "cpu")


def memory_format(d: Draw, rank: int) -> Any:
    """Draw the memory format of the result, which its values do not depend on."""
    formats = ["contiguous_format", "preserve_format", *(["channels_last"] if rank == 4 else [])]
    return d.choose(OMIT, OMIT, Enumerated("memory_format", d.choose(*formats)))


def _target(d: Draw) -> Enumerated:
    """Half of the time a dtype of the other kind: there fractions, signs and ranges are lost."""
    if d.dtype in FLOATS and d.boolean():
        return d.dtype_argument(*INTS, *INTEGRAL)
    if d.dtype not in FLOATS and d.boolean():
        return d.dtype_argument(*FLOATS)
    return d.dtype_argument(*ALL)


def _source(d: Draw) -> Any:
    """Mostly numbers that every dtype holds: what lies beyond the target's range is not compared."""
    return d.tensor(d.shape(), domain=d.choose(("any",), ("any",), FINITE, between(0.0, 100.0)))


def _copying(d: Draw, rank: int) -> dict[str, Any]:
    return {
        "non_blocking": d.choose(OMIT, OMIT, False),
        "copy": d.choose(OMIT, False, True),
        "memory_format": memory_format(d, rank),
    }


@ops.case("_to_copy", dtypes=ALL, judge=CONVERSION)
def to_copy(d: Draw) -> Arguments:
    source = _source(d)
    return {
        "self": source,
        "dtype": d.maybe(lambda: _target(d), none=True),
        "device": d.choose(OMIT, OMIT, CPU),
        "memory_format": memory_format(d, len(source.shape)),
    }


@ops.case("to.dtype", dtypes=ALL, judge=CONVERSION)
def to_dtype(d: Draw) -> Arguments:
    source = _source(d)
    return {"self": source, "dtype": _target(d), **_copying(d, len(source.shape))}


@ops.case("to.dtype_layout", dtypes=ALL, judge=CONVERSION)
def to_dtype_layout(d: Draw) -> Arguments:
    source = _source(d)
    dtype = d.maybe(lambda: _target(d), none=True)
    return {"self": source, "dtype": dtype, **_copying(d, len(source.shape))}


@ops.case("to.device", dtypes=ALL, judge=CONVERSION)
def to_device(d: Draw) -> Arguments:
    source = _source(d)
    return {"self": source, "device": CPU, "dtype": _target(d), **_copying(d, len(source.shape))}


@ops.case("to.other", dtypes=ALL, judge=CONVERSION)
def to_other(d: Draw) -> Arguments:
    source = _source(d)
    return {"self": source, "other": d.tensor(d.shape(), d.choose(*ALL)), **_copying(d, len(source.shape))}


@ops.case("type_as", dtypes=ALL, judge=CONVERSION)
def type_as(d: Draw) -> Arguments:
    return {"self": _source(d), "other": d.tensor(d.shape(), d.choose(*ALL))}


ops.simple(
    *(f"_cast_{name}" for name in ("Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")),
    dtypes=ALL,
    judge=CONVERSION,
)


@ops.case(
    "copy",
    dtypes=ALL,
    judge=Judge(exact=True, undefined=conversion_undefined("src")),
)
def copy(d: Draw) -> Arguments:
    shape = d.shape()
    return {"self": d.tensor(shape), "src": d.tensor(d.broadcastable(shape), d.other_dtype(*ALL))}


# Copies and aliases

ops.simple(
    *("alias", "alias_copy", "detach", "detach_copy", "lift", "lift_fresh", "lift_fresh_copy"),
    *("conj", "conj_physical", "_conj_physical", "resolve_conj", "resolve_neg", "real"),
    dtypes=ALL,
    judge=EXACT,
)


@ops.case("clone", dtypes=ALL, judge=EXACT)
def clone(d: Draw) -> Arguments:
    tensor = d.any_tensor()
    return {"self": tensor, "memory_format": memory_format(d, len(tensor.shape))}


@ops.case("contiguous", dtypes=ALL, judge=EXACT)
def contiguous(d: Draw) -> Arguments:
    tensor = d.any_tensor()
    channels_last = len(tensor.shape) == 4 and d.boolean()
    layout = Enumerated("memory_format", "channels_last" if channels_last else "contiguous_format")
    return {"self": tensor, "memory_format": layout if channels_last else d.choose(OMIT, layout)}


# Reinterpretation of bits

_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
_BYTES |= {"int8": 1, "uint8": 1, "bool": 1, "uint16": 2, "uint32": 4, "uint64": 8}


@ops.case("view.dtype", "view_copy.dtype", dtypes=tuple(_BYTES), judge=EXACT)
def view_dtype(d: Draw) -> Arguments:
    # A byte other than 0 and 1 is not a bool: only bool itself may be read as one.
    target = d.choose(*(name for name in _BYTES if name != "bool"), d.dtype)
    size, target_size = _BYTES[d.dtype], _BYTES[target]
    if size == target_size:
        return {"self": d.any_tensor(), "dtype": Enumerated("dtype", target)}
    # Another element size regroups the last dimension, which has to be dense and whole.
    shape = d.shape(1, min_size=1)
    shape = (*shape[:-1], shape[-1] * max(target_size // size, 1))
    return {"self": d.tensor(shape, contiguous=True), "dtype": Enumerated("dtype", target)}


# Dropout when not training; `cases.randomness` has the rest

ops.simple(
    *("alpha_dropout", "feature_alpha_dropout"),
    dtypes=FLOATS,
    judge=EXACT,
    p=lambda d: d.choose(0.5, 0.1, 0.0, 1.0),
    train=lambda d: False,
)
