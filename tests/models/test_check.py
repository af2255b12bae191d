"""`conformance check`: whether a model or an ONNX file survives, and where it breaks."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from commands import checked, typed
from onnx_texts import onnx_model, saved

from harness.compare.verdict import Outcome
from harness.convert.converter import find_converter
from harness.models.capture import resized_calls
from harness.pipeline.model_cases import cases_of
from harness.pipeline.model_loading import load_model
from harness.pipeline.model_oracle import run_model
from harness.pipeline.model_task import ModelRun
from harness.pipeline.supervisor import Supervisor
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan
from harness.plan.unit import run_unit

pytestmark = pytest.mark.slowest(30)

MODELS = '''
import torch
from torch import nn

class Pooled(nn.Module):
    """A known defect of one operator in the middle."""
    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 4, 3), nn.AvgPool2d(3, divisor_override=2)
    def forward(self, x):
        return self.pool(torch.relu(self.conv(x)))

def pooled():
    return Pooled(), (torch.randn(1, 3, 12, 12),)

class Adaptive(nn.Module):
    def forward(self, x):
        return nn.functional.adaptive_avg_pool2d(x, (3, 3))

def adaptive():
    return Adaptive(), (torch.randn(1, 2, 9, 9),), ({2: torch.export.Dim("height", min=6, max=20)},)

class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
    def forward(self, x):
        self.total += x.sum(0)
        return x * self.total

def counter():
    return Counter(), (torch.randn(3, 4),)

class Guarded(nn.Module):
    """An exporter's optimiser takes the small constant for 0."""
    def __init__(self):
        super().__init__()
        self.register_buffer("small", torch.tensor(1e-8))
    def forward(self, x):
        zero = torch.relu(x) - torch.relu(x) * 1.0
        return 1 / (zero.sum(-1) + self.small)

def guarded():
    return Guarded(), (torch.randn(3, 4),)

class Rms(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 1, 16))
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

def rms():
    return Rms(), (torch.randn(2, 4, 8, 16),)

class Branch(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))

def branch():
    return Branch(), (torch.randn(3, 4),)

def encoder():
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (torch.randn(2, 5, 16),)

class Attentive(nn.Module):
    """A mask whose two sizes are the length of the sequence."""
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=False)
    def forward(self, x, mask):
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]

class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(4, 5, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


def recurrent():
    return Recurrent().eval(), (torch.randn(2, 7, 4),), ({1: torch.export.Dim("t")},)


def attentive():
    length = torch.export.Dim("length", min=2, max=20)
    mask = torch.rand(6, 6)
    return Attentive(), (torch.rand(6, 1, 16), mask), ({0: length}, {0: length, 1: length})

class Assigned(nn.Module):
    """TorchScript keeps how many elements the mask of the example selects."""
    def forward(self, x):
        out = torch.zeros((x.shape[0], 2))
        mask = x > 0
        out[mask, 0] = x[mask]
        return out

def assigned():
    return Assigned(), (torch.tensor([1.0, -1.0, 2.0]),)

class Packed(nn.Module):
    """`torch.export` has no way of packing sequences whose lengths are an input."""
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)
    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]

def packed():
    return Packed(), (torch.randn(3, 5, 4), torch.tensor([5, 3, 2]))

class Spaced(nn.Module):
    """torch.export makes a number of how many steps there are."""
    def forward(self, x):
        return x * torch.linspace(0, 1, x.shape[2])

def spaced():
    return Spaced(), (torch.randn(2, 3, 8),), {"x": {2: torch.export.Dim("width", max=20)}}

class Kept(nn.Module):
    """The same call twice gives the same, and yet it is kept."""
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(4))
    def forward(self, x):
        self.kept[:] = x
        return self.kept * 2

def kept():
    return Kept(), (torch.randn(4),)

class Quantised(nn.Module):
    """As PT2E leaves a convolution: integers between two steps, a bias in float, and no `eval`."""
    def __init__(self):
        super().__init__()
        import torch.ao.quantization.fx._decomposed
        # Within 7 bits: on a processor without VNNI, pairs of larger products are added in 16 bits and saturate.
        self.register_buffer("weight", torch.randint(-63, 64, (4, 3, 3, 3), dtype=torch.int8))
        self.register_buffer("bias", torch.randn(4))
    def train(self, mode=True):
        raise NotImplementedError("not supported for exported models")
    def forward(self, x):
        def stepped(value, scale):
            given = (scale, 0, -128, 127, torch.int8)
            quantised = torch.ops.quantized_decomposed.quantize_per_tensor(value, *given)
            return torch.ops.quantized_decomposed.dequantize_per_tensor(quantised, *given)
        given = (0.02, 0, -127, 127, torch.int8)
        weight = torch.ops.quantized_decomposed.dequantize_per_tensor(self.weight, *given)
        return stepped(nn.functional.conv2d(stepped(x, 0.02), weight, self.bias), 0.1)

def quantised():
    return Quantised(), (torch.randn(2, 3, 12, 12),)

class Refused(nn.Module):
    """Two operators without a conversion; an export ends at the first."""
    def forward(self, x):
        return torch.special.i1e(torch.special.bessel_y0(x))

def refused():
    return Refused(), (torch.rand(3) + 0.5,)

class Half(nn.Module):
    def forward(self, x):
        return x[:, -(-x.shape[1] // 2):]

def half():
    return Half(), (torch.randn(2, 6, 4),), {"x": {1: torch.export.Dim("length", min=2, max=64)}}
'''


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "models.py"
    path.write_text(MODELS)
    return path


@pytest.mark.parametrize("name", ["rms", "branch", "encoder"])
def test_a_right_model_survives(models: Path, name: str) -> None:
    (way,) = checked(f"{models}:{name}", status=0)["ways"]
    assert [run["outcome"] for run in way["runs"]] == ["pass"] * 4


def test_a_quantised_model_may_be_off_by_steps(models: Path) -> None:
    (way,) = checked(f"{models}:quantised", status=0)["ways"]
    assert [run["outcome"] for run in way["runs"]] == ["pass"] * 4
    reference = run_model(
        load_model(f"{models}:quantised"), cases_of(load_model(f"{models}:quantised"), False)[0].invocation
    )
    step = np.float32(0.1)
    (right,) = reference.expected
    for factor, is_right in ((1, True), (3, True), (40, False)):
        off = right.copy()
        off[0, 0, 0, 0] += factor * step
        assert (reference.compare([off]).problem is None) is is_right
    assert reference.compare([right.astype(np.float64)]).problem == "dtype"


@pytest.mark.slow
def test_the_call_with_the_models_own_error_is_named_among_those_that_are_refused(models: Path) -> None:
    (way,) = checked(f"{models}:refused", status=1)["ways"]
    (run,) = {run["message"] for run in way["runs"]}
    assert [(call["call"].split("(")[0], call["stage"]) for call in way["calls"]] == [
        ("aten.special_bessel_y0.default", "convert")
    ]
    assert "special_bessel_y0" in run


def test_a_wrong_call_is_named_with_its_owner(models: Path) -> None:
    (way,) = checked(f"{models}:pooled", status=1)["ways"]
    first = way["first_wrong_value"]
    assert (first["operator"], first["module"]) == ("aten.avg_pool2d.default", "pool")
    (call,) = way["calls"]
    assert (call["blame"], call["component"]) == ("converter", "torchlib")
    assert "divisor_override=2" in call["call"]


@pytest.mark.slow
def test_without_onnx_the_model_is_lowered_as_its_calls_are(models: Path) -> None:
    words = ("--axis", "x:0=1..3", "--backend", "aot-eager")
    ways = checked(f"{models}:rms", *words, status=0)["ways"]
    assert [(way["converter"], way["backend"], way["shapes"]) for way in ways] == [
        ("torch-compile", "aot-eager", "static"),
        ("torch-compile", "aot-eager", "dynamic"),
    ]


@pytest.mark.slow
def test_a_call_that_another_frontend_does_not_take_is_named(models: Path) -> None:
    if (problem := find_converter("openvino-torch").probe()) is not None:
        pytest.skip(problem.reason)
    both = checked(f"{models}:pooled", "--converter", "openvino-torch", "--converter", "dynamo", status=1)["ways"]
    assert [(way["converter"], way["backend"]) for way in both] == [
        ("openvino-torch", "openvino"),
        ("dynamo", "ort-cpu"),
    ]
    calls = {call["call"].split("(")[0]: (call["stage"], call["blame"]) for call in both[0]["calls"]}
    assert calls["aten.avg_pool2d.default"] == ("convert", "converter")


@pytest.mark.slow
def test_a_page_says_the_same(models: Path, tmp_path: Path) -> None:
    page = tmp_path / "check.html"
    checked(f"{models}:pooled", "--page", page, status=1)
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert '<p class="red">Fails</p>' in text
    assert "ignores `divisor_override`" in text
    assert f"{datetime.date.today().isoformat()}: python " in text
    assert f"torch {torch.__version__}" in text


def test_the_same_function_in_two_files_makes_two_models(models: Path, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(models.read_text())
    names = {load_model(f"{file}:rms").overload for file in (models, tmp_path / "other.py")}
    assert len(names) == 2


@pytest.mark.slow
def test_a_call_that_is_right_at_the_examples_sizes_only_is_named(models: Path) -> None:
    static, dynamic = checked(f"{models}:adaptive", status=1)["ways"]
    assert static["survives"]
    assert any("height 6" in run["change"] and run["outcome"] == "mismatch" for run in dynamic["runs"])
    assert [call["call"].split("(")[0] for call in dynamic["calls"]] == ["aten.adaptive_avg_pool2d.default"]


@pytest.mark.slow
def test_arithmetic_on_sizes_is_not_put_down_to_the_call_that_takes_its_result(models: Path) -> None:
    _, dynamic = checked(f"{models}:half", status=1)["ways"]
    assert not dynamic["calls"]
    assert any(note.startswith("start of aten.slice.Tensor depends on sizes") for note in dynamic["notes"])


def test_state_that_an_export_forgets_is_named(models: Path) -> None:
    found = checked(f"{models}:counter", status=1)
    assert found["state"] == {"changed": ["total"], "inputs_written": [], "second_call_differs": True}
    assert all(way["survives"] for way in found["ways"])


def test_state_is_named_where_a_second_call_gives_the_same(models: Path) -> None:
    found = checked(f"{models}:kept", status=1)
    assert found["state"] == {"changed": ["kept"], "inputs_written": [], "second_call_differs": False}


@pytest.mark.slow
def test_sizes_that_are_declared_to_be_one_stay_one(models: Path) -> None:
    static, dynamic = checked(f"{models}:attentive", status=0)["ways"]
    assert {run["change"] for run in dynamic["runs"]} >= {"length 2", "length 7"}
    assert {run["outcome"] for way in (static, dynamic) for run in way["runs"]} == {"pass"}


@pytest.mark.slow
def test_the_pass_of_an_exporter_is_named(models: Path) -> None:
    (way,) = checked(f"{models}:guarded", status=1)["ways"]
    assert not way["calls"]
    assert way["optimiser"] == {"owner": "exporter", "passes": ["identity of Add"]}


@pytest.mark.slow
def test_a_graph_that_is_wrong_per_the_definitions_is_the_converters(models: Path) -> None:
    # https://github.com/pytorch/pytorch/issues/159295: the runtime only meets what the trace has fixed.
    (way,) = checked(f"{models}:assigned", "--converter", "torchscript", status=1)["ways"]
    assert not way["calls"]
    assert way["owner"] == "converter"
    assert {r["value"] for r in way["remedies"] if r["helps"]} == {"dynamo"}


@pytest.mark.slow
def test_a_model_that_cannot_be_captured_is_pytorchs(models: Path) -> None:
    # https://github.com/pytorch/pytorch/issues/112044
    (way,) = checked(f"{models}:packed", status=1)["ways"]
    assert way["owner"] == "pytorch"
    assert {r["value"] for r in way["remedies"] if r["helps"]} == {"torchscript"}


@pytest.mark.slow
def test_an_open_size_that_the_export_fixes_is_named(models: Path) -> None:
    static, dynamic = checked(f"{models}:spaced", status=1)["ways"]
    assert static["survives"]
    failing = next(run for run in dynamic["runs"] if run["outcome"] != "pass")
    assert failing["fixed"] == [["x", 2]]
    assert any(note.startswith("steps of aten.linspace.default depends on sizes") for note in dynamic["notes"])


@pytest.mark.slow
def test_a_second_export_that_fixes_an_open_size_is_noted(models: Path) -> None:
    data = checked(f"{models}:recurrent", status=0)
    assert data["survives"]
    (note,) = data["notes"]
    assert "Recurrent" in note
    assert "dimension 1 of x at 7" in note


@pytest.mark.slow
def test_other_dtypes_and_open_sizes(models: Path) -> None:
    found = checked(f"{models}:rms", "--also", "float16", "--axis", "x:0=1..3", status=0)
    kinds = [(way["shapes"], way["dtype"]) for way in found["ways"]]
    assert kinds == [("static", None), ("dynamic", None), ("static", "float16"), ("dynamic", "float16")]
    assert {run["change"] for run in found["ways"][1]["runs"]} >= {"x:0 1", "x:0 3"}


@pytest.mark.slow
def test_an_exported_program_brings_its_open_sizes_along(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=9)
    module = torch.nn.Linear(4, 3)
    program = torch.export.export(module, (torch.randn(2, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "linear.pt2")
    found = checked(tmp_path / "linear.pt2", status=0)
    # It is as open as it was exported.
    (way,) = found["ways"]
    assert way["shapes"] == "dynamic"
    assert len(way["runs"]) == 4


def test_calls_at_other_sizes_are_paired_where_only_sizes_differ(models: Path) -> None:
    resized = resized_calls(load_model(f"{models}:half"), (torch.randn(2, 7, 4),))
    assert ("aten.slice.Tensor", "start", "3", "4") in resized.computed
    assert not any(call.overload == "aten.slice.Tensor" for call, _ in resized.pairs)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nowhere.onnx"], "file not found: nowhere.onnx"),
        (["rms", "--axis", "x=3"], "--axis x=3: write INPUT:DIM=SIZES, such as x:0=1..8 or x:2=7,12"),
        (["rms", "--axis", "y:0=3"], "axis y:0 is of input 'y'; inputs: x"),
        (["rms", "--also", "float8"], "--also float8: a model can be run in float16, bfloat16, float32, float64"),
        (["rms", "--shapes", "dynamic"], "names no open size: name one with --axis INPUT:DIM=SIZES"),
        (["rms", "--inputs", "x.npz"], "--inputs x.npz: no such file or folder"),
        (["nowhere"], "has no function 'nowhere'; it has pooled, adaptive, "),
    ],
)
def test_a_wrong_word_is_one_line(models: Path, words: list[str], line: str) -> None:
    word = words[0] if words[0].endswith(".onnx") else f"{models}:{words[0]}"
    done = typed("check", word, *words[1:], status=2)
    assert line in done.output.splitlines()[-1]


# ONNX files


def test_a_file_that_survives_runs_at_several_sizes(tmp_path: Path) -> None:
    text = ("float[n,4] x", "float[n,3] y", "m = MatMul (x, w) y = Relu (m)")
    path = saved(tmp_path / "relu.onnx", *text, w=np.ones((4, 3), np.float32))
    (way,) = checked(path, status=0)["ways"]
    assert [run["change"] for run in way["runs"]] == [
        "dynamic dimensions set to 2",
        "dynamic dimensions set to 8",
        "other values",
    ]
    assert way["nodes"] == {"nodes": 2, "judged": 2, "wrong": 0, "unjudged": []}


WEIGHTS = {"w": (1, 24, 4), "r": (1, 24, 6), "h0": (1, 3, 6)}


@pytest.mark.parametrize(
    ("given", "result", "node", "weights", "by"),
    [
        ("n,4", "a,b", "Reshape (x, c)", {"c": np.array([3, 4])}, "c"),
        ("n,4", "a,b", "Add (x, c)", {"c": np.ones((3, 4), np.float32)}, "c"),
        (
            "t,n,4",
            "a,b,c,d",
            'LSTM <hidden_size = 6> (x, w, r, "", "", h0)',
            {name: np.ones(shape, np.float32) for name, shape in WEIGHTS.items()},
            "h0",
        ),
    ],
    ids=["Reshape", "Add", "LSTM"],
)
def test_a_size_that_a_constant_fixes_is_taken_and_named(
    given: str, result: str, node: str, weights: dict[str, Any], by: str, tmp_path: Path
) -> None:
    path = saved(tmp_path / "fixed.onnx", f"float[{given}] x", f"float[{result}] y", f"y = {node}", **weights)
    (way,) = checked(path, status=0)["ways"]
    assert [(size["name"], size["size"], by in size["by"]) for size in way["fixed_sizes"]] == [("n", 3, True)]


@pytest.mark.slow
def test_a_file_without_a_smaller_part_is_the_script_and_has_an_owner(tmp_path: Path) -> None:
    pytest.importorskip("tract")
    text = ("float[2,3,4] x", "float[a,b,c] y", 'y = Pad <mode = "reflect"> (x, pads)')
    path = saved(tmp_path / "pad.onnx", *text, pads=[0, -1, 3, 0, 2, -2])
    (way,) = checked(path, "--backend", "tract", status=1)["ways"]
    assert {(run["stage"], run["outcome"]) for run in way["runs"]} == {("run", "crash")}
    out = tmp_path / "repro.py"
    typed("repro", path, "--backend", "tract", "--out", out)
    assert "Pad" in out.read_text()


@pytest.mark.slow
def test_remedies_are_tried_and_measured(tmp_path: Path) -> None:
    file = tmp_path / "elu.py"
    file.write_text(
        "import torch\n"
        "class Scaled(torch.nn.Module):\n"
        "    def forward(self, x): return torch.ops.aten.elu(x, 1.0, 1.0, 3.0)\n"
        "def make(): return Scaled(), (torch.linspace(-3, 3, 12),)\n"
    )
    (way,) = checked(f"{file}:make", status=1)["ways"]
    (output,) = way["runs"][0]["outputs"]
    assert output["error"] > 1000 * output["allowed"]
    assert [call["call"].split("(")[0] for call in way["calls"]] == ["aten.elu.default"]
    assert {remedy["kind"] for remedy in way["remedies"]} >= {"converter", "opset"}
    # A tolerance of one's own takes the place of what roundings explain.
    assert checked(f"{file}:make", "--rtol", "0", "--atol", "9", status=0)["survives"]


def test_a_page_that_cannot_be_written_is_found_before_the_work(models: Path, tmp_path: Path) -> None:
    place = tmp_path / "absent" / "page.html"
    done = typed("check", f"{models}:rms", "--page", place, status=2)
    assert str(place) in done.output


def test_what_a_model_prints_is_not_in_the_json(tmp_path: Path) -> None:
    file = tmp_path / "loud.py"
    file.write_text(
        "import torch\nprint('on import')\n"
        "class Loud(torch.nn.Module):\n"
        "    def forward(self, x):\n        print('in forward')\n        return x + 1\n"
        "def make():\n    print('made')\n    return Loud(), (torch.ones(2),)\n"
    )
    assert checked(f"{file}:make", status=0)["survives"]


@pytest.mark.slow
def test_a_rule_converts_an_operator_that_the_model_defines(tmp_path: Path) -> None:
    file, rules = tmp_path / "own.py", tmp_path / "rules.py"
    file.write_text(
        "import torch\n"
        "@torch.library.custom_op('checked::twice', mutates_args=())\n"
        "def twice(x: torch.Tensor) -> torch.Tensor:\n    return x * 2\n"
        "@twice.register_fake\n"
        "def _(x):\n    return torch.empty_like(x)\n"
        "class Own(torch.nn.Module):\n"
        "    def forward(self, x): return torch.ops.checked.twice(x).relu()\n"
        "def make(): return Own(), (torch.ones(2),)\n"
    )
    rules.write_text(
        "from onnxscript import opset18 as op\nfrom harness.convert.rules import dynamo\n"
        "@dynamo('checked::twice')\ndef twice(x):\n    return op.Add(x, x)\n"
    )
    (way,) = checked(f"{file}:make", status=1)["ways"]
    assert (way["runs"][0]["stage"], way["runs"][0]["outcome"]) == ("convert", "unsupported")
    assert checked(f"{file}:make", "--rules", rules, status=0)["survives"]


def test_a_wrong_kernel_in_a_file_is_the_runtimes(tmp_path: Path) -> None:
    how = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
    text = ("float[1,1,28,28] x", "float[1,1,4,4] y", f'h = Relu (x) y = Resize <{how}> (h, "", "", sizes)')
    path = saved(tmp_path / "up.onnx", *text, sizes=[1, 1, 4, 4])
    (way,) = checked(path, status=1)["ways"]
    assert (way["owner"], way["cause"]["component"], way["cause"]["rule"]) == ("backend", "ort-cpu", "wrong-node")
    assert way["cause"]["node"]["node"]["operator"] == "Resize"
    assert way["nodes"]["wrong"] == 1


def test_a_missing_kernel_and_an_invalid_node_have_different_owners(tmp_path: Path) -> None:
    conv = ("double[n,3,8,8] x", "double[n,4,6,6] y", "y = Conv (x, w)")
    path = saved(tmp_path / "double.onnx", *conv, w=np.ones((4, 3, 3, 3)))
    (way,) = checked(path, status=1)["ways"]
    assert (way["owner"], way["cause"]["rule"]) == ("backend", "not-implemented")
    dropout = ("float[n,4] x", "float[n,4] y", "[drop] y = Dropout (x, ratio, training)")
    weights = {"ratio": np.float32(1.0), "training": np.array(True)}
    path = saved(tmp_path / "dropout.onnx", *dropout, **weights)
    (way,) = checked(path, status=1)["ways"]
    assert (way["owner"], way["cause"]["component"], way["cause"]["rule"]) == ("converter", "file", "invalid-node")
    assert way["cause"]["node"]["node"]["name"] == "drop"
    assert "[0, 1)" in way["cause"]["node"]["quote"]


def test_the_pass_of_a_runtime_that_breaks_a_file_is_named(tmp_path: Path) -> None:
    # ONNX Runtime takes Expand for an identity, and the size 0 is lost.
    text = ("float[6] x", "float[a,b] y", "u = Unsqueeze (x, axes) e = Expand (u, shape) y = Neg (e)")
    path = saved(tmp_path / "expand.onnx", *text, shape=[1, 0], axes=[1])
    (way,) = checked(path, status=1)["ways"]
    assert way["optimiser"] == {"owner": "runtime", "passes": ["ExpandElimination"]}
    assert (way["cause"]["component"], way["cause"]["rule"]) == ("ort-cpu", "graph-optimisation")


def test_given_inputs_are_used(tmp_path: Path) -> None:
    path = saved(tmp_path / "relu.onnx", "float[n] x", "float[n] y", "y = Relu (x)")
    np.savez(tmp_path / "inputs.npz", x=np.arange(5, dtype=np.float32))
    (way,) = checked(path, "--inputs", tmp_path / "inputs.npz", status=0)["ways"]
    assert [run["change"] for run in way["runs"]] == ["given inputs"]
    np.savez(tmp_path / "others.npz", z=np.zeros(3))
    done = typed("check", path, "--inputs", tmp_path / "others.npz", status=2)
    assert "has no 'x'; the model takes x" in done.output


def test_a_file_is_rows_of_the_record_like_any_model(tmp_path: Path) -> None:
    text = ("double[n,3] x", "double[n,3] y", "r = Relu (x) y = Clip (r, low, high)")
    path = saved(tmp_path / "clipped.onnx", *text, low=0.0, high=6.0)
    plan = make_plan(Options(models=(str(path),), backends=("ort-cpu", "onnx-reference")))
    assert [unit.name for unit in plan.units] == ["model.clipped file-ort-cpu", "model.clipped file-onnx-reference"]
    with Supervisor(timeout=60, memory_limit=4 * 2**30) as supervisor:
        rows = [row for unit in plan.units for rows in run_unit(unit, supervisor) for row in rows]
    assert [(row.converter, row.backend, row.outcome) for row in rows] == [
        *[("file", "ort-cpu", Outcome.ERROR)] * 3,
        *[("file", "onnx-reference", Outcome.PASS)] * 3,
    ]
    wrong, *_, right = rows
    assert (wrong.blame, wrong.component, wrong.place) == ("backend", "ort-cpu", "graph optimisation, FuseReluClip")
    assert ModelRun.from_text(right.model_run).change == "other values"


@pytest.mark.parametrize(
    "options",
    [{"converters": ("dynamo",)}, {"opset": 20}, {"shapes": "dynamic"}, {"models": ("model.onnx", "resnet50")}],
)
def test_an_option_without_effect_on_a_file_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem, match="exported already"):
        make_plan(Options(**{"models": ("model.onnx",), **options}))


def test_a_file_whose_outputs_declare_no_shape_is_judged_by_the_runtime(tmp_path: Path) -> None:
    # ONNX's checker asks for the shape of an output, and no runtime does.
    model, path = onnx_model("float[2,3] x", "float[2,3] y", "y = Relu (x)"), tmp_path / "relu.onnx"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(str(path))
    assert checked(path, status=0)["survives"]
