"""Converters that cannot be loaded, and what exporters say of a missing conversion."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness_runs import ROOT, environment, output

from harness.convert.converter import ExportRequest, UnsupportedOperator, find_converter
from harness.convert.converters.dynamo import DynamoConverter
from harness.convert.fast.exporter_caches import CachedExport
from harness.convert.rules.rule import RuleBook, RuleProblem, load_rules
from harness.convert.torch_private import part


def python(code: str, path: Path) -> str:
    """Return the output of `code` in a fresh interpreter that can import the harness and `path`."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(path),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, output(done)
    return done.stdout


def test_a_broken_plug_in_is_listed_as_unavailable(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_exporter\n")
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[harness.converters]\nbroken = broken\n")
    code = (
        "from harness.convert.converter import CONVERTERS\n"
        "print(CONVERTERS.find('broken')[0].probe().reason)\n"
        "print(CONVERTERS.find('dynamo')[0].name)"
    )
    first, second = python(code, tmp_path).splitlines()
    assert "plug-in broken failed to load" in first
    assert "no_such_exporter" in first
    assert second == "dynamo"


def test_converters_are_found_where_torchscript_keeps_its_functions_elsewhere(tmp_path: Path) -> None:
    code = (
        "import sys, torch.onnx\n"
        "del torch.onnx.utils\n"
        "sys.modules['torch.onnx.utils'] = None\n"
        "from harness.convert.converter import CONVERTERS\n"
        "print([entry.name for entry in CONVERTERS.entries()])"
    )
    names = python(code, tmp_path)
    assert all(f"'{name}'" in names for name in ("dynamo", "experimental-experiment", "torchscript"))


class Calls(torch.nn.Module):
    """Functions of one tensor."""

    def __init__(self, *functions: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self._functions = functions

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(*inputs) for function in self._functions)


def request_of(*functions: Callable[..., torch.Tensor]) -> ExportRequest:
    program = Calls(*functions)
    names = tuple(f"y{i}" for i in range(len(functions)))
    inputs = (torch.ones(3),)
    return ExportRequest(program=program.eval(), inputs=inputs, input_names=("x",), output_names=names)


def zeta(x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.special.zeta(x, x)
    return found


@pytest.mark.parametrize("public", [False, True])
def test_an_operator_without_conversion_differs_from_an_error(public: bool) -> None:
    with pytest.raises(UnsupportedOperator) as caught:
        find_converter("dynamo").create(public).convert(request_of(zeta, torch.relu, torch.special.airy_ai))
    known = {"y0": "prims.zeta.default", "y2": "aten.special_airy_ai.default"}
    assert caught.value.missing == ({} if public else known)


def test_a_rule_that_refuses_its_arguments_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "refusing.py"
    file.write_text(
        "from harness.convert.rules import dynamo\n"
        "@dynamo('aten::relu')\n"
        "def relu(self):\n"
        "    raise NotImplementedError('refused')\n"
    )
    converter = DynamoConverter(False, RuleBook(load_rules(str(file))))
    with pytest.raises(UnsupportedOperator, match="refused"):
        converter.convert(request_of(torch.relu))


def test_outputs_in_another_form_do_not_hide_that_a_conversion_is_missing() -> None:
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.ops.aten.special_zeta.default, (graph.placeholder("x"),) * 2))
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(3),))
    program.graph_module.graph = graph
    export = CachedExport()
    export._decomposed = program, part("from_torchlib")()
    assert export.missing_functions(["y0"]) == {}


def test_an_old_import_in_a_file_of_rules_names_the_new_place(tmp_path: Path) -> None:
    file = tmp_path / "old.py"
    file.write_text("import math\nfrom harness.rules import dynamo\n")
    with pytest.raises(RuleProblem) as caught:
        load_rules(str(file))
    assert str(caught.value) == f"--rules {file}:2: harness.rules is now harness.convert.rules"


def test_private_names_of_pytorch_have_two_homes() -> None:
    homes = {"convert/torch_private.py", "core/torch_operators.py"}
    # An attribute or a module that begins with one underscore, in code or in a module's name as text.
    private = re.compile(r"(?<![`\w.])(?:from )?torch(?:\.\w+)*(?:\._[a-z]|\._C\b| import _[a-z])")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "harness").rglob("*.py"))
        if path.relative_to(ROOT / "harness").as_posix() not in homes
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if private.search(line.partition("#")[0])
    ]
    assert found == []
