"""Describe what a run consists of, on a machine that will execute it: the driver may lack its runtimes.

`python -m harness.cluster.describe_run OUT ARGS` collects the tests of `pytest harness ARGS` and writes the description
to OUT as JSON.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from harness.cluster.node_environment import Described, environment_here
from harness.core.documents import to_json
from harness.plan.pytest_session import pytest_main
from harness.plan.unit import Unit
from harness.record.run_info import DISTRIBUTIONS
from harness.run.backend import runtime_distributions

#: Packages whose dependencies may all change a verdict.
_ROOTS = tuple(name for name in DISTRIBUTIONS if not name.startswith(("pytest", "pyarrow")))


class _Collector:
    def __init__(self) -> None:
        self.units: list[Unit] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the units that remain after all selection."""
        callspecs: list[Any] = [getattr(item, "callspec", None) for item in session.items]
        self.units = [spec.params["unit"] for spec in callspecs if spec is not None and "unit" in spec.params]


def packages_behind() -> dict[str, str]:
    """Return the versions of the packages that may change a verdict: those named in records and their dependencies."""
    versions: dict[str, str] = {}
    waiting = [*_ROOTS, *runtime_distributions()]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in versions:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        versions[name] = distribution.version
        for requirement in distribution.requires or ():
            if "extra ==" not in requirement:
                waiting += re.findall(r"^[\w.-]+", requirement)
    return versions


def main() -> int:
    """Write the description and return pytest's exit status."""
    out, *arguments = sys.argv[1:]
    collector = _Collector()
    status = pytest_main([*arguments, "--collect-only", "-q"], collector)
    units = collector.units
    described = Described(
        units=tuple(unit.name for unit in units),
        examples=max((unit.examples for unit in units), default=0),
        backends=tuple(dict.fromkeys(name for unit in units for name in unit.backends)),
        environment=environment_here(packages_behind()),
    )
    Path(out).write_text(to_json(described), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
