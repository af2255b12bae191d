"""What an upgrade changed: the cases of the baseline with what is installed now, and with the earlier releases."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import harness
from harness.gate.baseline.file import Baseline, of_run, read_baseline
from harness.gate.baseline.gate import BaselineFinding, compare
from harness.gate.diff_inputs import BaselineComparison, ReportedDifference, reported
from harness.generate.case_library import load_cases
from harness.record.layout import ResultsError
from harness.reproduce.releases import PACKAGES, install_release

#: Runs `pytest harness` with some options and a plug-in; returns its exit status.
RunPytest: TypeAlias = "Callable[[list[str], object], int]"


class _Reader:
    """A pytest plug-in that keeps the comparison of the session."""

    def __init__(self) -> None:
        self.comparison: BaselineComparison | None = None

    def pytest_conformance_compared(self, comparison: BaselineComparison) -> None:
        """Keep it."""
        self.comparison = comparison


def sweep(
    baseline: Path,
    results_dir: Path,
    run_pytest: RunPytest,
    overloads: Sequence[str] | None = None,
    more: Sequence[str] = (),
) -> BaselineComparison:
    """Run what the baseline has expectations of; pytest's own output goes to stderr.

    Args:
        run_pytest: `pytest harness` with these options and this plug-in; returns its exit status.
        more: Further options of pytest: ``-n 2``.

    Raises:
        ResultsError: there is no baseline, or the run did not finish.
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
    options += ["--shapes", _shapes(expected, modes)]
    reader = _Reader()
    with contextlib.redirect_stdout(sys.stderr):
        status = run_pytest([*options, *more], reader)
    # Other statuses say that not every item had its turn.
    if status not in (0, 1) or reader.comparison is None:
        raise ResultsError(f"the run did not finish: pytest's exit status is {status}")
    return reader.comparison


def confirmed(
    found: BaselineComparison, baseline: Path, results_dir: Path, releases: Path, more: Sequence[str] = ()
) -> BaselineComparison:
    """What is worse by the upgrade, and not by the machine: what the earlier versions do here, too, is its own.

    1. Where no version differs from the baseline's, everything that differs is the machine's.
    2. Else the earlier releases of the packages that changed are installed below `releases`, and the operators that
       are worse are run with them, in a process of its own, on this machine.
    3. What is worse in the same way there is called `BaselineFinding.MACHINE`, which closes no gate.

    Where an earlier release cannot be installed here, nothing is confirmed, and a finding stays what it is.
    """
    worse = [difference for difference in found.differences if difference.finding.fails]
    if not worse:
        return found
    if not found.versions:
        return _as_machines(found, worse, "no version differs from the baseline's")
    changed = {name: found.versions[name][0] for name in PACKAGES if found.versions.get(name, ("", ""))[0]}
    if not changed or "torch" in changed:
        # Another PyTorch takes gigabytes, and what is compared with it was computed by it.
        return found
    installed = [install_release(name, version, releases) for name, version in changed.items()]
    if any(release.problem for release in installed):
        return found
    options = ["--baseline", str(baseline), "--results-dir", str(results_dir), "--record-only"]
    for option, name in (("--op", "overload"), ("--converter", "converter"), ("--backend", "backend")):
        options += [word for value in sorted({getattr(d, name) for d in worse}) for word in (option, value)]
    options += ["--shapes", _shapes(read_baseline(baseline), {d.shape_mode for d in worse})]
    path = [*(str(release.directory) for release in installed), str(Path(harness.__file__).parents[1])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-m", "harness.app.cli", "run", *options, *more]
    done = subprocess.run(words, env=variables, stdout=sys.stderr, check=False)
    if done.returncode not in (0, 1):
        return found
    known, now = read_baseline(baseline), of_run(results_dir)
    # With these versions only the machine differs.
    earlier = {
        _key(reported(difference, {}))
        for difference in compare(known, replace(now, kernels=known.kernels))
        if difference.finding.fails
    }
    releases_said = ", ".join(f"{name} {version}" for name, version in changed.items())
    same = [difference for difference in worse if _key(difference) in earlier]
    return _as_machines(found, same, f"{releases_said} does the same on this machine")


def _shapes(expected: Baseline, modes: Set[str]) -> str:
    """The option with which the cases of these modes are drawn as they were for the baseline."""
    if expected.shapes == "mixed" and "dynamic" in modes:
        return "mixed"
    return "both" if len(modes) > 1 else min(modes)


def _key(difference: ReportedDifference) -> tuple[str, ...]:
    where = (difference.overload, difference.dtype, difference.converter, difference.backend, difference.shape_mode)
    return *where, difference.finding, *difference.failure


def _as_machines(found: BaselineComparison, differences: Sequence[ReportedDifference], why: str) -> BaselineComparison:
    machine = [
        replace(d, finding=BaselineFinding.MACHINE, why=why) if d in differences else d for d in found.differences
    ]
    return replace(found, differences=machine)
