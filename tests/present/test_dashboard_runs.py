"""What the page says of runs of several kinds, in a headless Chromium: of a killed, a small, an older one."""

from __future__ import annotations

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

pytestmark = pytest.mark.slowest(8)

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
    expect(page.locator(".notice")).to_contain_text("4 of 7 planned operators lack verdicts")
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
