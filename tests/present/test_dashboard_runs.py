"""The page describes killed, small and older runs, in a headless Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dashboard_sites import Visit, chromium, visiting
from harness_runs import row_of, unary
from playwright.sync_api import Browser, Page, expect

from harness.compare.verdict import Outcome
from harness.present.dashboard.site import write_site
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

pytestmark = [pytest.mark.slowest(8), pytest.mark.slow]

OPERATORS = ("abs", "celu", "cos", "erf", "sin", "tanh")
#: An operator that is planned and that no run has got to.
NEVER = "sinc"
CONVERTERS = ("dynamo", "torchscript")
CASES = 8
#: Operator and converter → how its first cases end: how many, and whom they are blamed on.
Failing = Mapping[tuple[str, str], tuple[int, str]]
WRONG: Failing = {
    ("celu", "dynamo"): (CASES, "converter"),
    ("celu", "torchscript"): (3, "backend"),
    ("sin", "dynamo"): (CASES, "backend"),
}


def overload(name: str) -> str:
    return f"aten.{name}.default"


@dataclass(frozen=True)
class Recorded:
    """A run as the tests make it.

    Attributes:
        failing: What does not pass.
        done: Operators whose rows are all there; the next one has those of its first converter only.
        finished: Whether it came to its end; it was killed otherwise.
        options: As recorded.
    """

    day: int
    failing: Failing
    planned: tuple[str, ...] = OPERATORS
    converters: tuple[str, ...] = CONVERTERS
    done: int | None = None
    finished: bool = True
    options: Mapping[str, Any] | None = None
    rules: Mapping[str, str] | None = None

    def write(self, directory: Path) -> Path:
        """Write it as a session does."""
        options: dict[str, Any] = {"op": [], "examples": CASES, "backend": ["ort-cpu"]}
        info = RunInfo(
            run_id=directory.name,
            started=f"2026-01-{self.day:02}T03:00:00+00:00",
            seed=0,
            versions={"torch": "2.13.0", "onnxruntime": "1.31.1"},
            options={**options, "converter": list(self.converters), **(self.options or {})},
            planned=({overload(name): " ".join(self.converters) for name in self.planned},),
        )
        done = len(self.planned) if self.done is None else self.done
        units = [(name, converter) for name in self.planned for converter in self.converters]
        with RunWriter(directory, info) as writer:
            for name, converter in units[: done * len(self.converters) + int(not self.finished)]:
                writer.write(self._rows(name, converter))
                writer.done(overload(name), converter)
        if self.finished:
            store.finish(directory, 1)
        return directory

    def _rows(self, name: str, converter: str) -> Iterator[Any]:
        wrong, blame = self.failing.get((name, converter), (0, ""))
        for number in range(CASES):
            failed = {"outcome": Outcome.MISMATCH, "signature": f"{name} is wrong", "blame": blame}
            yield row_of(
                unary(overload(name), [float(number)]),
                converter=converter,
                family="activation" if name == "celu" else "pointwise",
                message=f"{name} is wrong" if number < wrong else "",
                max_ulp_error=None if number < wrong else 0.25,
                rule=(self.rules or {}).get(name, ""),
                **(failed if number < wrong else {}),
            )


#: By the names of their directories, which are also their ids.
RUNS = {
    "first": Recorded(1, {**WRONG, ("abs", "dynamo"): (2, "converter")}),
    "second": Recorded(2, {**WRONG, ("erf", "dynamo"): (5, "converter")}),
    "killed": Recorded(3, WRONG, planned=(*OPERATORS, NEVER), done=3, finished=False),
    "small": Recorded(4, WRONG, planned=("celu",), converters=("dynamo",), options={"op": ["celu"]}),
}


@dataclass(frozen=True)
class RunSites:
    """Sites of some of `RUNS`: of all, and of those that finished."""

    all: Path
    whole: Path


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> RunSites:
    directory = tmp_path_factory.mktemp("runs")
    runs = {name: run.write(directory / name) for name, run in RUNS.items()}
    write_site(list(runs.values()), directory / "all")
    write_site([runs["first"], runs["second"]], directory / "whole")
    return RunSites(directory / "all", directory / "whole")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def visit(browser: Browser, sites: RunSites) -> Iterator[Visit]:
    with visiting(browser, sites.all) as found:
        yield found


def listed(page: Page) -> list[str]:
    """Operators of the matrix, as listed."""
    return page.locator(".matrix a.op").all_inner_texts()


def test_what_a_killed_run_planned_and_lacks_is_listed_counted_and_filtered(visit: Visit) -> None:
    lacking = ["erf", "sin", "sinc", "tanh"]
    page = visit.open("#/?run=killed")
    expect(page.locator(".notice")).to_contain_text("4 of 7 planned operators lack results")
    expect(page.locator(".about")).to_contain_text("4 operators missing")
    page.locator(".about a", has_text="4 operators missing").click()
    expect(page.locator(".matrix a.op")).to_have_count(4)
    expect(page.locator(".matrix a.op")).to_have_text(lacking)
    assert set(page.locator(".matrix a.state").all_inner_texts()) == {"? missing"}
    assert page.locator('[data-field="status"]').input_value() == "missing"
    page.locator(".matrix a.op", has_text="sinc").click()
    expect(page.locator("main")).to_contain_text("No run here has verdicts of this operator.")
    page = visit.open("#/model?run=killed&ops=sinc,celu")
    expect(page.locator(".tabulator-row", has_text="sinc")).to_contain_text("? missing")
    expect(page.locator(".tabulator-row", has_text="celu")).to_contain_text("none pass")


def test_all_filters_of_the_matrix_hold_for_one_column(visit: Visit) -> None:
    """celu has no passing case with one converter, and failures of the backend with the other."""
    page = visit.open("#/matrix?sort=name&run=second&standing=none")
    expect(page.locator(".matrix a.op")).to_have_text(["celu", "sin"])
    page.locator('[data-field="blame"]').select_option("backend")
    expect(page.locator(".matrix a.op")).to_have_text(["sin"])
    page.locator('[data-field="status"]').select_option("part")
    expect(page.locator(".matrix a.op")).to_have_text(["celu"])
    # The column that is not meant steps back.
    lit = page.locator(".matrix a.state:not(.dimmed)").all()
    assert {"torchscript" in (cell.get_attribute("title") or "") for cell in lit} == {True}


def test_a_small_run_is_not_the_headline_and_what_it_was_not_asked_for_is_not_gone(
    visit: Visit, sites: RunSites
) -> None:
    page = visit.open()
    expect(page.locator(".foot")).to_contain_text("Run killed")
    summary = json.loads((sites.all / "summary.json").read_text())
    assert summary["run"]["run_id"] == "killed"
    assert summary["moved"]["since"] == "second"
    assert (summary["moved"]["new"], summary["moved"]["gone"]) == (0, 0)
    page.get_by_label("Run", exact=True).select_option("small")
    expect(page.locator(".foot")).to_contain_text("Run small")
    moved = page.locator("section", has=page.get_by_role("heading", name="What moved since"))
    expect(moved).to_contain_text("operators all 7 → aten.celu.default; converters dynamo, torchscript → dynamo")
    expect(moved).to_contain_text("40 cases not requested in one of the two runs")
    assert "gone" not in moved.inner_text()
    page = visit.open("#/compare?a=second&b=small")
    tiles = {name: n for n, name in (tile.split("\n") for tile in page.locator(".figure").all_inner_texts())}
    assert tiles["gone"] == "0"
    assert tiles["not requested"] == str(2 * len(OPERATORS) * CASES - CASES)
    expect(page.locator(".notice")).to_contain_text("Only cases that both requested are compared.")
    # Each other case is in both, and was not touched.
    expect(page.locator("main")).to_contain_text(f"{CASES} cases unchanged")
    page.get_by_role("button", name="Swap").click()
    expect(page.locator(".figure", has_text="not requested")).to_contain_text("88")


def test_a_run_is_compared_with_the_last_one_of_its_kind(visit: Visit) -> None:
    page = visit.open("#/?run=killed")
    expect(page.locator("main")).to_contain_text("What moved since 2026-01-02")
    page.get_by_role("link", name="Compare", exact=True).last.click()
    chosen = page.locator('[data-field="from"], [data-field="to"]')
    expect(chosen.first).to_have_value("second")
    expect(chosen.last).to_have_value("killed")
    expect(visit.open("#/?run=first").locator("main")).to_contain_text("This is the first run here.")


def test_the_chosen_run_is_the_one_of_every_view(browser: Browser, sites: RunSites) -> None:
    """Two runs that fail in other ways: the newest in erf, the one before in abs."""
    with visiting(browser, sites.whole) as visit:
        for run, wrong, right in (("first", "abs", "erf"), ("second", "erf", "abs")):
            page = visit.open(f"#/?run={run}")
            failures = page.locator("section", has=page.get_by_role("heading", name="Failures in"))
            expect(failures.locator("a.grow", has_text=wrong)).to_have_count(1)
            expect(failures.locator("a.grow", has_text=right)).to_have_count(0)
            page.get_by_role("link", name="Failures", exact=True).click()
            expect(page.locator(".tabulator-row", has_text=wrong)).to_have_count(1)
            expect(page.locator(".tabulator-row", has_text=right)).to_have_count(0)
            assert RUNS[run].day == int(page.locator(".about").inner_text().split("2026-01-")[1][:2])
            page.get_by_role("link", name="Tolerances", exact=True).click()
            expect(page.locator(".about")).to_contain_text(f"2026-01-0{RUNS[run].day}")
            page.get_by_role("searchbox", name=re.compile("operators")).fill(wrong)
            row = page.locator(".tabulator-row", has_text=wrong)
            passing = CASES - RUNS[run].failing[wrong, "dynamo"][0]
            expect(row.locator('[tabulator-field="0/4"]')).to_have_text(str(passing))
            page.get_by_role("link", name="Matrix", exact=True).click()
            expect(page.get_by_label("Run", exact=True)).to_have_value(run)
            page.close()


def test_an_operator_has_the_evidence_of_the_chosen_run_where_it_ended_otherwise(
    browser: Browser, sites: RunSites, tmp_path: Path
) -> None:
    """abs fails in the older run only, and celu in the same way in both."""
    with visiting(browser, sites.whole) as visit:
        page = visit.open("#/operator/aten.abs.default?run=first")
        expect(page.locator("details.card[id^=case-]")).to_contain_text("blame: converter")
        expect(page.locator("details.card[id^=case-]")).to_contain_text("results/first")
        page = visit.open("#/operator/aten.abs.default")
        expect(page.locator("main")).to_contain_text("No case of this operator failed")
        page = visit.open("#/operator/aten.celu.default?run=first")
        expect(page.locator("details.card[id^=case-]").first).to_contain_text("mismatch")
        assert page.locator(".notice").count() == 0
    # A run that differs in most of its cases has no pages of cases, and the page tells that.
    other = Recorded(1, {(name, c): (CASES, "backend") for name in OPERATORS for c in CONVERTERS})
    second = sites.all.parent / "second"
    write_site([other.write(tmp_path / "other"), second], tmp_path / "site")
    with visiting(browser, tmp_path / "site") as visit:
        page = visit.open("#/operator/aten.abs.default?run=other")
        expect(page.locator(".notice")).to_contain_text("the site has the status of this operator alone")
        expect(page.locator(".notice")).to_contain_text("are from the run 2026-01-02 03:00 · second")
        expect(page.locator("table.standing")).to_contain_text(f"0/{CASES}")


def test_a_missing_run_is_shown_as_missing(visit: Visit) -> None:
    for address in ("#/?run=nightly", "#/failures?run=nightly", "#/compare?a=nightly&b=second"):
        page = visit.open(address)
        expect(page.locator(".notice", has_text="No run here is called nightly.")).to_be_visible()
        page.close()
    page = visit.open("#/?run=nightly")
    expect(page.locator(".notice").first).to_contain_text("This is 2026-01-03 03:00 · killed (partial)")


def test_a_site_without_a_run_opens_at_any_address(browser: Browser, tmp_path: Path) -> None:
    write_site([tmp_path / "none"], tmp_path / "site")
    with visiting(browser, tmp_path / "site") as visit:
        for address in ("#/", "#/compare?a=x&b=y&run=nightly"):
            page = visit.open(address)
            expect(page.locator("main")).to_contain_text("No run could be shown.")
            page.close()


def test_runs_are_named_by_time_name_converter_and_backend(visit: Visit) -> None:
    said = [
        "2026-01-04 03:00 · small · dynamo → ort-cpu",
        "2026-01-03 03:00 · killed (partial) · dynamo, torchscript → ort-cpu",
        "2026-01-02 03:00 · second · dynamo, torchscript → ort-cpu",
        "2026-01-01 03:00 · first · dynamo, torchscript → ort-cpu",
    ]
    page = visit.open("#/failures")
    assert page.get_by_label("Run", exact=True).locator("option").all_inner_texts() == said
    page = visit.open("#/compare")
    assert page.locator('[data-field="from"] option').all_text_contents() == said
    page = visit.open("#/matrix?run=killed")
    since = page.locator('[data-field="regressed since"] option').all_text_contents()
    assert since == ["–", said[0], *said[2:]]


def test_a_rules_file_that_changed_is_what_changed(browser: Browser, sites: RunSites, tmp_path: Path) -> None:
    with_rules = Recorded(
        9,
        {**WRONG, ("tanh", "dynamo"): (CASES, "converter")},
        options={"rules": ["../rules.py"]},
        rules={"tanh": "rules.py:tanh"},
    ).write(tmp_path / "tried")
    write_site([sites.all.parent / "second", with_rules], tmp_path / "site")
    with visiting(browser, tmp_path / "site") as visit:
        page = visit.open("#/compare?a=second&b=tried")
        expect(page.locator(".figure", has_text="regressed")).to_contain_text(str(CASES))
        changed = page.locator("section", has=page.get_by_role("heading", name="What changed"))
        assert changed.locator("tbody tr").all_inner_texts() == ["rules\tnone\trules.py"]
        page = visit.open("#/?run=tried")
        expect(page.locator("main")).to_contain_text("Changed: rules none → rules.py")


def test_runs_of_different_converters_stand_side_by_side(browser: Browser, tmp_path: Path) -> None:
    wrong = {("celu", "dynamo"): (CASES, "converter"), ("sin", "torchscript"): (2, "converter")}
    runs = [
        Recorded(day, wrong, converters=(converter,)).write(tmp_path / converter)
        for day, converter in enumerate(CONVERTERS, start=1)
    ]
    write_site(runs, tmp_path / "site")
    with visiting(browser, tmp_path / "site") as visit:
        page = visit.open(f"#/compare?a={CONVERTERS[0]}&b={CONVERTERS[1]}")
        expect(page.locator(".figure", has_text="first passes more")).to_contain_text("1")
        expect(page.locator(".figure", has_text="second passes more")).to_contain_text("1")
        expect(page.locator(".figure", has_text="both pass")).to_contain_text(str(len(OPERATORS) - 2))
        # The furthest apart first: one passes nothing of celu.
        first = page.locator(".tabulator-row").first
        expect(first).to_contain_text("celu")
        expect(first).to_contain_text(f"✕ 0/{CASES}")
        page.locator(".figure", has_text="first passes more").click()
        expect(page.locator(".tabulator-row")).to_have_count(1)
        expect(page.locator(".tabulator-row")).to_contain_text("sin")
