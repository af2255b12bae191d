"""The examples of the READMEs, as a newcomer would try them: copied into their files, and run."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from dashboard_sites import chromium, visiting
from harness_runs import output, run_harness
from harness_sessions import Program, Sessions
from playwright.sync_api import expect

from harness.pipeline.run_case import run_case
from harness.present.evidence import RULES
from harness.record import store

pytestmark = pytest.mark.slowest(11)

ROOT = Path(__file__).parents[2]
README, GUIDE, HOUSE = (
    (ROOT / place).read_text(encoding="utf-8") for place in ("README.md", "harness/app/README.md", "harness/README.md")
)
FILES = dict(re.findall(r"```(?:python|js)\n(?:#|//) (\S+\.(?:py|js))\n(.*?)```", README + HOUSE, re.DOTALL))
#: What the walk to a new column adds to two files: file → (after what, before what then, the text).
LINES = {
    file: (start, mark, text)
    for start, mark, where in (
        ("class Verdict:", "\n    @property", "the last field of Verdict"),
        ("return Verdict(", "    )\n", "in verdict_of"),
    )
    for file, text in re.findall(rf"# (\S+\.py), {where}\n(.*\n)", HOUSE)
}
#: What the example of a backend is tried on.
CELU = "aten.celu.default"


@dataclass(frozen=True)
class Extended:
    """A copy of the product with everything that the READMEs add to it, and an operator case with a slip.

    Attributes:
        copy: Its folder.
        sessions: The process that runs its commands in turn.
    """

    copy: Path
    sessions: Sessions

    def run(self, program: Program, *words: str, status: int = 0) -> str:
        """A command in the copy ends with `status`; what it prints."""
        done = self.sessions.run(program, words, self.copy, 600)
        assert done.returncode == status, output(done)
        return done.stdout


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extended]:
    copy = tmp_path_factory.mktemp("extended")
    for name in ("harness", "cases"):
        # With what is compiled; other processes write it under names of their own at first.
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    slip = FILES["cases/mine.py"].replace("flatten_", "unflatten_").replace("d.integer(", "d.whole(")
    for name, text in {**FILES, "cases/slip.py": slip}.items():
        (copy / name).write_text(text, encoding="utf-8")
    for name, (start, mark, added) in LINES.items():
        text = (copy / name).read_text(encoding="utf-8")
        place = text.index(mark, text.index(start))
        (copy / name).write_text(text[:place] + added + text[place:], encoding="utf-8")
    ours = {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    sessions = Sessions({**os.environ, **ours})
    yield Extended(copy, sessions)
    sessions.close()


def test_there_is_an_example_of_each_in_under_twenty_lines() -> None:
    assert set(FILES) == {
        "cases/mine.py",
        "harness/run/backends/tract_briefly.py",
        "harness/convert/converters/unoptimised.py",
        "harness/convert/transforms/float16_sorted.py",
        "harness/blame/witnesses/one_thread.py",
        "harness/present/dashboard/page/js/view_families.js",
        "my_rules.py",
    }
    for name, text in FILES.items():
        assert len([line for line in text.splitlines() if line.strip()]) < 20, name


@pytest.fixture(scope="module")
def walked(extended: Extended) -> Path:
    """A run with all of it."""
    pytest.importorskip("tract")
    operators = ("--op", "flatten_dense_tensors", "--op", "celu", "--dtype", "float32")
    extended.run(
        *("pytest", "harness", "--examples", "40", "--record-only", *operators),
        *("--backend", "tract-briefly", "--backend", "ort-cpu"),
        *("--converter", "unoptimised", "--converter", "dynamo", "--converter", "dynamo+float16-sorted"),
        *("--results-dir", "run", "-p", "no:cacheprovider"),
    )
    return extended.copy / "run"


@pytest.mark.slow
def test_an_operator_a_backend_a_converter_a_transform_and_a_witness_are_one_file_each(walked: Path) -> None:
    verdicts = list(store.verdicts(walked))
    took_part = {(v.overload, v.converter, v.backend) for v in verdicts}
    assert took_part == {
        (operator, converter, backend)
        for operator in ("aten.flatten_dense_tensors.default", CELU)
        for converter in ("unoptimised", "dynamo", "dynamo+float16-sorted")
        for backend in ("tract-briefly", "ort-cpu")
    }
    ends = {
        backend: {v.case_id for v in verdicts if v.overload == CELU and v.backend == backend and v.outcome == outcome}
        for backend, outcome in (("tract-briefly", "mismatch"), ("ort-cpu", "pass"))
    }
    # What the transform makes is valid.
    assert not [v for v in verdicts if v.converter == "dynamo+float16-sorted" and v.stage in ("transform", "check")]
    # As harness/README.md says of tract 0.23.
    assert ends["tract-briefly"] & ends["ort-cpu"]
    assert any("PyTorch gives the same result on one thread." in v.evidence for v in verdicts)


def test_the_way_of_a_case_is_listed_as_it_is() -> None:
    (listed,) = re.findall(r"```python\n(def run_case\(.*?)```", HOUSE, re.DOTALL)
    assert listed == inspect.getsource(run_case)
    assert len(listed.splitlines()) <= 40


@pytest.mark.slow
def test_a_column_is_two_files(walked: Path) -> None:
    assert LINES.keys() == {"harness/compare/verdict.py", "harness/plan/unit.py"}
    record = pq.read_table(walked / "verdicts.parquet")
    described = record.schema.field("tensors").metadata[b"description"]
    assert described == b"how many tensors the call takes"
    found = zip(record["overload"].to_pylist(), record["tensors"].to_pylist(), strict=True)
    assert {tensors for overload, tensors in found if overload == CELU} == {1}


@pytest.mark.slow
def test_a_wording_is_one_file(walked: Path, extended: Extended) -> None:
    ((file, table, rule, words),) = re.findall(r'# (\S+\.py), in (\w+)\n    "(\S+)": "(.*)",\n', HOUSE)
    assert (table, rule in RULES) == ("RULES", True)
    failed = next(v for v in store.verdicts(walked) if v.blame_rule)
    text = (extended.copy / file).read_text(encoding="utf-8")
    (extended.copy / file).write_text(
        re.sub(rf'(\n    "{failed.blame_rule}": )".*",\n', rf'\1"{words}",\n', text, count=1), encoding="utf-8"
    )
    environment = {**os.environ, "PYTHONPATH": str(extended.copy)}
    command = [sys.executable, "-m", "harness.app.cli", "show", failed.case_id, "--run", str(walked), "--json"]
    shown = subprocess.run(command, cwd=extended.copy, env=environment, capture_output=True, text=True, check=False)
    (extended.copy / file).write_text(text, encoding="utf-8")
    assert words.format(converter=failed.converter) in shown.stdout, output(shown)


@pytest.mark.slow
def test_a_view_is_one_file(walked: Path, extended: Extended) -> None:
    extended.run("conformance", "dashboard", "run", "--out", "site")
    with chromium() as browser, visiting(browser, extended.copy / "site") as visit:
        page = visit.open("#/families")
        expect(page.get_by_role("heading", level=1)).to_have_text("Families")
        row = page.get_by_role("row").filter(has_text="activation")
        expect(row.get_by_role("cell").last).to_have_text("1")
        tabs = page.get_by_role("navigation", name="Views").get_by_role("link").all_inner_texts()
        assert tabs[0] == "Overview"
        assert tabs[-1] == "Families"


@pytest.mark.slow
def test_the_python_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(import harness\n.*?)```", GUIDE, re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example.replace("examples=40", "examples=4"), encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compare pass" in done.stdout


def test_the_query_of_the_readme_runs(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    (query,) = re.findall(r'duckdb\.sql\("""(.*?)"""\)', GUIDE, re.DOTALL)
    run = tmp_path / "results" / "run"
    done = run_harness("--op", "abs", "--examples", "40", "--record-only", "--results-dir", run)
    assert done.returncode == 0, output(done)
    rows = duckdb.sql(query.replace("results/", f"{tmp_path}/results/")).fetchall()
    assert {row[0] for row in rows} == {"aten.abs.default"}


@pytest.mark.slow
def test_the_rules_are_tried(extended: Extended, tmp_path: Path) -> None:
    extended.run(
        *("pytest", "harness", "--rules", "my_rules.py", "--examples", "16", "--record-only"),
        *("--results-dir", str(tmp_path / "run"), "-p", "no:cacheprovider"),
    )
    rules = {verdict.rule for verdict in store.verdicts(tmp_path / "run")}
    assert rules == {"", "my_rules.py:fmax", "my_rules.py:celu"}


@pytest.mark.slow
def test_an_item_that_raises_says_what_and_where(extended: Extended) -> None:
    said = extended.run(
        *("pytest", "harness", "--op", "unflatten_dense_tensors", "--converter", "dynamo"),
        *("--results-dir", "slipped", "-p", "no:cacheprovider"),
        status=1,
    )
    assert "AttributeError: 'Draw' object has no attribute 'whole' (slip.py, line 11)" in said
