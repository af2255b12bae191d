"""Parts of a user's file become seeds of graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_texts import onnx_model, saved

from harness.generate.graph_windows import BadModel, cut_windows
from harness.generate.sources.onnx_graphs import create
from harness.generate.sources.source import Request
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan

NODES = "h = MatMul (x, w) s = Add (h, b) a = Relu (s) t = MatMul (a, w) u = Add (t, b) y = Softmax (u)"


def test_a_window_begins_at_each_node_and_follows_what_it_computes(tmp_path: Path) -> None:
    weights = {"w": np.eye(4, dtype=np.float32), "b": np.ones(4, np.float32)}
    windows = cut_windows(saved(tmp_path / "net.onnx", "float[n,4] x", "float[n,4] y", NODES, **weights))
    assert set(windows) == {f"graph.net-{place}" for place in range(6)}
    last = windows["graph.net-5"].graph
    assert [node.op_type for node in last.node] == ["Softmax"]
    assert [dim.dim_value for dim in last.input[0].type.tensor_type.shape.dim] == [2, 4]
    for window in windows.values():
        onnx.checker.check_model(window, full_check=True)


def test_large_weights_are_inputs(tmp_path: Path) -> None:
    large = np.ones((100, 100), np.float32)
    path = saved(tmp_path / "net.onnx", "float[2,100] x", "float[2,100] y", "y = MatMul (x, w)", w=large)
    (window,) = cut_windows(path).values()
    assert [value.name for value in window.graph.input] == ["x", "w"]


def test_mutants_are_made_of_windows(tmp_path: Path) -> None:
    weights = {"w": np.eye(4, dtype=np.float32), "b": np.ones(4, np.float32)}
    source = create(str(saved(tmp_path / "net.onnx", "float[2,4] x", "float[2,4] y", NODES, **weights)))
    request = Request(
        overload="graph.net-0", dynamic=False, seed=1, examples=20, values=None, dtypes=None, resize=lambda a, b: []
    )
    assert len(source.find(request).groups) == 20


def test_what_cannot_be_cut_is_said_before_anything_runs(tmp_path: Path) -> None:
    invalid = onnx_model("float[2] x", "float[2] y", "y = NoSuchOperator (x)")
    onnx.save(invalid, tmp_path / "invalid.onnx")
    for name in ("none.onnx", "invalid.onnx"):
        with pytest.raises(BadModel, match=name):
            cut_windows(tmp_path / name)
        with pytest.raises(UsageProblem, match=name):
            make_plan(Options(sources=(f"graphs:{tmp_path / name}",)))
