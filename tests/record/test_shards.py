"""`pytest harness --shard` and `conformance merge`: the parts are the whole, and what is lost is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import entered
from harness_runs import output, record_of, rows, run_harness, unary

from harness.app.session import Session
from harness.generate.sources.recorded import read_replay
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan
from harness.plan.sharding import Shard, distribute
from harness.record.layout import ResultsError
from harness.record.merging import merge
from harness.record.progress import note
from harness.record.run_info import read_run_info

pytestmark = pytest.mark.slowest(20)

OPERATORS = ("aten::celu", "aten::erf", "aten::hardtanh")
OPTIONS = [word for name in OPERATORS for word in ("--op", name)] + ["--examples", "8", "--record-only"]
KEY = ("case_id", "exported_invocation", "converter", "backend", "outcome", "signature", "source")
COUNT = 2


def keys(run: Path) -> list[tuple[str, ...]]:
    return sorted(tuple(row.values()) for row in rows(run, *KEY))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run in `whole`, and its shards in `1` and `2`."""
    place = tmp_path_factory.mktemp("shards")
    for index in range(1, COUNT + 1):
        done = run_harness(*OPTIONS, "--shard", f"{index}/{COUNT}", "--results-dir", place / str(index))
        assert done.returncode == 0, output(done)
        assert f"shard: {index}/{COUNT}" in done.stdout, output(done)
    plan = make_plan(Options(ops=OPERATORS, examples=8, sources=("generated",)))
    info = read_run_info(place / "1")
    with Session(plan, place / "whole", options=info.options) as session:
        for unit in plan.units:
            session.run(unit)
    return place


def copies(shards: Path, tmp_path: Path) -> list[Path]:
    return [Path(shutil.copytree(shards / str(index), tmp_path / str(index))) for index in range(1, COUNT + 1)]


def killed(run: Path, keep: int = 0) -> None:
    """Leave of a finished run what one leaves that was killed after `keep` of its operators."""
    info = read_run_info(run)
    assert info.shard is not None
    data = json.loads(info.json)
    done = info.operators[:keep]
    (run / "parts").mkdir()
    table = rows(run)
    if keep:
        shutil.move(run / "verdicts.parquet", run / "parts" / "main-00001.parquet")
        note(run, "main", "done", [(name, "dynamo") for name in done])
    else:
        (run / "verdicts.parquet").unlink()
    assert table
    (run / "run.json").write_text(
        json.dumps({**data, "finished": None, "exit_status": None, "operators": [], "unfinished": []})
    )


def test_the_shards_are_the_whole(shards: Path, tmp_path: Path) -> None:
    whole = keys(shards / "whole")
    parts = [keys(shards / str(index)) for index in range(1, COUNT + 1)]
    assert sorted(key for part in parts for key in part) == whole
    done = entered("merge", *(shards / str(i) for i in (2, 1)), "--out", tmp_path / "m")
    assert done.exit_code == 0, done.output
    assert keys(tmp_path / "m") == whole
    info = read_run_info(tmp_path / "m")
    assert [(s.index, s.count, s.state) for s in info.shards] == [
        (1, COUNT, "complete"),
        (2, COUNT, "complete"),
    ]
    assert {row["run_id"] for row in rows(tmp_path / "m", "run_id")} == {info.run_id}
    assert info.operators == read_run_info(shards / "whole").operators
    done = entered("diff", shards / "whole", tmp_path / "m", "--fail-on", "change")
    assert done.exit_code == 0, done.output
    assert not done.stderr


def test_lost_and_killed_shards_are_named(shards: Path, tmp_path: Path) -> None:
    one, two = copies(shards, tmp_path)
    lost = list(read_run_info(one).operators)
    shutil.rmtree(one)
    planned = list(read_run_info(two).operators)
    killed(two)
    done = entered("merge", one, two, "--out", tmp_path / "m")
    assert done.exit_code == 1, done.output
    assert f"shard 1/{COUNT} missing: {len(lost)} of" in done.stdout, done.output
    assert f"shard 2/{COUNT} partial: {len(planned)} of" in done.stdout, done.output
    first, second = read_run_info(tmp_path / "m").shards
    assert (first.state, list(first.unfinished)) == ("missing", lost)
    assert (second.state, list(second.unfinished)) == ("partial", planned)
    # What is missing is neither gone nor right.
    done = entered("diff", shards / "whole", tmp_path / "m", "--fail-on", "regression")
    assert done.exit_code == 1, done.output
    assert "not checked: shard 1/2 is missing; shard 2/2 is incomplete" in done.stdout, done.output
    assert "gone" not in done.stdout, done.output
    done = entered("baseline", tmp_path / "m", "--out", tmp_path / "b")
    assert done.exit_code == 2, done.output
    assert "a baseline of it would lack cases" in done.stderr, done.output
    for words in (("failures", tmp_path / "m"), ("tolerance", tmp_path / "m")):
        done = entered(*words)
        assert done.exit_code in (0, 1), done.output
        assert done.stderr.startswith(f"warning: {tmp_path / 'm'} is incomplete: shard 1/2"), done.output


def test_a_gate_of_cells_does_not_pass_what_is_missing(shards: Path, tmp_path: Path) -> None:
    whole = entered("baseline", shards / "whole", "--out", tmp_path / "b")
    assert whole.exit_code == 0, whole.output
    one, _ = copies(shards, tmp_path)
    merge([one], tmp_path / "m")
    done = entered("diff", tmp_path / "b", tmp_path / "m", "--fail-on", "regression")
    assert done.exit_code == 1, done.output
    assert "not checked: shard 2/2 is missing" in done.stdout, done.output
    assert "nothing differs" not in done.stdout, done.output
    data = json.loads(entered("diff", tmp_path / "b", tmp_path / "m", "--json").stdout)
    assert data["worse"] == 0
    assert data["missing"].startswith("shard 2/2 is missing")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 1}, "seed 0 and seed 1"),
        ({"options": {"examples": 9}}, "--examples 8 and 9"),
        ({"versions": {"onnxruntime": "0.1"}}, "--allow-different-versions"),
        ({"basis": {"harness source": "0"}}, "harness source .* --allow-different-versions"),
        ({"basis": {"rules": "0"}}, "the contents of their --rules differ"),
        ({"shard": {"index": 1, "count": 4}}, "of 2 shards and of 4"),
        ({"shard": {"index": 2, "count": 4}}, "of 2 shards and of 4"),
        ({"shard": {"index": 1, "count": 2}}, "shard 1/2 is given twice"),
        ({"shard": None}, "is a whole run, not a shard"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    shards: Path, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    one, two = copies(shards, tmp_path)
    data = json.loads((two / "run.json").read_text())
    for name, value in change.items():
        known = data[name]
        data[name] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    (two / "run.json").write_text(json.dumps(data))
    with pytest.raises(ResultsError, match=said) as error:
        merge([one, two], tmp_path / "m")
    assert len(str(error.value).splitlines()) == 1
    assert not (tmp_path / "m").exists()
    if "versions" in change:
        merged = merge([one, two], tmp_path / "m", different_versions=True)
        assert merged.info.versions["onnxruntime"].endswith(", 0.1")


def test_recorded_cases_are_sharded_too_and_a_shard_may_be_empty(tmp_path: Path) -> None:
    calls = [unary(f"aten.{name}.default", [0.5, -1.0]) for name in ("celu", "erf")]
    replay = read_replay(record_of(tmp_path / "record", calls))
    plans = [make_plan(Options(replay=replay, shard=f"{index}/3")) for index in (1, 2, 3)]
    assert [[unit.overload for unit in plan.units] for plan in plans] == [
        ["aten.celu.default"],
        ["aten.erf.default"],
        [],
    ]
    places = [tmp_path / str(index) for index in (1, 2, 3)]
    for place, plan in zip(places, plans, strict=True):
        with Session(plan, place) as session:
            # As if the user had deselected them: nothing is missing then.
            session.leave_out(plan.units)
    merged = merge(places, tmp_path / "m")
    assert [part.state for part in merged.info.shards] == ["complete"] * 3


@pytest.mark.parametrize("word", ["0/8", "9/8", "x", "1/0", "3", "-1/2"])
def test_a_wrong_shard_is_one_line(word: str) -> None:
    with pytest.raises(ValueError, match=word) as error:
        Shard.parse(word)
    assert len(str(error.value).splitlines()) == 1


def test_a_wrong_shard_is_a_usage_error() -> None:
    with pytest.raises(UsageProblem, match=r"^--shard 9/8: shards are counted from 1: of 8 the last is 8/8$"):
        make_plan(Options(shard="9/8"))


def test_operators_are_spread_evenly_and_stay_where_they_are() -> None:
    names = [f"aten.op{i}.default" for i in range(200)] + ["aten.lstm.input", "aten.gradient.array"]
    parts = distribute(names, 8, names)
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert max(len(part) for part in parts) <= 30
    heavy = next(part for part in parts if "aten.lstm.input" in part)
    assert len(heavy) < 20
    # What only one machine's corpus knows moves nothing else.
    more = distribute([*names, "mylib.op.default"], 8, names)
    assert [set(a) - set(b) for a, b in zip(more, parts, strict=True)].count({"mylib.op.default"}) == 1
    assert all(set(b) <= set(a) for a, b in zip(more, parts, strict=True))
