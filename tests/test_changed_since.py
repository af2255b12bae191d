"""`pytest harness --changed-since REV`, in a clone whose files are changed for real."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness_runs import ROOT, output, rows

from harness.changed.definitions import Source

RULES = """
from onnxscript import opset18 as op
from harness.rules import dynamo, torchscript


def larger(one, other):
    return op.Where(op.Less(one, other), other, one)


@dynamo("aten::fmax")
def fmax(self, other):
    return op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, larger(self, other)))


@torchscript("aten::celu")
def celu(g, input, alpha):
    return g.op("Celu", input, alpha_f=1.0)
"""

CELU = 'ops.simple("celu", dtypes=FLOATS, alpha='
ONE_ITEM = re.compile(r"test_conformance\[(aten\.\S+?)-(\w+)\]")


def git(directory: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *words], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the product and a file of rules, committed once, tagged ``start``."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    clone = tmp_path_factory.mktemp("clone")
    for name in ("harness", "cases"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", clone)
    (clone / "my_rules.py").write_text(RULES)
    git(clone, "init", "--quiet", "--initial-branch=main")
    git(clone, "add", "-A")
    git(clone, "commit", "--quiet", "-m", "Begin")
    git(clone, "tag", "start")
    return clone


@pytest.fixture
def clone(original: Path) -> Iterator[Path]:
    """The same, as it was committed."""
    yield original
    git(original, "reset", "--quiet", "--hard", "start")
    git(original, "clean", "--quiet", "-fd")


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file.name} holds {old!r} {text.count(old)} times"
    file.write_text(text.replace(old, new))


def harness(clone: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "harness", "-p", "no:cacheprovider", *map(str, options)],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone), "OMP_NUM_THREADS": "1", "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def chosen(clone: Path, *options: str | Path) -> set[tuple[str, str]]:
    """(overload, converter) that a run would run."""
    done = harness(clone, "--changed-since", "start", "--co", "-q", *options)
    assert done.returncode == 0, output(done)
    return set(ONE_ITEM.findall(done.stdout))


def test_nothing_changed_is_green_and_says_so(clone: Path) -> None:
    done = harness(clone, "--changed-since", "start")
    assert done.returncode == 0, output(done)
    assert "nothing to run: no case, rule or converter" in done.stdout + done.stderr
    assert not (clone / "results").exists()


def test_what_no_operator_depends_on_selects_nothing(clone: Path) -> None:
    change(
        clone / "cases" / "activation.py", '"""Activation functions."""', '"""Functions."""\n# A comment.\n'
    )
    (clone / "notes.md").write_text("A new file.\n")
    assert chosen(clone) == set()


def test_a_changed_case_is_run_and_recorded(clone: Path, tmp_path: Path) -> None:
    change(clone / "cases" / "activation.py", CELU, CELU.replace("FLOATS", "FLOATS[:2]"))
    options = ("--changed-since", "start", "--examples", "4", "--record-only", "--source", "generated")
    done = harness(clone, *options, "--no-blame", "--results-dir", tmp_path / "run")
    assert done.returncode == 0, output(done)
    assert "changed since start: cases/activation.py, so aten.celu.default" in done.stdout
    assert {row["overload"] for row in rows(tmp_path / "run", "overload")} == {"aten.celu.default"}


def test_a_helper_selects_the_cases_that_use_it_and_commits_count(clone: Path) -> None:
    change(clone / "cases" / "activation.py", "return d.choose(OMIT, 1, d.float(), d.int())",
           "return d.choose(OMIT, 2, d.float(), d.int())")  # fmt: skip
    git(clone, "commit", "--quiet", "-a", "-m", "Draw another scale")
    found = {overload for overload, _ in chosen(clone)}
    assert "aten.elu.default" in found
    assert "aten.celu.default" not in found
    assert len(found) < 5


def test_a_new_name_in_a_list_selects_that_operator_alone(clone: Path) -> None:
    change(clone / "cases" / "pointwise.py", 'ops.simple("sinh", "cosh", ', 'ops.simple("sinh", ')
    git(clone, "commit", "--quiet", "-a", "-m", "Without cosh")
    git(clone, "tag", "-f", "without")
    change(clone / "cases" / "pointwise.py", 'ops.simple("sinh", ', 'ops.simple("sinh", "cosh", ')
    done = harness(clone, "--changed-since", "without", "--co", "-q")
    assert set(ONE_ITEM.findall(done.stdout)) == {("aten.cosh.default", "dynamo")}


def test_an_entry_of_further_dtypes_selects_its_operators(clone: Path) -> None:
    file = clone / "cases" / "dtypes.toml"
    overload = "aten.clamp_max.Tensor"
    text = file.read_text()
    assert f'"{overload}",' in text
    file.write_text(text.replace(f'"{overload}",', ""))
    assert {name for name, _ in chosen(clone)} == {overload}


def test_a_converters_file_selects_everything_of_that_converter(clone: Path) -> None:
    file = clone / "harness" / "converters" / "torchscript.py"
    file.write_text(file.read_text() + "\n# changed\n")
    operators = ("--op", "aten.celu.default", "--op", "aten.relu.default")
    done = harness(clone, "--changed-since", "start", *operators, "--co")
    assert set(ONE_ITEM.findall(done.stdout)) == {
        ("aten.celu.default", "torchscript"),
        ("aten.relu.default", "torchscript"),
    }
    assert "harness/converters/torchscript.py, so every operator through torchscript" in done.stdout
    assert chosen(clone, "--converter", "dynamo") == set()


def test_what_a_converter_imports_is_its_code_too(clone: Path) -> None:
    file = clone / "harness" / "converters" / "kept_constants.py"
    file.write_text(file.read_text() + "\n# changed\n")
    assert ("aten.celu.default", "dynamo") in chosen(clone, "--op", "celu")


def test_a_changed_rule_selects_its_operator(clone: Path) -> None:
    rules = ("--rules", clone / "my_rules.py")
    assert chosen(clone, *rules) == set()
    change(clone / "my_rules.py", "alpha_f=1.0", "alpha_f=2.0")
    assert chosen(clone, *rules) == {("aten.celu.default", "torchscript")}


def test_what_a_rule_uses_selects_its_operator_and_unchanged_rules_are_not_missed(
    clone: Path, tmp_path: Path
) -> None:
    change(clone / "my_rules.py", "op.Less(one, other)", "op.Less(one, op.Identity(other))")
    options = ("--changed-since", "start", "--examples", "4", "--record-only", "--source", "generated")
    done = harness(clone, "--rules", "my_rules.py", *options, "--results-dir", tmp_path / "run", "--no-blame")
    assert done.returncode == 0, output(done)
    assert "never called" not in done.stdout
    found = {(row["overload"], row["rule"]) for row in rows(tmp_path / "run", "overload", "rule")}
    assert found == {("aten.fmax.default", "my_rules.py:fmax")}


@pytest.mark.parametrize(
    ("revision", "said"), [("strat", "did you mean start?"), ("0000000", "a commit, a branch or a tag")]
)
def test_an_unknown_revision_is_refused_in_one_line(clone: Path, revision: str, said: str) -> None:
    done = harness(clone, "--changed-since", revision)
    assert done.returncode == 4, output(done)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    assert f"--changed-since {revision}: no such revision" in line
    assert said in line


def test_outside_a_repository_it_is_refused_in_one_line(original: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(original, copy, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    done = harness(copy, "--changed-since", "HEAD")
    assert done.returncode == 4, output(done)
    assert "is not in a git repository" in done.stderr
    assert "Traceback" not in done.stderr


BEFORE = """
from cases.shared import dims

ops = Family("x")
LIMIT = 3


def helper(d):
    return LIMIT


@ops.case("one", "two")
def both(d):
    return helper(d)


@ops.case("three")
def third(d):
    return dims(d)
"""


def differing(before: Source, after: Source, text: str) -> set[str]:
    """Of one, two and three those that differ."""
    places = {"one": "both", "two": "both", "three": "third"}
    lines = {
        f: next(i for i, w in enumerate(text.splitlines(), 1) if f"def {f}(" in w) for f in places.values()
    }
    return {n for n, f in places.items() if after.fingerprint(lines[f], n) not in before.fingerprints}


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("LIMIT = 3", "LIMIT = 3  # the same", set()),
        ("LIMIT = 3", "LIMIT = 4", {"one", "two"}),
        ("    return helper(d)", '    """Words."""\n    return helper(d)', set()),
        ("    return helper(d)", "    return helper(d) + 1", {"one", "two"}),
        ("import dims", "import dims, sizes", set()),
        ("return dims(d)", "return dims(d, 1)", {"three"}),
        ('"one", "two"', '"one", "two", "four"', set()),
        ('Family("x")', 'Family("y")', {"one", "two", "three"}),
    ],
)
def test_a_definition_is_a_statement_and_what_it_uses(old: str, new: str, changed: set[str]) -> None:
    text = BEFORE.replace(old, new)
    assert differing(Source(BEFORE), Source(text), text) == changed


def test_a_definition_reaches_into_the_modules_that_it_imports_from() -> None:
    def version(shared: str) -> Source:
        return Source(BEFORE, lambda module: Source(shared) if module == "cases.shared" else None)

    one, same, other = version("def dims(d): return 1"), version("def dims(d): return 1\nx = 1"), version(
        "def dims(d): return 2"
    )  # fmt: skip
    assert differing(one, same, BEFORE) == set()
    assert differing(one, other, BEFORE) == {"three"}
