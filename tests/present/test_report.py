"""The views of a record, rendered as users see them."""

from __future__ import annotations

import dataclasses
import io
import shlex
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from harness_runs import row_of
from recorded_run import summary_text
from rich.console import Console, RenderableType

from harness.causes import groups as failures
from harness.causes.upkeep import rejections
from harness.compare.verdict import FAILURES, Outcome, Stage, Verdict
from harness.core.invocation import Invocation, Literal, TensorSpec, contiguous_strides
from harness.core.text import plain
from harness.present import matrix, run_counts, session_lines as progress
from harness.present.case_report import command, shown_path
from harness.present.failures_text import render
from harness.present.terminal_summary import print_summary
from harness.record import store
from harness.record.layout import ResultsError
from harness.record.parquet import to_table
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter


def invocation(overload: str, *shape: int, dtype: str = "float32") -> Invocation:
    values = Literal((0.5,) * max(1, TensorSpec(shape, dtype, (), 0, Literal(())).numel))
    return Invocation(overload, (("self", TensorSpec(shape, dtype, contiguous_strides(shape), 0, values)),))


def verdict(number: int, overload: str = "aten.celu.default", *shape: int, **changes: Any) -> Verdict:
    fields = {"case_id": f"{number:012x}", "family": "activation"}
    return row_of(invocation(overload, *shape), **{**fields, **changes})


def mismatch(number: int, overload: str = "aten.celu.default", *shape: int, **changes: Any) -> Verdict:
    what = {
        "outcome": Outcome.MISMATCH,
        "signature": "values",
        "message": "values: output 0: expected 1, got 2",
    }
    return verdict(number, overload, *shape, **{**what, **changes})


def skip(number: int, overload: str, message: str) -> Verdict:
    return verdict(number, overload, stage=Stage.REFERENCE, outcome=Outcome.SKIP, message=message)


def text(renderable: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def matrix_of(*rows: Verdict) -> matrix.Matrix:
    return matrix.matrix(to_table(rows, "run"))


def groups_of(*rows: Verdict) -> list[failures.FailureGroup]:
    return failures.failure_groups(to_table(rows, "run"))


def test_matrix_counts_passes_worst_operator_first() -> None:
    rows = [verdict(n, "aten.add.Tensor") for n in range(4)]
    rows += [verdict(n, "aten.celu.default") for n in range(10, 13)] + [mismatch(13)]
    rows += [mismatch(20, "aten.sub.Tensor"), verdict(21, "aten.sub.Tensor")]
    rows += [dataclasses.replace(row, converter="torchscript", outcome=Outcome.PASS) for row in rows]
    found = matrix_of(*rows)
    assert found.columns == (("dynamo", "ort-cpu"), ("torchscript", "ort-cpu"))
    assert [row.overload for row in found.rows] == ["aten.sub.Tensor", "aten.celu.default", "aten.add.Tensor"]
    printed = text(matrix.render(found))
    assert [line.split() for line in printed.splitlines() if line.startswith("aten.")] == [
        ["aten.sub.Tensor", "-", "1/2", "-", "2/2"],
        ["aten.celu.default", "-", "3/4", "-", "4/4"],
    ]
    assert "1 operator passed all 4 cases" in printed
    assert "80.0%" in printed
    assert "8/10" in printed


def test_ordinary_cases_come_first_and_say_which_operator_is_worst() -> None:
    rows = [mismatch(n, "aten.edge.default") for n in range(5)]
    rows += [verdict(5, "aten.edge.default", 2), mismatch(6, "aten.common.default", 2)]
    rows += [verdict(n, "aten.common.default", 3) for n in (7, 8)]
    found = matrix_of(*rows)
    printed = text(matrix.render(found)).splitlines()
    assert printed[2].split() == ["operator", "ordinary", "edge"]
    assert [line.split() for line in printed if line.startswith("aten.")] == [
        ["aten.common.default", "2/3", "-"],
        ["aten.edge.default", "1/1", "0/5"],
    ]
    assert [line.split() for line in printed[-2:]] == [
        ["all", "2", "operators", "75.0%", "0%"],
        ["3/4", "0/5"],
    ]


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.PASS])
def test_only_a_pass_is_a_pass(outcome: Outcome) -> None:
    found = matrix_of(*[verdict(n, outcome=outcome) for n in range(3)])
    [row] = found.rows
    [cell] = row.cells.values()
    assert cell.passes == 0
    assert cell.total == (3 if outcome.is_failure else 0)
    assert not row.passing
    assert row.failing == outcome.is_failure
    printed = text(matrix.render(found))
    assert "aten.celu.default" in printed
    assert "passed all" not in printed
    assert (f"3 {outcome}" in printed) == (not outcome.is_failure)


def test_a_few_skips_do_not_spoil_an_operator() -> None:
    found = matrix_of(verdict(1), verdict(2), skip(3, "aten.celu.default", "no"))
    assert found.rows[0].passing
    assert str(found.totals["dynamo", "ort-cpu"]) == "2/2"


def test_an_operator_without_rows_in_a_column_shows_so() -> None:
    found = matrix_of(mismatch(1), verdict(2, "aten.add.Tensor", backend="trt"))
    assert "-" in next(line for line in text(matrix.render(found)).splitlines() if "celu" in line).split()


def test_matrix_says_what_it_leaves_out() -> None:
    rows = [mismatch(n, f"aten.op{n:02d}.default") for n in range(30)]
    rows += [verdict(100 + n, f"aten.built{n}.default", outcome=Outcome.BUILT) for n in range(2)]
    printed = text(matrix.render(matrix_of(*rows), limit=20))
    assert sum(line.startswith("aten.") for line in printed.splitlines()) == 20
    assert "and 10 more operators with failures" in printed
    assert "and 2 more operators with only skipped or undecided cases" in printed


def test_outcomes_are_counted_by_stage() -> None:
    rows = [verdict(1), verdict(2), mismatch(3), skip(4, "aten.celu.default", "no")]
    rows += [verdict(5, stage=Stage.LOAD, outcome=Outcome.BUILT)]
    rows += [dataclasses.replace(mismatch(6), blame="spec")]
    counted = run_counts.counts(to_table(rows, "run"))
    assert run_counts.table_rows(counted) == [
        ("outcome", "reference", "load", "compare", "all"),
        ("pass", "", "", "2", "2"),
        ("mismatch", "", "", "2", "2"),
        ("built", "", "1", "", "1"),
        ("skip", "1", "", "", "1"),
    ]
    # What a specification leaves open is a mismatch of the record, here and everywhere.
    assert run_counts.sentence(counted).plain == (
        "6 verdicts: 2 pass, 2 mismatch, 1 built, 1 skip; 1 of the mismatches are left open by the specification"
    )


def test_operators_that_pytorch_rejects_too_often_are_named() -> None:
    rows = [verdict(n, "aten.good.default") for n in range(9)] + [skip(9, "aten.good.default", "bad shape [1]")]
    rows += [verdict(n, "aten.bad.default") for n in range(20, 28)]
    rows += [skip(28, "aten.bad.default", "one thing")]
    rows += [skip(n, "aten.bad.default", f"size {n} is [not] allowed") for n in (29, 30)]
    # Rows of other backends are the same draws.
    rows += [dataclasses.replace(row, backend="onnx-reference") for row in rows]
    table = to_table(rows, "run")
    found = rejections(table, table.filter(pc.field("outcome") == "skip"))
    assert [(r.overload, r.rejected, r.drawn) for r in found] == [("aten.bad.default", 3, 11)]
    printed = text(run_counts.render_rejections(found))
    assert "aten.bad.default: 3 of 11 rejected, mostly: size 29 is [not] allowed" in printed


def test_failures_of_one_defect_are_one_group_with_its_smallest_case() -> None:
    error = {
        "stage": Stage.CONVERT,
        "outcome": Outcome.ERROR,
        "signature": "in aten_celu: no",
        "message": "no",
    }
    rows = [
        verdict(1, "aten.celu.default", 2, 3, **error),
        verdict(2, "aten.celu.default", 2, **error),
        verdict(3, "aten.celu.default", 1, 1, 2, **error),
        verdict(4, "aten.elu.default", 50, dtype="float16", **error),
    ]
    rows += [dataclasses.replace(row, backend="onnx-reference") for row in rows]
    [group] = groups_of(*rows)
    assert (group.cases, group.backend) == (4, "")
    assert group.overloads == ("aten.celu.default", "aten.elu.default")
    assert group.dtypes == ("float16", "float32")
    assert group.case_id == f"{2:012x}"
    assert group.call == "aten.celu.default(self=float32[2]=[0.5,0.5])"


def test_backends_fail_apart_and_silent_outcomes_by_operator() -> None:
    load = {"stage": Stage.LOAD, "outcome": Outcome.ERROR, "signature": "no", "message": "no"}
    assert len(groups_of(verdict(1, **load), verdict(1, backend="trt", **load))) == 2
    rows = [mismatch(n, name) for n, name in enumerate(("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor"))]
    assert [g.overloads for g in groups_of(*rows)] == [
        ("aten.add.Scalar", "aten.add.Tensor"),
        ("aten.sub.Tensor",),
    ]


def test_silently_wrong_numbers_come_first_and_gaps_last() -> None:
    rows = [
        verdict(n, outcome=outcome, stage=Stage.RUN, signature=str(outcome))
        for n, outcome in enumerate(Outcome)
        for _ in range(n)
    ]
    assert tuple(group.outcome for group in groups_of(*rows)) == FAILURES
    assert set(FAILURES) == {outcome for outcome in Outcome if outcome.is_failure}


def test_of_one_kind_failures_of_ordinary_use_come_first() -> None:
    rows = [mismatch(n, "aten.edge.default") for n in range(9)]
    rows += [mismatch(20, "aten.common.default"), mismatch(21, "aten.common.default", 3)]
    rows += [mismatch(22, "aten.common.default", 2, message="values: output 0[0]: expected 3, got 4")]
    common, *edge = groups_of(*rows)
    assert [group.overloads for group in edge] == [("aten.edge.default",)]
    assert (common.cases, common.ordinary_cases, edge[0].ordinary) == (3, 2, None)
    assert common.ordinary is not None
    assert common.ordinary.case_id == f"{22:012x}"
    assert common.ordinary.call == "aten.common.default(self=float32[2]=[0.5,0.5])"
    assert common.ordinary.message == "values: output 0[0]: expected 3, got 4"
    assert "3 cases (2 ordinary)" in text(render([common]))


def test_failures_say_how_many_they_leave_out() -> None:
    rows = [mismatch(n, f"aten.op{n}.default") for n in range(8)]
    rows += [verdict(9, outcome=Outcome.UNSUPPORTED, stage=Stage.CONVERT, signature="No rule")]
    printed = text(render(groups_of(*rows), limit=3))
    assert "9 distinct failures, worst first" in printed
    assert "and 6 more: 5 mismatch, 1 unsupported" in printed


def test_an_invocation_of_another_version_is_shown_as_it_is() -> None:
    [group] = groups_of(mismatch(1, invocation='{"strange":1}'))
    assert group.call == '{"strange":1}'


def test_words_of_others_are_never_markup() -> None:
    said = "[red]danger[/red] [/] \x1b[31mred\x1b[0m \\[x] :smile:"
    printed = text(render(groups_of(verdict(1, stage=Stage.RUN, outcome=Outcome.ERROR, signature=said))))
    assert "[red]danger[/red] [/] red \\[x] :smile:" in printed
    assert "\x1b" not in printed
    assert "[bold]" in text(matrix.render(matrix_of(mismatch(1, "aten.[bold].default", backend="[/x]"))))
    assert plain("a\x07\r\n\tb" + "c" * 20, 8) == "a bcccc…"


def test_command_is_what_a_shell_takes_apart_again(tmp_path: Path) -> None:
    results = tmp_path / "my results" / "run"
    line = command(results, "abc123", converter="dynamo", backend="onnx-api:x.y", cwd=tmp_path)
    assert shlex.split(line) == [
        *("conformance", "run", "--replay", "my results/run", "--case", "abc123"),
        *("--converter", "dynamo", "--backend", "onnx-api:x.y"),
    ]
    assert command(Path("/elsewhere/run"), "a", cwd=tmp_path).split()[3] == "/elsewhere/run"
    assert shown_path(tmp_path, tmp_path) == "."


def test_the_progress_line_counts_and_estimates() -> None:
    now = 100.0
    run = progress.ProgressLine(180, clock=lambda: now)
    assert run.line() == "0 cases, 0.0/s, 0/180 items, 0 failures, time left unknown"
    now = 110.0
    run.add(items=12, cases=1234, failures=1)
    assert run.line() == "1,234 cases, 123.4/s, 12/180 items, 1 failure, 2:20 left"
    run.add(items=200)
    assert run.line().endswith("0:00 left")


def test_no_more_time_is_left_than_the_user_gives() -> None:
    now = 0.0
    run = progress.ProgressLine(180, clock=lambda: now, budget=30.0)
    now = 20.0
    run.add(items=1)
    assert run.line().endswith("0:10 left")
    now = 40.0
    assert run.line().endswith("0:00 left")


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (3751, "1:02:31")])
def test_a_duration_is_shown_in_hours_minutes_and_seconds(seconds: float, shown: str) -> None:
    assert progress.duration(seconds) == shown


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = tmp_path / "results" / "a run"
    with RunWriter(directory, RunInfo.begin(seed=1, options={})) as writer:
        writer.write(verdict(n, "aten.add.Tensor", 2) for n in range(4))
        # There is neither a vector of float64 nor a matrix of float32.
        matrix_of_float64 = invocation("aten.add.Tensor", 2, 2, dtype="float64")
        writer.write([row_of(matrix_of_float64, case_id=f"{4:012x}", dtype="float64")])
        writer.write([mismatch(10, "aten.celu.default", 2, 3), mismatch(11, "aten.celu.default", 1)])
        writer.write([skip(12, "aten.celu.default", "celu: [no]")])
    return directory


@pytest.mark.parametrize("finished", [True, False])
def test_summary_has_everything(run: Path, tmp_path: Path, finished: bool) -> None:
    if finished:
        store.finish(run)
    printed = summary_text(run, width=80, cwd=tmp_path)
    for part in (
        "aten.celu.default",
        "0/2",
        "1 operator passed all 5 cases (50% of pairs covered)",
        "mismatch",
        "1 distinct failure",
        "#1 mismatch (2 cases)",
        f"conformance run --replay 'results/a run' --case {11:012x} --converter dynamo --backend ort-cpu\n",
        "8 cases, 8 verdicts, written to results/a run/" + ("verdicts.parquet" if finished else "parts"),
    ):
        assert part in printed
    assert "\x1b" not in printed
    noted = summary_text(run, width=80, cwd=tmp_path, verbose=True)
    assert "aten.celu.default: 1 of 3 rejected, mostly: celu: [no]" in noted


def test_the_end_of_a_run_is_one_screen(tmp_path: Path) -> None:
    names = [f"aten.an_operator_whose_name_is_long_{n:03d}.default" for n in range(200)]
    with RunWriter(tmp_path / "run", RunInfo.begin(seed=1, options={})) as writer:
        for n, name in enumerate(names):
            opset = ["dynamo", "dynamo@23"] if n % 3 == 0 else ["dynamo"]
            writer.write(
                dataclasses.replace(mismatch(n, name, 2), converter=converter, signature=f"kind {n}")
                for converter in opset
            )
    printed = summary_text(tmp_path / "run", width=100, cwd=tmp_path).splitlines()
    assert len(printed) <= 60
    # Later opsets are in the same column, and names are whole.
    assert sum(any(name in line for name in names) for line in printed) >= 10
    assert "dynamo@23" not in "\n".join(printed).partition("distinct failure")[0]
    # The commands are about the case that is listed first.
    first = next(n for n, line in enumerate(printed) if line.startswith("#1 "))
    listed = printed[first + 1].split()[0]
    commands = [line for line in printed if "conformance show" in line or "--replay" in line]
    assert len(commands) == 2
    assert all(f" {listed} " in line for line in commands)


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_summary_keeps_to_the_width_but_for_what_is_to_be_copied(run: Path, width: int) -> None:
    for line in summary_text(run, width=width, cwd=run).splitlines():
        assert len(line) <= width or "conformance " in line or "python " in line or "written to" in line


def test_summary_is_coloured_only_where_asked_for(run: Path) -> None:
    assert "\x1b[" in summary_text(run, width=80, colour=True)
    file = io.StringIO()
    print_summary(Console(file=file, width=80), run)
    assert "\x1b" not in file.getvalue()


def test_a_run_without_cases_is_summarised_in_a_line(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", RunInfo.begin(seed=1, options={})).close()
    assert summary_text(tmp_path / "run", width=80, cwd=tmp_path) == "No case was drawn; the run is in run\n"
    with pytest.raises(ResultsError, match="holds no run"):
        summary_text(tmp_path / "absent", width=80)
