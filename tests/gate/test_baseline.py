"""`pytest harness --baseline`: what is worse than expected fails, and every difference has its kind."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from commands import answered, typed
from harness_runs import output, rows, run_harness
from planted_rules import BEFORE, EDITS, edited

from harness.compare.verdict import Verdict
from harness.core.route import Route
from harness.gate.baseline.count_cells import cells_of
from harness.gate.baseline.file import Baseline, baseline_of_run, read_baseline
from harness.gate.baseline.gate import BaselineFinding
from harness.gate.baseline.recheck import recheck
from harness.generate.case_library import load_cases
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import Unit, run_unit

pytestmark = pytest.mark.slowest(9)

Told = dict[str, set[str]]


def differences_in(text: str) -> Told:
    """Finding → overloads, as the terminal has them."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    finding = ""
    for line in text.partition("Compared with the baseline")[2].splitlines():
        heading = re.fullmatch(r"  (\S.*): \d+", line)
        if heading and heading[1] in list(BaselineFinding):
            finding = heading[1]
        elif line.startswith("    aten."):
            found[finding].add(line.split()[0])
        elif not line.startswith("   "):
            finding = ""
    return dict(found)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``before``, the baseline ``base`` of it with changed versions, and ``after``, run with every edit."""
    directory = tmp_path_factory.mktemp("planted")
    rules = directory / "my_rules.py"
    rules.write_text(BEFORE)
    base = directory / "base"
    small = ("--dtype", "float32", "--examples", "32", "--values", "2")
    update = ("--baseline", base, "--update-baseline")
    options = ("--rules", rules, "--shrink", "0")
    done = run_harness(*options, *small, *update, "--results-dir", directory / "before")
    assert done.returncode == 0, output(done)
    assert f"operator/dtype entries to {base}" in done.stdout
    info = base / "baseline.json"
    data = json.loads(info.read_text())
    data["versions"]["backend ort-cpu"] = "0.9"
    info.write_text(json.dumps(data))
    rules.write_text(edited(*EDITS))
    done = run_harness(*options, "--baseline", base, "--results-dir", directory / "after")
    assert done.returncode == 1, output(done)
    (directory / "said").write_text(done.stdout)
    return directory


def test_the_rules_were_used(planted: Path) -> None:
    for name in ("before", "after"):
        for row in rows(planted / name, "overload", "rule"):
            assert row["rule"].startswith("my_rules.py:"), row


def test_every_planted_change_has_its_finding_and_no_other(planted: Path) -> None:
    assert differences_in((planted / "said").read_text()) == {
        "regression": {"aten.leaky_relu.default", "aten.neg.default"},
        "error above bound": {"aten.sqrt.default"},
        "expected failure that passes": {"aten.fmax.default"},
        "flaky": {"aten.relu.default"},
    }


def test_the_run_draws_what_the_baseline_drew(planted: Path) -> None:
    assert {row["case_id"] for row in rows(planted / "after", "case_id")} == {
        row["case_id"] for row in rows(planted / "before", "case_id")
    }
    assert "with other cases" not in (planted / "said").read_text()


def test_only_what_is_worse_fails(planted: Path) -> None:
    assert "3 failed, 3 passed" in (planted / "said").read_text()


def test_a_baseline_of_other_versions_names_them(planted: Path) -> None:
    said = (planted / "said").read_text()
    assert re.search(r"^  backend ort-cpu: 0\.9 → \d", said, re.MULTILINE)
    # A rule may be to blame, but so may the runtime; not where there is no model to run.
    gate = said.partition("Compared with")[2]
    assert re.search(r"aten\.leaky_relu[^\n]*\n\s+\[other versions: backend ort-cpu\]", gate)
    assert re.search(r"aten\.neg[^\n]*\n(?!\s+\[other versions)", gate)


def test_a_case_to_look_at_is_named(planted: Path) -> None:
    said = (planted / "said").read_text().partition("Compared with the baseline")[2]
    case = re.search(r"aten\.neg\.default [^;]*;\s+case (\w+)", said)
    assert case is not None
    assert case[1] in {row["case_id"] for row in rows(planted / "after", "case_id")}
    # The first command to copy is about what is worse than expected, whatever else fails.
    again = re.search(r"Run it again: .* --case (\w+) ", (planted / "said").read_text())
    assert again is not None
    assert f"case {again[1]}" in said


def test_the_baseline_is_text_that_a_review_can_read(planted: Path) -> None:
    text = (planted / "base" / "pointwise.txt").read_text()
    assert re.search(
        r"^aten\.neg\.default\n  float32 dynamo ort-cpu 32/\d+ #\w{8} pass 32 rule my_rules.py:neg$",
        text,
        re.MULTILINE,
    )
    assert re.search(r"^aten\.sqrt\.default\n  float32 .* pass 32 ulp 0.5:\d.* rule", text, re.MULTILINE)
    for path in (planted / "base").iterdir():
        assert str(planted) not in path.read_text()
    options = json.loads((planted / "base" / "baseline.json").read_text())["options"]
    assert options == {"seed": 0, "examples": 32, "values": 2, "dtype": ["float32"]}


def test_a_diff_of_the_runs_tells_the_same(planted: Path) -> None:
    before, after = str(planted / "before"), str(planted / "after")
    done = typed("diff", before, after, "--json", "--fail-on", "regression", status=1)
    changed = {line["overload"]: set(line["counts"]) - {"unchanged"} for line in json.loads(done.stdout)["overloads"]}
    assert changed == {
        "aten.leaky_relu.default": {"regressed"},
        "aten.neg.default": {"regressed"},
        "aten.sqrt.default": {"error above bound"},
        "aten.fmax.default": {"improved"},
        "aten.relu.default": {"flaky"},
    }


def test_a_diff_with_the_baseline_tells_the_same(planted: Path) -> None:
    sides = [str(planted / "base"), str(planted / "after")]
    done = typed("diff", *sides, "--json", "--fail-on", "regression", status=1)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one in json.loads(done.stdout)["differences"]:
        found[one["finding"]].add(one["overload"])
    assert dict(found) == differences_in((planted / "said").read_text())
    text = typed("diff", *sides, "--markdown").stdout
    assert "| backend ort-cpu | 0.9 | " in text
    assert "#### Regression: " in text
    same = typed("diff", sides[0], sides[0], "--fail-on", "change")
    assert "nothing differs" in same.output


def test_a_changed_rule_is_given_as_the_reason(planted: Path) -> None:
    answer = answered("diff", planted / "before" / "without-rules", planted / "before")
    lines = {line["overload"]: line for line in answer["overloads"]}
    assert lines["aten.fmax.default"]["why"] == "rule: the converter's own → my_rules.py:fmax"


@pytest.mark.slow
def test_what_was_accepted_is_expected_and_a_known_flaky_case_stays_quiet(planted: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    made = typed("baseline", planted / "after", "--out", base, "--json")
    assert json.loads(made.stdout)["operators"] == 6
    assert re.search(r"relu\.default\n  float32 .* flaky \d", (base / "activation.txt").read_text())
    rules = planted / "my_rules.py"
    options = ("--rules", rules, "--shrink", "0")
    done = run_harness(*options, "--baseline", base, "--results-dir", tmp_path / "run")
    assert done.returncode == 0, output(done)
    assert differences_in(done.stdout) == {}
    assert "nothing differs" in done.stdout


SEEDS = 5
SOME = ("aten.celu.default", "aten.avg_pool2d.default", "aten.erf.default", "aten.cumsum.default")


@pytest.mark.slow
def test_an_unchanged_tree_reports_nothing_with_other_seeds() -> None:
    """Operators of which many, some and no cases fail: celu's float64, pools, kernels that are missing."""
    load_cases()
    units = [Unit(overload=name, route=Route(converter="dynamo"), backends=("ort-cpu",), examples=32) for name in SOME]
    with Supervisor(timeout=120) as supervisor:

        def verdicts(unit: Unit) -> list[Verdict]:
            return [verdict for some in run_unit(unit, supervisor) for verdict in some]

        first = [verdict for unit in units for verdict in verdicts(unit)]
        options = {"seed": 0, "examples": 32, "values": 4}
        baseline = Baseline({cell.key: cell for cell in cells_of(first)}, {}, options)
        assert any(cell.failures for cell in baseline.cells.values())
        other = 0
        for seed in range(1, SEEDS + 1):
            run = Baseline({}, {}, {**options, "seed": seed})
            for unit in units:
                drawn = replace(unit, seed=seed)
                found = recheck(baseline, run, verdicts(drawn), drawn, supervisor)
                assert [d.message for d in found.differences if d.finding is not BaselineFinding.WITHIN_CHANCE] == []
                other += found.other
    assert other > SEEDS * len(SOME)


def test_a_run_is_its_own_baseline(planted: Path) -> None:
    read = read_baseline(planted / "base")
    made = baseline_of_run(planted / "before")
    assert dict(read.cells) == dict(made.cells)
    assert read.options == made.options
