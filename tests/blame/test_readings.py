"""A result with NaN, on which ONNX is silent, is excused only if some reading of the text gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from failure_contexts import diagnosis_of, start, trial_of
from onnx import helper, numpy_helper

from harness.core.dtypes import Array
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.pipeline.nodes.definition import Definition
from harness.pipeline.nodes.node_steps import split_steps
from harness.pipeline.nodes.readings import fits_a_reading
from harness.pipeline.run_graph import run_graph

NAN = float("nan")


def single(
    operator: str, inputs: Sequence[Array], *constants: onnx.TensorProto, outputs: int, **attributes: Any
) -> Definition:
    """The definition of a node on its inputs."""
    fed = {f"x{i}": array for i, array in enumerate(inputs)}
    names = [*fed, *(tensor.name for tensor in constants)]
    node = helper.make_node(operator, names, [f"y{i}" for i in range(outputs)], **attributes)
    described = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in fed.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "node", described, results, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    steps = split_steps(model)
    return Definition(steps, steps.steps[0], {**steps.constant_values, **fed}, start("onnx-reference"))


def run_in_runtime(definition: Definition) -> tuple[Array, ...] | None:
    backend: Any = start("ort-cpu")
    return run_graph(backend.plain(), definition.model, definition.fed).outputs


THREE = numpy_helper.from_array(np.array([3]), "k")
#: What ONNX Runtime 1.32 does with NaN, as its own results show: name → node, and whether it is a reading.
NODES: dict[str, tuple[str, list[Any], tuple[Any, ...], dict[str, Any], bool]] = {
    "a maximum sees NaN in front only": ("ReduceMax", [[NAN, 1, 2]], (), {"keepdims": 0}, False),
    "and so it does elsewhere": ("ReduceMax", [[1, NAN, 2]], (), {"keepdims": 0}, False),
    "so does the place of one": ("ArgMax", [[2, 1, NAN]], (), {"keepdims": 0}, False),
    "numbers are lost": ("Unique", [[NAN, 1, 2, 1]], (), {}, False),
    "no NaN": ("ReduceMax", [[1, 2, 3]], (), {"keepdims": 0}, True),
    "NaN wins": ("Max", [[NAN, 1, 2], [1, NAN, 2]], (), {}, True),
    "NaN stays": ("Relu", [[NAN, -1, 2]], (), {}, True),
    "NaN is the greatest": ("TopK", [[3, NAN, 1, NAN, 2]], (THREE,), {"axis": 0}, True),
    "windows pass it over": ("MaxPool", [[[[1, NAN, 2, 3, NAN, 0.5]]]], (), {"kernel_shape": [2]}, True),
    "a window of it alone is one of nothing": ("MaxPool", [[[[1, NAN, NAN, 3]]]], (), {"kernel_shape": [2]}, True),
}


@pytest.mark.parametrize("name", NODES)
def test_a_result_fits_a_reading_wherever_a_nan_lies(name: str) -> None:
    operator, inputs, constants, attributes, fits = NODES[name]
    arrays = [np.array(values, np.float32) for values in inputs]
    outputs = {"TopK": 2, "Unique": 4}.get(operator, 1)
    definition = single(operator, arrays, *constants, outputs=outputs, **attributes)
    got = run_in_runtime(definition)
    assert got is not None
    assert fits_a_reading(definition, got, run_in_runtime) is fits


@pytest.mark.parametrize("values", [(1.0, NAN, 2.0), (2.0, 1.0, NAN)])
def test_a_maximum_that_depends_on_where_nan_lies_is_the_runtimes(values: tuple[float, ...]) -> None:
    spec = TensorSpec((len(values),), "float32", (1,), 0, Literal(values))
    call = Invocation("aten.amax.default", (("self", spec), ("dim", (0,))))
    decision = diagnosis_of(trial_of(call))
    assert (decision.blame, decision.rule) == ("backend", "wrong-node")
