"""The pairs of conditions in a record's cases are counted, with their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness_runs import recorded, row_of

from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Invocation, Recipe, TensorSpec, contiguous_strides
from harness.coverage.seen_pairs import SeenPairs, Tried, TriedPairs, read_seen_pairs, read_tried_pairs

SUM = "aten.sum.dim_IntList"
REFUSED: Mapping[str, Any] = {"stage": Stage.CONVERT, "outcome": Outcome.UNSUPPORTED, "signature": "no"}
WRONG: Mapping[str, Any] = {"stage": Stage.COMPARE, "outcome": Outcome.MISMATCH, "signature": "values"}


def summed(dtype: str, keepdim: bool, seed: int = 0) -> Invocation:
    recipe = Recipe(("any",), "plain", seed)
    spec = TensorSpec((2, 3), dtype, contiguous_strides((2, 3)), 0, recipe)
    return Invocation(SUM, (("self", spec), ("dim", (0,)), ("keepdim", keepdim)))


def tried(pairs: TriedPairs, one: str, other: str) -> Tried:
    places = sorted((pairs.names.index(one), pairs.names.index(other)), reverse=True)
    return Tried(int(pairs.tried[tuple(places)]))


def record(directory: Path, ends: Sequence[tuple[Invocation, Mapping[str, Any]]]) -> Path:
    return recorded(directory, (row_of(call, structure_id=call.structure_id, **how) for call, how in ends))


def test_a_pair_counts_where_a_case_was_compared(tmp_path: Path) -> None:
    run = record(
        tmp_path / "run",
        [
            (summed("float32", False), {}),
            (summed("float32", True), {}),
            (summed("float32", True, 1), WRONG),
            (summed("float64", True), {}),
            # Another converter refuses it, which the map shows; one has compared it, which counts.
            (summed("float64", True), {**REFUSED, "converter": "torchscript"}),
            (summed("float64", False), WRONG),
            (summed("int64", True), REFUSED),
        ],
    )
    pairs = read_tried_pairs(run, [SUM])[SUM]
    dtypes = {"dtype float32", "dtype float64", "dtype int64"}
    assert set(pairs.names) == {*dtypes, "keepdim=False", "keepdim=True"}
    assert tried(pairs, "dtype float32", "keepdim=False") is Tried.PASSED
    # Cases of one structure stand together.
    assert tried(pairs, "dtype float32", "keepdim=True") is Tried.SOME_FAIL
    assert tried(pairs, "dtype float64", "keepdim=True") is Tried.SOME_FAIL
    assert tried(pairs, "dtype float64", "keepdim=False") is Tried.NONE_PASSES
    assert tried(pairs, "dtype int64", "keepdim=True") is Tried.FAILED_BEFORE
    assert tried(pairs, "dtype int64", "keepdim=False") is Tried.NOT_DRAWN
    assert tried(pairs, "dtype int64", "dtype float32") is Tried.NO_PAIR
    assert pairs.seen == SeenPairs(4, 6)
    assert str(pairs.seen) == "66% of pairs"
    assert not np.triu(pairs.tried).any()


def test_what_never_changes_makes_no_pair(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [(summed("float32", True, seed), {}) for seed in range(3)])
    assert read_seen_pairs(run, [SUM]) == {SUM: SeenPairs(0, 0)}
    assert str(SeenPairs.together([])) == ""


def test_a_call_that_pytorch_rejects_was_not_tried(tmp_path: Path) -> None:
    skipped = {"stage": Stage.REFERENCE, "outcome": Outcome.SKIP, "signature": "no"}
    run = record(tmp_path / "run", [(summed("float32", True), skipped)])
    assert read_tried_pairs(run, [SUM]) == {}
    assert read_tried_pairs(run, []) == {}
