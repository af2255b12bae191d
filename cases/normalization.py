"""Normalisation over channels, groups, trailing dims or norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cases.rules.undefined_elements import infinite_mean
from harness.compare.judge import Judge, anything
from harness.core.dtypes import FLOATS, Array
from harness.generate.draw import OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("normalization")

#: Running variances. Zero is a valid variance.
VARIANCE = between(0.0, 4.0)


def _eps(d: Draw) -> float:
    return d.choose(1e-5, 1e-3, 0.0, 1e-12, 0.1)


def _momentum(d: Draw) -> float:
    return d.choose(0.1, 0.0, 1.0, 0.3)


def _optional(d: Draw, shape: Sequence[int], *, omit: bool = False, contiguous: bool = False) -> Any:
    """A weight or bias of `shape`, or None, or left out where the schema has a default."""
    kind = d.choose("given", "given", "none", *(("omit",) if omit else ()))
    if kind == "given":
        return d.tensor(shape, contiguous=contiguous)
    return None if kind == "none" else OMIT


# Rounding errors


def _terms(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """Return the scale of rounding errors of (x - mean) / σ, σ² = variance + eps, over `axes`.

    Deviations cancel: each is off by a unit of |x| + mean |x|, not by one of itself. The variance of such
    deviations is off by twice their root mean square over σ, relatively (Chan, Golub and LeVeque, Algorithms
    for computing the sample variance, 1983: two passes have condition √(1 + mean² / variance)).
    """
    if not x.size:
        return np.zeros_like(x)
    centre = x.mean(axes, keepdims=True)
    sigma = np.sqrt(x.var(axes, keepdims=True) + eps)
    size = np.abs(x).mean(axes, keepdims=True)
    square = np.sqrt((x * x).mean(axes, keepdims=True))
    moved = np.abs(x) + size + np.abs(x - centre) / sigma * (square + size)
    return np.asarray(moved / sigma)


def _affinely(terms: Array, arguments: Mapping[str, Any], shape: Sequence[int]) -> Array:
    """The terms times weight plus bias, which come in `shape`."""
    weight, bias = arguments.get("weight"), arguments.get("bias")
    terms = terms if weight is None else terms * np.abs(weight).reshape(shape)
    return terms if bias is None else terms + np.abs(bias).reshape(shape)


def _over_batch(arguments: Mapping[str, Any]) -> Array:
    x, eps = arguments["input"], arguments["eps"]
    channels = (-1, *(1,) * (x.ndim - 2))
    mean, variance = arguments.get("running_mean"), arguments.get("running_var")
    if arguments.get("training", False) or mean is None or variance is None:
        terms = _terms(x, tuple(i for i in range(x.ndim) if i != 1), eps)
    else:
        terms = (np.abs(x) + np.abs(mean).reshape(channels)) / np.sqrt(variance.reshape(channels) + eps)
    return _affinely(terms, arguments, channels)


def _over_training_batch(arguments: Mapping[str, Any]) -> Array:
    return _over_batch({**arguments, "training": True})


def _over_trailing(arguments: Mapping[str, Any]) -> Array:
    x, normalized = arguments["input"], arguments["normalized_shape"]
    axes = tuple(range(x.ndim - len(normalized), x.ndim))
    return _affinely(_terms(x, axes, arguments.get("eps", 1e-5)), arguments, normalized)


def _over_groups(arguments: Mapping[str, Any]) -> Array:
    x = arguments["input"]
    groups = arguments["num_groups"] if "num_groups" in arguments else arguments["group"]
    if not x.size:
        return np.zeros_like(x)
    terms = _terms(x.reshape(x.shape[0], groups, -1), (2,), arguments.get("eps", 1e-5)).reshape(x.shape)
    return _affinely(terms, arguments, (-1, *(1,) * (x.ndim - 2)))


def _over_instance(arguments: Mapping[str, Any]) -> Array:
    x = arguments["input"]
    if not arguments["use_input_stats"]:
        return _over_batch({**arguments, "training": False})
    terms = _terms(x, tuple(range(2, x.ndim)), arguments["eps"])
    return _affinely(terms, arguments, (-1, *(1,) * (x.ndim - 2)))


# Over trailing dims


def _trailing(d: Draw) -> tuple[tuple[int, ...], list[int]]:
    """A shape, and its last sizes, over which it is normalised."""
    shape = d.shape(1) if d.integer(0, 15) < 15 else d.choose((3, 700), (2, 9, 65))
    return shape, list(shape[d.integer(0, len(shape) - 1) :])


@ops.case("layer_norm", dtypes=FLOATS, judge=Judge(terms=_over_trailing))
def layer_norm(d: Draw) -> Arguments:
    shape, normalized = _trailing(d)
    return {
        "input": d.tensor(shape),
        "normalized_shape": normalized,
        "weight": _optional(d, normalized, omit=True),
        "bias": _optional(d, normalized, omit=True),
        "eps": d.maybe(lambda: _eps(d)),
        "cudnn_enable": d.maybe(d.boolean),
    }


def _normalized(arguments: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(range(-len(arguments["normalized_shape"]), 0))


@ops.case(
    "native_layer_norm",
    dtypes=FLOATS,
    judge=Judge(terms=_over_trailing, undefined=infinite_mean(_normalized, source="input", output=1)),
)
def native_layer_norm(d: Draw) -> Arguments:
    shape, normalized = _trailing(d)
    return {
        "input": d.tensor(shape),
        "normalized_shape": normalized,
        "weight": _optional(d, normalized),
        "bias": _optional(d, normalized),
        "eps": _eps(d),
    }


@ops.case("rms_norm", dtypes=FLOATS)
def rms_norm(d: Draw) -> Arguments:
    shape, normalized = _trailing(d)
    return {
        "input": d.tensor(shape),
        "normalized_shape": normalized,
        "weight": _optional(d, normalized, omit=True),
        "eps": d.maybe(lambda: _eps(d), none=True),
    }


@ops.case("_fused_rms_norm", dtypes=FLOATS)
def fused_rms_norm(d: Draw) -> Arguments:
    shape, normalized = _trailing(d)
    return {
        "input": d.tensor(shape),
        "normalized_shape": normalized,
        "weight": _optional(d, normalized),
        "eps": d.choose(None, _eps(d), _eps(d)),
    }


# Over groups of channels


def _grouped(d: Draw, min_rank: int = 2) -> tuple[tuple[int, ...], int, int]:
    """A shape [N, C, …], C, and a number of groups that divides C."""
    groups = d.choose(1, 2, 3, 4)
    channels = groups * d.choose(1, 2, 3)
    rank = d.integer(min_rank, 5)
    space = tuple(d.size(0, 9 if rank < 5 else 3) for _ in range(rank - 2))
    return (d.size(0, 3), channels, *space), channels, groups


def _documented_groups(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Array | None]:
    """Return the outputs by PyTorch's documented formula: the result, and the mean and 1 / σ of each group.

    The kernel computes x · (w / σ) + (b - mean · w / σ), which is NaN where the weight is infinite, and updates its
    mean element by element, which is NaN behind an infinity.
    """
    x = arguments["input"]
    groups = arguments["num_groups"] if "num_groups" in arguments else arguments["group"]
    if not x.size:
        return [None] * len(expected)
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble).reshape(x.shape[0], groups, -1)
        mean = wide.mean(2, keepdims=True)
        deviation = 1 / np.sqrt(((wide - mean) ** 2).mean(2, keepdims=True) + arguments.get("eps", 1e-5))
        y = ((wide - mean) * deviation).reshape(x.shape)
        for name, combine in (("weight", np.multiply), ("bias", np.add)):
            if arguments.get(name) is not None:
                y = combine(y, arguments[name].astype(np.longdouble).reshape(-1, *(1,) * (x.ndim - 2)))
        found = (y, mean, deviation)[: len(expected)]
        return [
            array.astype(np.float64).astype(e.dtype).reshape(e.shape) for array, e in zip(found, expected, strict=True)
        ]


@ops.case("group_norm", dtypes=FLOATS, judge=Judge(terms=_over_groups, alternatives=_documented_groups))
def group_norm(d: Draw) -> Arguments:
    shape, channels, groups = _grouped(d)
    return {
        "input": d.tensor(shape),
        "num_groups": groups,
        "weight": _optional(d, (channels,), omit=True),
        "bias": _optional(d, (channels,), omit=True),
        "eps": d.maybe(lambda: _eps(d)),
        "cudnn_enabled": d.maybe(d.boolean),
    }


@ops.case("native_group_norm", dtypes=FLOATS, judge=Judge(terms=_over_groups, alternatives=_documented_groups))
def native_group_norm(d: Draw) -> Arguments:
    shape, channels, groups = _grouped(d)
    space = 1
    for size in shape[2:]:
        space *= size
    return {
        # The kernel reads its tensors as row-major; `group_norm` sees to it.
        "input": d.tensor(shape, contiguous=True),
        "weight": _optional(d, (channels,), contiguous=True),
        "bias": _optional(d, (channels,), contiguous=True),
        "N": shape[0],
        "C": channels,
        "HxW": space,
        "group": groups,
        "eps": _eps(d),
    }


# Over the batch


def _batch(d: Draw, *, training: bool, min_rank: int = 2) -> tuple[tuple[int, ...], int]:
    """A shape [N, C, …] and C; training needs more than one value per channel."""
    rank = d.integer(min_rank, 5)
    channels = d.size(1, 9)
    space = tuple(d.size(1 if training else 0, 9 if rank < 5 else 3) for _ in range(rank - 2))
    batch = d.size(2 if training else 0, 5)
    return (batch, channels, *space), channels


def _affine(d: Draw, channels: int) -> dict[str, Any]:
    return {"weight": _optional(d, (channels,)), "bias": _optional(d, (channels,))}


def _running(d: Draw, channels: int) -> dict[str, Any]:
    # Some overloads write to them, which an expanded tensor would not survive.
    return {
        "running_mean": d.tensor((channels,), contiguous=True),
        "running_var": d.tensor((channels,), domain=VARIANCE, contiguous=True),
    }


def _batch_norm(d: Draw, *, training: bool, statistics: bool = True) -> dict[str, Any]:
    shape, channels = _batch(d, training=training)
    running = _running(d, channels) if statistics else {"running_mean": None, "running_var": None}
    return {
        "input": d.tensor(shape),
        **_affine(d, channels),
        **running,
        "momentum": _momentum(d),
        "eps": _eps(d),
    }


@ops.case("batch_norm", dtypes=FLOATS, judge=Judge(terms=_over_batch))
def batch_norm(d: Draw) -> Arguments:
    training = d.choose(False, False, True)
    arguments = _batch_norm(d, training=training, statistics=not training or d.boolean())
    return {**arguments, "training": training, "cudnn_enabled": d.boolean()}


#: Without training, what the kernel saves for autograd is its own affair.
SAVED = Judge(terms=_over_batch, rules={1: anything, 2: anything})


@ops.case("native_batch_norm", dtypes=FLOATS, judge=SAVED)
def native_batch_norm(d: Draw) -> Arguments:
    training = d.choose(False, False, True)
    return {
        **_batch_norm(d, training=training, statistics=not training or d.boolean()),
        "training": training,
    }


@ops.case("_native_batch_norm_legit_no_training", dtypes=FLOATS, judge=SAVED)
def batch_norm_no_training(d: Draw) -> Arguments:
    return _batch_norm(d, training=False)


@ops.case(
    "_batch_norm_no_update",
    dtypes=FLOATS,
    judge=Judge(terms=_over_batch, rules={1: anything, 2: anything, 3: anything}),
)
def batch_norm_no_update(d: Draw) -> Arguments:
    return _batch_norm(d, training=False)


@ops.case("_native_batch_norm_legit_functional", dtypes=FLOATS, judge=SAVED)
def batch_norm_functional(d: Draw) -> Arguments:
    training = d.choose(False, False, True)
    return {**_batch_norm(d, training=training), "training": training}


@ops.case(
    "_batch_norm_with_update_functional",
    dtypes=FLOATS,
    judge=Judge(terms=_over_training_batch, rules={3: anything}),
)
def batch_norm_with_update(d: Draw) -> Arguments:
    return _batch_norm(d, training=True)


@ops.case("_native_batch_norm_legit.no_stats", dtypes=FLOATS, judge=Judge(terms=_over_batch))
def batch_norm_no_stats(d: Draw) -> Arguments:
    arguments = _batch_norm(d, training=True, statistics=False)
    kept = {name: a for name, a in arguments.items() if not name.startswith("running")}
    return {**kept, "training": True}


@ops.case("instance_norm", dtypes=FLOATS, judge=Judge(terms=_over_instance))
def instance_norm(d: Draw) -> Arguments:
    from_input = d.choose(True, True, False)
    rank = d.integer(3, 5)
    channels = d.size(1, 5)
    shape = (d.size(1, 3), channels, *(d.size(2, 9 if rank < 5 else 3) for _ in range(rank - 2)))
    running = not from_input or d.boolean()
    statistics = _running(d, channels) if running else {"running_mean": None, "running_var": None}
    return {
        "input": d.tensor(shape),
        **_affine(d, channels),
        **statistics,
        "use_input_stats": from_input,
        "momentum": _momentum(d),
        "eps": _eps(d),
        "cudnn_enabled": d.boolean(),
    }


# By norms


@ops.case("_weight_norm", dtypes=FLOATS)
def weight_norm(d: Draw) -> Arguments:
    shape = d.shape(2, 4, min_size=1)
    # For -1 one norm, of all that there is.
    dim = d.maybe(lambda: d.choose(*[d.integer(0, len(shape) - 1)] * 5, -1))
    axis = 0 if dim is OMIT else dim
    gains = () if axis == -1 else tuple(n if i == axis else 1 for i, n in enumerate(shape))
    return {"v": d.tensor(shape), "g": d.tensor(gains), "dim": dim}


@ops.case("_weight_norm_interface", dtypes=FLOATS)
def weight_norm_kernel(d: Draw) -> Arguments:
    shape = d.shape(2, 4, min_size=1)
    # The kernel knows the first and the last dim, and reads both tensors as row-major.
    dim = d.choose(OMIT, 0, len(shape) - 1)
    axis = 0 if dim is OMIT else dim
    gains = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    v, g = (d.tensor(sizes, contiguous=True) for sizes in (shape, gains))
    return {"v": v, "g": g, "dim": dim}


@ops.case("norm_except_dim", dtypes=FLOATS)
def norm_except_dim(d: Draw) -> Arguments:
    shape = d.shape(2, 4, min_size=1)
    dim = d.maybe(lambda: d.integer(-1, len(shape) - 1))
    return {"v": d.tensor(shape), "pow": d.maybe(lambda: d.choose(2, 1, 3)), "dim": dim}


@ops.case("renorm", dtypes=FLOATS)
def renorm(d: Draw) -> Arguments:
    p = d.choose(2, 1, 1.5, 3.0, float("inf"))
    shape = d.shape(2, min_size=1 if p == float("inf") else 0)
    return {
        "self": d.tensor(shape),
        "p": p,
        "dim": d.dim(len(shape)),
        "maxnorm": d.choose(1, 5.0, 0.5, 0, 100.0),
    }


@ops.case("cosine_similarity", dtypes=FLOATS)
def cosine_similarity(d: Draw) -> Arguments:
    shape = d.shape(1)
    dim = d.dim(len(shape)) if len(shape) < 2 else d.maybe(lambda: d.dim(len(shape)))
    other = d.tensor(d.broadcastable(shape), d.other_dtype())
    left, right = (d.tensor(shape), other) if d.boolean() else (other, d.tensor(shape))
    return {"x1": left, "x2": right, "dim": dim, "eps": d.maybe(lambda: d.choose(1e-8, 1e-3, 0.0))}
