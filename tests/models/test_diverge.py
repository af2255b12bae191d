"""The first divergence: a planted defect in the middle of a model is found, and named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from planted_models import RULES
from sampling import sampled

from harness.blame.first_divergence import Divergence, NoValues, find_first_divergence
from harness.convert.converter import find_converter
from harness.convert.rules.rule import RuleBook
from harness.core.route import Route
from harness.generate.case_library import load_cases
from harness.pipeline.model_cases import cases_of
from harness.pipeline.model_loading import load_model
from harness.pipeline.model_oracle import run_model
from harness.pipeline.started_route import StartedRoute
from harness.present.model_run_text import divergence_sentence
from harness.run.backend import BACKENDS, Backend, BackendSession, ShapeRange

pytestmark = pytest.mark.slowest(19)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    load_cases()
    file = tmp_path_factory.mktemp("rules") / "rules.py"
    file.write_text(RULES)
    return (str(file),)


class Counting:
    """A backend that notes how many values it is asked for at once."""

    def __init__(self, inner: Backend) -> None:
        self.inner, self.name = inner, inner.name
        self.device, self.version = inner.device, inner.version
        self.asked: list[int] = []

    def narrows(self, dtype: str) -> str | None:
        return self.inner.narrows(dtype)

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        self.asked.append(len(model.graph.output))
        return self.inner.load(model, shapes)


def search(
    word: str, converter: str, rules: tuple[str, ...] = (), budget: int = 2**16, case: int = 0, **more: bool
) -> tuple[Divergence, list[int]]:
    """`find_first_divergence` in this process, with slices of `budget` bytes; and how much it was asked at once."""
    entry = find_converter(converter)
    book = RuleBook.load(rules, converter)
    assert entry.create_with_rules is not None
    started = entry.create_with_rules(False, book) if rules else entry.create(False)
    backend = Counting(BACKENDS.find("ort-cpu")[0].create(""))
    route = Route(converter=converter, backend="ort-cpu", dynamic=more.get("dynamic", False))
    model = load_model(word)
    reference = run_model(model, cases_of(model, route.dynamic)[case].invocation)
    found = find_first_divergence(reference, StartedRoute(route, started, backend), budget)
    return found, backend.asked


@pytest.mark.slow
def test_a_defect_in_the_middle_of_resnet_is_found(rules: tuple[str, ...]) -> None:
    found, asked = search("resnet18", "dynamo", rules)
    assert found.kind == "operator"
    assert found.operators == ("aten.relu.default",)
    assert found.module == "layer3.0.relu"
    assert found.onnx_node.startswith("LeakyRelu ")
    assert [(alone.overload, alone.outcome) for alone in found.alone] == [("aten.relu.default", "mismatch")]
    assert found.alone[0].invocation is not None
    assert found.problem.startswith("values")
    # Slice by slice, and no further than the departure.
    assert 10 < found.checked < found.checkpoints
    assert len(asked) > 4
    assert max(asked) < found.checked
    assert "aten.relu.default is wrong by itself" in divergence_sentence(found.to_data())


@pytest.mark.parametrize("converter", sampled(["dynamo", "torchscript"], named={"torchscript"}))
def test_a_defect_in_the_decoder_is_found(converter: str, rules: tuple[str, ...]) -> None:
    found, _ = search("llama-decoder", converter, rules)
    assert (found.kind, found.operators, found.module) == ("operator", ("aten.silu.default",), "layers.0.mlp")
    assert found.onnx_node.startswith("Mul ")
    assert [alone.outcome for alone in found.alone] == ["mismatch"]
    assert found.to_data()["alone"][0]["case_id"]


@pytest.mark.slow
def test_a_defect_that_is_folded_into_what_reads_it_is_named_itself(tmp_path: Path) -> None:
    # The cosines of the positions are constants, which the exporter multiplies out of the graph.
    file = tmp_path / "cosine.py"
    file.write_text(
        "from onnxscript import opset18 as op\nfrom harness.convert.rules import dynamo\n\n"
        "@dynamo('aten::cos')\ndef cos(self):\n    return op.Mul(op.Cos(self), op.CastLike(1.01, self))\n"
    )
    found, _ = search("llama-decoder", "dynamo", (str(file),))
    assert found.kind == "operator"
    assert found.operators[0] == "aten.mul.Tensor"
    assert found.operator == "aten.cos.default"
    assert divergence_sentence(found.to_data()).startswith("First divergence: aten.cos.default")
    assert "part of ONNX node Mul" in divergence_sentence(found.to_data())
    assert found.to_data()["operator"] == "aten.cos.default"


@pytest.mark.slow
def test_a_dynamic_export_is_looked_into_at_other_sizes(rules: tuple[str, ...]) -> None:
    found, _ = search("llama-decoder", "dynamo", rules, case=1, dynamic=True)
    assert found.operators == ("aten.silu.default",)


@pytest.mark.parametrize(("word", "converter"), [("vit", "torchscript"), ("super-resolution", "dynamo")])
def test_nothing_diverges_in_a_model_that_is_right(word: str, converter: str) -> None:
    found, _ = search(word, converter)
    assert (found.kind, found.problem, found.not_run) == ("none", "", ())
    assert found.checked == found.checkpoints > 6


def test_a_model_that_cannot_be_exported_has_no_values(rules: tuple[str, ...]) -> None:
    with pytest.raises(NoValues, match="control-flow cannot be exported with dynamo"):
        search("control-flow", "dynamo")
