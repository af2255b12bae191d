"""The goldens with what is installed now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from harness.convert import find_converter
from harness.core import UnknownName
from harness.gate.golden.golden_check import CheckedGolden, GoldenChange, check
from harness.gate.golden.golden_store import read_set
from harness.gate.golden.manifest import MANIFEST_FILE, Manifest
from harness.gate.golden.verify import GoldenDifference, verify
from harness.gate.run_diff import version_changes
from harness.generate import load_cases
from harness.run import BACKENDS


@dataclass(frozen=True, kw_only=True)
class Goldens:
    """A set of goldens, and what became of it.

    Attributes:
        manifest: Of the set.
        count: How many were looked at.
        versions: Name → (when they were recorded, now) where they differ; "" for what is not installed.
        moved: Where PyTorch's outputs are others.
        checked: Every model on every backend.
        left_out: Recorded backends that cannot run here.
    """

    manifest: Manifest
    count: int
    versions: Mapping[str, tuple[str, str]]
    moved: Sequence[GoldenDifference]
    checked: Sequence[CheckedGolden]
    left_out: Sequence[str]

    @property
    def wrong(self) -> list[GoldenDifference]:
        """Where PyTorch's outputs are no longer right by the operator's judge."""
        return [difference for difference in self.moved if difference.is_wrong]

    @property
    def failing(self) -> list[CheckedGolden]:
        """What fails and did not, or fails in another way."""
        return [one for one in self.checked if one.change.is_failure]

    def counts(self, backend: str) -> Mapping[GoldenChange, int]:
        """Of one backend's models."""
        return Counter(one.change for one in self.checked if one.backend == backend)

    @property
    def backends(self) -> list[str]:
        """Those that were run."""
        return list(dict.fromkeys(one.backend for one in self.checked))


def look(directory: Path, overloads: Sequence[str] | None = None) -> Goldens | None:
    """Run the goldens in PyTorch and their models on the recorded backends.

    Args:
        directory: The set.
        overloads: Those wanted; None for all.

    Returns:
        None where the directory holds no set.

    Raises:
        ResultsError: the set is damaged.
    """
    if not (directory / MANIFEST_FILE).exists():
        return None
    # The judges are the operator cases'.
    load_cases()
    manifest, goldens, endings = read_set(directory, overloads)
    available = [name for name in manifest.backends if _runs(name)]
    return Goldens(
        manifest=manifest,
        count=len(goldens),
        versions=_versions(manifest),
        moved=list(verify(goldens)),
        checked=list(check(manifest, goldens, endings, backends=available)),
        left_out=[name for name in manifest.backends if name not in available],
    )


def _runs(name: str) -> bool:
    try:
        entry, argument = BACKENDS.find(name)
    except UnknownName:
        return False
    return entry.probe(argument) is None


def _versions(manifest: Manifest) -> dict[str, tuple[str, str]]:
    before = {
        **manifest.versions,
        **{f"converter {name}": version for name, version in manifest.converters.items()},
        **{f"backend {name}": version for name, version in manifest.backends.items()},
    }
    now = {name: _installed(name) for name in manifest.versions}
    for name in manifest.converters:
        try:
            now[f"converter {name}"] = find_converter(name).version()
        except UnknownName:
            now[f"converter {name}"] = ""
    for name in manifest.backends:
        if _runs(name):
            entry, argument = BACKENDS.find(name)
            now[f"backend {name}"] = entry.version(argument)
        else:
            now[f"backend {name}"] = ""
    return version_changes(before, now)


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
