"""Inaccurate results, which an operator's own formula explains, are listed apart from failures."""

from __future__ import annotations

from pathlib import Path

from commands import typed
from recorded_rows import recorded, row_of, unary

from harness.causes.inaccuracies import COLUMNS, INACCURATE, inaccuracies
from harness.compare.verdict import Outcome, is_judged
from harness.record import store


def test_inaccuracies_are_listed_apart_by_their_size(tmp_path: Path) -> None:
    ended = {"outcome": Outcome.INACCURATE, "component": "ort-cpu", "fault": "inaccurate"}
    small = {"place": "Celu", "max_abs_error": 1e-9, "max_ulp_error": 1e6}
    large = {"place": "Gelu", "max_abs_error": 1e-6, "max_ulp_error": 10.0}
    rows = [row_of(unary("aten.celu.default", [n]), **ended, **sizes) for n, sizes in ((0.1, small), (0.2, large))]
    run = recorded(tmp_path / "run", rows)
    listed = inaccuracies(store.read(run, COLUMNS, INACCURATE).to_pylist())
    assert [(each.place, each.largest_error) for each in listed] == [("Gelu", 1e-6), ("Celu", 1e-9)]
    done = typed("failures", run)
    assert done.output.index("Gelu") < done.output.index("Celu")
    assert not is_judged(Outcome.INACCURATE, "backend")
