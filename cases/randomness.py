"""Random operators: shape, dtype and distribution are judged, never values."""

from __future__ import annotations

from typing import Any

from cases.rules import random_draws as rules
from cases.rules.gamma_draws import dirichlet, gamma
from harness.compare.judge import Judge, OutputRule
from harness.core.dtypes import ALL, FLOATS, FULL_FLOATS, INTS, NUMBERS, UNSIGNED, is_float
from harness.core.invocation import Enumerated, TensorSpec
from harness.generate.draw import OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("random")

UNIT = between(0.0, 1.0)


def _by(rule: OutputRule) -> Judge:
    return Judge(rules={0: rule})


def _shape(d: Draw) -> tuple[int, ...]:
    """Mostly small; some have elements enough for their distribution to show."""
    return d.choose(d.shape(), d.shape(), (4000,), (65, 63))


def _size(d: Draw) -> dict[str, Any]:
    given = Enumerated("dtype", d.dtype)
    return {"size": list(_shape(d)), "dtype": d.choose(OMIT, None, given) if d.dtype == "float32" else given}


def _like(d: Draw, *dtypes: str) -> dict[str, Any]:
    dtype = d.choose(OMIT, OMIT, None, Enumerated("dtype", d.choose(*dtypes)))
    return {"self": d.tensor(_shape(d)), "dtype": dtype}


for suffix, extra in (("", {}), (".generator", {"generator": None})):
    for name, rule in (("rand", rules.uniform()), ("randn", rules.normal("", ""))):

        @ops.case(f"{name}{suffix}", dtypes=FLOATS, judge=_by(rule))
        def sized(d: Draw, extra: dict[str, Any] = extra) -> Arguments:
            return {**_size(d), **extra}

        @ops.case(f"{name}_like{suffix}", dtypes=FLOATS, judge=_by(rule))
        def like(d: Draw, extra: dict[str, Any] = extra) -> Arguments:
            return {**_like(d, *FLOATS), **extra}


# Integers


def _bounds(d: Draw, *, low: bool) -> dict[str, int]:
    start = d.choose(0, 1, 5) if d.dtype in UNSIGNED else d.choose(0, 1, -3, 5)
    return {"low": start, "high": start + d.choose(1, 10, 2, 100)} if low else {"high": d.choose(1, 10, 2, 100)}


def _integers_dtype(d: Draw) -> Any:
    given = Enumerated("dtype", d.dtype)
    return d.choose(OMIT, given) if d.dtype == "int64" else given


for suffix, extra in (("", {}), ("generator", {"generator": None})):

    @ops.case(f"randint.{suffix or 'default'}", dtypes=NUMBERS, judge=_by(rules.integers()))
    def randint(d: Draw, extra: dict[str, Any] = extra) -> Arguments:
        return {**_bounds(d, low=False), "size": list(_shape(d)), "dtype": _integers_dtype(d), **extra}

    @ops.case(f"randint.{'low_generator' if suffix else 'low'}", dtypes=NUMBERS, judge=_by(rules.integers()))
    def randint_low(d: Draw, extra: dict[str, Any] = extra) -> Arguments:
        return {**_bounds(d, low=True), "size": list(_shape(d)), "dtype": _integers_dtype(d), **extra}

    @ops.case(f"randint_like.{suffix or 'default'}", dtypes=NUMBERS, judge=_by(rules.integers()))
    def randint_like(d: Draw, extra: dict[str, Any] = extra) -> Arguments:
        return {**_like(d, *NUMBERS), **_bounds(d, low=False), **extra}

    @ops.case(
        f"randint_like.{'low_generator_dtype' if suffix else 'low_dtype'}",
        dtypes=NUMBERS,
        judge=_by(rules.integers()),
    )
    def randint_like_low(d: Draw, extra: dict[str, Any] = extra) -> Arguments:
        arguments = {**_like(d, *NUMBERS), **_bounds(d, low=True), **extra}
        # A result of unsigned integers holds no negative ones.
        return {**arguments, "dtype": OMIT} if arguments["low"] < 0 else arguments

    @ops.case(f"randperm.{suffix or 'default'}", dtypes=NUMBERS, judge=_by(rules.permutation))
    def randperm(d: Draw, extra: dict[str, Any] = extra) -> Arguments:
        return {"n": d.size(), "dtype": _integers_dtype(d), **extra}


# From parameters


def _self(d: Draw, domain: tuple[str | int | float, ...] = ("any",)) -> TensorSpec:
    return d.tensor(_shape(d), domain=domain)


_PROBABILITIES = (0.5, 0.0, 1.0, 0.1, 0.75)

ops.simple("bernoulli", dtypes=FLOATS, judge=_by(rules.bernoulli("self")), self=lambda d: _self(d, UNIT))
ops.simple(
    "bernoulli.p",
    dtypes=ALL,
    judge=_by(rules.bernoulli("p")),
    self=_self,
    p=lambda d: d.choose(*_PROBABILITIES),
)


@ops.case("bernoulli.Tensor", dtypes=ALL, judge=_by(rules.bernoulli("p")))
def bernoulli_tensor(d: Draw) -> Arguments:
    shape = _shape(d)
    dtype = d.dtype if is_float(d.dtype) else "float32"
    return {"self": d.tensor(shape), "p": d.tensor(d.broadcastable(shape), dtype, UNIT)}


_MEANS = (0.0, 1.0, -2.5, 100.0)
_DEVIATIONS = (1.0, 0.5, 2.0, 0.0)


@ops.case("normal.float_float", dtypes=FLOATS, judge=_by(rules.normal()))
def normal(d: Draw) -> Arguments:
    return {"mean": d.choose(*_MEANS), "std": d.choose(*_DEVIATIONS), **_size(d)}


@ops.case("normal.Tensor_float", dtypes=FLOATS, judge=_by(rules.normal()))
def normal_around(d: Draw) -> Arguments:
    return {"mean": _self(d, between(-4.0, 4.0)), "std": d.choose(OMIT, *_DEVIATIONS)}


@ops.case("normal.float_Tensor", dtypes=FLOATS, judge=_by(rules.normal()))
def normal_of_width(d: Draw) -> Arguments:
    return {"mean": d.choose(*_MEANS), "std": _self(d, between(0.0, 3.0))}


@ops.case("normal.Tensor_Tensor", dtypes=FLOATS, judge=_by(rules.normal()))
def normal_tensors(d: Draw) -> Arguments:
    domains = {"mean": between(-4.0, 4.0), "std": between(0.0, 3.0)}
    if d.choose(False, False, True):
        return d.operands("mean", "std", domains=domains)
    shape = _shape(d)
    return {name: d.tensor(shape, domain=domain) for name, domain in domains.items()}


@ops.case("normal_functional", dtypes=FLOATS, judge=_by(rules.normal()))
def normal_functional(d: Draw) -> Arguments:
    return {"self": _self(d), "mean": d.choose(OMIT, *_MEANS), "std": d.choose(OMIT, *_DEVIATIONS)}


# `from` is not a name in Python.
_FROM: dict[str, Any] = {"from": lambda d: d.choose(OMIT, 0.0, -1.0)}
_FROM_5_AT_MOST: dict[str, Any] = {"from": lambda d: d.choose(0, 1, 5, *(() if d.dtype in UNSIGNED else (-3,)))}

ops.simple(
    "uniform",
    dtypes=FLOATS,
    judge=_by(rules.uniform("from", "to")),
    self=_self,
    **_FROM,
    to=lambda d: d.choose(OMIT, 1.0, 2.5),
)
ops.simple(
    "exponential",
    dtypes=FLOATS,
    judge=_by(rules.exponential()),
    self=_self,
    lambd=lambda d: d.choose(OMIT, 1.0, 0.5, 3.0),
)
ops.simple(
    "cauchy",
    dtypes=FLOATS,
    judge=_by(rules.cauchy()),
    self=_self,
    median=lambda d: d.choose(OMIT, 0.0, 1.5),
    sigma=lambda d: d.choose(OMIT, 1.0, 0.5),
)
ops.simple(
    "log_normal",
    dtypes=FLOATS,
    judge=_by(rules.log_normal()),
    self=_self,
    mean=lambda d: d.choose(OMIT, 1.0, 0.0, -1.0),
    std=lambda d: d.choose(OMIT, 2.0, 1.0, 0.5),
)
ops.simple(
    "geometric",
    dtypes=(*FLOATS, *INTS),
    judge=_by(rules.geometric()),
    self=_self,
    p=lambda d: d.choose(0.5, 0.75, 0.9),
)


ops.simple("poisson", dtypes=FLOATS, judge=_by(rules.poisson()), self=lambda d: _self(d, between(0.0, 9.0)))
ops.simple("random.to", dtypes=ALL, judge=_by(rules.integers("", "to")), self=_self, to=lambda d: d.choose(2, 1))


@ops.case("random.from", dtypes=NUMBERS, judge=_by(rules.integers("from", "to")))
def random_between(d: Draw) -> Arguments:
    below = () if d.dtype in UNSIGNED else ((-3, 6), (-7, -1), (-3, 0))
    low, high = d.choose((0, 10), (1, 6), (5, 100), (5, None), *below)
    return {"self": _self(d), "from": low, "to": high}


@ops.case("randint_like.Tensor", dtypes=NUMBERS, judge=_by(rules.integers()))
def randint_like_below_tensor(d: Draw) -> Arguments:
    high = d.choose(1, 10, 2, 100)
    return {**_like(d, *NUMBERS), "high": d.tensor((), "int64", between(high, high))}


@ops.case("multinomial", dtypes=FLOATS, judge=_by(rules.categories))
def multinomial(d: Draw) -> Arguments:
    classes, replacement = d.size(1, 17), d.choose(OMIT, True, False)
    samples = d.choose(1, 5, 100) if replacement is True else d.integer(1, classes)
    weights = d.tensor((*d.choose((), (d.size(1, 9),)), classes), domain=between(0.125, 1.0))
    return {"self": weights, "num_samples": samples, "replacement": replacement}


# Dropout


def _dropout(d: Draw) -> dict[str, Any]:
    return {"input": _self(d), "p": d.choose(*_PROBABILITIES), "train": d.choose(True, True, False)}


@ops.case("dropout", dtypes=FLOATS, judge=_by(rules.dropped()))
def dropout(d: Draw) -> Arguments:
    return _dropout(d)


@ops.case("feature_dropout", dtypes=FLOATS, judge=_by(rules.dropped(independently=False)))
def feature_dropout(d: Draw) -> Arguments:
    arguments = _dropout(d)
    # Whole channels are dropped, so that training needs a batch and a channel dimension.
    return {**arguments, "input": d.tensor(d.shape(2))} if arguments["train"] else arguments


@ops.case("native_dropout", dtypes=FLOATS, judge=Judge(rules={0: rules.dropped(), 1: rules.kept()}))
def native_dropout(d: Draw) -> Arguments:
    return {"input": _self(d), "p": d.choose(*_PROBABILITIES), "train": d.choose(True, False, None)}


@ops.case("randint_like.Tensor_generator", dtypes=NUMBERS, judge=_by(rules.integers()))
def randint_like_below_tensor_generator(d: Draw) -> Arguments:
    return {**randint_like_below_tensor(d), "generator": None}


ops.simple(
    "_standard_gamma",
    dtypes=FULL_FLOATS,
    judge=_by(gamma("self")),
    self=lambda d: _self(d, between(0.5, 4.0)),
)


@ops.case("_sample_dirichlet", dtypes=FULL_FLOATS, judge=_by(dirichlet("self")))
def sample_dirichlet(d: Draw) -> Arguments:
    shape = d.choose(d.shape(1, min_size=1), (400, 3), (50, 9))
    return {"self": d.tensor(shape, domain=between(0.5, 4.0))}
