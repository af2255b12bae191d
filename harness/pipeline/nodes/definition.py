"""Evaluate an operator's definition on a node's own inputs, in its dtypes and in a wider one.

The definition is the first of these that there is: a formula of `earlier_versions`, for a node whose version has
another meaning than today's; a formula of `formulas`; the function body by which ONNX defines the operator, evaluated
step by step; the kernel of onnx's reference evaluator. In the wide evaluation every float is a float64, and a float64
is NumPy's `longdouble` where the evaluator can compute in it. A body that rounds a float64 to float32 on its way does
so in the wide evaluation, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto

from harness.core.dtypes import PRECISION, Array
from harness.pipeline.loaded_models import RANDOM_OPERATORS
from harness.pipeline.nodes.bodies import has_body, inline_bodies, widened
from harness.pipeline.nodes.contrib import CONTRIB, DEFAULT_DOMAIN_CONTRIB, DOMAIN
from harness.pipeline.nodes.contrib_quantized import REALS
from harness.pipeline.nodes.earlier_versions import earlier_meaning, has_earlier_meanings, restated
from harness.pipeline.nodes.formulas import FORMULAS
from harness.pipeline.nodes.further_formulas import BODY_RUNNERS, quantised_reals
from harness.pipeline.nodes.node_call import Formula, NodeCall
from harness.pipeline.nodes.node_steps import (
    ACCUMULATING,
    COPIES,
    EXACT,
    PLACING,
    NodeStep,
    SteppedGraph,
    node_attribute,
)
from harness.pipeline.run_graph import run_graph
from harness.pipeline.stages import StageFailure, emitted_opset, load_stage, run_stage
from harness.pipeline.submodel import walk_nodes
from harness.run.backend import Backend, BackendSession

#: Dtype and shape, as far as inference knows them.
_Form: TypeAlias = "tuple[np.dtype[Any] | None, tuple[int | None, ...] | None]"

#: Domains that onnx's evaluator defines.
_DEFINED_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
_NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT)


class WhyUndefined(StrEnum):
    """Why the right result of a node is not known here."""

    ANOTHER_VERSION = "another-version"
    """No evaluator has the meaning that the operator has at the model's opset."""
    NO_DEFINITION = "no-definition"
    """The operator belongs to no domain whose definitions are known, or the node leaves its result to the runtime."""
    EVALUATOR_FAILS = "evaluator-fails"
    """The evaluator, or the formula, refuses the node's inputs."""
    ANOTHER_FORM = "another-form"
    """The evaluator's result has not the shape, or the number of outputs, of ONNX's shape inference."""
    TOO_MANY_NUMBERS = "too-many-numbers"
    """The node orders more numbers than can be ranked."""


class Undefined(Exception):
    """The right result of a node is not known here.

    Attributes:
        why: The reason.
        detail: What the evaluator said, or the forms that differ.
    """

    def __init__(self, why: WhyUndefined, operator: str, detail: str = "") -> None:
        super().__init__(f"{operator}: {detail or why}")
        self.why = why
        self.detail = detail


@dataclass(frozen=True, eq=False)
class Definition:
    """A step and its inputs, and the results of the definition.

    Attributes:
        inputs: Name → array, constants included.
        evaluator: Evaluates a model's nodes by their definitions.
    """

    graph: SteppedGraph
    step: NodeStep
    inputs: Mapping[str, Array]
    evaluator: Backend

    @property
    def operator(self) -> str:
        """Return the operator of the step's last node."""
        return self.step.node.op_type

    @cached_property
    def is_random(self) -> bool:
        """Whether several answers are right."""
        return any(n.op_type in RANDOM_OPERATORS for n in self.step.nodes)

    @cached_property
    def is_exact(self) -> bool:
        """Whether nothing is rounded."""
        return all(n.op_type in EXACT or _selects(n) for n in self.step.nodes) and not any(
            node_attribute(n, "reduction", b"none") not in (b"none", "") for n in self.step.nodes
        )

    @property
    def is_copy(self) -> bool:
        """Whether zeros keep their signs."""
        return all(n.op_type in COPIES or _selects(n) for n in self.step.nodes)

    @property
    def accumulates(self) -> bool:
        """Whether results are sums."""
        return self.operator in ACCUMULATING

    @cached_property
    def own(self) -> tuple[Array, ...]:
        """The results in the node's dtypes; raises `Undefined`.

        The dtypes are those of ONNX's type inference: the evaluator does not keep to them everywhere. If
        it departs from ONNX's shape inference the right result is unknown. Of results without elements the
        inference says all that there is to say.
        """
        forms = self._forms
        empty = [_empty(*form) for form in forms]
        if forms and all(array is not None for array in empty):
            return tuple(array for array in empty if array is not None)
        found = self._evaluated_or_rounded(forms)
        if len(found) != len(forms):
            detail = f"{len(found)} results in place of {len(forms)}"
            raise Undefined(WhyUndefined.ANOTHER_FORM, self.operator, detail)
        return tuple(self._cast_result(array, *form) for array, form in zip(found, forms, strict=True))

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The step alone, for its inputs."""
        return self.graph.alone(self.step, self.inputs)

    @property
    def fed(self) -> dict[str, Array]:
        """Return the inputs of `model`."""
        return self.graph.feeds_alone(self.step, self.inputs)

    @cached_property
    def _forms(self) -> list[_Form]:
        return inferred_forms(self.model)

    def _evaluated_or_rounded(self, forms: Sequence[_Form]) -> Sequence[Array]:
        try:
            return self._evaluated(self.inputs)
        except Undefined:
            # The evaluator may lack the operator in a narrow dtype only.
            wide = self.truth
            if wide is None or any(dtype is None for dtype, _ in forms):
                raise
            rounded = [array for array in wide if array is not None]
            if len(rounded) < len(wide):
                raise
            return rounded

    def has_form(self, output: int, array: Array) -> bool:
        """Whether an array may be a result by ONNX's type and shape inference."""
        dtype, shape = self._forms[output]
        # Not `in`: to NumPy, no dtype is equal to float64.
        return (dtype is None or dtype == array.dtype) and (shape is None or _fits(array.shape, shape))

    def _cast_result(self, array: Array, dtype: np.dtype[Any] | None, shape: tuple[int | None, ...] | None) -> Array:
        if shape is not None and not _fits(array.shape, shape):
            detail = f"shape {list(array.shape)} where inference has {list(shape)}"
            raise Undefined(WhyUndefined.ANOTHER_FORM, self.operator, detail)
        with np.errstate(all="ignore"):
            return array if dtype is None or array.dtype == dtype else array.astype(dtype)

    @cached_property
    def body_results(self) -> tuple[Array, ...] | None:
        """Return the results of the function by which ONNX defines the operator, step by step in the node's dtypes.

        None without such a function, or if it cannot be evaluated.
        """
        if not self.step.is_single or not has_body(self.step.node, self._opset):
            return None
        try:
            # onnx asserts that its bodies have as many inputs as their operators.
            body = inline_bodies(self.model)
            return None if body is None else run_graph(self.evaluator, body, self.fed).outputs_or_raise()
        except Exception:
            return None

    @cached_property
    def truth(self) -> tuple[Array | None, ...] | None:
        """The results in float64, None for a result that is not floating; None as a whole if they cannot be
        computed."""
        if self.is_exact or not any(_is_float(a) for a in self.inputs.values()):
            return None
        return self.wide(lambda array: array)

    def wide(self, change: Callable[[Array], Array]) -> tuple[Array | None, ...] | None:
        """Return the wide results after applying `change` to each floating input, made wide."""
        return self._wide(lambda name, array: change(array))

    def change_terms(self, change: Callable[[Array], Array]) -> tuple[Array | None, ...] | None:
        """Evaluate with `change` applied to terms alone, and not to inputs that place them (`PLACING`)."""
        places = PLACING.get(self.operator, frozenset())
        placing = {name for i, name in enumerate(self.step.node.input) if i in places}
        return self._wide(lambda name, array: array if name in placing else change(array))

    def _wide(self, change: Callable[[str, Array], Array]) -> tuple[Array | None, ...] | None:
        in_double = any(str(a.dtype) == "float64" for a in self.inputs.values())
        for dtype in (np.longdouble, np.float64) if in_double else (np.float64,):
            moved = {n: change(n, a.astype(dtype)) if _is_float(a) else a for n, a in self.inputs.items()}
            try:
                found = self._evaluated(moved)
            except Undefined:
                continue
            return tuple(a if a.dtype.kind == "f" else None for a in found)
        return None

    def _evaluated(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            formula = self._formula
            try:
                if formula is not None:
                    found = formula(self._call(inputs))
                    if found is not None:
                        return tuple(np.asarray(a, order="C") for a in found)
                if self._why_unevaluated is None:
                    return self._evaluate_model(inputs)
            except Exception as error:
                detail = f"{type(error).__name__}: {error}"
                raise Undefined(WhyUndefined.EVALUATOR_FAILS, self.operator, detail) from error
            raise Undefined(self._why_unevaluated, self.operator)

    @cached_property
    def reals(self) -> Array | None:
        """The real numbers that a quantised operator rounds to integers; None for other operators.

        They are computed from float32 scales, so that half a step between two integers may be rounded either way.
        """
        if not self.step.is_single:
            return None
        call = self._call(self.inputs)
        if self.step.node.domain == DOMAIN and self.operator in REALS:
            found = REALS[self.operator](call)
            return None if found is None else found[0]
        return None if self.step.node.domain else quantised_reals(self.operator, call.inputs)

    @property
    def _opset(self) -> int:
        return emitted_opset(self.graph.model) or 1

    @property
    def _formula(self) -> Formula | None:
        if not self.step.is_single and not (len(self.step.nodes) == 1 and self.operator in BODY_RUNNERS):
            return None
        if self.step.node.domain not in ("", "ai.onnx"):
            return CONTRIB.get(self.operator) if self.step.node.domain == DOMAIN else None
        earlier = earlier_meaning(self.step.node, self._opset)
        if earlier is not None:
            return earlier.formula
        return FORMULAS.get(self.operator) or DEFAULT_DOMAIN_CONTRIB.get(self.operator)

    @cached_property
    def _why_unevaluated(self) -> WhyUndefined | None:
        """Why onnx's evaluator cannot be asked about the step; None if it can."""
        if any(node.domain not in _DEFINED_DOMAINS for node in walk_nodes(self.step.nodes)):
            return WhyUndefined.NO_DEFINITION
        if not self.step.is_single:
            return WhyUndefined.ANOTHER_VERSION if has_earlier_meanings(self.model) else None
        earlier = earlier_meaning(self.step.node, self._opset)
        return WhyUndefined.ANOTHER_VERSION if earlier is not None and earlier.restate is None else None

    def _call(self, inputs: Mapping[str, Array]) -> NodeCall:
        node = self.step.node
        own = next((str(self.inputs[n].dtype) for n in node.input if n), "")
        given = [inputs[n] if n else None for n in node.input]
        return NodeCall(node, given, self._opset, own)

    def _evaluate_model(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        if inputs is self.inputs:
            body = self.body_results
            if body is not None:
                return body
            return run_graph(self.evaluator, restated(self.model), self.fed).outputs_or_raise()
        names, constants = self.step.names_alone, self.graph.constants
        # No model has a constant in `longdouble`.
        feeds = {names[n]: _narrow_longdouble(a) if n in constants else a for n, a in inputs.items()}
        outputs = run_stage(self._wide_session, feeds)
        if isinstance(outputs, StageFailure):
            raise outputs.error
        return outputs

    @cached_property
    def _wide_session(self) -> BackendSession:
        """The step with every floating input in float64, loaded."""
        wide = {n: a.astype(np.float64) if _is_float(a) else a for n, a in self.inputs.items()}
        model = self.graph.alone(self.step, wide, fed_with_constants=True)
        if any(a.dtype != self.inputs[n].dtype for n, a in wide.items()):
            widen_attributes(model)
        session = load_stage(self.evaluator, self._wide_body(model) or restated(model), None)
        if isinstance(session, StageFailure):
            raise session.error
        return session

    def _wide_body(self, model: onnx.ModelProto) -> onnx.ModelProto | None:
        """Return the body of the step for float64 inputs; None if it has none, or none that can be evaluated."""
        if self.body_results is None:
            return None
        body = inline_bodies(model)
        in_double = any(str(a.dtype) == "float64" for a in self.inputs.values())
        return body if body is None or in_double else widened(body)


def _empty(dtype: np.dtype[Any] | None, shape: tuple[int | None, ...] | None) -> Array | None:
    """Return the one array of this form if it has no elements; else None."""
    sizes = [size for size in shape or () if size is not None]
    if dtype is None or shape is None or len(sizes) < len(shape) or 0 not in sizes:
        return None
    return np.zeros(sizes, dtype)


def _fits(shape: tuple[int, ...], inferred: tuple[int | None, ...]) -> bool:
    return len(shape) == len(inferred) and all(i in (None, s) for s, i in zip(shape, inferred, strict=True))


def inferred_forms(model: onnx.ModelProto) -> list[_Form]:
    """Return dtype and shape of each output by ONNX's own rules, None for those that the rules leave open."""
    try:
        known = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError:
        known = model
    found: list[_Form] = []
    for output in known.graph.output:
        kind = output.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type) if kind.elem_type else None
        dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        found.append((dtype, tuple(dims) if kind.HasField("shape") else None))
    return found


def formed_arrays(model: onnx.ModelProto) -> tuple[Array, ...] | None:
    """Return arrays of the dtypes and shapes that inference gives the outputs; None if it leaves one open."""
    forms = inferred_forms(model)
    if any(dtype is None or shape is None or None in shape for dtype, shape in forms):
        return None
    return tuple(np.zeros([size or 0 for size in shape or ()], dtype) for dtype, shape in forms)


def _narrow_longdouble(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.longdouble else array


def widen_attributes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Set float64 for the narrower dtypes that attributes of the model's operators name, and return the model."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("dtype", "softmax_precision") and attribute.i in _NARROW:
                attribute.i = TensorProto.DOUBLE
    return model


def _is_float(array: Array) -> bool:
    return str(array.dtype) in PRECISION


def _selects(node: onnx.NodeProto) -> bool:
    return node.op_type in ("Resize", "GridSample") and node_attribute(node, "mode", b"") == b"nearest"
