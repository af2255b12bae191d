"""A baseline on disk: one text file per family, and ``baseline.json`` with versions and options.

The order is stable, and nothing depends on time or place, so that a review shows exactly what changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from harness.core.documents import parse_data, parse_json, to_json
from harness.core.git import GitFailure, GitMissing, git_output
from harness.gate.baseline.cell_text import decode, encode
from harness.gate.baseline.cells import BaselineCell, CellKey, scope
from harness.gate.baseline.count_cells import COLUMNS, DRAWN_SOURCES, cells_in
from harness.gate.waivers import COLUMNS as WAIVER_COLUMNS, NO_WAIVERS, Waivers
from harness.record import layout, store
from harness.record.json_lines import read_flaky
from harness.record.layout import ResultsError, reason
from harness.record.run_info import JSON, KERNELS, RunInfo, read_run_info

INFO_FILE = "baseline.json"
#: The baseline's usual directory in a repository.
DEFAULT = "golden/baseline"
#: Version of the files' layout.
FORMAT = 1
_SUFFIX = ".txt"

#: Options of a run that determine the drawn cases.
DRAWING = ("seed", "examples", "values", "opset", "dtype")

#: Versions that every cell depends on, in addition to its converter's and its backend's.
_COMMON = ("torch", "numpy", "ml-dtypes", "onnx", "onnxscript", "onnx-ir", "hypothesis")


@dataclass(frozen=True)
class Baseline:
    """Expected outcomes.

    Attributes:
        cells: The expectations.
        versions: Versions of everything that took part when they were recorded.
        options: The options among `DRAWING` that the run was given.
        kernels: Digest of what selected the kernels, as in `RunInfo.basis`; "" in early versions.
        shapes: The value of ``--shapes``; "" in early versions.
    """

    cells: Mapping[CellKey, BaselineCell]
    versions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, JSON] = field(default_factory=dict)
    kernels: str = ""
    shapes: str = ""


@dataclass(frozen=True, kw_only=True)
class _BaselineInfo:
    """The contents of ``baseline.json``."""

    format: int
    options: Mapping[str, JSON]
    versions: Mapping[str, str]
    families: list[str]
    kernels: str = ""
    shapes: str = ""


def drawing(options: Mapping[str, Any], seed: int) -> dict[str, JSON]:
    """Return the options among `DRAWING` that a run was given, from the options in its ``run.json``."""
    given = {**options, "seed": seed}
    chosen = {name: given.get(name) for name in DRAWING}
    return {name: value for name, value in chosen.items() if value is not None and value != []}


def make_baseline(info: RunInfo, cells: Mapping[CellKey, BaselineCell]) -> Baseline:
    """Return the cells of a run as expectations, with the run's versions and options."""
    kernels = str(info.basis.get(KERNELS, ""))
    return Baseline(
        cells, info.versions, drawing(info.options, info.seed), kernels, str(info.options.get("shapes") or "")
    )


def baseline_of_run(results_dir: Path, waivers: Waivers = NO_WAIVERS) -> Baseline:
    """Return a recorded run as the expectation for later ones; cases that waivers excuse count as passing."""
    info = read_run_info(results_dir)
    columns = COLUMNS if not waivers.entries else tuple(dict.fromkeys((*COLUMNS, *WAIVER_COLUMNS)))
    drawn = store.read(results_dir, columns, pc.field("source").isin(DRAWN_SOURCES), encoded=True)
    if waivers.entries:
        drawn, _ = waivers.excuse_rows(drawn)
    cells = cells_in(drawn, read_flaky(results_dir))
    return make_baseline(info, {cell.key: cell for cell in cells})


def is_baseline(directory: Path) -> bool:
    """Whether `directory` contains a baseline."""
    return (directory / INFO_FILE).is_file()


def read_baseline(directory: Path) -> Baseline:
    """Return the baseline in `directory`.

    Raises:
        ResultsError: There is none, or one of its files is damaged.
    """
    if not is_baseline(directory):
        raise ResultsError(
            f"{directory} holds no baseline (no {INFO_FILE}); make one of a run with "
            f"`conformance baseline RUN --out {directory}`, or with --baseline {directory} --update-baseline"
        )

    def read(name: str) -> str:
        path = directory / name
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ResultsError(f"{path} is missing; restore it from version control") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ResultsError(f"cannot read {path}: {reason(error)}") from None

    return _parsed(read, str(directory))


def read_revision(revision: str, path: str) -> Baseline:
    """Return the baseline at `path`, relative to the current directory, in a git revision.

    Args:
        revision: A git revision: ``main``, ``HEAD~3``.
        path: The baseline's directory.

    Raises:
        ResultsError: The revision or the baseline does not exist.
    """
    where = f"{revision}:{path.rstrip('/')}"
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise ResultsError(f"{where}: git knows no revision {revision} here")

    def read(name: str) -> str:
        text = _git("show", f"{commit.strip()}:./{path.rstrip('/')}/{name}")
        if text is None and name == INFO_FILE:
            raise ResultsError(f"revision {revision} has no baseline at {path} (no {INFO_FILE})")
        if text is None:
            raise ResultsError(f"{where}/{name} is missing in that revision")
        return text

    return _parsed(read, where)


def _git(*words: str) -> str | None:
    """Return git's output; None if it fails."""
    try:
        return git_output(*words)
    except GitMissing as error:
        raise ResultsError(f"a revision's baseline cannot be read: {error}") from None
    except GitFailure:
        return None


def write_baseline(directory: Path, baseline: Baseline) -> None:
    """Write a baseline to `directory`, replacing what is there."""
    families: defaultdict[str, list[BaselineCell]] = defaultdict(list)
    for cell in baseline.cells.values():
        families[cell.family or "other"].append(cell)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot write {directory}: {reason(error)}") from None
    for family, cells in families.items():
        with layout.replacing(directory / f"{family}{_SUFFIX}") as temporary:
            temporary.write_text(encode(cells), encoding="utf-8", newline="\n")
    info = _BaselineInfo(
        format=FORMAT,
        options={name: baseline.options[name] for name in DRAWING if name in baseline.options},
        versions=dict(sorted(baseline.versions.items())),
        families=sorted(families),
        kernels=baseline.kernels,
        shapes=baseline.shapes,
    )
    with layout.replacing(directory / INFO_FILE) as temporary:
        temporary.write_text(to_json(info, indent=2) + "\n", encoding="utf-8", newline="\n")
    for stale in directory.glob(f"*{_SUFFIX}"):
        if stale.stem not in families:
            stale.unlink()


def update(old: Baseline | None, new: Baseline) -> Baseline:
    """Return `old` with its expectations of the same operators, converters and backends replaced by those of `new`.

    Raises:
        ResultsError: Expectations that were made with other options or versions would remain.
    """
    covered = {scope(key) for key in new.cells}
    kept = {key: cell for key, cell in (old.cells if old else {}).items() if scope(key) not in covered}
    if old is None or not kept:
        return new
    for name in DRAWING:
        if old.options.get(name) != new.options.get(name):
            raise ResultsError(
                f"the baseline was drawn with {name} {_show(old.options.get(name))}, this run with "
                f"{_show(new.options.get(name))}, and it covers only a part: leave out --{name}, or "
                "update all of the baseline at once"
            )
    sides = {f"{kind} {name}" for key in kept for kind, name in (("converter", key[2]), ("backend", key[3]))}
    for name in sorted({*_COMMON, *sides}):
        before, now = old.versions.get(name), new.versions.get(name)
        if before is not None and now is not None and before != now:
            raise ResultsError(
                f"the baseline was made with {name} {before}, this run with {now}, and it covers only a "
                "part: update all of the baseline at once, or write another one"
            )
    return Baseline({**kept, **new.cells}, {**old.versions, **new.versions}, new.options, new.kernels, new.shapes)


def _show(value: JSON) -> str:
    return "none given" if value is None else str(value)


def _parsed(read: Callable[[str], str], where: str) -> Baseline:
    try:
        data = parse_json(dict[str, Any], read(INFO_FILE))
        if data.get("format") != FORMAT:
            raise ValueError(f"format {data.get('format')}, this harness reads {FORMAT}")
        info = parse_data(_BaselineInfo, data)
    except ValueError as error:
        raise ResultsError(
            f"{where}/{INFO_FILE} is damaged ({reason(error)}); restore it from version control"
        ) from None
    cells: dict[CellKey, BaselineCell] = {}
    for family in info.families:
        try:
            for cell in decode(read(f"{family}{_SUFFIX}"), family):
                cells[cell.key] = cell
        except ValueError as error:
            raise ResultsError(f"{where}/{family}{_SUFFIX}:{error}") from None
    return Baseline(cells, info.versions, info.options, info.kernels, info.shapes)
