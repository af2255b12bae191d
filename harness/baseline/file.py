"""A baseline on disk: one file of JSON lines per family, a line per cell, and `baseline.json`.

The order is stable and nothing of time or place is in it, so that a review sees what changed and no more.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from harness.baseline.cell import Cell, CellKey, Failure
from harness.record import layout
from harness.record.errors import ResultsError, reason

INFO_FILE = "baseline.json"
_SUFFIX = ".jsonl"

#: Options of a run that decide which cases are drawn.
DRAWING = ("seed", "examples", "values")


@dataclass(frozen=True)
class Baseline:
    """Expected outcomes.

    Attributes:
        cells: By key.
        versions: Of everything that took part when they were recorded.
        options: `DRAWING` of that run.
    """

    cells: Mapping[CellKey, Cell]
    versions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)


def is_baseline(directory: Path) -> bool:
    """Whether there is a baseline in `directory`."""
    return (directory / INFO_FILE).is_file()


def read_baseline(directory: Path) -> Baseline:
    """The baseline in `directory`.

    Raises:
        ResultsError: there is none, or a file of it is damaged.
    """
    if not is_baseline(directory):
        raise ResultsError(
            f"{directory} holds no baseline (no {INFO_FILE}); make one with --baseline {directory} "
            "--update-baseline"
        )
    names = sorted(directory.glob(f"*{_SUFFIX}"))
    return _parsed({path.name: _text(path) for path in (directory / INFO_FILE, *names)}, str(directory))


def read_revision(revision: str, path: str, cwd: Path | None = None) -> Baseline:
    """The baseline at `path` as a git revision has it.

    Args:
        revision: Anything that git understands: ``main``, ``HEAD~3``.
        path: Relative to `cwd` (the current directory).
        cwd: In the repository.

    Raises:
        ResultsError: no such revision or baseline.
    """

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ResultsError(f"{revision}:{path}: {done.stderr.strip().splitlines()[-1]}")
        return done.stdout

    listed = git("ls-tree", "--name-only", revision, "--", f"{path.rstrip('/')}/").split("\n")
    files = [name for name in listed if name.endswith(_SUFFIX) or PurePosixPath(name).name == INFO_FILE]
    if not any(PurePosixPath(name).name == INFO_FILE for name in files):
        raise ResultsError(f"{revision} has no baseline at {path}")
    texts = {PurePosixPath(name).name: git("show", f"{revision}:./{name}") for name in files}
    return _parsed(texts, f"{revision}:{path}")


def write_baseline(directory: Path, baseline: Baseline) -> None:
    """Put `baseline` in place of what is in `directory`.

    Raises:
        ResultsError: it cannot be written.
    """
    families: defaultdict[str, list[Cell]] = defaultdict(list)
    for key in sorted(baseline.cells):
        families[baseline.cells[key].family or "other"].append(baseline.cells[key])
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot write {directory}: {reason(error)}") from None
    for family, cells in families.items():
        text = "".join(f"{json.dumps(_encoded(cell), ensure_ascii=False)}\n" for cell in cells)
        with layout.replacing(directory / f"{family}{_SUFFIX}") as temporary:
            temporary.write_text(text, encoding="utf-8")
    for stale in directory.glob(f"*{_SUFFIX}"):
        if stale.stem not in families:
            stale.unlink()
    info = {"options": dict(baseline.options), "versions": dict(sorted(baseline.versions.items()))}
    with layout.replacing(directory / INFO_FILE) as temporary:
        temporary.write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")


def updated(
    old: Baseline | None, cells: Iterable[Cell], versions: Mapping[str, str], options: Mapping[str, int]
) -> Baseline:
    """`old` with `cells` in place of what it expected of their operators, converters and backends."""
    fresh = {cell.key: cell for cell in cells}
    covered = {scope(key) for key in fresh}
    kept = {key: cell for key, cell in (old.cells if old else {}).items() if scope(key) not in covered}
    return Baseline({**kept, **fresh}, versions, options)


def scope(key: CellKey) -> tuple[str, ...]:
    """All of a cell's key but the dtype: overload, converter, backend, shape mode."""
    return key[0], *key[2:]


def _encoded(cell: Cell) -> dict[str, Any]:
    data = {name: value for name, value in dataclasses.asdict(cell).items() if name != "family"}
    data["other"] = dict(cell.other)
    data["failures"] = [list(dataclasses.astuple(failure)) for failure in cell.failures]
    return {name: value for name, value in data.items() if value not in (None, {}, [])}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {reason(error)}") from None


def _parsed(texts: Mapping[str, str], where: str) -> Baseline:
    cells: dict[CellKey, Cell] = {}
    for name, text in texts.items():
        if name == INFO_FILE:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                cell = _decoded(json.loads(line), name.removesuffix(_SUFFIX))
            except (ValueError, TypeError, KeyError) as error:
                raise ResultsError(
                    f"{where}/{name}:{number}: not a line of a baseline ({reason(error)})"
                ) from None
            cells[cell.key] = cell
    try:
        info = json.loads(texts[INFO_FILE])
        return Baseline(cells, dict(info["versions"]), dict(info["options"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{where}/{INFO_FILE} is damaged ({reason(error)})") from None


def _decoded(data: dict[str, Any], family: str) -> Cell:
    return Cell(
        **{
            **data,
            "family": family,
            "other": tuple(sorted(data.get("other", {}).items())),
            "failures": tuple(Failure(*failure) for failure in data.get("failures", ())),
        }
    )
