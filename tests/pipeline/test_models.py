"""Whole models: what becomes of them on their way through converters and backends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from commands import typed
from harness_runs import output, rows, run_harness
from planted_models import RULES

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.route import Route
from harness.generate.case_library import load_cases
from harness.generate.sources.recorded import read_replay
from harness.pipeline.model_cases import cases_of
from harness.pipeline.model_loading import load_model, load_models
from harness.pipeline.model_oracle import run_model
from harness.pipeline.model_task import ModelRun, ModelSource
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Settings
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan
from harness.plan.unit import Unit, run_unit
from harness.record.layout import ResultsError
from harness.record.store import Selection
from harness.reproduce.failure import find_failure
from harness.reproduce.shrink_session import failures
from harness.run.backend import BACKENDS

pytestmark = pytest.mark.slowest(21)

PLANTED = Path(__file__).parents[1] / "support" / "planted_models.py"


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    load_cases()
    with Supervisor(timeout=30.0) as one:
        yield one


def run(
    supervisor: Supervisor, word: str, mode: str = "static", backend: str = "ort-cpu", **more: str
) -> list[Verdict]:
    route = Route(converter=more.get("converter", "torchscript"), dynamic=mode == "dynamic")
    unit = Unit.for_model(ModelSource(word), route, (backend,), Settings())
    found = [verdict for verdicts in run_unit(unit, supervisor) for verdict in verdicts]
    return sorted(found, key=lambda verdict: ModelRun.from_text(verdict.model_run).index)


def test_every_architecture_is_there_and_is_the_same_each_time() -> None:
    families = {
        "alexnet", "bert-encoder", "control-flow", "dcgan-discriminator", "dcgan-generator", "densenet",
        "detection-head", "diffusion-unet", "inception-v3", "llama-decoder", "resnet18", "resnet50", "segnet",
        "sequence-tagger", "super-resolution", "vgg11", "vgg11-bn", "vit", "whisper", "word-language-model",
    }  # fmt: skip
    assert families <= load_models().keys()
    for name in families:
        entry = load_models()[name]
        assert entry.source
        assert entry.axes
        model, again = load_model(name), load_model(name)
        assert all(map(torch.equal, model.inputs, again.inputs))
        state, other = model.module.state_dict(), again.module.state_dict()
        assert all(torch.equal(state[key], other[key]) for key in state)
        assert len({c.invocation.case_id for c in cases_of(model, True)}) > len(entry.axes)


def test_a_model_runs_at_every_size_that_its_axes_name() -> None:
    for name in ("llama-decoder", "word-language-model", "detection-head", "vit"):
        model = load_model(name)
        runs = [run_model(model, c.invocation).expected for c in cases_of(model, True)]
        shapes = {tuple(a.shape for a in expected) for expected in runs}
        assert len(shapes) > 1, name


def test_a_result_that_roundings_explain_passes_with_its_error(supervisor: Supervisor) -> None:
    example, *others = run(supervisor, "llama-decoder", "dynamic")
    assert {o.outcome for o in (example, *others)} == {Outcome.PASS}
    assert example.exported_invocation == others[-1].exported_invocation
    assert others[-1].invocation != example.exported_invocation
    growth = ModelRun.from_text(example.model_run).growth
    assert growth is not None
    assert 0 < growth.error < 1e-5
    assert 0 < growth.explained < 1e-5


FUSED = """
import torch
from torch import nn

def attention():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(64, 4, batch_first=True).eval()
    return Own(module, lambda x: module(x, x, x)[0]), (torch.randn(2, 16, 64),)

def encoder():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval(), (torch.randn(2, 16, 64),)

class Own(nn.Module):
    def __init__(self, part, function):
        super().__init__()
        self.part, self.function = part, function

    def forward(self, x):
        return self.function(x)
"""


@pytest.mark.parametrize("function", ["attention", "encoder"])
def test_kernels_that_only_eager_mode_fuses_explain_no_less_than_their_own_error(
    supervisor: Supervisor, tmp_path: Path, function: str
) -> None:
    file = tmp_path / "fused.py"
    file.write_text(FUSED)
    found = run(supervisor, f"{file}:{function}", "static", converter="dynamo")
    assert {o.outcome for o in found} == {Outcome.PASS}
    growths = [ModelRun.from_text(o.model_run).growth for o in found]
    grown = [growth for growth in growths if growth is not None]
    assert grown
    assert all(growth.own <= growth.explained < 1e-5 for growth in grown)


def test_control_flow_that_tracing_cannot_see_is_named(supervisor: Supervisor) -> None:
    example, *others = run(supervisor, "control-flow")
    assert example.outcome is Outcome.PASS
    wrong = [o for o in others if o.outcome is Outcome.MISMATCH]
    assert wrong
    for outcome in wrong:
        assert outcome.signature == "specialised by tracing: control flow"
        assert outcome.blame == "converter"
        assert "positive.weight" in outcome.model_run
    refused = run(supervisor, "control-flow", converter="dynamo")
    assert {o.stage for o in refused} == {Stage.CONVERT}
    assert {o.signature for o in refused} == {"control flow depends on the data"}


def test_sizes_that_tracing_bakes_in_are_named(supervisor: Supervisor) -> None:
    found = {ModelRun.from_text(o.model_run).change: o for o in run(supervisor, "detection-head", "dynamic")}
    assert found[""].outcome is found["batch 3"].outcome is Outcome.PASS
    assert found["height 48"].outcome is Outcome.MISMATCH
    assert found["height 48"].signature == "specialised by tracing: sizes"
    assert "A static export at these sizes passes" in found["height 48"].model_run


@pytest.mark.slow
@pytest.mark.skipif(BACKENDS.find("trt-rtx")[0].probe("") is not None, reason="TensorRT-RTX is not here")
def test_an_engine_is_built_of_a_model(supervisor: Supervisor) -> None:
    found = run(supervisor, "resnet18", "dynamic", "trt-rtx")
    assert {o.outcome for o in found} <= {Outcome.BUILT, Outcome.PASS}
    refused = run(supervisor, "segnet", backend="trt-rtx", converter="dynamo")
    assert {(o.outcome, o.stage) for o in refused} == {(Outcome.UNSUPPORTED, Stage.LOAD)}


@pytest.mark.parametrize(
    ("name", "ending"),
    [("aborts", Outcome.CRASH), pytest.param("hangs", Outcome.TIMEOUT, marks=pytest.mark.slow)],
)
def test_a_model_that_kills_or_holds_up_its_process_loses_nothing(name: str, ending: Outcome) -> None:
    with Supervisor(timeout=8.0) as impatient:
        found = {ModelRun.from_text(o.model_run).change: o for o in run(impatient, f"{PLANTED}:{name}", "dynamic")}
    assert {change: v.outcome for change, v in found.items()} == {
        "": Outcome.PASS,
        "length 5": ending,
        "length 9": Outcome.PASS,
    }
    assert found["length 5"].stage is Stage.REFERENCE


def test_models_are_items_and_rows_that_every_view_reads(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(RULES)
    where = tmp_path / "run"
    words = ("--model", "llama-decoder", "--rules", rules)
    done = run_harness(*words, "--converter", "torchscript", "--results-dir", where, cwd=tmp_path)
    assert done.returncode == 1, output(done)
    assert "1 whole model, static shapes" in done.stdout
    assert "conformance run --model llama-decoder" in done.stdout
    found = rows(where)
    assert {(row["overload"], row["source"]) for row in found} == {("model.llama-decoder", "model")}
    wrong = [row for row in found if row["outcome"] == "mismatch"]
    assert {row["overload"] for row in wrong} == {"model.llama-decoder"}
    assert "First divergence: aten.silu.default in layers.0.mlp" in wrong[0]["evidence"]
    assert wrong[0]["rule"] == "rules.py:silu_symbolic"
    facts = [json.loads(row["diagnosis"])["facts"] for row in wrong]
    assert {tuple(fact["divergence"]["operators"]) for fact in facts} == {("aten.silu.default",)}
    assert {(row["component"], row["place"]) for row in wrong} == {("rule", "rules.py:silu_symbolic")}
    kept = (tmp_path / ".conformance" / "corpus" / "aten.silu.default.jsonl").read_text()
    assert "first divergence of llama-decoder (layers.0.mlp)" in kept
    case = wrong[0]["case_id"]
    shown = typed("show", case, "--run", where, status=1)
    assert "conformance check llama-decoder" in shown.output
    with pytest.raises(ResultsError, match="whole model and cannot be written as a script"):
        find_failure(where, case)
    with pytest.raises(ResultsError, match="whole model and cannot be shrunk"):
        failures(where, case_id=case)
    assert failures(where) == []
    with pytest.raises(UsageProblem, match="run it again with --model llama-decoder"):
        make_plan(Options(replay=read_replay(where, [case])))
    assert Selection(overload=("model.llama-decoder",)).read(where, ["case_id"]).num_rows == 4


def test_options_of_operators_do_not_go_with_models() -> None:
    with pytest.raises(UsageProblem, match="--op is for operators, and whole models are to be run"):
        make_plan(Options(models=("resnet18",), ops=("celu",)))
    with pytest.raises(UsageProblem, match="did you mean resnet18"):
        make_plan(Options(models=("resnet19",)))
