"""The command `conformance`, as it is typed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from commands import answered, entered
from harness_runs import output, rows, unary, vector
from recorded_run import NAME, conformance, make

from harness.core.invocation import Invocation
from harness.core.tensors import build_tensors
from harness.record.json_lines import Minimal, append_line
from harness.record.store import verdicts

pytestmark = pytest.mark.slowest(22)

COMMANDS = ("run", "failures", "show", "replay", "tolerance")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    cwd = tmp_path_factory.mktemp("elsewhere")
    return cwd, make(cwd)


@pytest.fixture(scope="module")
def run(made: tuple[Path, subprocess.CompletedProcess[str]]) -> Path:
    return made[0] / "results" / NAME


def worst(run: Path, **wanted: str) -> dict[str, Any]:
    options = [word for name, value in wanted.items() for word in (f"--{name}", value)]
    group: dict[str, Any] = answered("failures", run, *options, status=1)["failures"]["groups"][0]
    return group


def known(run: Path, **wanted: str) -> dict[str, Any]:
    """The first failure that an upstream issue is known for."""
    options = [word for name, value in wanted.items() for word in (f"--{name}", value)]
    groups = answered("failures", run, *options, status=1)["failures"]["groups"]
    return next(group for group in groups if group["known"])


@pytest.mark.thorough
def test_run_is_pytest_harness_from_any_directory(
    made: tuple[Path, subprocess.CompletedProcess[str]], run: Path
) -> None:
    _, done = made
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, output(done)
    printed = json.loads(done.stdout)
    recorded = rows(run, "case_id", "outcome")
    assert printed["run"] == f"results/{NAME}"
    assert printed["exit_status"] == 1
    assert printed["cases"] == len({row["case_id"] for row in recorded})
    assert sum(printed["outcomes"].values()) == printed["verdicts"] == len(recorded)
    assert "= conformance =" in done.stderr


def test_run_passes_pytests_exit_status_on(tmp_path: Path) -> None:
    done = conformance("run", "--op", "celuu", cwd=tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, output(done)
    assert "near: aten.celu.default" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_the_exit_statuses(name: str) -> None:
    done = entered(name, "--help")
    assert done.exit_code == 0
    assert f"  conformance {name}" in done.output.partition("Examples:")[2]
    assert "Exit status" in done.output
    assert "--json" in done.output


def test_every_command_is_listed() -> None:
    assert set(COMMANDS) <= set(entered("--help").output.split())


def test_failures_are_listed_worst_first(run: Path) -> None:
    done = entered("failures", run)
    assert done.exit_code == 1
    first = done.output.index("aten.avg_pool2d.default")
    assert first < done.output.index("aten.special_hermite_polynomial_h")
    assert "known: https://github.com/pytorch/pytorch/issues/105349" in done.output
    groups = answered("failures", run, "--limit", "0", status=1)["failures"]["groups"]
    places = [(group["blame"] == "spec", not group["callers"], -group["priority"]) for group in groups]
    assert places == sorted(places)
    assert all(0 < group["priority"] < 1 for group in groups)


def test_one_missing_conversion_is_one_failure_with_its_overloads(run: Path) -> None:
    found = answered("failures", run, "--op", "special_hermite_polynomial_h", status=1)["failures"]
    [group] = found["groups"]
    assert (group["component"], group["fault"]) == ("dynamo", "no-conversion")
    assert group["place"] == "no conversion of aten.special_hermite_polynomial_h"
    assert [name.rpartition(".")[2] for name in group["overloads"]] == ["default", "n_scalar", "x_scalar"]
    assert group["backends"] == []


def test_one_missing_kernel_is_one_failure_in_all_dtypes(run: Path) -> None:
    group = worst(run, op="erf", stage="load", backend="ort-cpu")
    assert group["dtypes"] == ["bfloat16", "float64"]
    assert (group["component"], group["place"], group["fault"]) == ("ort-cpu", "Erf", "no-kernel")
    assert len(group["known"]) == 2


def test_a_wrong_export_carries_the_upstream_issue(run: Path) -> None:
    group = known(run, op="avg_pool2d", outcome="mismatch")
    assert [issue["link"] for issue in group["known"]] == ["https://github.com/pytorch/pytorch/issues/105349"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("op", "aten::erf"),
        ("backend", "onnx-reference"),
        ("converter", "dynamo"),
        ("blame", "converter"),
        ("outcome", "unsupported"),
        ("stage", "convert"),
        ("dtype", "float64"),
        ("family", "pooling"),
    ],
)
def test_failures_are_filtered(run: Path, option: str, value: str) -> None:
    column = "overload" if option == "op" else option
    wanted = "aten.erf.default" if option == "op" else value
    failed = {"mismatch", "unsupported", "error", "crash", "timeout"}
    cases = {r["case_id"] for r in rows(run) if r["outcome"] in failed and r[column] == wanted}
    groups = answered("failures", run, f"--{option}", value, "--limit", "0", status=1)["failures"]["groups"]
    assert cases
    assert sum(group["cases"] for group in groups) >= len(cases)
    found = {row["case_id"] for row in rows(run) for g in groups if row["case_id"] == g["smallest"]["case_id"]}
    assert found <= cases


def test_nothing_of_a_kind_is_fine(run: Path) -> None:
    done = entered("failures", run, "--outcome", "crash")
    assert (done.exit_code, done.output) == (0, "No failures of that kind.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--op", "avgpool2d"), "near: aten.avg_pool2d.default"),
        (("--backend", "ort-cpv"), "near: ort-cpu"),
        (("--dtype", "float17"), "float16"),
        (("--blame", "nobody"), "'converter', 'transform', 'backend', 'pytorch', 'spec', 'unknown'"),
    ],
)
def test_unknown_names_suggest_near_ones(run: Path, words: tuple[str, str], said: str) -> None:
    done = entered("failures", run, *words)
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize("command", ["failures", "tolerance"])
@pytest.mark.parametrize("option", [(), ("--run",)])
def test_a_directory_without_a_run_is_one_line(command: str, option: tuple[str, ...], tmp_path: Path) -> None:
    done = entered(command, *option, tmp_path)
    assert done.exit_code == 2
    assert done.output == (
        f"Error: {tmp_path} holds no run; give the directory that holds its run.json, or leave it out for the newest\n"
    )


def test_two_runs_at_once_are_refused(run: Path, tmp_path: Path) -> None:
    assert "two runs are named" in entered("failures", run, "--run", tmp_path).output


def test_the_newest_run_is_found(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent.parent)
    named, found = entered("failures", f"results/{NAME}"), entered("failures")
    assert found.exit_code == 1
    assert found.output == named.output


def test_show_tells_everything_of_a_case(run: Path) -> None:
    case_id = known(run, op="avg_pool2d", outcome="mismatch")["smallest"]["case_id"]
    done = entered("show", case_id[:8], "--run", run)
    assert done.exit_code == 1
    for part in (
        case_id,
        "torch.ops.aten.avg_pool2d.default(",
        "onnx-reference",
        "ort-cpu",
        "expected",
        "blame:",
        "onnxscript",
        f"conformance replay {case_id} --run ",
        f"conformance repro {case_id} --run ",
        "https://github.com/pytorch/pytorch/issues/105349",
    ):
        assert part in done.output
    printed = answered("show", case_id, "--run", run, status=1)
    assert list(printed) == [
        *("schema", "run", "case_id", "call", "torch", "invocation", "versions", "verdicts", "minimal", "known")
    ]
    assert {verdict["backend"] for verdict in printed["verdicts"]} == {"ort-cpu", "onnx-reference"}


def test_show_of_a_passing_case_is_status_0(run: Path) -> None:
    passing = [r["case_id"] for r in rows(run) if r["overload"] == "aten.celu.default" and r["dtype"] == "float32"]
    assert entered("show", passing[0], "--run", run).exit_code == 0


def test_unknown_cases_suggest_near_ones(run: Path) -> None:
    case_id = rows(run, "case_id")[0]["case_id"]
    done = entered("show", case_id[:-1] + ("0" if case_id[-1] != "0" else "1"), "--run", run)
    assert done.exit_code == 2
    assert f"near: {case_id}" in done.output


def test_the_call_that_show_prints_builds_the_very_tensors(run: Path) -> None:
    checked = 0
    for row in {row["case_id"]: row for row in rows(run, "case_id", "invocation")}.values():
        invocation = Invocation.from_json(row["invocation"])
        if any(spec.storage_size > 64 and spec.numel for spec in invocation.tensors()):
            continue
        *statements, _ = answered("show", row["case_id"], "--run", run, status=(0, 1))["torch"].splitlines()
        made: dict[str, Any] = {"torch": torch}
        exec("\n".join(statements), made)
        tensors = [value for value in made.values() if isinstance(value, torch.Tensor)]
        for ours, theirs in zip(tensors, build_tensors(invocation), strict=True):
            assert ours.dtype == theirs.dtype
            assert ours.stride() == theirs.stride() or not theirs.numel()
            assert torch.equal(torch.nan_to_num(ours), torch.nan_to_num(theirs))
            assert torch.equal(torch.isnan(ours), torch.isnan(theirs))
        checked += 1
        if checked == 40:
            return
    pytest.fail(f"only {checked} cases were small enough")


def test_show_and_replay_know_minimal_cases(run: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    smallest = worst(run, op="avg_pool2d", outcome="mismatch")["smallest"]["case_id"]
    failed = next(v for v in verdicts(run) if v.case_id == smallest and v.outcome == "mismatch")
    small = unary("aten.celu.default", [0.5])
    append_line(
        copied,
        Minimal(
            **{
                **{f.name: getattr(failed, f.name) for f in dataclasses.fields(Minimal) if hasattr(failed, f.name)},
                "minimal_id": small.case_id,
                "invocation": small.json,
                "exported_invocation": "",
                "matters": ("fails with divisor_override=3, not without it",),
                "elements": 1,
            }
        ),
    )
    shown = entered("show", failed.case_id, "--run", copied)
    assert f"Minimal case {small.case_id}" in shown.output
    assert "fails with divisor_override=3, not without it" in shown.output
    assert answered("show", small.case_id, "--run", copied, status=1)["case_id"] == failed.case_id
    groups = answered("failures", copied, "--op", "avg_pool2d", "--outcome", "mismatch", status=1)["failures"]["groups"]
    assert small.case_id in [group["minimal"]["case_id"] for group in groups if group["minimal"]]
    beginning = small.case_id[0]
    fitting = sorted({v.case_id for v in verdicts(run) if v.case_id.startswith(beginning)} | {small.case_id})
    assert len(fitting) > 3
    for word in ("show", "replay", "repro"):
        done = entered(word, beginning, "--run", copied)
        assert done.exit_code != 0
        assert f"'{beginning}' begins {len(fitting)} cases of {copied}: {fitting[0]}, " in done.output
        assert "give more of the id" in done.output
    replayed = answered("replay", small.case_id, "--run", copied)
    assert [case["invocation"] for case in replayed["cases"]] == [small.json]


def test_replay_still_fails_and_shows_the_numbers(run: Path) -> None:
    group = known(run, op="avg_pool2d", outcome="mismatch")
    done = conformance("replay", group["smallest"]["case_id"], "--run", run, "--backend", group["backends"][0], cwd=run)
    assert done.returncode == 1, output(done)
    for part in ("mismatch", "expected ", "float64 ", "got ", "1 verdict of 1 failing"):
        assert part in done.stdout


def test_replay_runs_a_file_of_invocations(tmp_path: Path) -> None:
    right, other = unary("aten.celu.default", [-1.0, 2.0]), unary("aten.erf.default", [0.5])
    lines = tmp_path / "corpus.jsonl"
    entry = {"origin": "captured", "backend": "onnx-reference", "invocation": other.to_data()}
    lines.write_text(f"{right.json}\n\n{json.dumps(entry)}\n")
    one = tmp_path / "one.json"
    # Of a random operator one run may be right by luck: here a 1 is drawn, which never may be, in one of a
    # hundred runs.
    rare = Invocation("aten.rand_like.default", (("self", vector([0.0] * 40, "float16")),))
    one.write_text(json.dumps([right.to_data(), rare.to_data()], indent=2))
    printed = answered("replay", lines)
    assert printed["still_failing"] == 0
    assert [case["call"].partition("(")[0] for case in printed["cases"]] == [
        "aten.celu.default",
        "aten.erf.default",
    ]
    assert {case["verdict"]["backend"] for case in printed["cases"]} == {"onnx-reference"}
    printed = answered("replay", one, status=1)
    assert printed["still_failing"] == 1
    drawn, case = sorted(printed["cases"], key=lambda case: str(case["verdict"]["outcome"]))
    assert "1.0 cannot be drawn there" in drawn["verdict"]["message"]
    assert 1.0 in drawn["got"][0]
    assert case["verdict"]["backend"] == "ort-cpu"
    [expected], [got] = case["expected"], case["got"]
    assert expected == pytest.approx([-0.6321205, 2.0])
    assert got == pytest.approx(expected)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "bad.json:1: not JSON"),
        ("[]", "holds no invocation"),
        ('{"overload": 3}', "an invocation is an object with `overload` and `arguments`"),
        (None, "file not found"),
    ],
)
def test_a_file_that_is_no_invocation_is_one_line(content: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    done = entered("replay", path)
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize("words", [("failures", "--limit", "0"), ("tolerance", "--limit", "0")])
def test_a_pipe_gets_plain_lines_of_a_hundred_columns(run: Path, words: tuple[str, ...]) -> None:
    lines = entered(*words, "--run", run).output.splitlines()
    assert len(lines) > 10
    for line in lines:
        assert "\x1b" not in line
        assert line == line.rstrip()
        assert len(line) <= 100 or "conformance show" in line or "written to" in line


def test_a_record_of_an_older_version_is_read(run: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(run, older)
    table = pq.read_table(older / "verdicts.parquet")
    pq.write_table(table.drop_columns(["evidence", "needed_rtol", "needed_atol"]), older / "verdicts.parquet")
    case_id = table["case_id"][0].as_py()
    # Without evidence there are other places to tell failures by, and no failure is lost.
    new, old = (answered("failures", one, status=1)["failures"]["groups"] for one in (run, older))
    operators = {name for group in new for name in group["overloads"]}
    assert operators == {name for group in old for name in group["overloads"]}
    assert sum(group["cases"] for group in old) >= sum(group["cases"] for group in new)
    assert answered("show", case_id, "--run", older, status=(0, 1))["verdicts"][0]["evidence"] == ""
    assert {row["rtol"] for row in answered("tolerance", older)["rows"]} == {None}
