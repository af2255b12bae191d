"""The helpers of the tests do as they say."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from commands import answered, typed
from onnx_texts import onnx_model, saved
from recorded_rows import call, recorded, row_of, tensor, vector
from sampling import sampled

from harness.core.invocation import Literal
from harness.record import store


@pytest.mark.parametrize(
    ("values", "shape", "dtype", "flat"),
    [
        pytest.param(3, (), "int64", (3,), id="a number"),
        pytest.param([], (0,), "float32", (), id="nothing"),
        pytest.param([[True], [False]], (2, 1), "bool", (True, False), id="a column"),
        pytest.param([[[1.0, 2.0]], [[3.0, 4.0]]], (2, 1, 2), "float32", (1.0, 2.0, 3.0, 4.0), id="three dimensions"),
        pytest.param([1j, 2.0], (2,), "complex64", (1j, 2.0), id="complex numbers"),
    ],
)
def test_a_tensor_has_the_shape_of_its_lists_and_the_dtype_of_its_values(
    values: object, shape: tuple[int, ...], dtype: str, flat: tuple[complex, ...]
) -> None:
    made = tensor(values)
    assert (made.shape, made.dtype, made.values, made.is_contiguous) == (shape, dtype, Literal(flat), True)


def test_a_list_among_the_arguments_of_a_call_is_a_tensor() -> None:
    made = call("aten.flip.default", self=[1.0, 2.0], dims=(0,))
    assert dict(made.arguments) == {"self": vector([1.0, 2.0]), "dims": (0,)}


def test_a_storage_is_given_with_its_strides() -> None:
    assert tensor([1.0, 0.0, 2.0], shape=(2,), strides=(2,)).storage_size == 3


def test_a_recorded_run_is_finished_and_holds_the_rows(tmp_path: Path) -> None:
    rows = [row_of(call("aten.neg.default", self=[value])) for value in (1.0, 2.0)]
    run = recorded(tmp_path / "run", rows)
    assert sorted(store.read(run)["case_id"].to_pylist()) == sorted(row.case_id for row in rows)
    assert answered("failures", run)["failures"]["total"] == 0


def test_a_command_that_ends_with_another_status_fails_its_test(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="holds no run"):
        typed("failures", tmp_path)
    assert typed("failures", tmp_path, status=2).exit_code == 2


def test_a_graph_is_what_its_text_says(tmp_path: Path) -> None:
    text = ("float[n,2] x", "float[n,2] y", 'h = Neg (x) [last] y = Clip (h, "", high)')
    model = onnx_model(*text, opset=17, high=[1.0])
    assert [(node.op_type, list(node.input), node.name) for node in model.graph.node] == [
        ("Neg", ["x"], ""),
        ("Clip", ["h", "", "high"], "last"),
    ]
    assert [tensor.name for tensor in model.graph.initializer] == ["high"]
    assert onnx.load(saved(tmp_path / "graph.onnx", *text, opset=17, high=[1.0])) == model


def test_a_sample_is_quick_and_the_rest_has_marks() -> None:
    marks = {p.values[0]: [mark.name for mark in p.marks] for p in sampled("abcdef", every=3, named="b", slow=2)}
    assert marks == {"a": [], "b": [], "c": ["slow"], "d": [], "e": ["slow"], "f": ["thorough"]}
