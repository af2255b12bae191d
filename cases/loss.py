"""Loss functions, each with every reduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.compare.judge import ACCUMULATES, Judge, anything
from harness.core.dtypes import ALL, FLOATS, FULL_FLOATS, NUMBERS, SIGNED_INTS, UNSIGNED, Array
from harness.generate.draw import ANY, OMIT, Draw, between, index_into
from harness.generate.operator_case import Arguments, Family

ops = Family("loss")

SIGNS = ("signs",)
UNIT = between(0.0, 1.0)


def _reduction(d: Draw) -> Any:
    """The enumeration behind "none", "mean" and "sum"; mean is the default."""
    return d.choose(OMIT, 0, 1, 2, 0, 2)


def _given_reduction(d: Draw) -> int:
    return d.choose(1, 0, 2)


def _pair(
    d: Draw, first: str = "self", second: str = "target", promote: Sequence[str] = (), **domains: Any
) -> dict[str, Any]:
    return d.operands(first, second, promote=promote, domains=domains)


# Differences of two tensors


@ops.case("mse_loss", dtypes=FLOATS)
@ops.case("l1_loss", dtypes=NUMBERS)
def difference(d: Draw) -> Arguments:
    # Integers have no mean.
    reduction = _reduction(d) if d.dtype in FLOATS else d.choose(0, 2)
    return {**_pair(d, promote=ALL), "reduction": reduction}


@ops.case("soft_margin_loss", dtypes=FLOATS)
def soft_margin(d: Draw) -> Arguments:
    shape = d.shape()
    target = d.tensor(d.broadcastable(shape), d.other_dtype(), d.choose(SIGNS, ANY))
    return {"self": d.tensor(shape), "target": target, "reduction": _reduction(d)}


@ops.case("smooth_l1_loss", dtypes=FLOATS)
def smooth_l1(d: Draw) -> Arguments:
    return {
        **_pair(d, promote=ALL),
        "reduction": _reduction(d),
        "beta": d.choose(OMIT, 1.0, 0.5, 0.0, 2.0, 0.1),
    }


@ops.case("huber_loss", dtypes=FLOATS)
def huber(d: Draw) -> Arguments:
    return {**_pair(d), "reduction": _reduction(d), "delta": d.choose(OMIT, 1.0, 0.5, 2.0, 0.1, 5.0)}


@ops.case("hinge_embedding_loss", dtypes=(*FLOATS, *SIGNED_INTS))
def hinge_embedding(d: Draw) -> Arguments:
    target = d.choose(SIGNS, SIGNS, SIGNS, ANY)
    integral = d.dtype not in FLOATS
    return {
        **_pair(d, target=target),
        "margin": d.choose(OMIT, 0.0, 1.0) if integral else _margin(d),
        "reduction": d.choose(0, 2) if integral else _reduction(d),
    }


def _margin(d: Draw) -> Any:
    return d.choose(OMIT, 0.0, 1.0, 0.5, -0.5, 2.0)


@ops.case("margin_ranking_loss", dtypes=NUMBERS)
def margin_ranking(d: Draw) -> Arguments:
    # Broadcasts, but between tensors of equal rank.
    shape = d.shape()
    full = d.choose("input1", "input2", "target")
    domains = {"target": d.choose(SIGNS, ANY) if d.dtype not in UNSIGNED else ANY}
    tensors = {
        name: d.tensor([s if name == full or d.boolean() else 1 for s in shape], domain=domains.get(name, ANY))
        for name in ("input1", "input2", "target")
    }
    integral = d.dtype not in FLOATS
    return {
        **tensors,
        "margin": d.choose(OMIT, 0.0, 1.0) if integral else _margin(d),
        "reduction": d.choose(0, 2) if integral else _reduction(d),
    }


@ops.case("cosine_embedding_loss", dtypes=FLOATS)
def cosine_embedding(d: Draw) -> Arguments:
    batch = d.choose((), (d.size(),))
    shape = (*batch, d.size(0, 9))
    narrow = d.choose("", "", "input1", "input2")
    inputs = {
        name: d.tensor([1 if name == narrow and d.boolean() else size for size in shape])
        for name in ("input1", "input2")
    }
    return {
        **inputs,
        "target": d.tensor(batch, domain=d.choose(SIGNS, ANY, ANY)),
        "margin": _margin(d),
        "reduction": _reduction(d),
    }


@ops.case("triplet_margin_loss", dtypes=FLOATS)
def triplet_margin(d: Draw) -> Arguments:
    # Broadcasts, but between tensors of equal rank.
    shape = d.shape()
    full = d.choose("", "anchor", "positive", "negative")
    return {
        **{
            name: d.tensor([size if full in ("", name) or d.boolean() else 1 for size in shape])
            for name in ("anchor", "positive", "negative")
        },
        "margin": _margin(d),
        "p": d.choose(OMIT, 2.0, 1.0, 3.0, 0.5),
        "eps": d.choose(OMIT, 1e-6, 0.0, 1e-3),
        "swap": d.choose(OMIT, True, False),
        "reduction": _reduction(d),
    }


# Likelihoods


def _documented_entropy(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Array | None]:
    """NaN, where the documented log(1 − x) rounds to zero and is multiplied by an infinite weight. The kernel
    computes log1p(−x), so that its result is infinite."""
    given, target, weight = arguments["self"], arguments["target"], arguments.get("weight")
    if weight is None or not np.isinf(weight).any():
        return [None]
    one, least = given.dtype.type(1), given.dtype.type(-100)
    with np.errstate(all="ignore"):
        logs = np.maximum(np.log(given), least), np.maximum(np.log(one - given), least)
        lost = np.isnan(-weight * (target * logs[0] + (one - target) * logs[1]))
    if arguments.get("reduction", 1):
        lost = lost.any()
    return [np.where(np.isinf(expected[0]) & lost, expected[0].dtype.type(np.nan), expected[0])]


@ops.case("binary_cross_entropy", dtypes=FLOATS, judge=Judge(alternatives=_documented_entropy))
def binary_cross_entropy(d: Draw) -> Arguments:
    shape = d.shape()
    return {
        "self": d.tensor(shape, domain=UNIT),
        "target": d.tensor(shape, domain=UNIT),
        "weight": d.maybe(lambda: d.tensor(d.broadcastable(shape)), none=True),
        "reduction": _reduction(d),
    }


@ops.case("binary_cross_entropy_with_logits", dtypes=FLOATS)
def binary_cross_entropy_with_logits(d: Draw) -> Arguments:
    shape = d.shape()
    return {
        "self": d.tensor(shape),
        "target": d.tensor(shape, domain=d.choose(UNIT, UNIT, ANY)),
        "weight": d.maybe(lambda: d.tensor(d.broadcastable(shape)), none=True),
        "pos_weight": d.maybe(lambda: d.tensor(d.broadcastable(shape)), none=True),
        "reduction": _reduction(d),
    }


@ops.case("kl_div", dtypes=FLOATS)
def kl_div(d: Draw) -> Arguments:
    log_target = d.choose(OMIT, False, True)
    target = ANY if log_target is True else d.choose(UNIT, ANY)
    return {**_pair(d, target=target), "reduction": _reduction(d), "log_target": log_target}


@ops.case("poisson_nll_loss", dtypes=FLOATS)
def poisson_nll(d: Draw) -> Arguments:
    return {
        **_pair(d, "input", "target", ALL, target=d.choose(ANY, between(0.0, 20.0))),
        "log_input": d.boolean(),
        "full": d.boolean(),
        "eps": d.choose(1e-8, 1e-3, 0.0),
        "reduction": _given_reduction(d),
    }


# Classes


def _ignored(d: Draw, classes: int) -> Any:
    """`ignore_index`: none of the classes, one of them, or the default."""
    return d.choose(OMIT, -100, -1, 0, classes - 1, classes)


def _targets(d: Draw, shape: tuple[int, ...], classes: int, ignored: Any) -> Any:
    """Class numbers, some of them to be ignored."""
    other = -100 if ignored is OMIT else ignored
    some = ("index_or", classes, other)
    return d.tensor(shape, "int64", some if classes == 0 else d.choose(index_into(classes), some))


def _weight(d: Draw, classes: int) -> Any:
    domain = d.choose(between(0.0, 3.0), ANY)
    return d.maybe(lambda: d.tensor((classes,), domain=domain), none=True)


def _likelihoods(d: Draw, spatial: tuple[int, ...] | None) -> dict[str, Any]:
    """`self` [N, C, *spatial], or [C] for `spatial` None, and its target, weight and `ignore_index`."""
    classes = d.size(1, 9)
    batch = () if spatial is None else (d.size(),)
    ignored = _ignored(d, classes)
    return {
        "self": d.tensor((*batch, classes, *(spatial or ()))),
        "target": _targets(d, (*batch, *(spatial or ())), classes, ignored),
        "weight": _weight(d, classes),
        "ignore_index": ignored,
    }


def _one_or_two_dims(d: Draw) -> tuple[int, ...] | None:
    return d.choose((), (), None)


def _plane(d: Draw) -> tuple[int, ...]:
    return d.shape(2, 2, max_size=5)


@ops.case("nll_loss", dtypes=FLOATS, judge=ACCUMULATES)
def nll_loss(d: Draw) -> Arguments:
    return {**_likelihoods(d, _one_or_two_dims(d)), "reduction": _reduction(d)}


@ops.case("nll_loss_forward", dtypes=FLOATS, judge=ACCUMULATES)
def nll_loss_forward(d: Draw) -> Arguments:
    return _explicit(d, _likelihoods(d, _one_or_two_dims(d)))


@ops.case("nll_loss2d", dtypes=FLOATS, judge=ACCUMULATES)
def nll_loss2d(d: Draw) -> Arguments:
    return {**_likelihoods(d, _plane(d)), "reduction": _reduction(d)}


@ops.case("nll_loss2d_forward", dtypes=FLOATS, judge=ACCUMULATES)
def nll_loss2d_forward(d: Draw) -> Arguments:
    return _explicit(d, _likelihoods(d, _plane(d)))


def _explicit(d: Draw, arguments: dict[str, Any]) -> dict[str, Any]:
    """Fill in arguments for overloads without defaults."""
    ignored, weight = arguments["ignore_index"], arguments["weight"]
    return {
        **arguments,
        "weight": None if weight is OMIT else weight,
        "ignore_index": -100 if ignored is OMIT else ignored,
        "reduction": _given_reduction(d),
    }


@ops.case("nll_loss_nd", dtypes=FLOATS, judge=ACCUMULATES)
def nll_loss_nd(d: Draw) -> Arguments:
    return {**_likelihoods(d, _any_spatial(d)), "reduction": _reduction(d)}


def _any_spatial(d: Draw) -> tuple[int, ...] | None:
    return d.choose(None, (), d.shape(1, 1, max_size=5), _plane(d), d.shape(3, 3, max_size=4))


@ops.case("cross_entropy_loss", dtypes=FLOATS)
def cross_entropy(d: Draw) -> Arguments:
    arguments = _likelihoods(d, _any_spatial(d))
    if d.choose(False, False, True):
        # Class probabilities instead of class numbers; nothing can be ignored then.
        arguments["target"] = d.tensor(arguments["self"].shape, domain=d.choose(UNIT, ANY))
        arguments["ignore_index"] = OMIT
    return {
        **arguments,
        "reduction": _reduction(d),
        "label_smoothing": d.choose(OMIT, 0.0, 0.1, 0.5, 1.0),
    }


@ops.case("multi_margin_loss", dtypes=FULL_FLOATS)
def multi_margin(d: Draw) -> Arguments:
    classes = d.size(1, 9)
    batch = d.choose((), (d.size(),))
    return {
        "self": d.tensor((*batch, classes)),
        "target": d.tensor(batch, "int64", index_into(classes)),
        "p": d.choose(OMIT, 1, 2, 2.0),
        "margin": d.choose(OMIT, 1, 0.5, 0, 2.0, -0.5),
        "weight": d.maybe(lambda: d.tensor((classes,)), none=True),
        "reduction": _reduction(d),
    }


def _label_sets(d: Draw) -> dict[str, Any]:
    classes = d.size(1, 9)
    batch = d.choose((), (d.size(),))
    # A row lists its labels up to the first −1.
    labels = ("index_or", classes, -1)
    return {"self": d.tensor((*batch, classes)), "target": d.tensor((*batch, classes), "int64", labels)}


@ops.case("multilabel_margin_loss", dtypes=FULL_FLOATS)
def multilabel_margin(d: Draw) -> Arguments:
    return {**_label_sets(d), "reduction": _reduction(d)}


@ops.case("multilabel_margin_loss_forward", dtypes=FULL_FLOATS)
def multilabel_margin_forward(d: Draw) -> Arguments:
    return {**_label_sets(d), "reduction": _given_reduction(d)}


@ops.case("ctc_loss.IntList", dtypes=FULL_FLOATS)
def ctc(d: Draw) -> Arguments:
    times, batch, classes = d.integer(1, 7), d.integer(1, 4), d.integer(2, 5)
    longest, blank = d.integer(1, 3), d.choose(0, 0, classes - 1)
    lengths = [d.integer(1, times) for _ in range(batch)]
    target_lengths = [d.integer(0, longest) for _ in range(batch)]
    targets = d.choose((batch, longest), (sum(target_lengths),))
    return {
        "log_probs": d.tensor((times, batch, classes), domain=between(-8.0, 0.0)),
        "targets": d.tensor(targets, "int64", _labels(classes, blank)),
        "input_lengths": lengths,
        "target_lengths": target_lengths,
        "blank": OMIT if blank == 0 and d.boolean() else blank,
        "reduction": _reduction(d),
        "zero_infinity": d.choose(OMIT, True, False),
    }


@ops.case("ctc_loss.Tensor", dtypes=FULL_FLOATS)
def ctc_tensor_lengths(d: Draw) -> Arguments:
    arguments = ctc(d)
    times, batch, classes = arguments["log_probs"].shape
    longest, blank = d.integer(1, 3), arguments["blank"]
    return {
        **arguments,
        # One row for each sequence: lengths that vary with their values go with no concatenation.
        "targets": d.tensor((batch, longest), "int64", _labels(classes, 0 if blank is OMIT else blank)),
        "input_lengths": d.tensor((batch,), "int64", between(1, times)),
        "target_lengths": d.tensor((batch,), "int64", between(0, longest)),
    }


def _labels(classes: int, blank: int) -> Any:
    """All classes but `blank`, which is the first or the last."""
    return index_into(classes - 1) if blank else between(1, classes - 1)


#: The second output serves autograd; beyond a sequence's length it is not initialised.
CTC_KERNEL = Judge(rules={1: anything})


@ops.case("_ctc_loss", dtypes=FULL_FLOATS, judge=CTC_KERNEL)
def ctc_kernel(d: Draw) -> Arguments:
    arguments = dict(ctc(d))
    del arguments["reduction"]
    return arguments


@ops.case("_ctc_loss.Tensor", dtypes=FULL_FLOATS, judge=CTC_KERNEL)
def ctc_kernel_tensor_lengths(d: Draw) -> Arguments:
    arguments = dict(ctc_tensor_lengths(d))
    del arguments["reduction"]
    return arguments
