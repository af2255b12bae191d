"""Gaps in the ONNX specification: a list, each entry with the sentence or the silence that leaves a result open.

One further entry is of a kind of its own: a question that the specification decides, though graphs are emitted, and
runtimes are written, as if it did not.

An entry holds for the version of an operator that a model uses: `OpenQuestion.is_open` reads that version's
text and finds the quotation, or the silence, there. If a later version of ONNX settles the question, the entry no
longer holds.

An open question excuses all components only if the call itself asks it. PyTorch defines `any` for every float;
a graph that computes it by way of an integer has asked a question of its own. PyTorch raises for an integer
division by zero, so no call that it accepts asks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from harness.blame.cubic_padding import moves_each_pixel, pads_beyond_the_border
from harness.core.dtypes import Array, is_float
from harness.core.invocation import Invocation
from harness.pipeline.nodes.definition import Definition
from harness.pipeline.nodes.readings import Rerun, fits_a_reading

#: Takes the node, its input arrays by position (None for an omitted one) and its output arrays: whether the
#: question arises.
Trigger = Callable[[onnx.NodeProto, Sequence[Array | None], Sequence[Array]], bool]

#: The call and PyTorch's outputs: whether the call itself asks the question.
Asked = Callable[[Invocation, Sequence[Array]], bool]


#: Takes the node's definition, the backend's results, a function that runs the node with other inputs, and the indices
#: of the results in question.
Fits = Callable[[Definition, Sequence[Array], Rerun, Sequence[int]], bool]


@dataclass(frozen=True, kw_only=True)
class OpenQuestion:
    """Something that ONNX does not decide.

    Attributes:
        operators: Operators of the default domain.
        arises: Whether a node asks the question.
        quote: The sentence that leaves it open; "" if the text is silent.
        silent_on: Lower-case words that do not occur in the text, if it is silent.
        subject: The open question, for a person.
        call_asks: Whether the call asks it; if not, the graph alone does.
        settled: Whether the quotation decides the question, so that it is not open.
        repair: Changes a model so that the nodes in it that ask the question do as the graph assumes.
        fits: Whether some reading of the text gives a node's result, so that it is excused; None if the text
            allows any result.
        calm: Changes a graph input so that the question no longer arises, as far as it depends on that input.
            None if no input decides it: then every element of the output is open, or `repair` says whether
            the failure depends on it.
    """

    operators: frozenset[str]
    arises: Trigger
    quote: str = ""
    silent_on: tuple[str, ...] = ()
    subject: str
    call_asks: Asked = lambda invocation, expected: True
    settled: bool = False
    fits: Fits | None = None
    repair: Callable[[onnx.ModelProto, Sequence[onnx.NodeProto]], onnx.ModelProto] | None = None
    calm: Callable[[Array], Array] | None

    def is_open(self, operator: str, opset: int) -> bool:
        """Whether the operator's text at `opset` has the quotation, or the silence, that leaves it open."""
        text = text_of(operator, opset)
        if self.quote:
            return self.quote in text
        return not any(word in text.lower() for word in self.silent_on)

    def facts(self, operator: str, opset: int) -> dict[str, Any]:
        """Return a testimony's facts about the question; the quotation is "" if the text is silent."""
        return {"operator": operator, "opset": opset, "quote": self.quote, "subject": self.subject}


def text_of(operator: str, opset: int) -> str:
    """Return the operator's specification at `opset`: its own text and that of its attributes, inputs and outputs,
    white space normalised. Raises `onnx.defs.SchemaError` if the operator does not exist then."""
    schema = onnx.defs.get_schema(operator, opset)
    parts = [a.description for a in schema.attributes.values()]
    parts += [p.description for p in (*schema.inputs, *schema.outputs)]
    return " ".join(" ".join([schema.doc or "", *parts]).split())


def is_float_array(array: Array) -> bool:
    """Whether the elements are floats of any width."""
    return array.dtype.kind == "f" or str(array.dtype) == "bfloat16"


def has_nan(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    """Whether an input has NaN."""
    return any(a is not None and is_float_array(a) and bool(np.isnan(a).any()) for a in inputs)


def remove_nan(array: Array) -> Array:
    """Return an array with a number in place of NaN."""
    if not is_float_array(array) or not np.isnan(array).any():
        return array
    finite = array[np.isfinite(array)]
    return np.where(np.isnan(array), finite[0] if finite.size else 0.5, array).astype(array.dtype)


def _casts_out_of_range(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    (source, *_), (result, *_) = inputs, outputs
    if source is None or not is_float_array(source) or "int" not in result.dtype.name:
        return False
    limits = ml_dtypes.iinfo(result.dtype)  # type: ignore[no-untyped-call]
    whole = np.trunc(source.astype(np.float64))
    return not bool(((whole >= float(limits.min)) & (whole < float(limits.max) + 1.0)).all())


def _within_any_range(array: Array) -> Array:
    if not is_float_array(array):
        return array
    wide = array.astype(np.float64)
    return np.where((wide >= 0) & (wide < 2.0**7), wide, 1.0).astype(array.dtype)


def _makes_integers_of_floats(invocation: Invocation, expected: Sequence[Array]) -> bool:
    from_float = any(is_float(spec.dtype) for spec in invocation.tensors())
    return from_float and any(array.dtype.kind in "iu" for array in expected)


def _divides_by_zero(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    divisor = inputs[1]
    return divisor is not None and divisor.dtype.kind in "iu" and bool((divisor == 0).any())


def _shifts_too_far(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    amount = inputs[1]
    return amount is not None and bool(((amount < 0) | (amount >= 8 * amount.dtype.itemsize)).any())


def _within_width(array: Array) -> Array:
    if array.dtype.kind not in "iu":
        return array
    return np.where((array < 0) | (array >= 8 * array.dtype.itemsize), 1, array).astype(array.dtype)


def _reduces_nothing(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    return inputs[0] is not None and inputs[0].size == 0 and outputs[0].size > 0


def _clips_infinity(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    data, low, high = [*inputs, None, None][:3]
    if data is None or not is_float_array(data):
        return False

    # By the text, max(data, low) comes first: an upper bound of -inf prevails, a lower one of inf does not.
    upwards = np.isposinf(data).any() or (low is not None and np.isposinf(low).any())
    downwards = np.isneginf(data).any() and not (high is not None and np.isneginf(high).any())
    return bool((high is None and upwards) or (low is None and downwards))


def _weighs_infinities(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    data = inputs[0]
    picks = any(a.name == "mode" and a.s == b"nearest" for a in node.attribute)
    return not picks and data is not None and is_float_array(data) and not bool(np.isfinite(data).all())


def remove_infinities(array: Array) -> Array:
    """Return an array with a number in place of infinities and NaN."""
    if not is_float_array(array) or np.isfinite(array).all():
        return array
    return np.where(np.isfinite(array), array, 0.5).astype(array.dtype)


def _has_one_place_along_an_axis(
    node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]
) -> bool:
    # Both corners are the same pixel, whose centre is at -1 and at 1.
    aligned = any(a.name == "align_corners" and a.i == 1 for a in node.attribute)
    size = inputs[1]
    return aligned and size is not None and bool((size[2:] == 1).any())


def _rounds_up_to_its_end(node: onnx.NodeProto, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> bool:
    # A generator that draws float32 numbers below the end rounds some of them to it.
    return outputs[0].dtype.itemsize == 2


def _below_the_end(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """Return `model` with the upper ends of some of its uniform draws lowered so far that no rounding reaches them."""
    repaired = onnx.ModelProto()
    repaired.CopyFrom(model)
    for node in repaired.graph.node:
        if node in nodes:
            numbers = {"low": 0.0, "high": 1.0} | {a.name: a.f for a in node.attribute if a.name in _ENDS}
            kept = [a for a in node.attribute if a.name != "high"]
            moved = numbers["high"] - (numbers["high"] - numbers["low"]) * _ROUNDED_BY
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("high", moved)])
    return repaired


_ENDS = ("low", "high")
#: A unit in the last place of bfloat16 numbers near 1.
_ROUNDED_BY = 2.0**-7


def _add_infinite_bounds(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """Return `model` with infinities for the bounds that some of its `Clip` nodes leave out."""
    repaired = onnx.ModelProto()
    repaired.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.input, *inferred.value_info)}
    types |= {t.name: t.data_type for t in inferred.initializer}
    for node in repaired.graph.node:
        if node not in nodes or node.input[0] not in types:
            continue
        bounds = [*node.input, "", ""][1:3]
        for i, infinity in enumerate((-np.inf, np.inf)):
            if not bounds[i]:
                bounds[i] = f"{node.output[0]} bound {i}"
                held = onnx.helper.make_tensor(bounds[i], types[node.input[0]], [], [infinity])
                repaired.graph.initializer.append(held)
        node.input[:] = [node.input[0], *bounds]
    return repaired


OPEN_QUESTIONS: tuple[OpenQuestion, ...] = (
    OpenQuestion(
        # Operators that order or choose among elements. Those with a formula of arithmetic follow IEEE 754.
        operators=frozenset(
            {
                *("Max", "Min", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"),
                *("MaxPool", "GlobalMaxPool", "MaxRoiPool", "Clip", "Relu", "Sign", "Unique"),
            }
        ),
        arises=has_nan,
        silent_on=("nan", "not-a-number", "not a number"),
        subject="NaN",
        fits=fits_a_reading,
        calm=remove_nan,
    ),
    OpenQuestion(
        operators=frozenset({"Cast"}),
        arises=_casts_out_of_range,
        quote="fixed point: undefined if OOR.",
        subject="a float that the integer type does not hold",
        call_asks=_makes_integers_of_floats,
        calm=_within_any_range,
    ),
    OpenQuestion(
        operators=frozenset({"BitShift"}),
        arises=_shifts_too_far,
        silent_on=("negative", "number of bits", "sign"),
        subject="amounts beyond the width of the type",
        call_asks=lambda invocation, expected: "shift" in invocation.overload,
        calm=_within_width,
    ),
    OpenQuestion(
        operators=frozenset({"Div"}),
        arises=_divides_by_zero,
        silent_on=("by zero", "divisor"),
        subject="an integer division by zero",
        call_asks=lambda invocation, expected: False,
        calm=None,
    ),
    OpenQuestion(
        operators=frozenset({"ReduceMean"}),
        arises=_reduces_nothing,
        quote="Reduction over an empty set of values yields undefined.",
        subject="the mean of nothing",
        calm=None,
    ),
    OpenQuestion(
        operators=frozenset({"TopK"}),
        arises=lambda node, inputs, outputs: any(a.name == "sorted" and a.i == 0 for a in node.attribute),
        quote="If \"sorted\" is 0, order of returned 'Values' and 'Indices' are undefined.",
        subject="the order of unsorted elements",
        calm=None,
    ),
    OpenQuestion(
        operators=frozenset({"Clip"}),
        arises=_clips_infinity,
        quote="They default to numeric_limits::lowest() and numeric_limits::max(), respectively.",
        subject="an infinity within bounds that are left out",
        settled=True,
        repair=_add_infinite_bounds,
        calm=None,
    ),
    OpenQuestion(
        operators=frozenset({"GridSample"}),
        arises=_weighs_infinities,
        silent_on=("nan", "infinit", "weight"),
        subject="infinities and NaN whose weight is zero",
        calm=remove_infinities,
    ),
    OpenQuestion(
        operators=frozenset({"GridSample"}),
        arises=pads_beyond_the_border,
        quote="border: use border values for out-of-bound grid locations",
        subject="the padding of a cubic window about a location out of bounds",
        fits=moves_each_pixel,
        calm=None,
    ),
    OpenQuestion(
        # Their texts mention weights, but not of what.
        operators=frozenset({"Resize", "RoiAlign", "Upsample"}),
        arises=_weighs_infinities,
        silent_on=("nan", "not a number", "infinit"),
        subject="infinities and NaN whose weight is zero",
        calm=remove_infinities,
    ),
    OpenQuestion(
        operators=frozenset({"AffineGrid"}),
        arises=_has_one_place_along_an_axis,
        quote="consider `-1` and `1` to refer to the centers of the corner pixels",
        subject="the place of the only pixel along an axis",
        calm=None,
    ),
    OpenQuestion(
        operators=frozenset({"RandomUniform", "RandomUniformLike"}),
        arises=_rounds_up_to_its_end,
        quote="Upper boundary of the output values.",
        subject="numbers that are rounded to their upper boundary",
        repair=_below_the_end,
        calm=None,
    ),
)
