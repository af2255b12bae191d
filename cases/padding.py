"""Padding: constant, reflected, replicated, circular; negative amounts crop.

Values are moved and a constant is put around them, so all are judged bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.compare.judge import EXACT
from harness.core.dtypes import ALL, INT_RANGE, NUMBERS, WIDE_UNSIGNED, is_float
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import Arguments, Family

ops = Family("padding")

_NONFINITE = (float("nan"), float("inf"), float("-inf"))


def _constant(d: Draw) -> float:
    """A padding constant as a float, in the range of the dtype: beyond it, an integer's is undefined."""
    if is_float(d.dtype):
        return d.choose(d.float(), d.float(), d.choose(*_NONFINITE))
    low, high = INT_RANGE.get(d.dtype, (0, 1))
    return min(max(d.float(), float(low)), float(high))


def _cropping(d: Draw, size: int, least: int, most: int, *, around: bool = False) -> tuple[int, int]:
    """Amounts before and after a dimension of `size`, each at most `most`, that leave `least` or more;
    `around`, neither exceeds what the other leaves."""
    crop = d.choose(False, False, True)
    croppable = size - least if around else min(size, size + most - least)
    before = -d.integer(0, croppable) if crop else d.integer(0, min(most, 4))
    floor = max(least - size - before, -size)
    if around:
        # PyTorch checks against the whole size only; beyond, it would copy what it has not written yet.
        floor, most = max(floor, before - size), min(most, size + before)
    if floor >= 0 or d.choose(True, True, False):
        return before, d.integer(max(floor, 0), max(min(most, 4), floor, 0))
    return before, d.integer(floor, 0)


def _amounts(d: Draw, sizes: Sequence[int], least: int, most: Callable[[int], int]) -> list[int]:
    """Pairs for `sizes`, the last dimension first, as padding operators take them."""
    around = most is _around
    return [n for size in reversed(sizes) for n in _cropping(d, size, least, most(size), around=around)]


def _anything(size: int) -> int:
    return 4


@ops.case("constant_pad_nd", dtypes=ALL, judge=EXACT)
def constant_pad(d: Draw) -> Arguments:
    shape = d.shape()
    padded = shape[len(shape) - d.integer(0, len(shape)) :]
    value = d.choose(_constant(d), d.int(), d.like_dtype(), d.boolean())
    return {
        "self": d.tensor(shape),
        "pad": _amounts(d, padded, 0, _anything),
        "value": d.choose(OMIT, 0, value, value),
    }


def _spatial(d: Draw, dims: int, least: int, most: Callable[[int], int]) -> tuple[tuple[int, ...], list[int]]:
    """A shape with `dims` spatial dimensions, batched or not, and the amounts for them."""
    sizes = tuple(d.size(1, 65 if dims == 1 else 7) for _ in range(dims))
    lead = d.choose((2, 3), (1, 1), (3,), (0, 2), (2,))
    return (*lead, *sizes), _amounts(d, sizes, least, most)


def _reflected(size: int) -> int:
    return size - 1


def _around(size: int) -> int:
    return size


#: Mode → its number for `_pad_enum` and how far it may reach beyond a dimension of a size.
_MODES: dict[str, tuple[int, Callable[[int], int]]] = {
    "constant": (3, _anything),
    "reflect": (0, _reflected),
    "replicate": (1, _anything),
    "circular": (2, _around),
}


def _mode_arguments(d: Draw) -> tuple[str, dict[str, Any]]:
    # The kernels that reflect and replicate take no bool, nor wide unsigned integers.
    copied = d.dtype == "bool" or d.dtype in WIDE_UNSIGNED
    # The one mode that has an argument of its own comes more often.
    mode = d.choose(*(("constant", "circular") if copied else _MODES), "constant")
    if mode == "constant" and d.boolean():
        shape = d.shape()
        padded = shape[len(shape) - d.integer(0, len(shape)) :]
        pad = _amounts(d, padded, 0, _anything)
    else:
        shape, pad = _spatial(d, d.integer(1, 3), 0 if mode == "constant" else 1, _MODES[mode][1])
    value = d.choose(OMIT, None, _constant(d), _constant(d)) if mode == "constant" else d.choose(OMIT, None)
    return mode, {"self": d.tensor(shape), "pad": pad, "value": value}


@ops.case("pad", dtypes=ALL, judge=EXACT)
def pad(d: Draw) -> Arguments:
    mode, arguments = _mode_arguments(d)
    return {**arguments, "mode": d.choose(OMIT, mode) if mode == "constant" else mode}


@ops.case("_pad_enum", dtypes=ALL, judge=EXACT)
def pad_enum(d: Draw) -> Arguments:
    mode, arguments = _mode_arguments(d)
    return {**arguments, "mode": _MODES[mode][0]}


@ops.case("_pad_circular", dtypes=ALL, judge=EXACT)
def pad_circular(d: Draw) -> Arguments:
    shape, amounts = _spatial(d, d.integer(1, 3), 1, _around)
    return {"self": d.tensor(shape), "pad": amounts}


def _fixed(kind: str, dims: int, most: Callable[[int], int]) -> None:
    @ops.case(f"{kind}_pad{dims}d", dtypes=NUMBERS, judge=EXACT)
    def arguments(d: Draw) -> Arguments:
        shape, amounts = _spatial(d, dims, 1, most)
        return {"self": d.tensor(shape), "padding": amounts}


for _dims in (1, 2, 3):
    _fixed("reflection", _dims, _reflected)
    _fixed("replication", _dims, _anything)


@ops.case("pad_sequence", dtypes=ALL, judge=EXACT)
def pad_sequence(d: Draw) -> Arguments:
    tail = d.shape(0, 4, max_size=5)
    return {
        "sequences": [d.tensor((d.size(0, 9), *tail)) for _ in range(d.integer(1, 4))],
        "batch_first": d.choose(OMIT, False, True),
        "padding_value": d.choose(OMIT, 0.0, _constant(d), _constant(d)),
        "padding_side": d.choose(OMIT, "right", "left"),
    }
