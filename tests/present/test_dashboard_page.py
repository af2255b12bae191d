"""The page of `conformance dashboard` in a headless Chromium, as a reader uses it."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import threading
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq
import pytest
from dashboard_sites import HOSTILE, SCRIPT, Sites, Visit, chromium, make_sites, visiting
from harness_runs import recorded, row_of, rows, unary
from playwright.sync_api import Browser, Locator, Page, expect
from row_changes import row_changes

from harness.causes.groups import GroupKind, failure_groups
from harness.causes.model_use import model_use
from harness.causes.priority import operator_priority
from harness.compare.verdict import Outcome, is_judged
from harness.coverage.seen_pairs import Tried, read_tried_pairs
from harness.gate.case_changes import ChangeKind
from harness.gate.run_diff import compare_runs
from harness.present import matrix
from harness.present.dashboard.site import write_site
from harness.record import store
from harness.record.json_lines import read_graphs, read_scripts
from harness.record.run_info import RunInfo

pytestmark = [pytest.mark.slowest(5), pytest.mark.slow]

PHONE = {"width": 390, "height": 844}
VIEWS = (
    "#/",
    "#/matrix",
    "#/failures",
    "#/tolerances",
    "#/compare",
    "#/model?ops=celu,erf,nothing",
    "#/data",
)
POOL = "aten.avg_pool2d.default"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    return make_sites(tmp_path_factory.mktemp("dashboard"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def visit(browser: Browser, sites: Sites) -> Iterator[Visit]:
    with visiting(browser, sites.site) as found:
        yield found


def shown_operators(page: Page) -> list[str]:
    """Operators of the matrix, as listed."""
    return page.locator(".matrix a.op").all_inner_texts()


def field(page: Page, label: str) -> Locator:
    """A filter of a view, unfolded."""
    folded = page.locator("details.more:not([open]) > summary")
    if folded.count():
        folded.click()
    return page.locator(f'[data-field="{label}"]')


def test_the_overview_says_what_the_record_says(visit: Visit, sites: Sites) -> None:
    page = visit.open()
    table = page.locator("section", has=page.get_by_role("heading", name="Operators by converter")).locator("table")
    said = {
        cells[0]: cells[1:]
        for cells in (line.locator("th, td").all_inner_texts() for line in table.locator("tbody tr").all())
    }
    counted: dict[str, Counter[tuple[str, bool]]] = {}
    rates: dict[str, Counter[tuple[bool, bool]]] = {}
    table_of = store.read(sites.after)
    ordinary = table_of["ordinary"].to_pylist()
    for row, usual in zip(table_of.to_pylist(), ordinary, strict=True):
        if not is_judged(Outcome(row["outcome"]), row["blame"]):
            continue
        name = f"{row['converter']} → {row['backend']}"
        counted.setdefault(name, Counter())[row["overload"], row["outcome"] == "pass"] += 1
        rates.setdefault(name, Counter())[usual, row["outcome"] == "pass"] += 1
    assert said.keys() == counted.keys()
    for rate in matrix.weighted_rates(table_of):
        assert rate.ordinary is not None
        assert abs(float(said[f"{rate.converter} → {rate.backend}"][0].rstrip("%")) - 100 * rate.ordinary) < 1
    for name, cases in counted.items():
        operators = {overload for overload, _ in cases}
        whole = sum(not cases[overload, False] for overload in operators)
        none = sum(not cases[overload, True] for overload in operators)
        numbers = [0 if word == "–" else int(word) for word in said[name][3:6]]
        assert numbers == [whole, len(operators) - whole - none, none], name
        for text, usual in zip(said[name][1:], (True, False), strict=False):
            passed, total = rates[name][usual, True], rates[name][usual, True] + rates[name][usual, False]
            assert total > 0
            assert f"{passed} of {total}" in text
    expect(page.locator(".notice")).to_contain_text("1 run was set aside. damaged:")
    expect(page.locator("canvas")).to_have_count(2)


def test_the_overview_shows_failures_of_ordinary_use_with_message_and_call(visit: Visit, sites: Sites) -> None:
    page = visit.open()
    table = store.read(sites.after)
    usual = {row["case_id"] for row in table.filter(table["ordinary"]).to_pylist()}
    groups = failure_groups(table)
    common = [group for group in groups if group.ordinary]
    rare = [group for group in groups if not group.ordinary]
    assert common
    assert rare
    assert {group.ordinary.case_id for group in common if group.ordinary} <= usual
    for title, theirs in (("Failures in ordinary use", common), ("Failures in edge cases only", rare)):
        lines = page.locator("section", has=page.get_by_role("heading", name=title)).locator("li")
        expect(lines).to_have_count(min(len(theirs), 8))
        said = lines.first.inner_text()
        shown = theirs[0].ordinary or theirs[0]
        assert shown.call in said
        # A line is no longer than a screen.
        assert shown.message.splitlines()[0][:160] in said


def test_searching_filters_the_matrix_and_is_an_address(visit: Visit) -> None:
    page = visit.open("#/matrix")
    assert sorted(shown_operators(page)) == ["avg_pool2d", "celu", "erf"]
    page.get_by_role("searchbox", name="Search operators").press_sequentially("avg_po", delay=20)
    expect(page.locator(".matrix a.op")).to_have_text(["avg_pool2d"])
    expect(page).to_have_url(re.compile("q=avg_po"))
    page.get_by_role("searchbox", name="Search operators").fill("c?lu")
    expect(page.locator(".matrix a.op")).to_have_text(["celu"])
    page.get_by_role("searchbox", name="Search operators").fill("nothing like it")
    expect(page.get_by_text("Nothing matches")).to_be_visible()


def test_filters_leave_what_the_record_has_and_the_permalink_restores_them(visit: Visit, sites: Sites) -> None:
    page = visit.open("#/matrix")
    field(page, "outcome").select_option("mismatch")
    field(page, "dtype").select_option("float32")
    field(page, "sort by").select_option("failures")
    field(page, "converter → backend").select_option("dynamo → ort-cpu")
    wrong = {
        row["overload"].removeprefix("aten.").removesuffix(".default")
        for row in rows(sites.after)
        if (row["outcome"], row["dtype"], row["converter"], row["backend"])
        == ("mismatch", "float32", "dynamo", "ort-cpu")
    }
    assert "celu" in wrong
    expect(page.locator(".matrix a.op")).to_have_count(len(wrong))
    assert set(shown_operators(page)) == wrong
    again = visit.open("#" + page.url.split("#", 1)[1])
    expect(again.locator(".matrix a.op")).to_have_text(shown_operators(page))
    for label in ("outcome", "dtype", "sort by", "converter → backend"):
        assert field(again, label).input_value() == field(page, label).input_value() != ""
    again.get_by_role("button", name="Clear filters").click()
    expect(again.locator(".matrix a.op")).to_have_count(3)
    expect(again.get_by_role("button", name="Clear filters")).to_be_hidden()
    assert "outcome" not in again.url
    again.go_back()


def test_families_fold_and_the_address_remembers(visit: Visit) -> None:
    page = visit.open("#/matrix?rows=closed&sort=name")
    expect(page.locator(".matrix button.fold")).to_have_count(3)
    page.locator("button.fold", has_text="pooling").click()
    expect(page.locator(".matrix a.op")).to_have_text(["avg_pool2d"])
    assert page.evaluate("document.activeElement.textContent").startswith("▾")
    again = visit.open("#" + page.url.split("#", 1)[1])
    expect(again.locator(".matrix a.op")).to_have_text(["avg_pool2d"])
    field(again, "rows").select_option(label="operators")
    expect(again.locator(".matrix a.op")).to_have_text(["avg_pool2d", "celu", "erf"])


def test_the_matrix_has_ordinary_and_edge_cases_side_by_side_worst_first(visit: Visit, sites: Sites) -> None:
    page = visit.open("#/matrix")
    table = store.read(sites.after)
    counted: Counter[tuple[str, str, bool, bool]] = Counter()
    for row, usual in zip(table.to_pylist(), table["ordinary"].to_pylist(), strict=True):
        if is_judged(Outcome(row["outcome"]), row["blame"]):
            counted[row["overload"], row["converter"], usual, row["outcome"] == "pass"] += 1

    def of(overload: str, converter: str, usual: bool) -> str:
        passed = counted[overload, converter, usual, True]
        return f"{passed}/{passed + counted[overload, converter, usual, False]}"

    for name in shown_operators(page):
        line = page.locator(".matrix .tabulator-row", has=page.get_by_text(name, exact=True))
        numbers = [cell.split()[-1] for cell in line.locator(".state").all_inner_texts()]
        overload = f"aten.{name}.default"
        assert numbers == [
            of(overload, converter, usual) for converter in ("dynamo", "torchscript") for usual in (True, False)
        ]

    def failing(name: str, usual: bool) -> float:
        mine = Counter[bool]()
        for (overload, _, theirs, passed), n in counted.items():
            if (overload, theirs) == (f"aten.{name}.default", usual):
                mine[passed] += n
        return mine[False] / max(1, sum(mine.values()))

    priorities = [
        operator_priority(f"aten.{name}.default", failing(name, True), failing(name, False), model_use())
        for name in shown_operators(page)
    ]
    assert priorities == sorted(priorities, reverse=True)
    heads = page.locator(".matrix .tabulator-col .of").all_inner_texts()
    sums = [
        tuple(sum(n for key, n in counted.items() if key[1:] == (c, usual, passed)) for passed in (True, False))
        for c in ("dynamo", "torchscript")
        for usual in (True, False)
    ]
    assert heads == [f"{passed:,}/{passed + other:,}" for passed, other in sums]
    # All of it is in sight.
    assert page.evaluate(
        "[...document.querySelectorAll('.tabulator-tableholder')].every(box => box.scrollWidth <= box.clientWidth)"
    )
    field(page, "cases").select_option("edge")
    expect(page.locator(".matrix .of")).to_have_count(2)
    assert "use=edge" in page.url
    page.get_by_label("dtypes").check()
    expect(page.locator(".matrix .tabulator-col .sorter", has_text="f32")).to_have_count(2)


def test_all_of_a_row_leads_to_its_operator(visit: Visit) -> None:
    page = visit.open("#/matrix?sort=name")
    row = page.locator(".matrix .tabulator-row", has_text="celu")
    row.locator('[tabulator-field="ends"]').click()
    expect(page.get_by_role("heading", level=1)).to_have_text("aten.celu.default")


def test_regressed_since_shows_the_planted_regression_alone(visit: Visit, sites: Sites) -> None:
    page = visit.open("#/matrix?rows=flat")
    before = json.loads((sites.before / "run.json").read_text())["run_id"]
    field(page, "regressed since").select_option(before)
    expect(page.locator(".matrix a.op")).to_have_text(["celu"])
    titles = [cell.get_attribute("title") or "" for cell in page.locator(".state.worse").all()]
    assert {title.split(", ")[1] for title in titles} == {"dynamo → ort-cpu"}


def test_two_clicks_lead_to_the_evidence(visit: Visit, sites: Sites) -> None:
    page = visit.open("#/matrix?rows=flat")
    page.locator(".matrix .tabulator-row", has_text="avg_pool2d").locator("a.state").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(POOL)
    expect(page.locator("main")).to_contain_text("aten::avg_pool2d(Tensor self")
    recorded = read_graphs(sites.after)[POOL, "dynamo"]
    expect(page.get_by_label("ONNX graph", exact=True).first).to_contain_text("AveragePool")
    assert page.get_by_label("ONNX graph", exact=True).first.inner_text().strip() == recorded.text.strip()
    failing = {
        row["case_id"]
        for row in rows(sites.after)
        if row["overload"] == POOL and row["outcome"] not in ("pass", "skip")
    }
    cards = page.locator("details.card[id^=case-]")
    assert {(card.get_attribute("id") or "").removeprefix("case-") for card in cards.all()} <= failing
    said = cards.first.inner_text()
    assert "expected" in said
    assert "got" in said
    assert "blame: torchlib" in said
    expect(page.locator("a", has_text="pytorch/pytorch #105349").first).to_have_attribute(
        "href", "https://github.com/pytorch/pytorch/issues/105349"
    )


def test_the_failures_common_conditions_are_shown(visit: Visit) -> None:
    page = visit.open(f"#/operator/{POOL}")
    when = page.locator("section", has=page.get_by_role("heading", name="When it fails"))
    expect(when.locator("li").first).to_contain_text("with")
    assert "int64" in when.inner_text()


def test_an_operator_shows_what_was_tried_together(visit: Visit, sites: Sites) -> None:
    page = visit.open(f"#/operator/{POOL}")
    tried = page.locator("section", has=page.get_by_role("heading", name="What was tried together"))
    found = read_tried_pairs(sites.after, [POOL])[POOL]
    share = found.seen
    # The page says less than exactly a hundred of a share that is just below it.
    expect(tried).to_contain_text(f"{round(100 * share.seen / share.possible)}% of {share.possible:,} pairs")
    counts = {state: found.count(state) for state in Tried if state is not Tried.NO_PAIR}
    assert counts[Tried.NOT_DRAWN] > 0
    assert counts[Tried.FAILED_BEFORE] > 0
    for state, count in counts.items():
        expect(tried.locator(f"table .tried.t{int(state)}")).to_have_count(count)
    i, j = np.argwhere(found.tried == Tried.FAILED_BEFORE)[0].tolist()
    cell = tried.locator(f'[title="{found.names[i]} × {found.names[j]}: every case fails before it is compared"]')
    expect(cell).to_be_visible()
    folded = tried.locator("details", has_text="pairs: not drawn")
    expect(folded.locator("dl")).to_have_count(0)
    folded.locator("summary").press("Enter")
    i, j = np.argwhere(found.tried == Tried.NOT_DRAWN)[0].tolist()
    said = folded.locator("dt", has_text=re.compile(f"^{re.escape(found.names[i])}$")).locator("+ dd")
    expect(said).to_contain_text(found.names[j])


def test_a_script_is_copied_whole(visit: Visit, sites: Sites) -> None:
    page = visit.open(f"#/operator/{POOL}")
    copy = page.get_by_role("button", name="Copy repro script").first
    copy.click()
    expect(copy).to_have_text("Copied")
    page.goto(page.url.split("#")[0] + "#/model")
    field = page.get_by_label("Operators", exact=True)
    field.focus()
    page.keyboard.press("Control+V")
    pasted = field.input_value()
    assert pasted in {script.text for script in read_scripts(sites.after).values()}
    compile(pasted, "repro.py", "exec")


@pytest.mark.parametrize("turned", [False, True])
def test_comparing_says_what_the_diff_says(visit: Visit, sites: Sites, turned: bool) -> None:
    runs = [sites.after, sites.before] if turned else [sites.before, sites.after]
    ids = [json.loads((run / "run.json").read_text())["run_id"] for run in runs]
    loaded: list[str] = []
    visit.context.on("request", lambda request: loaded.append(request.url))
    page = visit.open(f"#/compare?a={ids[0]}&b={ids[1]}")
    # The largest files hold the ids of cases, and are loaded for those that are shown.
    assert any("/data/cases/" in url for url in loaded)
    assert not any("/data/ids/" in url for url in loaded)
    expected = compare_runs(*runs)
    tiles = [tile.inner_text().split("\n") for tile in page.locator("button.figure").all()]
    said = {name: int(number) for number, name in tiles}
    # A page knows no waivers.
    shown = set(ChangeKind) - {ChangeKind.UNCHANGED, ChangeKind.WAIVED}
    assert said == {str(change): expected.counts[change] for change in shown}
    kind = ChangeKind.IMPROVED if turned else ChangeKind.REGRESSED
    assert said[kind] > 0
    page.locator("button.figure", has_text=kind).click()
    page.locator(".tabulator-row", has_text="celu").first.get_by_role("button").click()
    found = page.get_by_label("Changed cases")
    expect(found.locator("tbody tr").first).to_contain_text(kind)
    assert "rule: rules.py:celu" in found.inner_text()
    assert any("/data/ids/" in url for url in loaded)
    changed = row_changes(*map(store.read, runs))
    moved = {case_id for (case_id, *_), change in changed.items() if change is kind}
    assert set(found.locator("tbody a").all_inner_texts()) <= moved
    again = visit.open("#" + page.url.split("#", 1)[1])
    expect(again.get_by_label("Changed cases")).to_have_text(found.inner_text(), use_inner_text=True)


def test_the_keyboard_suffices(visit: Visit) -> None:
    page = visit.open("#/matrix?sort=name")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    # The search, the filters, the table.
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('.tabulator-tableholder')")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.value") == "/"
    page.keyboard.press("Backspace")
    page.locator(".tabulator-tableholder").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "avg_pool2d"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("aten.celu.default, dynamo")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("aten.celu.default")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_the_page_lists_the_operators_of_a_model(visit: Visit, sites: Sites, tmp_path: Path) -> None:
    page = visit.open("#/model")
    page.get_by_label("Operators", exact=True).fill("aten::celu\n--op=aten.erf.default\ntorch.ops.aten.nonesuch")
    expect(page.locator(".tabulator-row")).to_have_count(3)
    expect(page.locator(".tabulator-row", has_text="nonesuch")).to_contain_text("not tested")
    expect(page.locator(".tabulator-row", has_text="celu")).to_contain_text(re.compile(r"◐ \d+(\.\d)?% pass"))
    table = store.read(sites.after)
    usual = Counter(
        row["outcome"] == "pass"
        for row, ordinary in zip(table.to_pylist(), table["ordinary"].to_pylist(), strict=True)
        if ordinary
        and (row["overload"], row["converter"]) == ("aten.celu.default", "dynamo")
        and is_judged(Outcome(row["outcome"]), row["blame"])
    )
    expect(page.locator(".tabulator-row", has_text="celu").locator(".state").first).to_have_text(
        f"{usual[True]}/{usual.total()}"
    )
    expect(page.locator("h2", has_text="pass all their ordinary cases")).to_be_visible()
    field(page, "converter → backend").select_option("torchscript → ort-cpu")
    field(page, "dtype").select_option("float32")
    expect(page.locator(".tabulator-row", has_text="erf")).to_contain_text("✓ no failure found")
    again = visit.open("#" + page.url.split("#", 1)[1])
    expect(again.locator(".tabulator-row", has_text="erf")).to_contain_text("✓ no failure found")
    file = tmp_path / "operators.json"
    # As `conformance supports MODEL --json` prints it.
    listed = {"calls": [{"overload": "aten.erf.default"}], "unmapped": ["Foo"]}
    file.write_text(json.dumps(listed))
    again.get_by_label("File with operators").set_input_files(file)
    expect(again.locator(".tabulator-row")).to_have_count(2)
    expect(again.locator(".tabulator-row", has_text="Foo")).to_contain_text("of no known ATen operator")


@pytest.mark.parametrize("cases", ["ordinary", "all"])
def test_tolerances_lead_to_the_worst_case(visit: Visit, sites: Sites, cases: str) -> None:
    page = visit.open(f"#/tolerances?q=celu&dtype=float32{'&cases=all' if cases == 'all' else ''}")
    place = {"overload": "aten.celu.default", "converter": "torchscript", "backend": "ort-cpu"}
    right: dict[str, object] = {**place, "dtype": "float32", "outcome": "pass"}
    right |= {"ordinary": True} if cases == "ordinary" else {}
    found = [row for row in rows(sites.after) if right.items() <= row.items()]
    worst = max(found, key=lambda row: (row["max_ulp_error"], -int(row["case_id"], 16)))
    page.locator(".chip", has_text="torchscript → ort-cpu").click()
    expect(page.locator(".found h3")).to_have_text(f"Case {worst['case_id']}")


def test_downloads_hold_what_the_page_shows(visit: Visit, sites: Sites) -> None:
    page = visit.open("#/matrix?rows=flat&dtype=float32")
    page.get_by_text("Download", exact=True).click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="What is shown: CSV").click()
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert lines[0].startswith("overload,converter,backend,dtype,standing,passes")
    assert any(line.startswith("aten.erf.default,dynamo,ort-cpu,float32,whole") for line in lines)
    cells = pq.read_table(sites.site / "download/matrix.parquet").to_pylist()
    assert sum(cell["cases"] for cell in cells) == len(rows(sites.after, "case_id"))
    assert cells == json.loads((sites.site / "download/matrix.json").read_text())
    assert len((sites.site / "download/matrix.csv").read_text().splitlines()) == len(cells) + 1
    data = visit.open("#/data")
    for badge in data.locator(".badges img").all():
        assert badge.evaluate("image => image.complete && image.naturalWidth > 50")
        assert "no failure was found" in (badge.get_attribute("alt") or "")
        ElementTree.parse(sites.site / unquote(badge.get_attribute("src") or ""))


def test_failures_say_on_a_phone_what_is_wrong(browser: Browser, sites: Sites) -> None:
    table = store.read(sites.after)
    worst, *_ = groups = failure_groups(table)
    with visiting(browser, sites.site, viewport=PHONE) as visit:
        page = visit.open("#/failures")
        failures = sum(group.kind is not GroupKind.LEFT_OPEN for group in groups)
        expect(page.get_by_text(re.compile(rf"^{failures} distinct failures"))).to_be_visible()
        first = page.locator(".tabulator-row").first
        message = first.get_by_text(worst.message.splitlines()[0])
        expect(message).to_be_visible()
        box = message.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        field(page, "cases").select_option("ordinary")
        ordinary = sum(group.ordinary is not None for group in groups)
        expect(
            page.get_by_text(re.compile(rf"^{ordinary} distinct failures?.*; of {len(groups)} lines$"))
        ).to_be_visible()
        message.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(worst.overloads[0])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(browser: Browser, sites: Sites, scheme: str) -> None:
    with visiting(browser, sites.site, viewport=PHONE, color_scheme=scheme) as visit:
        for address in (f"#/operator/{POOL}", *(VIEWS if scheme == "light" else VIEWS[:2])):
            page = visit.open(address)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], address
            assert page.locator("html").get_attribute("data-theme") == scheme
            page.close()


def test_the_reader_chooses_the_colours(visit: Visit) -> None:
    page = visit.open()
    page.get_by_role("button", name="Dark colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(visit.open("#/data").locator("html")).to_have_attribute("data-theme", "dark")


def test_text_has_contrast_in_both_colours(browser: Browser, sites: Sites) -> None:
    for scheme in ("light", "dark"):
        with visiting(browser, sites.site, color_scheme=scheme) as visit:
            for address in ("#/", "#/matrix?rows=open", f"#/operator/{POOL}"):
                page = visit.open(address)
                assert page.evaluate(_CONTRAST) == [], (scheme, address)
                page.close()


#: Texts with a contrast below 4.5 (WCAG 2.2, 1.4.3) against the nearest ground.
_CONTRAST = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = parse(getComputedStyle(element).backgroundColor);
      if (colour[3] !== 0) return colour;
    }
    return [255, 255, 255];
  };
  const apart = ".absent, .dimmed, :disabled, .unseen, .missing, option";
  const found = [];
  for (const e of document.querySelectorAll("main *, header *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.matches(apart)) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(e.className + ": " + e.textContent.slice(0, 30));
  }
  return found;
}"""


def test_no_string_of_a_run_becomes_code(browser: Browser, sites: Sites) -> None:
    addresses = [*VIEWS, "#/matrix?rows=open", "#/operator/aten.celu.default"]
    with visiting(browser, sites.hostile, viewport=PHONE) as visit:
        for address in addresses:
            page = visit.open(address)
            assert page.evaluate("window.hacked") is None, address
            assert page.locator("main script, main img[src=x]").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], address
            page.close()
        page = visit.open("#/operator/aten.celu.default")
        text = page.locator("main").text_content() or ""
        for name in ("message", "evidence", "family", "graph", "script", "converter", "backend"):
            assert SCRIPT.format(name) in text, name
        # Escape sequences are not recorded.
        assert HOSTILE.format("message").replace("\x1b[31m", "") in text
        page = visit.open("#/matrix?rows=flat")
        page.locator(".matrix a.op", has_text="script").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("<script>")
        assert page.evaluate("window.hacked") is None
        # As a key, `__proto__` is a name like any other.
        page = visit.open("#/matrix?dtype=__proto__&rows=flat")
        expect(page.locator(".matrix a.state")).not_to_have_count(0)
        assert page.evaluate("({}).hacked") is None


def test_what_a_shard_lost_is_missing_on_every_view(browser: Browser, sites: Sites, tmp_path: Path) -> None:
    merged = shutil.copytree(sites.after, tmp_path / "merged")
    info = json.loads((merged / "run.json").read_text())
    shard = {"index": 3, "count": 4, "state": "partial", "operators": [], "unfinished": ["aten.erf.default"]}
    (merged / "run.json").write_text(json.dumps({**info, "run_id": "merged", "started": "2100", "shards": [shard]}))
    write_site([merged, sites.after], tmp_path / "site")
    with visiting(browser, tmp_path / "site") as visit:
        page = visit.open("#/matrix?q=erf")
        expect(page.locator(".notice")).to_contain_text("Shard 3 of 4 is unfinished: 1 operator of it")
        cells = page.locator(".tabulator-row:not(.family) .state")
        assert set(cells.all_inner_texts()) == {"? missing"}
        field(page, "status").select_option("whole")
        expect(page.get_by_text("Nothing matches")).to_be_visible()
        expect(visit.open().locator("main")).to_contain_text("1 operator missing")
        expect(visit.open("#/compare").locator("main")).to_contain_text("1 operator is missing in one of the two")
        expect(visit.open("#/model?ops=erf").locator(".tabulator-row")).to_contain_text("? missing")


def test_a_web_server_serves_it_as_well(browser: Browser, sites: Sites) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(sites.site))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with visiting(browser, f"http://127.0.0.1:{server.server_port}") as visit:
            for address in ("#/", "#/matrix?rows=open", "#/compare"):
                expect(visit.open(address).get_by_role("heading", level=1)).to_be_visible()
        server.shutdown()


def test_an_operator_that_the_newest_run_is_not_of_stands_as_in_its_last_run(
    browser: Browser, sites: Sites, tmp_path: Path
) -> None:
    info = RunInfo(run_id="newest", started="2999-01-01T00:00:00+00:00", seed=0)
    newest = recorded(tmp_path / "newest", [row_of(unary("aten.celu.default", [1.0]))], info)
    write_site([sites.before, newest], tmp_path / "site")
    with visiting(browser, tmp_path / "site") as visit:
        page = visit.open("#/operator/aten.erf.default")
        expect(page.get_by_text("The chosen run is not of this operator")).to_be_visible()
        stands = page.locator("section", has=page.get_by_role("heading", name="Status in the run of"))
        expect(stands).to_contain_text(re.compile(r": no failure found in \d+ cases, \d+% of pairs"))
        lines = [line.locator("th, td").all_inner_texts() for line in stands.locator("tbody tr").all()]
    said = {cells[0]: cells[3] for cells in lines}
    counted: dict[str, Counter[bool]] = {}
    for row in rows(sites.before, "overload", "converter", "backend", "outcome"):
        if row["overload"] == "aten.erf.default" and row["outcome"] != "skip":
            column = counted.setdefault(f"{row['converter']} → {row['backend']}", Counter())
            column[row["outcome"] == "pass"] += 1
    assert said.keys() == counted.keys()
    for name, cases in counted.items():
        assert str(cases.total()) in said[name], (name, said)


def test_a_failing_case_has_a_page_of_its_own(visit: Visit) -> None:
    page = visit.open("#/operator/aten.celu.default")
    link = page.locator("a[href^='#/case/']:visible").first
    case_id = link.inner_text()
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Case {case_id}")
    for title in ("In PyTorch", "Results", "Run it again", "History"):
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("blame: "))).not_to_have_count(0)


def test_a_case_that_fails_nowhere_is_answered_with_a_command(visit: Visit) -> None:
    page = visit.open("#/case/0123456789ab")
    expect(page.get_by_text("conformance show 0123456789ab")).to_be_visible()


def test_one_search_finds_operators_failures_and_cases(visit: Visit) -> None:
    page = visit.open("#/tolerances")
    everywhere = page.get_by_role("searchbox", name="Search all views")
    everywhere.fill("celu")
    everywhere.press("Enter")
    expect(page.locator("main").get_by_role("link", name="aten.celu.default", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile(r"^\d+ failures?$"))).to_be_visible()
    everywhere.fill("0123456789ab")
    everywhere.press("Enter")
    expect(page.get_by_role("link", name="case 0123456789ab")).to_be_visible()
