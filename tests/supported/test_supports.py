"""`conformance supports` and `harness.is_supported`: answers from a record, without a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from click.testing import CliRunner, Result
from harness_runs import environment, row_of, vector

import harness
from harness.app.cli._group import conformance
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation, Literal, TensorSpec, contiguous_strides
from harness.core.overloads import UnknownOperator
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter
from harness.support.answer import Support, SupportLevel
from harness.support.model_calls import ModelError


def supports(*words: str | Path) -> Result:
    return CliRunner().invoke(conformance, ["supports", *map(str, words)])


def celu(dtype: str, alpha: float, value: float = 0.5, **more: Any) -> Verdict:
    call = Invocation("aten.celu.default", (("self", vector([value, -1.0], dtype)), ("alpha", alpha)))
    return row_of(call, dtype=dtype, **more)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """celu fails in float16 and, in float32, for an alpha of 3 or an infinity; tanh at opset 21."""
    wrong: dict[str, Any] = {"outcome": Outcome.MISMATCH, "signature": "values", "message": "wrong"}
    none: dict[str, Any] = {
        "outcome": Outcome.UNSUPPORTED,
        "stage": Stage.CONVERT,
        "signature": "none",
        "message": "none",
    }
    tanh = Invocation("aten.tanh.default", (("self", vector([0.5])),))
    directory = tmp_path_factory.mktemp("supports") / "run"
    with RunWriter(directory, RunInfo.begin(seed=0, options={})) as writer:
        writer.write(
            [
                celu("float32", 1.0, opset=20),
                celu("float32", 1.0, float("inf"), opset=20, **wrong),
                celu("float32", 3.0, opset=20, **wrong),
                celu("float16", 1.0, opset=20, **wrong),
                row_of(tanh, opset=20),
                row_of(tanh, opset=21, **wrong),
                row_of(tanh, converter="torchscript", **none),
            ]
        )
    store.finish(directory, 1)
    return directory


def asked(record: Path, what: Any, **more: Any) -> Support:
    return harness.is_supported(what, record=record, **more)


def test_cases_of_the_call_decide_by_dtypes_and_attributes(recorded: Path) -> None:
    whole = asked(recorded, "aten::celu")
    assert whole.standing is SupportLevel.PARTLY
    assert not whole
    (found,) = whole.calls
    assert found.dtypes == {"float32": SupportLevel.PARTLY, "float16": SupportLevel.UNSUPPORTED}
    # The infinity is an edge case, which does not decide where there are ordinary ones.
    assert (found.cases, found.failures, found.edge_cases, found.edge_failures) == (3, 2, 1, 1)
    assert asked(recorded, "celu", dtype="float16").standing is SupportLevel.UNSUPPORTED
    assert asked(recorded, "celu", dtype=torch.float16) == asked(recorded, "celu", dtype="float16")
    assert asked(recorded, "celu", dtype="float64").standing is SupportLevel.UNKNOWN
    tensor = ("self", vector([0.25], "float32"))
    assert asked(recorded, Invocation("aten.celu.default", (tensor,)))
    assert not asked(recorded, Invocation("aten.celu.default", (tensor, ("alpha", 3.0))))
    other = asked(recorded, Invocation("aten.celu.default", (tensor, ("alpha", 2.0))))
    assert other.standing is SupportLevel.UNKNOWN
    assert "no case has these attributes" in other.calls[0].said


def test_a_dimension_from_the_end_is_the_one_that_was_recorded(recorded: Path) -> None:
    def softmax(dim: int, rank: int) -> Invocation:
        shape = (1,) * rank
        tensor = TensorSpec(shape, "float32", contiguous_strides(shape), 0, Literal((0.5,)))
        return Invocation("aten.softmax.int", (("self", tensor), ("dim", dim)))

    run = recorded.parent / "dims"
    with RunWriter(run, RunInfo.begin(seed=0, options={})) as writer:
        writer.write([row_of(softmax(1, 2))])
    store.finish(run, 1)
    assert asked(run, softmax(-1, 2)).calls[0].exact
    assert not asked(run, softmax(-2, 2)).calls[0].exact
    assert not asked(run, softmax(-1, 3)).calls[0].exact
    program = torch.export.export(torch.nn.Softmax(-1), (torch.randn(2, 3),))
    assert asked(run, program).calls[0].exact
    exported = torch.onnx.export(program, dynamo=True, verbose=False)
    assert exported is not None
    assert asked(run, exported.model_proto).calls[0].exact


def test_everyday_values_decide_in_dtypes_that_no_ordinary_case_has(recorded: Path) -> None:
    with_edge = Invocation("aten.tanh.default", (("self", vector([float("nan")], "bfloat16")),))
    plain = Invocation("aten.tanh.default", (("self", vector([0.5], "bfloat16")),))
    run = recorded.parent / "rare"
    with RunWriter(run, RunInfo.begin(seed=0, options={})) as writer:
        wrong: dict[str, Any] = {"outcome": Outcome.MISMATCH, "signature": "values", "message": "wrong"}
        writer.write([row_of(plain, dtype="bfloat16"), row_of(with_edge, dtype="bfloat16", **wrong)])
    store.finish(run, 1)
    answer = asked(run, "tanh", dtype="bfloat16")
    assert answer.standing is SupportLevel.SUPPORTED
    assert "no failure found in 1 case; 1 of 1 edge case fails" in answer.calls[0].said
    # A dtype that is not a rarer kind of float32 or int64 has no everyday values.
    assert asked(run, "tanh", dtype="float32").standing is SupportLevel.UNKNOWN


def test_converter_backend_and_opset_are_those_asked_for(recorded: Path) -> None:
    assert asked(recorded, "tanh", opset=20)
    assert asked(recorded, "tanh", opset=21).standing is SupportLevel.UNSUPPORTED
    assert asked(recorded, "tanh").standing is SupportLevel.PARTLY
    assert asked(recorded, "tanh", opset=22).standing is SupportLevel.UNKNOWN
    # Where there is no conversion no model has an opset: that counts for the opsets of the record only.
    assert asked(recorded, "tanh", converter="torchscript").standing is SupportLevel.UNSUPPORTED
    assert asked(recorded, "tanh", opset=22, converter="torchscript").standing is SupportLevel.UNKNOWN
    assert asked(recorded, "celu", opset=99).standing is SupportLevel.UNKNOWN
    with pytest.raises(ValueError, match="no results for dynamo → trt; it has dynamo → ort-cpu"):
        asked(recorded, "tanh", backend="trt")


@pytest.mark.parametrize("overload", [torch.ops.aten.celu.default, torch.ops.aten.celu])
def test_operators_may_be_given_as_pytorch_has_them(recorded: Path, overload: Any) -> None:
    assert asked(recorded, overload).calls == asked(recorded, "aten::celu").calls


def test_modules_programs_and_models_are_asked_about_by_calls(recorded: Path, tmp_path: Path) -> None:
    module, inputs = torch.nn.Sequential(torch.nn.CELU(1.0), torch.nn.Tanh()).eval(), (torch.randn(2, 3),)
    answer = asked(recorded, module, args=inputs, opset=20)
    assert answer
    assert [call.call.overload for call in answer.calls] == [
        "aten.celu.default",
        "aten.tanh.default",
    ]
    program = torch.export.export(module, inputs)
    torch.export.save(program, tmp_path / "model.pt2")
    exported = torch.onnx.export(program, dynamo=True, verbose=False)
    assert exported is not None
    onnx.save(exported.model_proto, tmp_path / "model.onnx")
    for one in (program, tmp_path / "model.pt2", tmp_path / "model.onnx", exported.model_proto):
        again = asked(recorded, one, opset=20)
        assert [call.call.overload for call in again.calls] == ["aten.celu.default", "aten.tanh.default"]
        assert again
    assert not asked(recorded, module, args=inputs, opset=21)
    with pytest.raises(ModelError, match="Sequential cannot be exported with these inputs"):
        asked(recorded, module)


def test_a_models_notes_are_read_with_their_words_and_what_was_fused(recorded: Path) -> None:
    """As PyTorch's exporter notes calls; the Conv took in a batch normalisation, of which its note is."""

    def node(kind: str, given: list[str], name: str, overload: str, arguments: str) -> onnx.NodeProto:
        made = onnx.helper.make_node(kind, given, [name])
        target = f"call_function[target=torch.ops.{overload}]{arguments}"
        notes = {"class_hierarchy": f"['M', '{overload}']", "name_scopes": f"['', '{name}']"}
        notes["fx_node"] = f"%{name} : [num_users=1] = {target}"
        for key, value in notes.items():
            made.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
        return made

    shape = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    norm, weight = "aten._native_batch_norm_legit_no_training.default", onnx.TensorProto.FLOAT
    weights = onnx.helper.make_tensor("weight", weight, [4, 3, 1, 1], [0.5] * 12)
    graph = onnx.helper.make_graph(
        [
            node("Conv", ["x", "weight"], "getitem", norm, "(args = (%conv2d_1, 0.1, 1e-05), kwargs = {})"),
            node(
                "Gelu",
                ["getitem"],
                "gelu",
                "aten.gelu.default",
                "(args = (%getitem,), kwargs = {approximate: tanh})",
            ),
            node(
                "Pad",
                ["gelu"],
                "pad",
                "aten.pad.default",
                "(args = (%gelu, [1, 1], constant, -inf), kwargs = {})",
            ),
        ],
        "fused",
        [shape],
        [onnx.helper.make_tensor_value_info("pad", onnx.TensorProto.FLOAT, None)],
        [weights],
    )
    found = {c.call.overload: c.call for c in asked(recorded, onnx.helper.make_model(graph)).calls}
    assert found.keys() == {"aten.conv2d.default", "aten.gelu.default", "aten.pad.default"}
    assert found["aten.conv2d.default"].dtypes == {"input": "float32", "weight": "float32"}
    assert found["aten.gelu.default"].attributes == {"approximate": "tanh"}
    assert found["aten.pad.default"].attributes == {"pad": [1, 1], "mode": "constant", "value": float("-inf")}


def test_the_command_prints_the_answer_and_of_what_versions_it_is(recorded: Path) -> None:
    done = supports("celu", "tanh", "--record", recorded)
    assert done.exit_code == 1
    first, second, last = done.stdout.splitlines()
    assert first.startswith("aten.celu.default: partly: 2 of 3 cases fail; 1 of 1 edge case fails")
    assert second == "aten.tanh.default: partly: 1 of 2 cases fail; " + second.partition("fail; ")[2]
    assert last.startswith("recorded 20")
    assert f"torch {torch.__version__}" in last
    assert supports("tanh", "--opset", "20", "--record", recorded).exit_code == 0
    assert supports("celu", "--dtype", "float64", "--record", recorded).exit_code == 3
    data = json.loads(supports("celu", "--json", "--record", recorded).stdout)
    assert data[0]["standing"] == "partly"
    assert data[0]["record"]["versions"]["torch"]


def one_node(kind: str, opset: int, **attributes: Any) -> onnx.ModelProto:
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", 3]) for n in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, ["x"], ["y"], **attributes)], "graph", values[:1], values[1:]
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)


def test_a_model_that_the_installed_runtime_does_not_load_is_not_supported(recorded: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    celu = Invocation("aten.celu.default", (("self", vector([0.5])), ("alpha", 2.0)))
    with RunWriter(run, RunInfo.begin(seed=0, options={})) as writer:
        writer.write([row_of(celu, opset=20), row_of(celu, backend="no-such-runtime", opset=20)])
    store.finish(run, 0)
    good, newer = one_node("Celu", 20, alpha=2.0), one_node("Celu", 99, alpha=2.0)
    assert asked(run, good)
    answer = asked(run, newer)
    assert answer.standing is SupportLevel.UNSUPPORTED
    assert answer.loading is not None
    assert "99" in answer.loading.words
    onnx.save(newer, tmp_path / "newer.onnx")
    done = supports(tmp_path / "newer.onnx", "--record", run)
    assert done.exit_code == 1
    assert "ort-cpu cannot load it" in done.stdout


def test_what_a_node_does_not_tell_is_not_answered(recorded: Path, tmp_path: Path) -> None:
    """ReduceMean has its axes as an input: which ``dim`` the call had is not known."""
    run = tmp_path / "run"
    mean = Invocation("aten.mean.dim", (("self", vector([0.5])), ("dim", None)))
    wrong: dict[str, Any] = {"outcome": Outcome.MISMATCH, "signature": "values", "message": "wrong"}
    with RunWriter(run, RunInfo.begin(seed=0, options={})) as writer:
        writer.write([row_of(mean, opset=18, **wrong)] * 3)
    store.finish(run, 1)
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [3]) for n in "xy"]
    axes = onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [0])
    node = onnx.helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=1)
    graph = onnx.helper.make_graph([node], "mean", values[:1], values[1:], [axes])
    opset = [onnx.helper.make_opsetid("", 18)]
    answer = asked(run, onnx.helper.make_model(graph, opset_imports=opset, ir_version=10))
    assert answer.standing is SupportLevel.UNKNOWN
    assert "of similar calls, 3 of 3 cases fail" in answer.calls[0].said


def test_an_engine_that_was_only_built_is_no_evidence(tmp_path: Path) -> None:
    run = tmp_path / "run"
    built: dict[str, Any] = {"outcome": Outcome.BUILT, "stage": Stage.LOAD, "backend": "trt-rtx"}
    with RunWriter(run, RunInfo.begin(seed=0, options={})) as writer:
        writer.write([celu("float32", 1.0, opset=20, **built)])
    store.finish(run, 0)
    assert asked(run, "celu", backend="trt-rtx").standing is SupportLevel.UNKNOWN


def test_complex_attributes_are_answered_written_and_shown(tmp_path: Path) -> None:
    run = tmp_path / "run"
    call = Invocation("aten.add.Scalar", (("self", vector([1 + 1j], "complex64")), ("other", 2j)))
    with RunWriter(run, RunInfo.begin(seed=0, options={})) as writer:
        writer.write([row_of(call, dtype="complex64", opset=20)])
    store.finish(run, 0)
    assert asked(run, call)
    assert supports("add", "--record", run).exit_code == 0
    small = tmp_path / "small.parquet"
    assert supports("--record", run, "--write", small).exit_code == 0
    # The small record keeps no attributes of edge cases, so that they decide nothing there.
    assert asked(small, call).standing is SupportLevel.UNKNOWN
    assert supports("--record", run, "--page", tmp_path / "page").exit_code == 0


def test_a_small_record_answers_as_the_run_does(recorded: Path, tmp_path: Path) -> None:
    small = tmp_path / "support.parquet"
    assert supports("--record", recorded, "--write", small).exit_code == 0
    for word in ("celu", "tanh"):
        assert asked(small, word) == asked(recorded, word)
    assert asked(small, "celu", dtype="float16") == asked(recorded, "celu", dtype="float16")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuchoperator"], "nosuchoperator: PyTorch has no operator of that name"),
        ([], "name an operator or a model file"),
        (["celu", "--dtype", "half"], "half is not a dtype; there are float32, float64, float16, bfloat16"),
        (["missing.onnx"], "missing.onnx: there is no such file"),
        (
            ["celu", "--backend", "nosuch"],
            "the bundled record has no results for dynamo → nosuch",
        ),
        (["celu", "--write", "x.parquet"], "name the run with --record"),
    ],
)
def test_bad_questions_get_one_line(words: list[str], said: str) -> None:
    done = supports(*words)
    assert done.exit_code == 2
    assert said in done.stderr.splitlines()[-1]


def test_a_file_that_is_no_record_is_named(tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    other.write_bytes(b"no parquet")
    done = supports("celu", "--record", other)
    assert done.exit_code == 2
    assert f"{other} is not a run or a support record" in done.stderr


def test_the_package_ships_a_record_that_answers_without_pytorch() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom harness.app.cli._group import conformance\n"
        "done = CliRunner().invoke(conformance, ['supports', 'celu', 'aten::add.Tensor'])\n"
        "assert done.exit_code in (0, 1), done.output\nprint(done.stdout)\n"
        "assert 'torch' not in sys.modules, 'PyTorch was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert "aten.celu.default: " in done.stdout
    assert "aten.add.Tensor: " in done.stdout


def test_an_unknown_name_is_no_answer(recorded: Path) -> None:
    with pytest.raises(UnknownOperator, match="PyTorch has no operator of that name"):
        asked(recorded, "nosuchoperator")
    with pytest.raises(TypeError, match="int is not an operator"):
        asked(recorded, 3)
    # PyTorch has it; the record does not.
    assert asked(recorded, "aten::erf").standing is SupportLevel.UNKNOWN
