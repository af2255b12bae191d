"""Capture: the calls that a model makes are kept as invocations that run like any other."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import answered, typed
from harness_runs import output, record_of, rows, run_harness

from harness.compare.verdict import Outcome
from harness.core.described_tensor import describe_tensor
from harness.core.invocation import Literal, Recipe, Result, TensorSpec, Weight
from harness.core.plugins import UnknownName
from harness.core.program import Program
from harness.core.tensors import build_tensor
from harness.generate.case_library import load_cases
from harness.generate.cases_home import cases_directory
from harness.generate.regressions.corpus_store import Corpus, read_contents
from harness.models import captured_corpus
from harness.models.capture import BRANCH, CAUSAL_MASK, capture_calls
from harness.pipeline.model_loading import ModelProblem, load_model
from harness.pipeline.reference import run_reference

pytestmark = pytest.mark.slowest(28)

PLANTED = Path(__file__).parents[1] / "support" / "planted_models.py"
SMALL = f"{PLANTED}:small"


@pytest.mark.parametrize(
    ("tensor", "domain"),
    [
        (torch.full((4, 7), -torch.inf).triu(1), "triangular"),
        (torch.ones(9, 9, dtype=torch.bool).tril(2), "triangular"),
        (torch.arange(3, 100), "steps"),
        (torch.arange(40.0).expand(3, 40).contiguous(), "steps"),
        (torch.zeros(5, 20), "constant"),
        (torch.full((20,), torch.nan), "constant"),
    ],
)
def test_a_tensor_with_a_pattern_is_kept_exactly(tensor: torch.Tensor, domain: str) -> None:
    spec = describe_tensor(tensor, "x")
    assert isinstance(spec.values, Recipe)
    assert spec.values.domain[0] == domain
    torch.testing.assert_close(build_tensor(spec), tensor, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64])
def test_a_large_tensor_is_drawn_like_itself(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    tensor = (torch.randn(60, 80, dtype=torch.float32) * 3 + 1).to(dtype)
    tensor[:20] = 0
    spec = describe_tensor(tensor.t(), "x")
    again = build_tensor(spec)
    assert (again.shape, again.stride(), again.dtype) == (tensor.t().shape, (1, 80), dtype)
    seen, drawn = (torch.view_as_real(t).float() if t.is_complex() else t.float() for t in (tensor, again))
    assert abs(seen.mean() - drawn.mean()) < 0.2
    assert abs(seen.std() - drawn.std()) < 0.2
    assert abs((seen == 0).float().mean() - (drawn == 0).float().mean()) < 0.05
    assert seen.min() - 0.02 <= drawn.min()
    assert drawn.max() <= seen.max() + 0.02
    assert len(str(spec)) < 300


def test_a_described_tensor_keeps_shares_of_infinities_ranges_and_order() -> None:
    torch.manual_seed(0)
    masked = torch.randn(40, 50).masked_fill(torch.rand(40, 50) < 0.25, -torch.inf)
    drawn = build_tensor(describe_tensor(masked, "x"))
    assert abs(float((drawn == -torch.inf).float().mean()) - 0.25) < 0.05
    assert not drawn.isnan().any()
    words = torch.randint(5, 90, (30, 30))
    drawn = build_tensor(describe_tensor(words, "x"))
    assert (int(drawn.min()) >= 5, int(drawn.max()) < 90, drawn.dtype) == (True, True, torch.int64)
    ordered = build_tensor(describe_tensor(words.reshape(-1).sort().values, "x"))
    assert bool((ordered[1:] >= ordered[:-1]).all())
    few = torch.tensor([3, 1, 2])
    assert describe_tensor(few, "x").values == Literal((3, 1, 2))


def test_a_model_gives_the_calls_that_exporters_meet() -> None:
    found = capture_calls(load_model(SMALL))
    by_name = {call.invocation.overload: call for call in found.calls}
    assert {"aten.conv2d.default", "aten.linear.default"} <= by_name.keys()
    # The calls within a composite are not calls of the model.
    assert not {"aten.convolution.default", "aten.addmm.default"} & by_name.keys()
    # A call that writes into its argument is kept as exporters see it.
    assert by_name["aten.relu.default"].calls == 2
    assert "aten.relu_.default" not in by_name
    conv = found.calls[0].invocation
    assert conv.overload == "aten.conv2d.default"
    assert [spec.shape for spec in conv.tensors()] == [(2, 2, 6, 6), (4, 2, 3, 3), (4,)]
    assert found.calls[0].places == ["body.0"]
    mask = dict(by_name["aten.masked_fill.Scalar"].invocation.arguments)
    assert mask["value"] == float("-inf")
    for call in found.calls:
        assert run_reference(call.invocation).expected


EAGER = """
import torch
from torch.nn import functional

def attention():
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    return Own(lambda x: module(x, x, x)[0], module), (torch.ones(1, 3, 8),)

def resized():
    return Own(lambda x: functional.interpolate(x, scale_factor=2.0, mode="bilinear")), (torch.ones(1, 1, 3, 3),)

def chosen():
    return Own(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)).relu()), (torch.ones(3),)

def by_values():
    return Own(lambda x: x.relu() if x.sum() > 0 else x), (torch.ones(3),)

def failing():
    return Own(lambda x: x @ torch.ones(7, 7)), (torch.ones(3),)

def masked():
    layer = torch.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    decoder = torch.nn.TransformerDecoder(layer, 1)
    return Own(lambda x: decoder(x, x, tgt_mask=torch.zeros(3, 3)), decoder), (torch.ones(1, 3, 8),)

class Own(torch.nn.Module):
    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, torch.nn.ModuleList(parts)

    def forward(self, x):
        return self.function(x)
"""


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of models of which eager mode calls something else than exporters meet."""
    file = tmp_path_factory.mktemp("models") / "eager.py"
    file.write_text(EAGER)
    return file


def captured(word: str) -> tuple[set[str], list[str]]:
    """Overloads that a model calls, and what was left out."""
    found = capture_calls(load_model(word))
    return {call.invocation.overload for call in found.calls}, list(found.left_out)


def test_what_only_eager_mode_calls_is_not_captured(eager: Path) -> None:
    names, _ = captured(f"{eager}:attention")
    assert "aten.linear.default" in names
    assert not any("native_multi_head" in name or "flash" in name for name in names)
    assert captured(f"{eager}:resized") == ({"aten.upsample_bilinear2d.vec"}, [])


def test_branches_are_counted_and_not_captured(eager: Path) -> None:
    names, left_out = captured(f"{eager}:chosen")
    assert names == {"aten.sum.default", "aten.gt.Scalar", "aten.relu.default"}
    assert left_out == ["calls within torch.cond"]


@pytest.mark.parametrize(
    ("model", "obstacle"), [("by_values", BRANCH), ("masked", CAUSAL_MASK), ("chosen", ""), ("attention", "")]
)
def test_a_branch_that_torch_export_cannot_take_is_named(eager: Path, model: str, obstacle: str) -> None:
    assert capture_calls(load_model(f"{eager}:{model}")).obstacle == obstacle


def test_a_model_that_cannot_be_exported_is_captured_as_it_runs(eager: Path) -> None:
    names, (left_out,) = captured(f"{eager}:by_values")
    assert "aten.relu.default" in names
    assert left_out.startswith("torch.export fails (")
    with pytest.raises(ModelProblem, match="its calls cannot be captured"):
        captured(f"{eager}:failing")


def test_an_exported_program_gives_the_calls_of_its_graph(tmp_path: Path) -> None:
    model = load_model(SMALL)
    file = tmp_path / "small.pt2"
    torch.export.save(torch.export.export(model.module, model.inputs), file)
    found = capture_calls(load_model(str(file)))
    assert found.model == "small"
    names = [call.invocation.overload for call in found.calls]
    assert names[0] == "aten.conv2d.default"
    assert "aten.convolution.default" not in names
    assert found.calls[0].places == ["body.0"]


def test_a_captured_corpus_runs_and_its_failures_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = typed("capture", SMALL, "--json")
    said = json.loads(done.stdout)
    entries = read_contents(tmp_path / said["saved"]).entries
    assert said["entries"] == len(entries) > 4
    assert all(entry.origin == "captured" and "small" in entry.note for entry in entries)
    calls = {use["overload"]: use["calls"] for use in said["models"][0]["operators"]}
    assert calls["aten.relu.default"] == 2
    run = tmp_path / "run"
    some = ("--op", "relu", "--op", "masked_fill")
    done_run = run_harness("--source", f"corpus:{said['saved']}", *some, "--results-dir", run, cwd=tmp_path)
    assert done_run.returncode == 0, output(done_run)
    recorded = {row["case_id"] for row in rows(run) if row["source"] == "corpus"}
    chosen = ("aten.relu.default", "aten.masked_fill.Scalar")
    assert recorded == {e.invocation.case_id for e in entries if e.overload in chosen}
    relu = next(e.invocation for e in entries if e.overload == "aten.relu.default")
    failed = record_of(tmp_path / "failed", [relu], outcome=Outcome.MISMATCH, signature="values")
    (model,) = answered("capture", SMALL, "--run", failed, "--out", "again.jsonl")["models"]
    (place,) = next(use["places"] for use in model["operators"] if use["overload"] == "aten.relu.default")
    assert (place["own_failures"], place["own_cases"]) == (1, 1)


def test_a_corpus_directory_gets_new_calls_in_place_of_old_ones(tmp_path: Path) -> None:
    old, new = (
        captured_corpus.corpus_entries([capture_calls(load_model(word))]) for word in (SMALL, "super-resolution")
    )
    failure = replace(old[0], origin="failure", converter="dynamo", backend="ort-cpu")
    Corpus([tmp_path]).add(failure)
    captured_corpus.save_directory(tmp_path, old)
    captured_corpus.save_directory(tmp_path, new)
    corpus = Corpus([tmp_path])
    kept = [entry for name in corpus.overloads() for entry in corpus.read(name).entries]
    assert sorted(e.line for e in kept) == sorted(e.line for e in (failure, *new))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("resnet51", "did you mean resnet50"),
        ("none.py:make", "file not found: none.py"),
        (str(PLANTED), "say which function makes the model"),
        (f"{PLANTED}:smal", "has no function 'smal'; it has "),
        (f"{PLANTED}:fails", "fails: RuntimeError: no weights here"),
        (
            f"{PLANTED}:returns_nothing",
            "must return (module, example inputs) or (module, example inputs, dynamic_shapes), not Identity",
        ),
    ],
)
def test_a_wrong_word_for_a_model_is_one_line(word: str, said: str) -> None:
    with pytest.raises((ModelProblem, UnknownName)) as problem:
        load_model(word)
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


def test_the_committed_corpus_is_of_calls_that_pytorch_takes() -> None:
    corpus = Corpus([cases_directory() / "corpus"])
    entries = [entry for name in corpus.overloads() for entry in corpus.read(name).entries]
    captured = [entry for entry in entries if entry.origin == "captured"]
    assert len(captured) > 500
    assert {entry.overload for entry in captured} <= load_cases().keys()
    models = {part.split(" ×")[0] for entry in captured for part in entry.note.split(", ")}
    assert {"resnet50", "llama-decoder", "whisper"} <= models
    assert sum(len(entry.line) for entry in entries) / len(entries) < 700
    for entry in captured[::40]:
        assert run_reference(entry.invocation).expected


class _Residual(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.linear(x).split(2, dim=1)
        return torch.relu(first * second) + x[:, :2]


def test_windows_are_programs_of_calls_that_follow_each_other(tmp_path: Path) -> None:
    model = tmp_path / "residual.py"
    model.write_text(
        f"import torch\n\n\n{inspect.getsource(_Residual)}\n\ndef make():\n"
        "    return _Residual(), (torch.randn(3, 4),)\n"
    )
    file = tmp_path / "windows.jsonl"
    typed("capture", f"{model}:make", "--windows", "--out", file)
    programs = [Program.of(entry.invocation) for entry in read_contents(file).entries]
    calls = [[call.overload.split(".")[1] for call in program.calls] for program in programs]
    assert ["linear", "split"] in calls
    assert ["split", "mul", "relu", "add"] in calls
    whole = programs[calls.index(["linear", "split", "mul", "relu"])]
    # The weights are held, both halves are taken, and nothing but the last value leaves.
    assert [type(value) for _, value in whole.calls[0].arguments] == [TensorSpec, Weight, Weight]
    assert [value for _, value in whole.calls[2].arguments] == [Result(1, 0), Result(1, 1)]
    assert whole.returns == (Result(3),)
    for program in programs:
        assert run_reference(program.invocation).expected
