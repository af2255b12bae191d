"""Tensors made from sizes and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cases.rules.undefined_elements import conversion_undefined
from harness.compare.judge import EXACT, Judge, anything
from harness.core.dtypes import ALL, FLOATS, NUMBERS, UNSIGNED, Array, is_float
from harness.core.invocation import Enumerated
from harness.generate.draw import OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("creation")

UNINITIALISED = Judge(rules={0: anything})


def _dtype(d: Draw, default: str = "float32") -> Any:
    """Draw the `dtype` argument; it may be omitted or None if the invocation's dtype is the default."""
    given = Enumerated("dtype", d.dtype)
    return d.choose(OMIT, None, given) if d.dtype == default else given


def _size(d: Draw) -> list[int]:
    return list(d.shape())


def _format(d: Draw, rank: int) -> Any:
    formats = ["contiguous_format", "preserve_format", *(["channels_last"] if rank == 4 else [])]
    return d.choose(OMIT, OMIT, Enumerated("memory_format", d.choose(*formats)))


def _like(d: Draw) -> dict[str, Any]:
    """A tensor to be like; the result's dtype is another one in a third of the draws."""
    tensor = d.any_tensor()
    dtype = d.choose(OMIT, OMIT, None, Enumerated("dtype", d.choose(*ALL)))
    return {"self": tensor, "dtype": dtype, "memory_format": _format(d, len(tensor.shape))}


def _new(d: Draw) -> dict[str, Any]:
    dtype = d.choose(OMIT, OMIT, None, Enumerated("dtype", d.choose(*ALL)))
    return {"self": d.any_tensor(), "size": _size(d), "dtype": dtype}


def _result_dtype(d: Draw, arguments: dict[str, Any]) -> str:
    dtype = arguments["dtype"]
    return dtype.name if isinstance(dtype, Enumerated) else d.dtype


# Constants


@ops.case("zeros", "ones", dtypes=ALL, judge=EXACT)
def constant(d: Draw) -> Arguments:
    return {"size": _size(d), "dtype": _dtype(d)}


@ops.case("empty.memory_format", dtypes=ALL, judge=UNINITIALISED)
def empty(d: Draw) -> Arguments:
    size = _size(d)
    layout = d.choose(OMIT, OMIT, Enumerated("memory_format", "contiguous_format"))
    return {"size": size, "dtype": _dtype(d), "memory_format": layout}


@ops.case("empty_permuted", dtypes=ALL, judge=UNINITIALISED)
def empty_permuted(d: Draw) -> Arguments:
    size = _size(d)
    order = [i % len(size) for i in d.dims(len(size), min_count=len(size))] if size else []
    return {"size": size, "physical_layout": order, "dtype": _dtype(d)}


@ops.case("empty_strided", dtypes=ALL, judge=UNINITIALISED)
def empty_strided(d: Draw) -> Arguments:
    spec = d.tensor(d.shape(max_rank=4))
    return {"size": list(spec.shape), "stride": list(spec.strides), "dtype": _dtype(d)}


@ops.case("new_empty_strided", dtypes=ALL, judge=UNINITIALISED)
def new_empty_strided(d: Draw) -> Arguments:
    spec = d.tensor(d.shape(max_rank=4))
    return {**_new(d), "size": list(spec.shape), "stride": list(spec.strides)}


@ops.case("zeros_like", "ones_like", dtypes=ALL, judge=EXACT)
def constant_like(d: Draw) -> Arguments:
    return _like(d)


@ops.case("empty_like", dtypes=ALL, judge=UNINITIALISED)
def empty_like(d: Draw) -> Arguments:
    return _like(d)


@ops.case("new_zeros", "new_ones", dtypes=ALL, judge=EXACT)
def new_constant(d: Draw) -> Arguments:
    return _new(d)


@ops.case("new_empty", dtypes=ALL, judge=UNINITIALISED)
def new_empty(d: Draw) -> Arguments:
    return _new(d)


@ops.case("full", dtypes=ALL, judge=EXACT)
def full(d: Draw) -> Arguments:
    # Without a dtype the number's type decides.
    dtype = d.choose(OMIT, None, *[Enumerated("dtype", d.dtype)] * 3)
    value = d.fitting() if isinstance(dtype, Enumerated) else d.number(edges=True)
    return {"size": _size(d), "fill_value": value, "dtype": dtype}


@ops.case("full_like", dtypes=ALL, judge=EXACT)
def full_like(d: Draw) -> Arguments:
    arguments = _like(d)
    return {**arguments, "fill_value": d.fitting(_result_dtype(d, arguments))}


@ops.case("new_full", dtypes=ALL, judge=EXACT)
def new_full(d: Draw) -> Arguments:
    arguments = _new(d)
    return {**arguments, "fill_value": d.fitting(_result_dtype(d, arguments))}


ops.simple("fill.Scalar", dtypes=ALL, judge=EXACT, value=lambda d: d.fitting())


@ops.case(
    "fill.Tensor",
    dtypes=ALL,
    judge=Judge(exact=True, signed_zeros=True, undefined=conversion_undefined("value")),
)
def fill_tensor(d: Draw) -> Arguments:
    return {"self": d.any_tensor(), "value": d.tensor((), d.other_dtype(*ALL))}


ops.simple("zero", dtypes=ALL, judge=EXACT)


@ops.case("scalar_tensor", dtypes=ALL, judge=EXACT)
def scalar_tensor(d: Draw) -> Arguments:
    return {"s": d.fitting(), "dtype": _dtype(d)}


@ops.case("eye", dtypes=ALL, judge=EXACT)
def eye(d: Draw) -> Arguments:
    return {"n": d.size(0, 17), "dtype": _dtype(d)}


@ops.case("eye.m", dtypes=ALL, judge=EXACT)
def eye_rectangular(d: Draw) -> Arguments:
    return {"n": d.size(0, 17), "m": d.size(0, 17), "dtype": _dtype(d)}


# Sequences


def _span(d: Draw) -> tuple[bool | int | float, bool | int | float, int | float]:
    """Start, end and step of a sequence of some twenty elements, rarely of more, the last step often cut short."""
    integral = not is_float(d.dtype)
    unsigned = d.dtype in UNSIGNED
    if integral or d.choose(True, False, False):
        step: int | float = d.choose(1, 2, 3) if unsigned else d.choose(1, 2, 3, -1, -2, 7)
        start: int | float = d.choose(0, 1, 5, 10) if unsigned else d.choose(0, 1, -3, 5, 10)
        if d.dtype in ("int32", "int64", "float64") and d.choose(False, False, True):
            # Of the numbers from here on float32 holds every second one.
            start = 16777217
    else:
        step = d.choose(0.5, 1.0, 0.1, 0.3, -0.7, 2.5, -1.0, 1e-3)
        start = d.choose(0.0, 0.1, -1.5, 1, 2.5, -0.0)
    # An unsigned byte has no more.
    count = d.choose(*[d.size(0, 17)] * 5, d.choose(28, 56, 83))
    if unsigned and step < 0:
        start = -step * count
    surplus = d.choose(0, 0, 0.5) if isinstance(step, float) else d.choose(0, 0, step - int(math.copysign(1, step)))
    return start, start + count * step + surplus * (step if isinstance(step, float) else 1), step


def _sequence_dtype(d: Draw) -> Any:
    """Draw the `dtype` argument: without it the numbers' types decide between int64 and float32."""
    given = Enumerated("dtype", d.dtype)
    return d.choose(OMIT, None, given) if d.dtype in ("float32", "int64") else given


@ops.case("arange", dtypes=NUMBERS)
def arange(d: Draw) -> Arguments:
    long = d.choose(False, False, False, True)
    end = (d.map_size() if long else d.size(0, 33)) if d.boolean() else d.choose(0.5, 3.7, 1.0, 10.1, 5, 0.0)
    return {"end": end, "dtype": _sequence_dtype(d)}


@ops.case("arange.start", dtypes=NUMBERS)
def arange_start(d: Draw) -> Arguments:
    start, end, _ = _span(d)
    low, high = min(start, end), max(start, end)
    return {"start": low, "end": high, "dtype": _sequence_dtype(d)}


@ops.case("arange.start_step", dtypes=NUMBERS)
def arange_step(d: Draw) -> Arguments:
    start, end, step = _span(d)
    step = OMIT if step == 1 and d.boolean() else step
    return {"start": start, "end": end, "step": step, "dtype": _sequence_dtype(d)}


@ops.case("range", dtypes=NUMBERS)
def range_(d: Draw) -> Arguments:
    start, end, _ = _span(d)
    return {"start": min(start, end), "end": max(start, end), "dtype": _dtype(d)}


@ops.case("range.step", dtypes=NUMBERS)
def range_step(d: Draw) -> Arguments:
    start, end, step = _span(d)
    step = OMIT if step == 1 and d.boolean() else step
    return {"start": start, "end": end, "step": step, "dtype": _dtype(d)}


def _steps(d: Draw) -> int:
    return d.choose(5, 2, 1, 0, 3, 8, 17, 33, 56, 127, 257)


def _end_point(d: Draw) -> int | float:
    if d.dtype in UNSIGNED:
        return d.choose(0, 10, 3, 100, 255, 2.5)
    return d.choose(0, 1, 10, -3, 0.5, 2.5, -1.0, 0.1, 100, -0.7)


def _exponent(d: Draw) -> int | float:
    if is_float(d.dtype):
        return d.choose(0, 1, 2, -1, 0.5, 2.5, -2.0)
    # What 10 to its power does not exceed even int8.
    return d.choose(0, 1, 2, 0.5)


def _end_tensor(d: Draw, high: float) -> Any:
    # Integers and floats alike are converted to the result's dtype: all must hold them.
    dtype = d.dtype if is_float(d.dtype) else d.choose("int64", "int32", "float32")
    return d.tensor((), dtype, between(0.0, high))


for ends, start_is_tensor, end_is_tensor in (
    ("", False, False),
    (".Tensor_Scalar", True, False),
    (".Scalar_Tensor", False, True),
    (".Tensor_Tensor", True, True),
):

    @ops.case(f"linspace{ends}", dtypes=NUMBERS)
    def linspace(d: Draw, tensors: tuple[bool, bool] = (start_is_tensor, end_is_tensor)) -> Arguments:
        start, end = (_end_tensor(d, 20.0) if tensor else _end_point(d) for tensor in tensors)
        # `torch.linspace` states the device whether it is given or not.
        device = d.choose(Enumerated("device", "cpu"), Enumerated("device", "cpu"), OMIT)
        return {"start": start, "end": end, "steps": _steps(d), "dtype": _dtype(d), "device": device}

    @ops.case(f"logspace{ends}", dtypes=NUMBERS)
    def logspace(d: Draw, tensors: tuple[bool, bool] = (start_is_tensor, end_is_tensor)) -> Arguments:
        start, end = (_end_tensor(d, 2.0) if tensor else _exponent(d) for tensor in tensors)
        base = d.choose(OMIT, 10.0, 2.0, 0.5, math.e)
        return {"start": start, "end": end, "steps": _steps(d), "base": base, "dtype": _dtype(d)}


# Windows


def _window(d: Draw) -> dict[str, Any]:
    return {"window_length": d.choose(5, 8, 1, 2, 0, 9, 16, 33, 127, 257), "dtype": _dtype(d)}


def _cosines(arguments: Mapping[str, Any]) -> Array:
    """The magnitudes of a sum of cosines, whose coefficients are those of the named window or add up to one."""
    coefficients = abs(arguments.get("alpha", 0.54)) + abs(arguments.get("beta", 0.46))
    return np.full(arguments["window_length"], coefficients)


#: Near the ends of a window its terms cancel: 0.42 - 0.5 + 0.08.
_SUM_OF_COSINES = Judge(terms=_cosines)
_COSINE_WINDOWS = ("blackman_window", "hamming_window", "hann_window")
_OTHER_WINDOWS = ("bartlett_window", "kaiser_window")


def window(d: Draw) -> Arguments:
    return _window(d)


def window_periodic(d: Draw) -> Arguments:
    return {**_window(d), "periodic": d.boolean()}


for names, judge in ((_COSINE_WINDOWS, _SUM_OF_COSINES), (_OTHER_WINDOWS, Judge())):
    ops.case(*names, dtypes=FLOATS, judge=judge)(window)
    ops.case(*(f"{name}.periodic" for name in names), dtypes=FLOATS, judge=judge)(window_periodic)


@ops.case("hamming_window.periodic_alpha", dtypes=FLOATS, judge=_SUM_OF_COSINES)
def hamming_alpha(d: Draw) -> Arguments:
    return {**_window(d), "periodic": d.boolean(), "alpha": d.choose(0.54, 0.5, 0.0, 1.0)}


@ops.case("hamming_window.periodic_alpha_beta", dtypes=FLOATS, judge=_SUM_OF_COSINES)
def hamming_alpha_beta(d: Draw) -> Arguments:
    return {**hamming_alpha(d), "beta": d.choose(0.46, 0.5, 0.0, 1.0)}


@ops.case("kaiser_window.beta", dtypes=FLOATS)
def kaiser_beta(d: Draw) -> Arguments:
    return {**_window(d), "periodic": d.boolean(), "beta": d.choose(12.0, 8.6, 0.0, 5.0, 1.0)}
