"""`conformance dashboard` builds a site of records; it is read without a browser here."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import typed
from harness_runs import row_of, unary
from row_changes import row_changes

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.gate.case_changes import CHANGES
from harness.gate.run_diff import compare_runs
from harness.present.dashboard.embed import script
from harness.present.dashboard.findings import RecordedCall, findings
from harness.present.dashboard.site import badge, file_name, write_site
from harness.present.dashboard.site_model import build
from harness.record import store
from harness.record.json_lines import write_flaky
from harness.record.layout import ResultsError
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

OPERATORS = tuple(f"aten.{name}.default" for name in ("celu", "erf", "sin", "cos", "tanh", "abs"))
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"max_ulp_error": 0.4},
    {"max_ulp_error": 0.9},
    {"max_ulp_error": 1.7},
    {"max_ulp_error": 3.0},
    {"max_ulp_error": 40.0},
    {"max_ulp_error": float("inf")},
    {"outcome": Outcome.MISMATCH, "signature": "values", "blame": "converter"},
    {"outcome": Outcome.MISMATCH, "signature": "dtype", "blame": "converter"},
    {"outcome": Outcome.MISMATCH, "signature": "values", "blame": "spec"},
    {"outcome": Outcome.UNSUPPORTED, "stage": Stage.LOAD, "signature": "no kernel", "blame": "backend"},
    {"outcome": Outcome.BUILT, "stage": Stage.LOAD},
    {"outcome": Outcome.SKIP, "stage": Stage.REFERENCE},
)


def recorded(
    directory: Path, rows: list[Verdict], *, started: str = "2026-01-01", finished: bool = True, **more: Any
) -> Path:
    """A run with `rows`; `more` goes into its ``run.json``."""
    info = RunInfo(run_id=directory.name, started=f"{started}T03:00:00+00:00", seed=0)
    with RunWriter(directory, info) as writer:
        writer.write(rows)
    if finished:
        store.finish(directory, 0)
    path = directory / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    return directory


def drawn(seed: int, cases: int = 40) -> list[Verdict]:
    """Rows with outcomes of every kind; most of them in every run."""
    random = np.random.default_rng(seed)
    return [
        row_of(
            unary(operator, [float(number)]),
            backend=backend,
            family="pointwise",
            exported_invocation="exported" if number % 5 == 0 else "",
            **{"outcome": Outcome.PASS, "stage": Stage.COMPARE, **WAYS[random.integers(len(WAYS))]},
        )
        for operator in OPERATORS
        for number in range(cases)
        for backend in ("ort-cpu", "onnx-reference")
        if random.random() < 0.9
    ]


def site_data(site: Path, name: str) -> Any:
    """A piece of data as a browser gets it."""
    text = (site / "data" / f"{name}.js").read_text(encoding="utf-8")
    assert text.startswith(f"conformanceData('{name}', '")
    inside = text[len(f"conformanceData('{name}', '") : -len("');\n")]
    return json.loads(json.loads(f'"{_quoted(inside)}"'))


def _quoted(inside: str) -> str:
    """The inside of a literal of JavaScript as that of one of JSON, which knows double quotes only."""
    found, escaped = [], False
    for character in inside:
        if escaped:
            found.append(character if character != "'" else "\b'")
            escaped = False
            continue
        escaped = character == "\\"
        found.append('\\"' if character == '"' else character)
    return "".join(found).replace("\\\b'", "'")


@pytest.mark.parametrize("seed", range(3))
def test_comparing_on_numbers_is_comparing_rows(tmp_path: Path, seed: int) -> None:
    runs = [recorded(tmp_path / name, drawn(2 * seed + n), started=f"2026-01-0{n + 1}") for n, name in enumerate("ab")]
    key = {
        (r["case_id"], r["exported_invocation"], r["converter"], r["backend"]) for r in store.read(runs[0]).to_pylist()
    }
    write_flaky(runs[0], sorted(key)[:7])
    built = build(runs)
    found = built.changes(0, 1).changes
    before, after = map(store.read, runs)
    changes = row_changes(before, after, sorted(key)[:7])
    expected = Counter(changes.values())
    assert Counter(compare_runs(*runs).counts) == expected
    for line in compare_runs(*runs).overloads:
        for kind, example in line.examples.items():
            name = (example.row["case_id"], example.row["exported_invocation"], line.converter, line.backend)
            assert changes[name] is kind
            assert example.row["overload"] == line.overload
    assert Counter(CHANGES[number] for number in found.change.tolist()) == expected
    assert len(expected) >= 8


@pytest.mark.parametrize(
    "asked",
    [
        {"options": {"backend": ["ort-cpu"]}},
        {"options": {"op": ["celu", "erf"]}, "operators": OPERATORS[:2]},
        {"options": {"examples": 16}},
        {"options": {"dtype": ["int64"]}},
        {"options": {"shapes": "dynamic"}},
        {"basis": {"sources": "corpus"}},
    ],
    ids=str,
)
def test_what_a_run_was_not_asked_for_is_neither_new_nor_gone(tmp_path: Path, asked: dict[str, Any]) -> None:
    whole = {"backend": ["ort-cpu", "onnx-reference"], "shapes": "static", "examples": 40}
    more: dict[str, Any] = {"options": whole, "operators": OPERATORS, "basis": {"sources": "generated"}}
    before = recorded(tmp_path / "before", drawn(0), **more)
    rows = [row for row in drawn(1) if row.backend == "ort-cpu" and row.overload in OPERATORS[:2]]
    after = recorded(tmp_path / "after", rows, started="2026-01-02", **asked)
    built = build([before, after])
    for pair in ((0, 1), (1, 0)):
        found, expected = built.changes(*pair), compare_runs(*((before, after)[number] for number in pair))
        counted = Counter(CHANGES[number] for number in found.changes.change.tolist())
        assert counted == Counter({kind: n for kind, n in expected.counts.items() if n})
        assert found.unasked == sum(expected.unasked.values()) > 0


def test_the_files_of_a_comparison_say_how_every_case_ended(tmp_path: Path) -> None:
    """The chunks, run lengths and errors that `changes.js` reads are unpacked."""
    runs = [recorded(tmp_path / n, drawn(i), started=f"2026-01-0{i + 1}") for i, n in enumerate("abc")]
    site = tmp_path / "site"
    write_site(runs, site)
    index, states = site_data(site, "index"), site_data(site, "states")
    for number, run in enumerate(runs):
        found: Counter[tuple[object, ...]] = Counter()
        for part in site_data(site, f"ends/{number}")["parts"]:
            chunk = site_data(site, f"cases/{part['chunk']}")
            assert chunk["size"] < chunk["block"]
            ids = site_data(site, f"ids/{part['chunk']}-0")
            ended = [s for s, n in zip(part["states"][::2], part["states"][1::2], strict=True) for _ in range(n)]
            ulps = dict(zip(np.cumsum(part["at"]).tolist(), part["ulps"], strict=True))
            place = 0
            for operator, column, dtype, size in np.array(chunk["cells"]).reshape(-1, 4).tolist():
                for at in range(place, place + size):
                    if ended[at]:
                        outcome, stage, signature, *_ = states[ended[at] - 1]
                        case_id = ids[12 * at : 12 * at + 12]
                        names = (
                            index["operators"][operator],
                            *index["columns"][column],
                            index["dtypes"][dtype],
                        )
                        found[(case_id, *names, outcome, stage, signature, ulps.get(at, 0))] += 1
                place += size
        rows = store.read(run).to_pylist()
        assert found == Counter(
            (
                *(
                    row[n]
                    for n in (
                        "case_id",
                        "overload",
                        "converter",
                        "backend",
                        "dtype",
                        "outcome",
                        "stage",
                        "signature",
                    )
                ),
                -1 if row["max_ulp_error"] == float("inf") else row["max_ulp_error"] or 0,
            )
            for row in rows
        )


def _damage(run: Path, name: str) -> None:
    """Overwrite some bytes of one column."""
    content = bytearray((run / "verdicts.parquet").read_bytes())
    group = pq.ParquetFile(run / "verdicts.parquet").metadata.row_group(0)
    column = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == name)
    end = column.data_page_offset + column.total_compressed_size
    size = min(60, column.total_compressed_size)
    content[end - size : end] = bytes(size)
    (run / "verdicts.parquet").write_bytes(content)


def test_a_damaged_run_is_set_aside_and_the_rest_is_shown(tmp_path: Path) -> None:
    good = recorded(tmp_path / "good", drawn(0))
    broken = recorded(tmp_path / "broken", drawn(1), started="2026-01-02")
    # In a column that only the pages of operators read: found out late.
    _damage(broken, "evidence")
    odd = recorded(tmp_path / "odd", drawn(2), versions=["no", "object"])
    site = write_site(
        [broken, tmp_path / "none", good, odd, shutil.copytree(good, tmp_path / "copy")], tmp_path / "site"
    )
    assert site.runs == 1
    assert {one.name for one in site.aside} == {"broken", "none", "odd", "copy"}
    assert site_data(tmp_path / "site", "index")["aside"] == [vars(one) for one in site.aside]
    assert all(str(tmp_path) not in one.message for one in site.aside)
    assert site.summary["run"]["run_id"] == "good"


@pytest.mark.parametrize("column", ["outcome", "evidence"])
def test_a_sound_copy_is_shown_in_place_of_a_damaged_run(tmp_path: Path, column: str) -> None:
    damaged = recorded(tmp_path / "damaged", drawn(0))
    copies = [shutil.copytree(damaged, tmp_path / name) for name in ("copy", "second")]
    _damage(damaged, column)
    site = write_site([damaged, *copies], tmp_path / "site")
    assert site.runs == 1
    # The second copy is the same run as the first one, and the damaged one is called damaged.
    assert sorted(one.name for one in site.aside) == ["damaged", "second"]
    assert "the same run" not in next(one.message for one in site.aside if one.name == "damaged")
    assert site.summary["run"]["run_id"] == "damaged"


def test_ordinary_cases_are_counted_apart(tmp_path: Path) -> None:
    wrong = WAYS[7] | {"message": "values: output 0[0]: expected 1, got 2"}
    rows = [row_of(unary("aten.celu.default", [0.5, float(n)]), **(wrong if n < 3 else {})) for n in range(8)]
    rows += [row_of(unary("aten.celu.default", [float("nan"), float(n)]), **wrong) for n in range(4)]
    rows += [row_of(unary("aten.erf.default", [float("inf")]), **wrong)]
    run = recorded(tmp_path / "run", rows)
    site = write_site([run], tmp_path / "site")
    index = site_data(tmp_path / "site", "index")
    [column] = site.summary["columns"]
    ordinary = {"whole": 0, "part": 1, "none": 0, "unjudged": 0, "missing": 0}
    assert column["cases"] == {"passed": 5, "total": 13}
    assert column["ordinary"] == {"passed": 5, "total": 8, "operators": ordinary}
    assert index["runs"][0]["standings"] == [[0, 1, 1, 0, 0, 5, 13, 0, 1, 0, 0, 0, 5, 8]]
    overview = site_data(tmp_path / "site", "overview/0")
    assert (overview["failureCount"], overview["ordinaryFailureCount"]) == (2, 1)
    assert overview["familyShares"] == [[0, 0, 2, 0, 0, 5, 8, 5, 13]]
    first, second = overview["failures"]
    assert (first["cases"], first["ordinary"]) == (7, 3)
    assert first["call"].startswith("aten.celu.default(self=float32[2]=[0.5,")
    assert first["message"] == wrong["message"]
    assert (second["overloads"], second["ordinary"]) == (["aten.erf.default"], 0)
    matrix = pq.read_table(tmp_path / "site/download/matrix.parquet").to_pylist()
    counted = {(row["overload"], row["outcome"], row["ordinary"]): row["cases"] for row in matrix}
    assert counted["aten.celu.default", "mismatch", True] == 3
    assert counted["aten.celu.default", "mismatch", False] == 4


def test_a_site_without_runs_explains_that(tmp_path: Path) -> None:
    typed("dashboard", tmp_path / "none", "--out", tmp_path / "site", status=1)
    assert site_data(tmp_path / "site", "index")["aside"][0]["name"] == "none"


def test_what_a_lost_shard_held_is_missing_and_never_passes(tmp_path: Path) -> None:
    before = recorded(tmp_path / "before", drawn(0))
    shards = [
        {"index": 1, "count": 2, "state": "complete", "operators": list(OPERATORS[:4]), "unfinished": []},
        {
            "index": 2,
            "count": 2,
            "state": "partial",
            "operators": list(OPERATORS[4:]),
            "unfinished": list(OPERATORS[4:]),
        },
    ]
    # The last shard has got to a few passing cases of an operator.
    rows = [
        row
        for row in drawn(0)
        if row.overload != OPERATORS[5] and (row.overload != OPERATORS[4] or row.outcome == Outcome.PASS)
    ]
    after = recorded(tmp_path / "after", rows, started="2026-01-02", shards=shards)
    site = write_site([before, after], tmp_path / "site")
    index = site_data(tmp_path / "site", "index")
    run = index["runs"][1]
    assert run["state"] == "partial"
    assert run["notes"] == ["Shard 2 of 2 is unfinished: 2 operators of it are shown as missing."]
    matrix = site_data(tmp_path / "site", "matrix/1")
    lost = {index["operators"][number] for number in matrix["missing"]}
    assert lost == set(OPERATORS[4:])
    assert not {index["operators"][matrix["cells"][0]]} & lost
    for standings in run["standings"]:
        assert standings[index["standings"].index("missing")] == 2
        assert sum(standings[:5]) == len(OPERATORS)
    # Whether a missing one is gone is not known.
    assert site.summary["moved"]["gone"] == 0
    assert site.summary["moved"]["regressed"] == 0
    assert "partial" in (tmp_path / "site" / site.summary["columns"][0]["badge"]).read_text()


def test_what_a_killed_run_lacks_is_missing(tmp_path: Path) -> None:
    before = recorded(tmp_path / "before", drawn(0))
    rows = [row for row in drawn(0) if row.overload in OPERATORS[:3]]
    after = recorded(tmp_path / "after", rows, started="2026-01-02", finished=False)
    write_site([after, before], tmp_path / "site")
    index = site_data(tmp_path / "site", "index")
    assert [run["id"] for run in index["runs"]] == ["before", "after"]
    assert "was killed" in index["runs"][1]["notes"][0]
    missing = site_data(tmp_path / "site", "matrix/1")["missing"]
    assert {index["operators"][number] for number in missing} == set(OPERATORS[3:])
    # Their pages show the run that has them.
    assert [index["evidence"][number] for number in missing] == [0, 0, 0]


def test_a_run_that_was_killed_before_its_first_verdict_is_shown(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [], finished=False, planned=[{"aten.celu.default": "dynamo"}])
    site = write_site([run], tmp_path / "site")
    assert (site.runs, site.aside) == (1, ())
    assert site_data(tmp_path / "site", "index")["runs"][0]["missing"] == 1


def test_shards_that_say_something_else_do_not_break_the_page(tmp_path: Path) -> None:
    whole = recorded(tmp_path / "whole", drawn(0, 3))
    for number, shards in enumerate(
        [17, ["x"], [{"state": None, "unfinished": {"a": 1}}], [{"unfinished": [None, "aten.nope.default"]}]]
    ):
        run = recorded(tmp_path / f"run{number}", drawn(0, 3), shards=shards)
        site = write_site([whole, run], tmp_path / "site")
        assert site.runs + len(site.aside) == 2
        assert site.runs >= 1


@pytest.mark.parametrize(
    "text", ["</script>", "<!--", "\u2028\u2029", 'it\'s \\ "quoted"\n\r\t\x00', "]]>&amp;", "\ud800"]
)
def test_a_script_holds_no_word_that_ends_it(text: str) -> None:
    written = script("name", {text: [text]})
    assert not set("<>&\u2028\u2029\n\r") & set(written.rstrip("\n"))
    body = written[len("conformanceData('name', '") : -len("');\n")]
    assert json.loads(json.loads('"' + _quoted(body) + '"')) == {text: [text]}


def test_findings_name_the_argument_that_the_failures_share() -> None:
    def call(number: int, ceil: bool, size: int, fails: bool) -> RecordedCall:
        tensor = {"shape": [size, 2], "dtype": "float32", "strides": [2, 1], "offset": 0, "values": []}
        arguments = {"self": {"tensor": tensor}, "ceil_mode": ceil, "padding": [number % 2]}
        return RecordedCall(f"s{number}", json.dumps({"overload": "aten.x.default", "arguments": arguments}), fails)

    calls = [call(n, n % 3 == 0, 1 + n % 4, n % 3 == 0) for n in range(24)]
    found = findings(calls)
    assert found[0].sentence == "fails if and only if called with ceil_mode=True"
    assert (found[0].fails, found[0].cases, found[0].other_fails, found[0].other_cases) == (8, 8, 0, 16)
    # Many draws of one structure are one call.
    assert findings([RecordedCall("s", one.invocation, one.fails) for one in calls]) == []
    assert findings([call(n, n % 2 == 0, 3, n % 5 == 0) for n in range(40)]) == []
    assert findings([RecordedCall(str(n), "{}", n < 5) for n in range(9)]) == []


def test_the_worst_right_case_says_which_rule_accepts_it(tmp_path: Path) -> None:
    rule = "nearness 4 (the terms' magnitudes)"
    errors = {"max_ulp_error": 4e6, "max_abs_error": 8.0, "needed_rtol": 2.0, "needed_atol": 1.0}
    right = {"outcome": Outcome.PASS, "stage": Stage.COMPARE, **errors}
    row = row_of(unary("celu", [1.0, 2.0, 3.0]), **right, excused=f"3: {rule}")
    write_site([recorded(tmp_path / "run", [row])], tmp_path / "site")
    (case,) = site_data(tmp_path / "site", "operator/0")["cases"]
    assert case["rows"][0]["accepted"] == [[rule, 3]]


def test_a_badge_counts_the_operators_that_pass_in_ordinary_use(tmp_path: Path) -> None:
    right = row_of(unary("celu", [1.0]), outcome=Outcome.PASS, stage=Stage.COMPARE)
    # A call with an infinity is an edge case.
    wrong = row_of(unary("celu", [float("inf")]), outcome=Outcome.MISMATCH, stage=Stage.COMPARE)
    site = write_site([recorded(tmp_path / "run", [right, wrong])], tmp_path / "site")
    (column,) = site.summary["columns"]
    assert column["operators"]["whole"] == 0
    image = ElementTree.fromstring((tmp_path / "site" / column["badge"]).read_text())
    assert "1/1 operators" in (image.get("aria-label") or "")


def test_badges_are_images_with_their_words() -> None:
    for total in (0, 3, 2000):
        image = ElementTree.fromstring(badge("a<b>&'\" → c", min(total, 2), total, "partial"))
        assert "a<b>&'\" → c" in (image.get("aria-label") or "")
        assert "partial" in "".join(image.itertext())
    first = file_name("../x/..", "y z")
    assert "/" not in first
    assert file_name("../x/..", "y z", {first}) != first


def test_a_site_takes_the_place_of_a_site_and_of_nothing_else(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", drawn(0, 3))
    out = tmp_path / "site"
    write_site([run], out)
    (out / "data" / "stale.js").write_text("")
    write_site([run], out)
    assert not (out / "data" / "stale.js").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(ResultsError, match="holds something else than a site"):
        write_site([run], tmp_path / "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "run", "site"]


def test_one_record_gives_one_site(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", drawn(0))
    for name in ("first", "second"):
        write_site([run], tmp_path / name)
    for path in (tmp_path / "first").rglob("*"):
        other = tmp_path / "second" / path.relative_to(tmp_path / "first")
        if path.suffix == ".parquet":
            # Arrow does not say what lies between the values of a file.
            assert pq.read_table(path).equals(pq.read_table(other)), path
        elif path.is_file():
            assert path.read_bytes() == other.read_bytes(), path


def test_downloads_have_every_case_of_every_run(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / n, drawn(i), started=f"2026-01-0{i + 1}") for i, n in enumerate("ab")]
    write_site(runs, tmp_path / "site")
    for number, run in enumerate(runs):
        found = pq.read_table(tmp_path / "site" / "download" / "cases" / f"run-{number:03d}.parquet").to_pylist()
        names = tuple(found[0])
        assert Counter(tuple(row.values()) for row in found) == Counter(
            tuple(row[name] for name in names) for row in store.read(run, list(names)).to_pylist()
        )
    changes = json.loads((tmp_path / "site" / "download" / "changes.json").read_text())
    moved = site_data(tmp_path / "site", "overview/1")["moved"]
    expected_changes = {
        kind: n for kind, n in moved["counts"].items() if kind not in ("unchanged", "new", "gone") and n
    }
    assert Counter(one["change"] for one in changes) == expected_changes


def test_runs_of_other_operators_are_told_from_those_that_compare(tmp_path: Path) -> None:
    few = [row for row in drawn(0) if row.overload in OPERATORS[1:3]]
    runs = [
        recorded(tmp_path / "few", few, started="2026-01-01"),
        recorded(tmp_path / "all", drawn(1), started="2026-01-02"),
        recorded(tmp_path / "newest", drawn(2), started="2026-01-03"),
    ]
    write_site(runs, tmp_path / "site")
    found = [run["unlike"] for run in site_data(tmp_path / "site", "index")["runs"]]
    assert found == [len(OPERATORS) - 2, 0, 0]


def test_every_link_of_a_failure_leads_to_a_page_that_has_its_case(tmp_path: Path) -> None:
    # One cause of two operators, whose smallest case is not of the first.
    cause = {"outcome": Outcome.MISMATCH, "signature": "values", "blame": "backend", "component": "ort-cpu"}
    cause |= {"place": "Neg", "fault": "wrong-numbers", "message": "values: output 0: expected 1, got 2"}
    rows = [
        row_of(unary("aten.abs.default", [1.0, 2.0, 3.0]), **cause),
        row_of(unary("aten.neg.default", [1.0, 2.0]), **cause),
        row_of(unary("aten.neg.default", [1.0]), **{**cause, "message": "of ordinary use"}, ordinary=True),
    ]
    site = tmp_path / "site"
    write_site([recorded(tmp_path / "run", rows)], site)
    names = site_data(site, "index")["operators"]
    listed, overview = site_data(site, "failures/0"), site_data(site, "overview/0")["failures"]
    assert len(listed) == 1
    for group in (*listed, *overview):
        cases = site_data(site, f"operator/{names.index(group['overload'])}")["cases"]
        assert group["case"] in [case["id"] for case in cases]
    # The card shows one case: its call, its message and its badge.
    assert (overview[0]["call"], overview[0]["message"]) == (
        "aten.neg.default(self=float32[1]=[1.0])",
        "of ordinary use",
    )
