"""The plan of the house, as far as no linter checks it: rooms, sizes and imports."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from harness_runs import ROOT, environment, output, row_of, unary

from harness.compare.verdict import Outcome, Stage
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

HOUSE = ROOT / "harness"
#: Commands that read nothing but the record.
READING = (
    ("failures",),
    ("show", "CASE"),
    ("tolerance",),
    ("diff", "RUN", "RUN"),
    ("summary", "RUN"),
    ("summary", "RUN", "--against", "RUN"),
    ("baseline", "--out", "OUT"),
    ("dataset", "list", "."),
)


@cache
def code(package: str) -> tuple[tuple[Path, ast.Module], ...]:
    """Return the files of a package; not pytest's entry point, which is a package of its own once installed."""
    files = sorted((ROOT / package).rglob("*.py"))
    return tuple(
        (file, ast.parse(file.read_text(encoding="utf-8"))) for file in files if "entry_point" not in file.parts
    )


def test_every_room_is_a_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (found["layers"] for found in contracts["contracts"] if found["type"] == "layers")
    # `docs` has no code.
    folders = {path.name for path in HOUSE.iterdir() if path.is_dir()} - {"__pycache__", "docs"}
    assert folders == set(layers)
    assert {path.name for path in HOUSE.glob("*.py")} == {"__init__.py", "test_conformance.py"}


def test_nothing_else_is_tracked_at_the_top() -> None:
    found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    if found.returncode:
        pytest.skip("this is not a clone")
    top = {line.partition("/")[0] for line in found.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "pyproject.toml"),
        *("cases", "ci", "golden", "harness", "tests"),
    }


def test_no_function_is_long() -> None:
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for file, tree in (*code("harness"), *code("cases"))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno > 60
    ]
    assert long == []


#: The rooms that may call these methods of backends and converters. Converters know no backends.
PIPELINE = {
    **dict.fromkeys(("load", "run"), ("pipeline", "run", "convert")),
    **dict.fromkeys(("convert", "convert_parts", "program"), ("pipeline", "convert")),
}
#: Calls of these names that are of something else than a backend or a converter.
OTHERS = {
    *("onnx.load", "np.load", "point.load", "subprocess.run", "supervisor.run", "conformance.run", "msgspec.convert"),
    # PyTorch's interpreter of graphs, and onnx's evaluator with roundings.
    *("_Interpreted(module, notes).run", "_Noting(module, notes).run", "calls.run", "evaluator.run", "node.run"),
    # The user's module in PyTorch.
    "model.program",
}


def test_whatever_converts_loads_or_runs_goes_through_the_pipeline() -> None:
    called = {
        (str(file.relative_to(ROOT)), ast.unparse(node.func))
        for file, tree in code("harness")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and file.relative_to(HOUSE).parts[0] not in PIPELINE.get(node.func.attr, file.relative_to(HOUSE).parts[:1])
    }
    assert {(file, call) for file, call in called if call not in OTHERS} == set()


#: Stage → the files of the pipeline that may call it: the way of one case, and those that make, load or run one
#: artefact for many.
STAGES = {
    "convert_stage": {"program.py", "model_cases.py"},
    "transform_stage": {"run_case.py", "batch_export.py"},
    "check_stage": {"run_case.py", "batch_export.py"},
    "load_stage": {"run_case.py", "run_graph.py", "run_batch.py", "placement.py", "model_listing.py", "definition.py"},
    "run_stage": {"run_case.py", "run_graph.py", "run_batch.py", "model_listing.py", "definition.py", "stages.py"},
    "find_narrowing": {"run_case.py", "stages.py", "failure_context.py"},
    "excuse_for_problems": {"run_case.py"},
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_called_on_the_way_of_a_case_alone(stage: str) -> None:
    callers = {
        file.name
        for file, tree in code("harness")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and stage in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))
    }
    assert callers == STAGES[stage]


ARCHITECTURE = (HOUSE / "README.md").read_text(encoding="utf-8")
#: The types on the way of a failing call, in order.
ON_THE_WAY = re.findall(r"^\| `(\w+)` \|", ARCHITECTURE.partition("These types flow")[2].partition("\n\n| ")[2], re.M)
#: Further types of their fields: early ends of a case, facts that only a model, an artefact of another kind or an
#: optimiser has, parts of a diagnosis, and messages between processes.
FURTHER = {
    *("NotConverted", "StageFailure", "Literal", "Enumerated", "Weight", "Result", "Input"),
    *("ModelSource", "Variant", "Axis", "ModelRun", "ErrorGrowth", "OutputError", "Traced", "FixedSize"),
    *(
        "NodesJudged",
        "UnjudgedNode",
        "RunAccuracy",
        "GraphChange",
        "GivenFiles",
        "Artefact",
        "Placement",
        "Change",
        "Detail",
        "Difference",
        "Allowance",
        "Leeway",
    ),
    *("Step", "BlameTask", "Blamed"),
    # What oracles have in common, and what the rules of a judge get.
    *("CaseOracle", "Evidence"),
}


#: The rooms that a call goes through until its row is written.
ROOMS_ON_THE_WAY = {"core", "compare", "generate", "run", "convert", "pipeline", "blame", "plan", "record"}


def named_types(annotation: ast.expr) -> set[str]:
    """Return the names in an annotation, also of one that is a text; a column's description has none."""
    if isinstance(annotation, ast.Constant):
        annotation = ast.parse(str(annotation.value), mode="eval").body
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}


def test_the_types_on_the_way_of_a_failing_call_are_those_of_the_list() -> None:
    below = [tree for file, tree in code("harness") if file.relative_to(HOUSE).parts[0] in ROOMS_ON_THE_WAY]
    classes = {node.name: node for tree in below for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    aliases = {
        node.target.id: named_types(node.value)
        for tree in below
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
        if ast.unparse(node.annotation) == "TypeAlias"
    }
    values = {name for name, node in classes.items() if any("dataclass" in ast.unparse(d) for d in node.decorator_list)}
    assert 20 < len(ON_THE_WAY) <= 25
    assert {*ON_THE_WAY} <= {*classes}
    reached: set[str] = set()
    for name in (*ON_THE_WAY, *FURTHER):
        fields = [f.annotation for f in classes[name].body if isinstance(f, ast.AnnAssign)]
        names = {named for annotation in fields for named in named_types(annotation)}
        while further := {inner for alias in names & {*aliases} for inner in aliases[alias]} - names:
            names |= further
        reached |= names & values
    assert reached <= {*ON_THE_WAY, *FURTHER}
    assert reached | {"Step", "NotConverted", "BlameTask", "Blamed", "Converted"} >= FURTHER


def test_the_walk_of_a_reader_names_each_file_once() -> None:
    walk = re.findall(r"`([\w/]+\.py)`", ARCHITECTURE.partition("To follow `pytest harness")[2].partition("\n\n")[0])
    assert len(walk) == len({*walk}) > 20
    assert [file for file in walk if not (HOUSE / file).is_file()] == []


#: What takes seconds to import, and what reading a record has no use for.
HEAVY = {"torch", "onnx", "onnxscript", "onnxruntime", "hypothesis", "cases"}


@pytest.fixture(scope="module")
def imported_by(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], set[str]]:
    """Command → the packages that a process has imported which ran it after those before it."""
    place = tmp_path_factory.mktemp("reading")
    call = unary("aten.celu.default", [1.0])
    failing = row_of(call, stage=Stage.COMPARE, outcome=Outcome.MISMATCH, blame="backend", message="wrong")
    run = place / "results" / "run"
    with RunWriter(run, RunInfo.begin(seed=0, options={})) as writer:
        writer.write([row_of(unary("aten.celu.default", [2.0])), failing])
    store.finish(run, 1)
    meant = {"CASE": call.case_id, "RUN": str(run), "OUT": str(place / "out")}
    program = (
        "import json, sys\n"
        "from harness.app.cli._group import conformance\n"
        f"for words in {[[meant.get(word, word) for word in words] for words in READING]!r}:\n"
        "    conformance(words, standalone_mode=False)\n"
        "    print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, output(done)
    said = [set(json.loads(line)) for line in done.stderr.splitlines() if line.startswith("[")]
    return dict(zip(READING, said, strict=True))


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_only_reads_does_not_wait_for_pytorch(
    words: tuple[str, ...], imported_by: dict[tuple[str, ...], set[str]]
) -> None:
    assert "pyarrow" in imported_by[words]
    assert not imported_by[words] & HEAVY
