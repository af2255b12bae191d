"""Find what an upgrade changed: run the baseline's cases with the installed releases and with the earlier ones."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from harness.gate.baseline.file import Baseline, baseline_of_run, read_baseline
from harness.gate.baseline.gate import BaselineFinding, compare
from harness.gate.diff_inputs import BaselineComparison, ReportedDifference, reported
from harness.generate.case_library import load_cases
from harness.pipeline.model_task import absolute_word
from harness.record.layout import ResultsError
from harness.reproduce.figures import FigureChange, MeasureCommand, NotMeasured, compare_figures
from harness.reproduce.releases import PACKAGES, install_release, release_environment

#: Runs `pytest harness` with options and a plug-in, and returns its exit status.
RunPytest: TypeAlias = "Callable[[list[str], object], int]"


class _Reader:
    """A pytest plug-in that keeps the comparison of the session."""

    def __init__(self) -> None:
        self.comparison: BaselineComparison | None = None

    def pytest_conformance_compared(self, comparison: BaselineComparison) -> None:
        """Keep the comparison."""
        self.comparison = comparison


def sweep(
    baseline: Path,
    results_dir: Path,
    run_pytest: RunPytest,
    overloads: Sequence[str] | None = None,
    more: Sequence[str] = (),
) -> BaselineComparison:
    """Run the cases of a baseline and return the comparison; pytest's output goes to stderr.

    Args:
        baseline: The baseline's directory.
        results_dir: The directory of the run.
        run_pytest: Runs `pytest harness` with options and a plug-in, and returns its exit status.
        overloads: The operators to run; None means all.
        more: Further options of pytest: ``-n 2``.

    Raises:
        ResultsError: The baseline does not exist, or the run did not finish.
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
    # With other statuses, some tests did not run.
    if status not in (0, 1) or reader.comparison is None:
        raise ResultsError(f"the run did not finish: pytest's exit status is {status}")
    return reader.comparison


def attribute_to_machine(
    found: BaselineComparison, baseline: Path, results_dir: Path, releases: Path, more: Sequence[str] = ()
) -> BaselineComparison:
    """Mark the regressions that are due to this machine rather than to the upgrade.

    1. If no version differs from the baseline's, every difference is due to the machine.
    2. Otherwise install the earlier releases of the changed packages below `releases`, and run the regressed operators
       with them in another process on this machine.
    3. A regression that also occurs there becomes `BaselineFinding.MACHINE`, which does not fail the gate.

    If an earlier release cannot be installed here, the findings stay as they are.
    """
    worse = [difference for difference in found.differences if difference.finding.fails]
    if not worse:
        return found
    if not found.versions:
        return _mark_machine(found, worse, "no version differs from the baseline's")
    changed = {name: found.versions[name][0] for name in PACKAGES if found.versions.get(name, ("", ""))[0]}
    if not changed or "torch" in changed:
        # Another PyTorch takes gigabytes, and it also computes the expected results.
        return found
    installed = [install_release(name, version, releases) for name, version in changed.items()]
    if any(release.problem for release in installed):
        return found
    options = ["--baseline", str(baseline), "--results-dir", str(results_dir), "--record-only"]
    for option, name in (("--op", "overload"), ("--converter", "converter"), ("--backend", "backend")):
        options += [word for value in sorted({getattr(d, name) for d in worse}) for word in (option, value)]
    options += ["--shapes", _shapes(read_baseline(baseline), {d.shape_mode for d in worse})]
    variables = release_environment([release.directory for release in installed])
    words = [sys.executable, "-m", "harness.app.cli", "run", *options, *more]
    done = subprocess.run(words, env=variables, stdout=sys.stderr, check=False)
    if done.returncode not in (0, 1):
        return found
    known, now = read_baseline(baseline), baseline_of_run(results_dir)
    # With the earlier versions, only the machine differs from the baseline.
    earlier = {
        _key(reported(difference, {}))
        for difference in compare(known, replace(now, kernels=known.kernels))
        if difference.finding.fails
    }
    releases_text = ", ".join(f"{name} {version}" for name, version in changed.items())
    same = [difference for difference in worse if _key(difference) in earlier]
    return _mark_machine(found, same, f"{releases_text} does the same on this machine")


@dataclass(frozen=True)
class ModelFigures:
    """The changes of the cost of a model's calls by an upgrade.

    Attributes:
        model: The model as the user named it.
        changes: The change of each figure.
        problem: Why there are none; "" if there are.
    """

    model: str
    changes: tuple[FigureChange, ...] = ()
    problem: str = ""


def measure_upgrade(
    models: Sequence[str], versions: Mapping[str, tuple[str, str]], releases: Path
) -> list[ModelFigures]:
    """Measure models with the earlier releases and with the installed ones, in pairs.

    Args:
        models: The models as the user names them.
        versions: Package → version of the baseline and now.
        releases: The folder of installed releases.
    """
    if not models:
        return []
    changed = {name: versions[name][0] for name in PACKAGES if versions.get(name, ("", ""))[0]}
    if not changed:
        return [ModelFigures(model, problem="no release differs from the baseline's") for model in models]
    installed = [install_release(name, version, releases) for name, version in changed.items()]
    if problems := [release.problem for release in installed if release.problem]:
        return [ModelFigures(model, problem=problems[0]) for model in models]
    places = [release.directory.resolve() for release in installed]
    return [_measure_upgrade(absolute_word(model), places) for model in models]


def _measure_upgrade(model: str, earlier: Sequence[Path]) -> ModelFigures:
    try:
        changes = compare_figures(MeasureCommand([model], earlier, Path.cwd()), MeasureCommand([model], (), Path.cwd()))
    except NotMeasured as error:
        return ModelFigures(model, problem=str(error))
    return ModelFigures(model, tuple(changes))


def _shapes(expected: Baseline, modes: Set[str]) -> str:
    """Return the value of ``--shapes`` that draws cases of these modes as they were drawn for the baseline."""
    if expected.shapes == "mixed" and "dynamic" in modes:
        return "mixed"
    return "both" if len(modes) > 1 else min(modes)


def _key(difference: ReportedDifference) -> tuple[str, ...]:
    where = (difference.overload, difference.dtype, difference.converter, difference.backend, difference.shape_mode)
    return *where, difference.finding, *difference.failure


def _mark_machine(found: BaselineComparison, differences: Sequence[ReportedDifference], why: str) -> BaselineComparison:
    machine = [
        replace(d, finding=BaselineFinding.MACHINE, why=why) if d in differences else d for d in found.differences
    ]
    return replace(found, differences=machine)
