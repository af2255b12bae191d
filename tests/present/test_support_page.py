"""What is supported as static pages, in a headless Chromium, and as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from dashboard_sites import chromium
from harness_runs import row_of, vector

from harness.app.cli._group import conformance
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

NO_KERNEL = {
    "outcome": Outcome.UNSUPPORTED,
    "stage": Stage.LOAD,
    "blame": "backend",
    "component": "ort-cpu",
    "place": "Mul",
    "fault": "no-kernel",
    "signature": "NOT_IMPLEMENTED: Could not find an implementation for Mul(<n>)",
    "message": "NOT_IMPLEMENTED <script>alert(1)</script>",
}
WRONG = {"outcome": Outcome.MISMATCH, "signature": "values <b>&", "message": "wrong", "blame": "backend"}


def call(name: str, dtype: str, *values: float, **more: Any) -> Verdict:
    invocation = Invocation(f"aten.{name}.default", (("self", vector(list(values), dtype)),))
    return row_of(invocation, **{"dtype": dtype, "opset": 20, **more})


def supports(*words: str | Path) -> Result:
    return CliRunner().invoke(conformance, ["supports", *map(str, words)])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In bfloat16 gelu is wrong for one of two everyday values, celu has no kernel, and tanh is right."""
    directory = tmp_path_factory.mktemp("support") / "run"
    with RunWriter(directory, RunInfo.begin(seed=0, options={})) as writer:
        writer.write(
            [
                call("gelu", "bfloat16", 0.5),
                call("gelu", "bfloat16", 1.5, **WRONG),
                call("gelu", "bfloat16", float("nan"), **WRONG),
                call("gelu", "float32", 0.5),
                call("celu", "bfloat16", 0.5, **NO_KERNEL),
                call("celu", "float32", 0.5),
                call("tanh", "bfloat16", 0.5),
                call("tanh", "float32", 0.5, opset=21),
                call("tanh", "float32", 0.5, converter="torchscript"),
            ]
        )
    store.finish(directory, 1)
    return directory


@pytest.fixture(scope="module")
def page(recorded: Path) -> Path:
    directory = recorded.parent / "page"
    done = supports("--page", directory, "--record", recorded)
    assert done.exit_code == 0, done.output
    return directory


def test_the_pages_are_linked_and_their_rows_can_be_linked_to(page: Path) -> None:
    with chromium() as browser, browser.new_page() as tab:
        errors = list[str]()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto((page / "index.html").as_uri())
        tab.get_by_role("link", name="dynamo → ort-cpu").first.click()
        assert tab.locator("tbody tr").evaluate_all("rows => rows.map(row => row.id)") == [
            # What most models call comes first, and each opset has a row.
            "aten.gelu.default",
            "aten.tanh.default",
            "aten.tanh.default-21",
            "aten.celu.default",
        ]
        heads = tab.locator("thead th").all_inner_texts()
        cells = tab.locator('[id="aten.gelu.default"] > *').all_inner_texts()
        assert dict(zip(heads, cells, strict=True)) | {"models": ""} == {
            "operator": "aten.gelu.default",
            "opset": "20",
            "models": "",
            # NaN is an edge and does not decide.
            "float32": "✓ 1",
            "bfloat16": "◐ 1/2",
        }
        tab.locator("#filter").fill("CELU")
        assert tab.locator("tbody tr:visible").count() == 1
        tab.get_by_role("link", name="aten.celu.default").click()
        assert tab.locator("h1").inner_text() == "aten.celu.default"
        row = tab.locator('[id="dynamo--ort-cpu-bfloat16-20"]')
        assert row.inner_text().split("\t")[:3] == ["bfloat16", "20", "✗ unsupported"]
        tab.goto((page / "onnx--dynamo--ort-cpu.html").as_uri() + "#Mul")
        assert tab.locator("tr:target").inner_text().startswith("Mul\t20")
        tab.goto((page / "operators" / "aten.gelu.default.html").as_uri())
        assert "values <b>&" in tab.locator("#dynamo--ort-cpu-bfloat16-20").inner_text()
        assert not errors


def test_beside_the_pages_lies_what_they_say_as_json(page: Path) -> None:
    data = json.loads((page / "support.json").read_text(encoding="utf-8"))
    assert data["record"]["versions"]["torch"]
    assert data["aten"]["aten.gelu.default"]["callers"] > data["aten"]["aten.celu.default"]["callers"]
    by_dtype = {cell["dtype"]: cell for cell in data["aten"]["aten.gelu.default"]["cells"]}
    found = by_dtype["bfloat16"]
    assert (found["standing"], found["cases"], found["failures"]) == ("partly", 2, 1)
    assert (found["edge_cases"], found["edge_failures"]) == (1, 1)
    # What a backend refuses counts against the operator that it names, not against the one that was meant.
    onnx = {name: [cell["standing"] for cell in about["cells"]] for name, about in data["onnx"].items()}
    assert onnx["Mul"] == ["unsupported"]
    assert onnx["Celu"] == ["supported"]
    columns = {(cell["converter"], cell["opset"]) for cell in data["aten"]["aten.tanh.default"]["cells"]}
    assert columns == {("dynamo", 20), ("dynamo", 21), ("torchscript", 20)}


def test_the_table_answers_for_one_dtype(recorded: Path) -> None:
    done = supports("--dtype", "bfloat16", "--table", "--record", recorded)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "# bfloat16 with dynamo → ort-cpu"
    assert "## ATen operators: 1 supported, 1 partly, 1 unsupported" in lines
    assert next(line for line in lines if line.startswith("| aten.gelu.default")).startswith(
        "| aten.gelu.default | 20 | partly | 1 of 2 | 1 of 1 | "
    )
    assert lines[-2] == "No failure found in 1 case of 1 operator: aten.tanh.default"
    some = supports("tanh", "--dtype", "bfloat16", "--table", "--record", recorded).stdout
    assert "gelu" not in some
    assert "ONNX" not in some


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--table",), "--table is of one dtype: add --dtype bfloat16"),
        (("--table", "--dtype", "half"), "the record has no case of half"),
        (("--table", "--dtype", "int8", "--json"), "--table prints Markdown"),
        (("celu", "--page", "x"), "--page shows all answers of a record"),
        (
            ("--table", "--dtype", "int8", "--backend", "trt"),
            "it has dynamo → ort-cpu, torchscript → ort-cpu",
        ),
    ],
)
def test_what_cannot_be_shown_is_said(recorded: Path, words: tuple[str, ...], said: str) -> None:
    done = supports(*words, "--record", recorded)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
