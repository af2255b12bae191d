"""The generator's report: what it says of operator cases that are good, and of such as are not."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness_runs import output, run_harness, vector

from harness.core.invocation import Invocation
from harness.coverage.asker import Asker
from harness.coverage.exceptions import BadExceptions, excuses, read
from harness.coverage.survey import DRAWS, DYNAMIC, Survey, survey
from harness.generate.case_library import load_cases
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import Arguments, OperatorCase

pytestmark = pytest.mark.slowest(2)


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    with Asker() as one:
        yield one


def found(case: OperatorCase, asker: Asker, draws: int = DRAWS) -> Survey:
    return survey(case, asker, draws=draws, excuses=excuses())


def planted(overload: str, **changes: object) -> OperatorCase:
    return replace(load_cases()[overload], **changes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_every_operator_case_draws_every_point_that_pytorch_takes(asker: Asker, pytestconfig: pytest.Config) -> None:
    """Survey every tenth operator; with --thorough all of them, and that no excuse is idle."""
    whole = pytestconfig.getoption("--thorough")
    cases = list(load_cases().values())[:: 1 if whole else 10]
    surveys = [survey(case, asker, excuses=excuses(), thorough=False) for case in cases]
    assert {one.overload: one.defects for one in surveys if one.defects} == {}
    reached = sum(len(points) for one in surveys for points in one.hit.values())
    # The points are many: families that name none would find no defect either.
    assert reached > 40 * len(surveys)
    if whole:
        used = {place for one in surveys for _, place in one.excused}
        assert [excuses()[place] for place in set(range(len(excuses()))) - used] == []


@pytest.mark.slow
def test_a_call_that_kills_pytorch_costs_no_other_its_answer(asker: Asker) -> None:
    def divided(dividend: int, divisor: int) -> Invocation:
        tensors = (("self", vector([dividend], "int32")), ("other", vector([divisor], "int32")))
        return Invocation("aten.div.Tensor_mode", (*tensors, ("rounding_mode", "trunc")))

    fine = [divided(number, 3) for number in range(5)]
    # It overflows into a signal on x86, and into a number elsewhere.
    *before, guilty, after = asker.ask([*fine, divided(-(2**31), -1), divided(1, 1)])
    assert [answer.taken for answer in (*before, after)] == [True] * 6
    assert guilty.refusal in ("died", "")
    assert guilty.refusal or platform.machine() != "x86_64"


def test_a_bool_that_is_never_true_is_a_defect(asker: Asker) -> None:
    poor = planted("aten.amax.default", arguments=lambda d: {"self": d.any_tensor(1, min_size=1), "dim": [0]})
    defects = " ".join(found(poor, asker).defects)
    assert "no draw has keepdim=True, though PyTorch takes aten.amax.default(" in defects
    assert "no draw has keepdim given" in defects
    assert "no draw has dim negative" in defects
    assert "no draw has dim several" in defects
    assert "keepdim=False" not in defects
    assert not found(load_cases()["aten.amax.default"], asker).defects


def test_draws_that_pytorch_refuses_are_a_defect(asker: Asker) -> None:
    def half_wrong(d: Draw) -> Arguments:
        rows = d.size(1, 9)
        return {"self": d.tensor((rows, 3)), "mat2": d.tensor((d.choose(3, 5), d.size(1, 9)))}

    poor = found(planted("aten.mm.default", arguments=half_wrong), asker, 100)
    assert 30 < poor.accepted < 70
    assert poor.asked == poor.draws == 100
    assert f"PyTorch takes {poor.accepted} of 100 draws: RuntimeError" in poor.defects[0]


def test_an_optional_that_is_always_given_is_a_defect(asker: Asker) -> None:
    poor = planted("aten.celu.default", arguments=lambda d: {"self": d.any_tensor(), "alpha": d.choose(1.0, -2, True)})
    assert [line.split(",")[0] for line in found(poor, asker).defects] == ["no draw has alpha omitted"]


def test_shapes_layouts_dtypes_and_values_that_are_never_drawn_are_defects(asker: Asker) -> None:
    poor = planted(
        "aten.add.Tensor",
        dtypes=("float32", "int64"),
        arguments=lambda d: {
            "self": d.tensor((2, 3), domain=("finite",)),
            "other": d.tensor((2, 3), contiguous=True),
            "alpha": d.choose(1, 2),
        },
    )
    missed = {miss.point: miss.group for miss in found(poor, asker).missed}
    assert missed["self broadcast to other"] == missed["other broadcast to self"] == "broadcasting"
    assert missed["self rank 0"] == missed["other rank 5"] == "ranks"
    assert missed["self size 0"] == missed["row near 64"] == "sizes"
    assert missed["other non-contiguous"] == missed["other expanded"] == missed["other offset"] == "layouts"
    assert missed["dtype bfloat16"] == missed["dtype bool"] == "dtypes"
    assert missed["self float with other int"] == "promotion"
    assert missed["self NaN"] == missed["self -inf"] == "values"
    assert missed["alpha negative"] == "signs"
    assert not {"other NaN", "self non-contiguous", "dtype int64", "alpha int"} & set(missed)


def test_words_windows_and_indices_that_are_never_drawn_are_defects(asker: Asker) -> None:
    poor = planted(
        "aten.gelu.default",
        arguments=lambda d: {"self": d.any_tensor(), "approximate": d.choose(OMIT, "none")},
    )
    assert {miss.point for miss in found(poor, asker).missed} == {"approximate='tanh'"}

    poor = planted(
        "aten.avg_pool2d.default",
        arguments=lambda d: {"self": d.tensor((1, 2, 7, 7)), "kernel_size": [2, 2], "padding": [1, 1]},
    )
    missed = {miss.point for miss in found(poor, asker).missed}
    assert {"window larger than input", "stride larger than window", "ceil_mode=True"} <= missed

    poor = planted(
        "aten.index_select.default",
        arguments=lambda d: {
            "self": d.tensor((4, 3)),
            "dim": 0,
            "index": d.tensor((4,), "int64", ("unique", 4, 4)),
        },
    )
    missed = {miss.point for miss in found(poor, asker).missed}
    assert {"index repeated", "index none", "index int32", "index fewer than places"} <= missed


def test_an_operator_whose_sizes_cannot_change_misses_dynamic_shapes(asker: Asker) -> None:
    fixed = planted("aten.view.default", arguments=lambda d: {"self": d.tensor((2, 6)), "size": [3, 4]})
    assert DYNAMIC in {miss.point for miss in found(fixed, asker, 60).missed}
    free = found(load_cases()["aten.relu.default"], asker, 60)
    assert free.hit["dynamic"] == [DYNAMIC]


@pytest.mark.slow
def test_the_command_prints_each_operator_and_fails_for_none_that_is_good() -> None:
    done = run_harness("--generator-report", "120", "--op", "celu", "--op", "aten.amax", "-n", "2")
    assert done.returncode == 0, output(done)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("aten.")]
    assert [row[:3] for row in rows[:2]] == [
        ["aten.amax.default", "120", "100.0%"],
        ["aten.celu.default", "120", "100.0%"],
    ]
    assert "2 have no defect" in done.stdout


@pytest.mark.slow
def test_the_command_refuses_what_it_cannot_do() -> None:
    done = run_harness("--generator-report", "0", "--op", "celu")
    assert done.returncode == 4
    assert "--generator-report N needs a positive N" in done.stderr


def test_an_exception_without_a_reason_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "unreachable.toml"
    file.write_text('[[unreachable]]\noverloads = ["aten.celu.*"]\npoints = ["alpha*"]\nreason = " "\n')
    with pytest.raises(BadExceptions, match=r"unreachable.toml: aten.celu.\*: no reason"):
        read(file)
    file.write_text('[[unreachable]]\noverloads = ["aten.celu.*"]\n')
    with pytest.raises(BadExceptions, match="points"):
        read(file)


def test_files_are_read_as_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    excuse = tmp_path / "unreachable.toml"
    excuse.write_text(
        '[[unreachable]]\noverloads = ["aten.celu.*"]\npoints = ["alpha*"]\nreason = "α ≤ 0"\n',
        encoding="utf-8",
    )
    program = (
        "import sys; from pathlib import Path\n"
        "from harness.coverage.exceptions import read\n"
        f"sys.exit(read(Path({str(excuse)!r}))[0].reason != '\\u03b1 \\u2264 0')"
    )
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **ascii_locale},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
