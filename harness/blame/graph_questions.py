"""Gaps in the ONNX specification that graphs of ONNX's own operators meet.

Of a call PyTorch says what is right, however its graph is written: these entries are for graphs alone. They are
otherwise of the kind of `harness.blame.open_questions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx

from harness.blame.open_questions import (
    OPEN_QUESTIONS,
    OpenQuestion,
    has_nan,
    is_float_array,
    remove_infinities,
    remove_nan,
)
from harness.core.dtypes import LARGEST, Array
from harness.pipeline.nodes.definition import Definition, Undefined
from harness.pipeline.nodes.readings import Rerun


def _leaves_integer_range(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    """Whether a sum, product or power of integers may leave their range, on the way or in the end."""
    arrays = [array.astype(np.float64) for array in inputs if array is not None and array.dtype.kind in "iu"]
    if not outputs or outputs[0].dtype.kind not in "iu" or not arrays:
        return False
    largest = [float(np.abs(array).max(initial=0.0)) for array in arrays]
    limit = float(np.iinfo(outputs[0].dtype).max)
    terms = max(array.size for array in arrays)
    with np.errstate(all="ignore"):
        match node.op_type:
            case "ReduceSumSquare" | "ReduceL2":
                bound = largest[0] ** 2 * terms
            case "ReduceProd" | "CumProd":
                bound = float(np.prod(np.maximum(np.abs(arrays[0]), 1.0)))
            case "Pow":
                bound = float(np.power(np.maximum(largest[0], 1.0), largest[-1]))
            case "ReduceLogSumExp" | "ReduceLogSum":
                bound = 0.0 if largest[0] < _EXPONENT and (arrays[0] > 0).all() else np.inf
            case "Mul" | "MatMul" | "Gemm" | "Einsum":
                bound = float(np.prod(largest)) * terms
            case _:
                bound = sum(largest) * terms
    # float64 rounds the largest 64-bit integer up.
    return bool(bound >= limit)


def _wraps_or_saturates(definition: Definition, got: Sequence[Array], rerun: Rerun, outputs: Sequence[int]) -> bool:
    """Whether integers are those that wrap around, the nearest that their dtype has, or the real result."""
    if definition.operator == "ReduceMean":
        # The sum may have wrapped before it was divided.
        return True
    inputs = {n: a.astype(np.float64) if a.dtype.kind in "iu" else a for n, a in definition.inputs.items()}
    axes = {name for name in definition.step.node.input[1:] if definition.operator.startswith(("Reduce", "Cum"))}
    wide = replace(definition, inputs={n: definition.inputs[n] if n in axes else a for n, a in inputs.items()})
    limits = np.iinfo(got[0].dtype)
    try:
        (own,), (real, *_) = definition.own, wide.own
    except (Undefined, ValueError):
        return True
    if real.shape != got[0].shape:
        return True
    real = real.astype(np.float64)
    beyond = ~((real >= float(limits.min)) & (real < float(limits.max)))
    nearest = np.where(real > 0, limits.max, limits.min)
    # A root may be within the range although the sum under it is not.
    is_real = ~beyond & (np.abs(got[0].astype(np.float64) - real) <= 1 + _DOUBLE * np.abs(real))
    return bool(((got[0] == own) | is_real | (beyond & ((got[0] == nearest) | np.isnan(real)))).all())


#: The relative error of a few operations on numbers that are computed in float64.
_DOUBLE = 2.0**-50


#: Exponentials of larger numbers leave float64.
_EXPONENT = 700.0


def _small_integers(array: Array) -> Array:
    return np.asarray(array % 3).astype(array.dtype) if array.dtype.kind in "iu" else array


def _weighs_integers(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    picks = all(a.name != "mode" or a.s == b"nearest" for a in node.attribute)
    return not picks and outputs[0].dtype.kind in "iu"


def _is_rounded_either_way(definition: Definition, got: Sequence[Array], rerun: Rerun, outputs: Sequence[int]) -> bool:
    """Whether integers are the real numbers, rounded up or down."""
    name = definition.step.node.input[0]
    inputs = {**definition.inputs, name: definition.inputs[name].astype(np.float64)}
    wide = replace(definition, inputs=inputs).truth
    if wide is None or wide[0] is None or wide[0].shape != got[0].shape:
        return True
    return bool((np.abs(got[0].astype(np.float64) - wide[0]) < 1.0 + _SINGLE).all())


#: The error of a real number up to 255 that is computed in float32.
_SINGLE = 2.0**-10


def _writes_floats(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    return inputs[0] is not None and is_float_array(inputs[0]) and outputs[0].dtype.kind == "O"


def _is_same_number(definition: Definition, got: Sequence[Array], rerun: Rerun, outputs: Sequence[int]) -> bool:
    """Whether strings are other spellings of the right numbers, as far as the inputs' precision goes."""
    given = definition.inputs[definition.step.node.input[0]]
    try:
        read = np.asarray([float(word) for word in got[0].reshape(-1)]).reshape(given.shape)
    except ValueError:
        return False
    with np.errstate(all="ignore"):
        return bool(np.array_equal(read.astype(given.dtype), given, equal_nan=True))


def _has_infinite_signal(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    return any(a is not None and is_float_array(a) and not np.isfinite(a).all() for a in inputs)


def _scores_leave_range(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    """Whether a product of queries and keys, or its sum with the mask, may leave the range of the dtype."""
    query, keys = inputs[0], [a for i in (1, 4) if i < len(inputs) and (a := inputs[i]) is not None]
    mask = inputs[3] if len(inputs) > 3 else None
    if query is None or not keys:
        return False
    biased = [mask] if mask is not None and is_float_array(mask) else []
    if not all(np.isfinite(array.astype(np.float64)).all() for array in (query, *keys)):
        return True
    largest = max(float(np.abs(key.astype(np.float64)).max(initial=0.0)) for key in keys)
    bound: float = float(np.abs(query.astype(np.float64)).max(initial=0.0)) * largest * query.shape[-1]
    finite = [np.where(np.isfinite(m), np.abs(m.astype(np.float64)), 0.0) for m in biased]
    bound += max((float(m.max(initial=0.0)) for m in finite), default=0.0)
    return bool(bound > LARGEST[str(query.dtype)])


#: Operators that sum powers of their inputs before they divide, take a root or a logarithm → the power.
_SUMMED_POWERS: dict[str, int] = {
    **dict.fromkeys(("Mean", "ReduceMean", "AveragePool", "GlobalAveragePool", "ReduceLogSum"), 1),
    **dict.fromkeys(("ReduceL2", "LpPool", "GlobalLpPool", "LpNormalization", "LRN"), 2),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization"), 2),
    "MeanVarianceNormalization": 2,
}


def _sum_leaves_range(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    """Whether a sum may leave the range of its dtype on the way to a result that is within it."""
    given = inputs[0]
    if given is None or str(given.dtype) not in LARGEST:
        return False
    order = next((a.i for a in node.attribute if a.name == "p"), _SUMMED_POWERS[node.op_type])
    finite = [np.abs(a[np.isfinite(a)].astype(np.float64)) for a in inputs if a is not None and a.dtype == given.dtype]
    largest = max((float(a.max(initial=0.0)) for a in finite), default=0.0)
    with np.errstate(all="ignore"):
        return bool(largest**order * given.size > LARGEST[str(given.dtype)])


def _moderate(array: Array) -> Array:
    if not is_float_array(array):
        return array
    wide = array.astype(np.float64)
    return np.where(np.abs(wide) < _MODERATE, wide, np.sign(np.nan_to_num(wide)) * 2.0).astype(array.dtype)


_MODERATE = 64.0


def _has_negative_alpha(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    return any(a.name == "alpha" and np.signbit(a.f) for a in node.attribute)


def _is_textual_celu(definition: Definition, got: Sequence[Array], rerun: Rerun, outputs: Sequence[int]) -> bool:
    """Whether results are ``max(0,x) + min(0,alpha*(exp(x/alpha)-1))``; the body has ``alpha*Elu(x/alpha)``."""
    node = definition.step.node
    x = definition.inputs[node.input[0]].astype(np.float64)
    alpha = next(a.f for a in node.attribute if a.name == "alpha")
    with np.errstate(all="ignore"):
        right = np.maximum(0, x) + np.minimum(0, alpha * np.expm1(x / alpha))
        return np.allclose(got[0].astype(np.float64), right.astype(got[0].dtype), rtol=1e-3, equal_nan=True)


def _ends_at_a_rounding(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    """Whether a size times a scale is whole in float32 and not exactly."""
    scales = next((a for a in inputs[1:] if a is not None and str(a.dtype) == "float32" and a.size), None)
    if inputs[0] is None or scales is None or scales.size != inputs[0].ndim:
        return False
    sizes = np.asarray(inputs[0].shape)
    return bool((np.floor(sizes * scales.astype(np.float64)) != np.floor(sizes.astype(np.float32) * scales)).any())


#: Operators that add or multiply, also integers.
_INTEGER_TERMS = frozenset(
    {
        *("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd", "ReduceMean", "ReduceLogSum"),
        *("ReduceLogSumExp", "Pow", "CumSum", "CumProd", "Einsum", "MatMul", "Gemm", "Mul", "Add", "Sub", "Sum"),
    }
)

GRAPH_QUESTIONS: tuple[OpenQuestion, ...] = (
    OpenQuestion(
        operators=frozenset(_SUMMED_POWERS),
        arises=_sum_leaves_range,
        silent_on=("overflow", "range of the"),
        subject="a sum that leaves the range of the dtype on its way",
        calm=_moderate,
    ),
    OpenQuestion(
        operators=frozenset({"Celu"}),
        arises=_has_negative_alpha,
        silent_on=("negative",),
        subject="a negative alpha, for which the text and the function body differ",
        fits=_is_textual_celu,
        calm=None,
    ),
    OpenQuestion(
        operators=frozenset({"Resize", "Upsample"}),
        arises=_ends_at_a_rounding,
        silent_on=("single precision", "float32 product"),
        subject="the rounding of a size times a scale",
        calm=None,
    ),
    OpenQuestion(
        operators=_INTEGER_TERMS,
        arises=_leaves_integer_range,
        silent_on=("overflow", "wrap around", "modulo"),
        subject="integers that leave their range",
        fits=_wraps_or_saturates,
        calm=_small_integers,
    ),
    OpenQuestion(
        operators=frozenset({"Resize", "Upsample"}),
        arises=_weighs_integers,
        silent_on=("rounding of the result", "truncat"),
        subject="the rounding of interpolated integers",
        fits=_is_rounded_either_way,
        calm=None,
    ),
    OpenQuestion(
        operators=frozenset({"Cast", "CastLike"}),
        arises=_writes_floats,
        silent_on=("shortest", "number of digits"),
        subject="the spelling of a number",
        fits=_is_same_number,
        calm=None,
    ),
    OpenQuestion(
        operators=frozenset({"DFT", "STFT"}),
        arises=_has_infinite_signal,
        silent_on=("nan", "infinit"),
        subject="infinities and NaN whose factor is zero",
        calm=remove_infinities,
    ),
    OpenQuestion(
        operators=frozenset({"QuantizeLinear"}),
        arises=has_nan,
        silent_on=("nan", "not a number"),
        subject="NaN",
        calm=remove_nan,
    ),
    OpenQuestion(
        operators=frozenset({"Attention"}),
        arises=_scores_leave_range,
        silent_on=("range of the type",),
        subject="scores that leave the range of the dtype",
        calm=_moderate,
    ),
)


def questions(*, has_program: bool) -> tuple[OpenQuestion, ...]:
    """Return the questions that cases may ask: calls, or graphs of their own."""
    return OPEN_QUESTIONS if has_program else (*GRAPH_QUESTIONS, *OPEN_QUESTIONS)
