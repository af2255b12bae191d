"""The examples of how an operator case is written run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.compare.comparison import compare
from harness.compare.judge import ACCUMULATES
from harness.core.dtypes import FLOATS, NUMBERS
from harness.generate import operator_case
from harness.generate.cases_home import cases_directory
from harness.generate.draw import Draw
from harness.generate.draws import draw_cases
from harness.pipeline.reference import run_reference


def declared(code: str, monkeypatch: pytest.MonkeyPatch, **names: Any) -> dict[str, operator_case.OperatorCase]:
    """Return the operator cases that `code` declares in an empty registry."""
    registry: dict[str, operator_case.OperatorCase] = {}
    monkeypatch.setattr(operator_case, "OPERATOR_CASES", registry)
    exec(compile(code, "example", "exec", dont_inherit=True), names)
    for case in registry.values():
        for drawn in draw_cases(case, seed=0, structures=12, values=1):
            reference = run_reference(drawn.invocations[0])
            assert compare(case.judge, reference, reference.expected).problem is None
    return registry


def test_the_examples_of_the_readme_run(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (cases_directory() / "README.md").read_text(encoding="utf-8")
    registry = declared("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), monkeypatch)
    names = ("tanh", "sinh", "gelu", "acosh", "mv", "argmax")
    assert list(registry) == [f"aten.{name}.default" for name in names]


def test_the_example_of_the_module_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    said = operator_case.__doc__ or ""
    code = "\n".join(line.removeprefix("    ") for line in said.splitlines() if line.startswith("    "))
    names = {"Arguments": operator_case.Arguments, "Draw": Draw, "Family": operator_case.Family}
    registry = declared(code, monkeypatch, ACCUMULATES=ACCUMULATES, FLOATS=FLOATS, NUMBERS=NUMBERS, **names)
    assert set(registry) == {"aten.abs.default", "aten.neg.default", "aten.mv.default"}


def test_the_readme_names_every_file_of_its_folder() -> None:
    text = (cases_directory() / "README.md").read_text(encoding="utf-8")
    listed = [file for file in cases_directory().iterdir() if file.suffix in (".toml", ".txt")]
    rules = [file for file in (cases_directory() / "rules").glob("*.py") if file.name != "__init__.py"]
    assert all(f"`{Path(file).name}`" in text for file in (*listed, *rules))
