"""Defects that need two conditions at once: `python -m planted_pairs measure` counts those that runs find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from harness_runs import PAIRS_METADATA, output, rows, run_harness
from planted.pair_conditions import seen
from planted.pair_list import DYNAMO, RUNTIME, TORCHSCRIPT, PlantedPair, read_pairs
from planted_pairs.choice import would_show
from planted_pairs.meeting import meeting

from harness.core.invocation import Invocation
from harness.generate.case_library import load_cases

pytestmark = pytest.mark.slowest(12)

#: Of each that is wrong, defects that sessions look for.
_OF_EACH = 4
#: Cases of an operator in these sessions.
_EXAMPLES = 72

#: Who is wrong → the converter and the backend that are, and those that are not.
_SIDES = {
    DYNAMO: (("planted-pairs", "ort-cpu"), ("dynamo", "ort-cpu")),
    RUNTIME: (("planted-pairs", RUNTIME), ("dynamo", "ort-cpu")),
    TORCHSCRIPT: ((TORCHSCRIPT, "ort-cpu"), ("torchscript", "ort-cpu")),
}


@pytest.fixture(scope="module")
def pairs() -> list[PlantedPair]:
    load_cases()
    return read_pairs()


def test_every_pair_has_a_call_that_pytorch_takes(pairs: list[PlantedPair]) -> None:
    assert len(pairs) >= 150
    for pair in pairs:
        call = Invocation.from_json(pair.call)
        assert pair.conjunction.holds(seen(call)), pair.conjunction
        assert would_show(call)


def _sampled(pairs: list[PlantedPair]) -> dict[str, list[PlantedPair]]:
    """Return the pairs whose conditions meet in several cases, by operator."""
    sampled: defaultdict[str, list[PlantedPair]] = defaultdict(list)
    for pair in pairs:
        some = sampled[pair.wrong]
        if len(some) < _OF_EACH and len(list(meeting(pair.conjunction, 0, _EXAMPLES))) > 1:
            some.append(pair)
    return sampled


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [DYNAMO, RUNTIME, TORCHSCRIPT])
def test_sessions_find_what_meets_and_passes(wrong: str, pairs: list[PlantedPair], tmp_path: Path) -> None:
    sampled = {pair.conjunction.overload: pair.conjunction for pair in _sampled(pairs)[wrong]}
    assert len(sampled) == _OF_EACH
    (converter, backend), (right_converter, right_backend) = _SIDES[wrong]
    done = run_harness(
        *(word for overload in sampled for word in ("--op", overload)),
        *("--converter", converter, "--converter", right_converter, "--backend", backend),
        *(() if backend == right_backend else ("--backend", right_backend)),
        *("--examples", str(_EXAMPLES), "--no-blame", "--shrink", "0", "--results-dir", tmp_path),
        metadata=PAIRS_METADATA,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, output(done)
    ends: defaultdict[tuple[str, str], dict[str, Mapping[str, str]]] = defaultdict(dict)
    for row in rows(tmp_path):
        ends[row["converter"], row["backend"]][row["case_id"]] = row
    spoiled, right = ends[converter, backend], ends[right_converter, right_backend]
    assert right.keys() == spoiled.keys()
    found = []
    for overload, conjunction in sampled.items():
        passing = [row for row in right.values() if row["overload"] == overload and row["outcome"] == "pass"]
        meets = {row["case_id"]: conjunction.holds(seen(Invocation.from_json(row["invocation"]))) for row in passing}
        # What has no element has nothing wrong; what does not meet the conditions is as right as ever.
        failing = {case for case in meets if spoiled[case]["outcome"] != "pass"}
        assert failing == {c for c, both in meets.items() if both and right[c]["total_elements"]}, conjunction
        found += [overload] if any(spoiled[c]["outcome"] == "mismatch" for c in meets) else []
    assert len(found) > _OF_EACH / 2
