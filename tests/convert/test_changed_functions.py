"""Conversion functions that differ from a revision name the operators that they convert."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import onnxscript
import pytest
from harness_runs import output, rows, run_harness

from harness.convert import changed_functions
from harness.convert.changed_functions import changed_conversions
from harness.core.git import GitFailure
from harness.generate.case_library import load_cases

RULES = """\
import math

from helpers import larger, unused
from onnxscript import opset18 as op

from harness.convert.rules import dynamo, torchscript

EPSILON = 1e-5
_ALPHA = 1.0


@dynamo("aten::fmax")
def fmax(self, other):
    return op.Where(op.IsNaN(self), other, larger(self, other))

# Between two functions.

@torchscript(
    "aten::celu"
)
def celu(g, input, alpha):
    return g.op("Celu", input, alpha_f=_ALPHA)


def _inner(self):
    return op.Exp(self)


@dynamo("aten::cosh")
def cosh(self):
    return op.Sub(_inner(self), op.Constant(value_float=math.cos(0.0)))
"""
HELPERS = """\
from onnxscript import opset18 as op


def larger(a, b):
    return op.Where(op.Less(a, b), b, a)


def unused(a):
    return a
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of rules, with a branch `main` that the working tree does not differ from."""
    (tmp_path / "my_rules.py").write_text(RULES)
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "notes.md").write_text("Notes.\n")
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=tmp_path, check=True, timeout=60)
    commit(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commit(place: Path) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("add", "-A"), ("commit", "-q", "-m", "A change")):
        subprocess.run(["git", *identity, *words], cwd=place, check=True, timeout=60)


def replaced(old: str, new: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return change


def write_new(file: Path) -> None:
    file.write_text('@dynamo("aten::sin")\ndef sin(x):\n    return x\n')


@pytest.mark.parametrize(
    ("file", "change", "operators"),
    [
        pytest.param("my_rules.py", replaced("op.IsNaN(self)", "op.IsNaN(other)"), {"fmax"}, id="a body"),
        pytest.param("my_rules.py", replaced("_ALPHA = 1.0", "_ALPHA = 2.0"), {"celu"}, id="a constant"),
        pytest.param("my_rules.py", replaced("EPSILON = 1e-5", "EPSILON = 1e-6"), set(), id="a constant without use"),
        pytest.param("my_rules.py", replaced("op.Exp(self)", "op.Neg(self)"), {"cosh"}, id="a helper in the file"),
        pytest.param("helpers.py", replaced("op.Less(a", "op.Greater(a"), {"fmax"}, id="a helper in another file"),
        pytest.param("helpers.py", replaced("    return a\n", "    return -a\n"), set(), id="a helper without use"),
        pytest.param("my_rules.py", replaced("# Between", "# After"), set(), id="a comment"),
        pytest.param("my_rules.py", replaced('"aten::celu"', '"aten::selu"'), {"celu", "selu"}, id="a decorator"),
        pytest.param("my_rules.py", replaced("import math", "import cmath as math"), {"cosh"}, id="an import"),
        pytest.param("my_rules.py", replaced(RULES[RULES.index("@dynamo(\"aten::cosh") :], ""), {"cosh"}, id="gone"),
        pytest.param("helpers.py", Path.unlink, {"fmax"}, id="a file that is gone"),
        pytest.param("notes.md", replaced("Notes", "Words"), set(), id="no Python"),
        pytest.param("new.py", write_new, {"sin"}, id="a new file"),
        pytest.param("test_it.py", write_new, set(), id="a new file without rules"),
    ],
)  # fmt: skip
def test_a_change_names_its_operators(
    repository: Path, file: str, change: Callable[[Path], object], operators: set[str]
) -> None:
    change(repository / file)
    changed = changed_conversions("main", ["my_rules.py", "new.py"], load_cases())
    assert {overload.split(".")[1] for overload in changed.operators} == operators
    assert not changed.affects_all


def test_a_helper_behind_a_helper_leads_to_the_rule(repository: Path) -> None:
    (repository / "package").mkdir()
    (repository / "package" / "__init__.py").write_text("")
    (repository / "package" / "deep.py").write_text("def less(a, b):\n    return a\n")
    replaced("def larger(a, b):\n    return op.Where(op.Less(a, b), b, a)", "from package.deep import less as larger")(
        repository / "helpers.py"
    )
    commit(repository)
    replaced("return a", "return b")(repository / "package" / "deep.py")
    assert changed_conversions("HEAD", ["my_rules.py"], load_cases()).operators == ("aten.fmax.default",)


def test_a_branch_is_compared_where_it_left_the_other(repository: Path) -> None:
    subprocess.run(["git", "checkout", "-q", "-b", "mine"], check=True, timeout=60)
    replaced("op.Less(a", "op.Greater(a")(repository / "helpers.py")
    commit(repository)
    subprocess.run(["git", "checkout", "-q", "main"], check=True, timeout=60)
    replaced("_ALPHA = 1.0", "_ALPHA = 2.0")(repository / "my_rules.py")
    commit(repository)
    subprocess.run(["git", "checkout", "-q", "mine"], check=True, timeout=60)
    assert changed_conversions("main", ["my_rules.py"], load_cases()).operators == ("aten.fmax.default",)


@pytest.fixture
def exporter(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of onnxscript, which the exporter's functions come from."""
    source = Path(onnxscript.__file__).parent
    for part in ("function_libs", "rewriter"):
        shutil.copytree(source / part, repository / "onnxscript" / part, ignore=shutil.ignore_patterns("*.pyc"))
    commit(repository)

    def found(folder: str) -> Path | None:
        place = repository / folder
        return place if place.is_dir() else None

    monkeypatch.setattr(changed_functions, "found_folder", found)
    return repository / "onnxscript"


def test_a_change_of_an_exporter_names_its_operators(exporter: Path) -> None:
    ops = exporter / "function_libs" / "torch_lib" / "ops" / "nn.py"
    text = ops.read_text()
    head = text.index("def aten_celu(")
    end = text.index("return", head)
    ops.write_text(f"{text[:end]}alpha = 1.0\n    {text[end:]}")
    changed = changed_conversions("main", [], load_cases())
    assert "aten.celu.default" in changed.operators
    assert len(changed.operators) < 10
    assert {function.name for function in changed.functions} >= {"aten_celu"}


def test_a_change_of_an_exporters_passes_may_affect_every_operator(exporter: Path) -> None:
    file = next((exporter / "rewriter").rglob("*.py"))
    file.write_text(f"{file.read_text()}\nCHANGED = 1\n")
    changed = changed_conversions("main", [], load_cases())
    assert changed.affects_all
    assert changed.others == (str(file.relative_to(exporter.parent)),)


def test_without_a_repository_or_a_revision_there_are_no_changes_to_tell(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GitFailure):
        changed_conversions("nowhere", [], load_cases())
    monkeypatch.chdir(tmp_path_factory.mktemp("plain"))
    with pytest.raises(GitFailure):
        changed_conversions("main", [], load_cases())


@pytest.mark.slow
def test_a_session_runs_the_changed_operators_and_ends_well_if_there_are_none(repository: Path) -> None:
    words = ("--rules", "my_rules.py", "--changed-since", "main", "--examples", "2", "--results-dir", "run")
    idle = run_harness(*words, cwd=repository)
    assert idle.returncode == 0, output(idle)
    assert not (repository / "run").exists()
    replaced("_ALPHA = 1.0", "_ALPHA = 2.0")(repository / "my_rules.py")
    done = run_harness(*words, "-n", "1", cwd=repository)
    assert done.returncode in (0, 1), output(done)
    assert {row["overload"] for row in rows(repository / "run", "overload")} == {"aten.celu.default"}
