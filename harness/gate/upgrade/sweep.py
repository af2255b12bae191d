"""The cases of a baseline, run again with what is installed now."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from harness.gate.baseline.difference import BaselineComparison
from harness.gate.baseline.file import read_baseline
from harness.generate import load_cases
from harness.record import ResultsError, read_run_info

#: What pytest ends with where every item had its turn.
_CARRIED_OUT = (0, 1)


#: Runs `pytest harness` with some options and a plug-in; returns its exit status.
RunPytest: TypeAlias = "Callable[[list[str], object], int]"


class _Reader:
    """A pytest plug-in that takes the comparison with it when the session ends."""

    def __init__(self, results_dir: Path) -> None:
        self.comparison: BaselineComparison | None = None
        self._results_dir = results_dir

    def pytest_unconfigure(self, config: Any) -> None:
        """Read it off the session."""
        follower = config.pluginmanager.get_plugin("conformance-follower")
        if follower is not None and self._results_dir.is_dir():
            self.comparison = follower.gate.comparison(read_run_info(self._results_dir))


def sweep(
    baseline: Path,
    results_dir: Path,
    run_pytest: RunPytest,
    overloads: Sequence[str] | None = None,
    more: Sequence[str] = (),
) -> BaselineComparison:
    """Run what the baseline has expectations of; pytest's own output goes to stderr.

    Args:
        baseline: Its directory.
        results_dir: Where the run is written.
        run_pytest: `pytest harness` with these options and this plug-in; returns its exit status.
        overloads: Only these; None for all that it has.
        more: Further options of pytest: ``-n 2``.

    Raises:
        ResultsError: there is no baseline, or the run did not come to its end.
    """
    expected = read_baseline(baseline)
    known = load_cases()
    keys = [key for key in expected.cells if overloads is None or key[0] in overloads]
    names = sorted({key[0] for key in keys if key[0] in known})
    if not names:
        raise ResultsError(f"{baseline} expects nothing of these operators")
    modes = {key[4] for key in keys}
    options = ["--baseline", str(baseline), "--results-dir", str(results_dir), "--record-only"]
    options += [word for name in names for word in ("--op", name)]
    options += [word for name in sorted({key[2] for key in keys}) for word in ("--converter", name)]
    options += [word for name in sorted({key[3] for key in keys}) for word in ("--backend", name)]
    options += ["--shapes", "both" if len(modes) > 1 else modes.pop()]
    reader = _Reader(results_dir)
    with contextlib.redirect_stdout(sys.stderr):
        status = run_pytest([*options, *more], reader)
    if status not in _CARRIED_OUT or reader.comparison is None:
        raise ResultsError(f"the run did not come to its end: pytest's exit status is {status}")
    return reader.comparison
