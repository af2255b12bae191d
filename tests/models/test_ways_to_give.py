"""Whatever way a model is given in, the answer is what the public export of it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import ways_to_give
from sampling import sampled
from torch import nn
from torch.export import Dim
from ways_to_give import WAYS

from harness.compare.verdict import Outcome
from harness.models.check import ModelCheck, check_model, check_units
from harness.models.facts import model_facts
from harness.pipeline.model_loading import load_model
from harness.pipeline.model_task import ModelRun, Variant
from harness.pipeline.supervisor import Supervisor
from harness.plan.options import Options

FILE = Path(ways_to_give.__file__)


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    with Supervisor(timeout=120, memory_limit=8 * 2**30) as started:
        yield started


def checked(word: str, supervisor: Supervisor, converter: str = "dynamo", blame: bool = True) -> ModelCheck:
    facts = model_facts(word, Variant(), supervisor)
    units = check_units(Options(models=(word,), converters=(converter,), blame=blame), facts, (), (), None)
    return check_model(units, facts, supervisor, lambda step: None)


#: Ways that were answered wrongly once, which are always tried. Of the others every twelfth is tried by default.
ONCE_WRONG = {"shared_open_size", "cache_of_open_length", "fourier_transform"}


@pytest.mark.parametrize("name", sampled(WAYS, every=12, named=ONCE_WRONG, slow=2))
def test_ordinary_ways_to_give_a_model(name: str, supervisor: Supervisor) -> None:
    found = checked(f"{FILE}:{name}", supervisor)
    assert found.survives
    made = WAYS[name]()
    is_open = len(made) > 2 and made[-1] is not None
    assert [way.route.shape_mode for way in found.ways] == (["static", "dynamic"] if is_open else ["static"])
    for way in found.ways:
        assert {outcome.outcome for outcome in way.outcomes} == {Outcome.PASS}
        assert way.route.shape_mode == "static" or any(
            ModelRun.from_text(outcome.model_run).change for outcome in way.outcomes
        )


#: Ways to declare the first size of a linear layer's input.
SIZES: dict[str, Any] = {
    "unbounded": {0: Dim("b")},
    "bounded": {0: Dim("b", min=1, max=16)},
    "dynamic": {0: Dim.DYNAMIC},
    "automatic": (Dim.AUTO, Dim.AUTO),
}
#: Programs of those that are given otherwise.
NAMED = {"keyword_inputs_of_open_size", "flags_and_numbers"}


def program(name: str) -> torch.export.ExportedProgram:
    if name in SIZES:
        return torch.export.export(nn.Linear(4, 3), (torch.randn(2, 4),), dynamic_shapes=(SIZES[name],))
    made = WAYS[name]()
    inputs, shapes = made[1], made[-1] if len(made) > 2 else None
    given = ((), inputs) if isinstance(inputs, dict) else (inputs, None)
    return torch.export.export(made[0].eval(), *given, dynamic_shapes=shapes)


@pytest.mark.parametrize("converter", sampled(["dynamo", "torchscript"], every=2))
@pytest.mark.parametrize("name", sampled(sorted({*SIZES, *NAMED}), named=SIZES))
def test_an_exported_program_survives(name: str, converter: str, supervisor: Supervisor, tmp_path: Path) -> None:
    torch.export.save(program(name), tmp_path / f"{name}.pt2")
    found = checked(str(tmp_path / f"{name}.pt2"), supervisor, converter)
    assert found.survives
    (way,) = found.ways
    assert way.route.shape_mode == ("static" if name == "flags_and_numbers" else "dynamic")


def test_a_derived_size_is_run_at_its_multiples() -> None:
    model = load_model(f"{FILE}:derived_size")
    (axis,) = model.axes
    assert [axis.size_at("args", 2, size) for size in axis.others] == [4, 12, 20]


def test_independent_sizes_change_places() -> None:
    from harness.pipeline.model_cases import cases_of

    model = load_model(f"{FILE}:cache_of_open_length")
    sizes = [tuple(spec.shape for spec in case.invocation.tensors()) for case in cases_of(model, True)]
    longer = {batch > length for (batch, *_), (_, length, *_) in sizes}
    assert longer == {True, False}


#: What returns nothing that could be compared, by the name of a function that makes it.
NOTHING = """
import dataclasses, sys
import torch
from torch import nn

@dataclasses.dataclass
class Unknown:
    value: torch.Tensor

class Returns(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
    def forward(self, x):
        return self.function(x)

def dataclass(): return Returns(lambda x: Unknown(x)), (torch.randn(2),)
def none(): return Returns(lambda x: None), (torch.randn(2),)
def number(): return Returns(lambda x: 3), (torch.randn(2),)
def text(): return Returns(lambda x: "no tensor"), (torch.randn(2),)
def nan(): return Returns(lambda x: x * float("nan")), (torch.randn(2),)
def scripted(): return torch.jit.script(nn.Linear(4, 3)), (torch.randn(2, 4),)
def leaves(): sys.exit(3)
def aborts():
    import os
    os.abort()
"""


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("nothing") / "nothing.py"
    file.write_text(NOTHING)
    return file


@pytest.mark.parametrize("name", ["dataclass", "none", "number", "text", "nan"])
def test_nothing_compared_is_no_success(name: str, nothing: Path, supervisor: Supervisor) -> None:
    found = checked(f"{nothing}:{name}", supervisor)
    assert not found.survives
    (way,) = found.ways
    assert way.failure is None
    assert not way.is_compared
    assert {outcome.outcome for outcome in way.outcomes} == {Outcome.SKIP}


def test_a_scripted_module_is_a_model(nothing: Path, supervisor: Supervisor) -> None:
    assert checked(f"{nothing}:scripted", supervisor, "torchscript").survives


@pytest.mark.parametrize("name", ["leaves", "aborts"])
def test_a_function_that_ends_the_process_is_a_sentence(name: str, nothing: Path, supervisor: Supervisor) -> None:
    from harness.pipeline.model_loading import ModelProblem

    with pytest.raises(ModelProblem, match=f"{nothing.name}:{name}"):
        model_facts(f"{nothing}:{name}", Variant(), supervisor)


@pytest.mark.slow
def test_an_example_of_one_is_named_with_the_remedy(tmp_path: Path, supervisor: Supervisor) -> None:
    file = tmp_path / "one.py"
    file.write_text(
        "import torch\nfrom torch import nn\nfrom torch.export import Dim\n"
        "def make(): return nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 8, 8),), ({0: Dim('batch')},)\n"
    )
    # torch.onnx.export opens such sizes, and torch.export does not.
    assert checked(f"{file}:make", supervisor).survives
    static, dynamic = checked(f"{file}:make", supervisor, "openvino-torch").ways
    assert static.survives
    assert not dynamic.survives
    assert [(remedy.kind, remedy.value) for remedy in dynamic.remedies if remedy.helps] == [("example", "batch=2")]
