"""Output rules for random operators: the distribution of each, which `harness.compare.drawn.Fit` tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from harness.compare.drawn import DistributionTest, Fit
from harness.compare.judge import Evidence, Mask, OutputRule
from harness.compare.tolerances import DEFAULT
from harness.core.dtypes import INT_RANGE, PRECISION, Array

#: Standard deviations; a normal number is as far from its mean with a probability of 1e-32.
_FARTHEST = 12.0

#: From the arguments, an output in float64 and the spacing of numbers there: F just below and at each
#: element, and which elements cannot occur at all.
Distribution: TypeAlias = Callable[[Mapping[str, Any], Array, Array], tuple[Array, Array, Mask]]


#: From the arguments, the least number that may be drawn and one that none reaches.
Ends: TypeAlias = Callable[[Mapping[str, Any]], tuple[float, float]]


def distributed(distribution: Distribution, ends: Ends | None = None) -> OutputRule:
    """Elements are drawn independently, each from its distribution, and between some ends."""

    def place(evidence: Evidence, output: int) -> Fit:
        got = evidence.got[output]
        x = got.astype(np.float64)
        # A number stands for all that round to it, in either direction; below 1 generators fill a grid.
        digits = PRECISION.get(str(got.dtype))
        spacing = np.zeros_like(x) if digits is None else np.maximum(np.abs(x), 1.0) * 2.0 ** (1 - digits)
        with np.errstate(all="ignore"):
            below, upto, impossible = distribution(evidence.arguments, x, spacing)
        impossible = np.broadcast_to(impossible, x.shape)
        return Fit(impossible=impossible, below=np.ravel(below), upto=np.ravel(upto))

    return DistributionTest(place, ends=ends)


def _continuous(
    cdf: Callable[[Mapping[str, Any], Array], Array],
    support: Callable[[Mapping[str, Any], Array], Mask],
    ends: Ends | None = None,
) -> OutputRule:
    def distribution(arguments: Mapping[str, Any], x: Array, spacing: Array) -> tuple[Array, Array, Mask]:
        below, upto = cdf(arguments, x - spacing), cdf(arguments, x + spacing)
        return np.broadcast_to(below, x.shape), np.broadcast_to(upto, x.shape), ~support(arguments, x)

    return distributed(distribution, ends)


def _number(argument: Any) -> Any:
    return argument.astype(np.float64) if isinstance(argument, np.ndarray) else argument


def uniform(low: str = "", high: str = "") -> OutputRule:
    """Uniform in [low, high), which name arguments; [0, 1) by default. The upper end may be reached by
    rounding."""

    def ends(a: Mapping[str, Any]) -> tuple[float, float]:
        return a.get(low, 0.0), a.get(high, 1.0)

    def cdf(a: Mapping[str, Any], x: Array) -> Array:
        start, end = ends(a)
        return np.clip((x - start) / (end - start) if end > start else x >= start, 0.0, 1.0)

    def support(a: Mapping[str, Any], x: Array) -> Mask:
        start, end = ends(a)
        slack = max(abs(start), abs(end)) * 2.0**-7 if low else 0.0
        return np.asarray((x >= start - slack) & ((x <= end + slack) if low else (x < end)))

    return _continuous(cdf, support, None if low else ends)


def normal(mean: str = "mean", std: str = "std", default: tuple[float, float] = (0.0, 1.0)) -> OutputRule:
    """Normal; `mean` and `std` name arguments, numbers or tensors."""

    def cdf(a: Mapping[str, Any], x: Array) -> Array:
        centre, width = _number(a.get(mean, default[0])), _number(a.get(std, default[1]))
        z = (x - centre) / np.where(np.asarray(width) > 0, width, np.finfo(np.float64).tiny)
        return np.asarray(np.vectorize(_phi, otypes=[np.float64])(z))

    def support(a: Mapping[str, Any], x: Array) -> Mask:
        centre, width = _number(a.get(mean, default[0])), _number(a.get(std, default[1]))
        # With no width nothing but the mean is drawn, as it is rounded; nothing ever is so far out.
        farthest = _FARTHEST * np.asarray(width) + 2.0**-7 * np.abs(centre)
        return np.asarray(np.isfinite(x) & (np.abs(x - centre) <= farthest))

    return _continuous(cdf, support)


def _phi(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def log_normal() -> OutputRule:
    """exp of a normal number."""

    def cdf(a: Mapping[str, Any], x: Array) -> Array:
        z = (np.log(np.maximum(x, np.finfo(np.float64).tiny)) - a.get("mean", 1.0)) / a.get("std", 2.0)
        return np.asarray(np.vectorize(_phi, otypes=[np.float64])(z))

    return _continuous(cdf, lambda a, x: x >= 0)


def exponential() -> OutputRule:
    """Exponential with rate `lambd`."""

    def cdf(a: Mapping[str, Any], x: Array) -> Array:
        return np.asarray(-np.expm1(-a.get("lambd", 1.0) * np.maximum(x, 0.0)))

    return _continuous(cdf, lambda a, x: x >= 0)


def cauchy() -> OutputRule:
    """Cauchy with `median` and `sigma`."""

    def cdf(a: Mapping[str, Any], x: Array) -> Array:
        return np.asarray(0.5 + np.arctan((x - a.get("median", 0.0)) / a.get("sigma", 1.0)) / math.pi)

    return _continuous(cdf, lambda a, x: ~np.isnan(x))


def bernoulli(probability: str) -> OutputRule:
    """0 or 1, 1 with the probability in the argument of that name, a number or a tensor."""

    def distribution(a: Mapping[str, Any], x: Array, spacing: Array) -> tuple[Array, Array, Mask]:
        zero = np.broadcast_to(1.0 - _number(a[probability]), x.shape)
        impossible = ~(((x == 0) & (zero > 0)) | ((x == 1) & (zero < 1)))
        return np.where(x == 0, 0.0, zero), np.where(x == 0, zero, 1.0), impossible

    return distributed(distribution)


def integers(low: str = "low", high: str = "high") -> OutputRule:
    """Integers in [low, high), each as likely.

    `high` names a number or a 0-d tensor. Where it is None, the largest is that of the dtype of `self`, of a floating
    one 2 to the bits of its significand (ATen/native/DistributionTemplates.h, random_from_to).
    """

    def distribution(a: Mapping[str, Any], x: Array, spacing: Array) -> tuple[Array, Array, Mask]:
        start, end = ends(a)
        count = end - start
        impossible = (x < start) | (x >= end) | (x != np.floor(x))
        return (x - start) / count, (x - start + 1) / count, impossible

    def ends(a: Mapping[str, Any]) -> tuple[float, float]:
        if a[high] is None:
            dtype = str(a["self"].dtype)
            largest = 2 ** PRECISION[dtype] if dtype in PRECISION else INT_RANGE[dtype][1]
            return float(a.get(low, 0)), float(largest) + 1
        return float(a.get(low, 0)), float(_number(a[high]))

    return distributed(distribution, ends)


def geometric() -> OutputRule:
    """Judge the number of trials of probability `p` until the first success."""

    def distribution(a: Mapping[str, Any], x: Array, spacing: Array) -> tuple[Array, Array, Mask]:
        fail = 1.0 - a["p"]
        return 1.0 - fail ** (x - 1), 1.0 - fail**x, (x < 1) | (x != np.floor(x))

    return distributed(distribution)


def poisson(rate: str = "self") -> OutputRule:
    """Counts of events, with the mean in the argument of that name."""

    def distribution(a: Mapping[str, Any], x: Array, spacing: Array) -> tuple[Array, Array, Mask]:
        mean = np.broadcast_to(_number(a[rate]), x.shape)
        term, below = np.exp(-mean), np.zeros(x.shape)
        upto = term
        for count in range(1, int(x.max(initial=0)) + 1):
            going = count <= x
            term = term * mean / count
            below, upto = np.where(going, upto, below), np.where(going, upto + term, upto)
        return below, upto, (x < 0) | (x != np.floor(x))

    return distributed(distribution)


def _categories(evidence: Evidence, output: int) -> Fit:
    a, got = evidence.arguments, evidence.got[output]
    weights = np.atleast_2d(_number(a["self"]))
    index = np.atleast_2d(got)
    wrong = (index < 0) | (index >= weights.shape[-1])
    chosen = np.where(wrong, 0, index)
    if not a.get("replacement", False):
        repeated = [[v in row[:i] for i, v in enumerate(row)] for row in index.tolist()]
        wrong = wrong | np.array(repeated, dtype=bool).reshape(index.shape)
        chosen = chosen[:, :1]
    share = weights / weights.sum(-1, keepdims=True)
    upto = np.take_along_axis(np.cumsum(share, -1), chosen, -1)
    below = upto - np.take_along_axis(share, chosen, -1)
    return Fit(impossible=np.asarray(wrong).reshape(got.shape), below=below.ravel(), upto=upto.ravel())


#: Indices into the last dimension of `self`, drawn in proportion to its weights, with or without
#: `replacement`.
categories = DistributionTest(_categories, distinct=lambda arguments: not arguments.get("replacement", False))


@DistributionTest
def permutation(evidence: Evidence, output: int) -> Fit:
    """Each of 0 … n−1 once."""
    got = evidence.got[output]
    expected = np.arange(got.size)
    return Fit(impossible=np.full(got.shape, not (np.sort(got.astype(np.float64)) == expected).all()))


def dropped(independently: bool = True) -> OutputRule:
    """`dropout`: each element of `input` is zero with probability `p`, else divided by 1 − p. `independently`
    of the others, unless whole channels are dropped."""

    @DistributionTest
    def rule(evidence: Evidence, output: int) -> Fit:
        a = evidence.arguments
        data, got = _number(a["input"]), evidence.got[output].astype(np.float64)
        if a.get("train") is False or a["p"] == 0:
            return Fit(impossible=np.asarray(~((got == data) | (np.isnan(got) & np.isnan(data)))))
        scale = 1.0 / (1.0 - a["p"]) if a["p"] < 1 else 0.0
        # Products are rounded once or twice; beyond that they are as near as every other output must be.
        dtype = str(evidence.got[output].dtype)
        unit = max(2.0 ** (2 - PRECISION[dtype]), DEFAULT[dtype].rtol)
        with np.errstate(all="ignore"):
            # Products below the smallest normal number are rounded to a fixed grid.
            grid = 2.0**-23 if evidence.got[output].dtype == np.float16 else 2.0**-126
            kept = np.abs(got - data * scale) <= unit * np.abs(data * scale) + grid
            kept |= ~np.isfinite(data * scale) | ~np.isfinite(got)
        wrong = np.asarray(~(kept | (got == 0)))
        telling = np.isfinite(data) & (np.abs(data) > 1e-6)
        if not independently or a["p"] == 1:
            return Fit(impossible=wrong)
        x, zero = (got[telling] != 0).astype(np.float64), a["p"]
        low, high = np.where(x == 0, 0.0, zero), np.where(x == 0, zero, 1.0)
        return Fit(impossible=wrong, below=low, upto=high)

    return rule


def kept() -> OutputRule:
    """Judge the mask that goes with `dropped`: the elements of output 0 that were kept."""

    @DistributionTest
    def rule(evidence: Evidence, output: int) -> Fit:
        data, got = _number(evidence.arguments["input"]), evidence.got[output]
        # Zeros, and what 1 − p brings to zero, do not tell.
        telling = np.isfinite(data) & (np.abs(data) > 1e-6)
        wrong = telling & (got != (evidence.got[0].astype(np.float64) != 0))
        return Fit(impossible=np.asarray(wrong))

    return rule
