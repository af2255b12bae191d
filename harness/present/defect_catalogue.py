"""The catalogue of defects: what one or several runs found, as Markdown to commit and to link to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.analyse import (
    COLUMNS,
    FAILED,
    SPEC,
    SPEECHLESS,
    CodedRows,
    FailureGroup,
    KnownIssue,
    each_problem,
    failure_groups,
)
from harness.compare import Outcome
from harness.core import count, listed
from harness.record import Minimal, RunInfo, read_minimal, read_run_info, store

#: Titles in the order of the sections: whose it is.
_BLAMED = {
    "converter": "Converters",
    "backend": "Backends",
    "pytorch": "PyTorch",
    "unknown": "Undecided: the witnesses disagree, or none could say",
    SPEC: "Left open by a specification: nobody's defect",
}
#: A declared gap is no defect.
_GAP = Outcome.UNSUPPORTED
_CALL, _WORDS = 220, 200


@dataclass(frozen=True)
class CataloguedRun:
    """A run that the catalogue rests on: its directory's name, and its distinct cases and operators."""

    name: str
    info: RunInfo
    cases: int
    overloads: int


@dataclass(frozen=True)
class CatalogueEntry:
    """One root cause.

    Attributes:
        runs: The names of the runs that found it, in the order in which they were given.
        shown_in: The run that has the case that is shown.
    """

    group: FailureGroup
    runs: tuple[str, ...]
    shown_in: str

    @property
    def case_id(self) -> str:
        """Of the case that is shown: the minimal one, else the smallest."""
        return self.group.minimal.minimal_id if self.group.minimal else self.group.case_id


@dataclass(frozen=True)
class Catalogue:
    """The root causes that some runs found, worst first; what specifications leave open is last."""

    runs: tuple[CataloguedRun, ...]
    entries: tuple[CatalogueEntry, ...]

    def defects(self, run: str | None = None) -> list[CatalogueEntry]:
        """Those of a run or of all that are somebody's: no declared gaps, nothing left open or undecided."""
        return [
            entry
            for entry in self.entries
            if entry.group.blame not in (SPEC, "unknown")
            and entry.group.outcome is not _GAP
            and (run is None or run in entry.runs)
        ]

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "runs": [
                {
                    "run": run.name,
                    "seed": run.info.seed,
                    "options": dict(run.info.options),
                    "versions": dict(run.info.versions),
                    "cases": run.cases,
                    "overloads": run.overloads,
                    "defects": len(self.defects(run.name)),
                }
                for run in self.runs
            ],
            "defects": len(self.defects()),
            "entries": [{**entry.group.to_data(), "runs": list(entry.runs)} for entry in self.entries],
        }


def catalogue(directories: Sequence[Path], known: Sequence[KnownIssue] = ()) -> Catalogue:
    """Group the failures of all runs together, and say which run found which.

    Raises:
        ResultsError: a run cannot be read.
    """
    tables: dict[str, pa.Table] = {}
    minimals: list[Minimal] = []
    runs: list[CataloguedRun] = []
    for directory in directories:
        name = directory.resolve().name
        tables[name] = store.read(directory, COLUMNS, FAILED, encoded=True)
        minimals += read_minimal(directory)
        runs.append(
            CataloguedRun(
                name,
                read_run_info(directory),
                len(store.words(directory, "case_id")),
                len(store.words(directory, "overload")),
            )
        )
    coded = {name: CodedRows(each_problem(table)[0]) for name, table in tables.items()}
    found = {name: set(rows.causes[0]) for name, rows in coded.items()}
    cases = {name: set(rows.words("case_id").to_pylist()) for name, rows in coded.items()}
    groups = failure_groups(pa.concat_tables(tables.values()), minimals, known)
    return Catalogue(
        tuple(runs),
        tuple(
            CatalogueEntry(
                group,
                tuple(name for name in tables if group.causes & found[name]),
                next(name for name in tables if _recorded(group) in cases[name]),
            )
            for group in groups
        ),
    )


def _recorded(group: FailureGroup) -> str:
    """The id of the case that is shown, or of the one that it was shrunk from."""
    return group.minimal.case_id if group.minimal else group.case_id


def markdown(found: Catalogue) -> str:
    """The whole as Markdown."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Catalogue) -> Iterator[str]:
    yield "# Defects that the harness has found"
    yield ""
    yield (
        f"{count(len(found.defects()), 'distinct defect')} by root cause: the same defect in several dtypes, "
        "operators or backends is one. First come those that most models meet, silently and in ordinary use. "
        "Generated by `conformance catalogue`; `conformance replay CASE --run RUN` runs a case again."
    )
    yield ""
    yield "| run | converters | backends | seed | cases per operator | operators | cases | defects found |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for run in found.runs:
        said = [_cell(run.name), _named(run, "converter"), _named(run, "backend"), str(run.info.seed)]
        said += [str(run.info.options.get("examples", "")), f"{run.overloads:,}", f"{run.cases:,}"]
        yield f"| {' | '.join(said)} | {len(found.defects(run.name))} |"
    yield ""
    yield f"Versions: {_versions(found.runs)}."
    yield ""
    yield from _counts(found)
    for blame, title in _BLAMED.items():
        entries = [entry for entry in found.entries if (entry.group.blame or "unknown") == blame]
        defects = [entry for entry in entries if entry.group.outcome is not _GAP]
        gaps = [entry for entry in entries if entry.group.outcome is _GAP]
        if defects:
            yield from ("", f"## {title}", "")
            yield from _table(defects, several=len(found.runs) > 1)
        if gaps:
            yield from ("", f"## {title}: declared gaps", "")
            yield from _gaps(gaps)


def _versions(runs: Sequence[CataloguedRun]) -> str:
    said: dict[str, set[str]] = {}
    for run in runs:
        for name, version in run.info.versions.items():
            said.setdefault(name, set()).add(version)
    return ", ".join(f"{name} {' and '.join(sorted(versions))}" for name, versions in sorted(said.items()))


def _counts(found: Catalogue) -> Iterator[str]:
    tally: Mapping[tuple[str, str], int] = Counter(
        (entry.group.blame or "unknown", str(entry.group.outcome)) for entry in found.entries
    )
    outcomes = sorted({outcome for _, outcome in tally})
    yield f"| blame | {' | '.join(outcomes)} |"
    yield f"| --- |{' --- |' * len(outcomes)}"
    for blame in _BLAMED:
        if any(key[0] == blame for key in tally):
            cells = " | ".join(str(tally.get((blame, outcome), "")) for outcome in outcomes)
            yield f"| {blame} | {cells} |"


def _table(entries: Sequence[CatalogueEntry], *, several: bool) -> Iterator[str]:
    head = ["outcome", "operators", "what is wrong", "case", "call", "evidence", "cases", "models"]
    head += ["found by"] * several
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for entry in entries:
        group = entry.group
        path = listed(group.converters, 3) + (f" → {listed(group.backends, 3)}" if group.backends else "")
        wrong = [_cell(_said(group), _WORDS)]
        if group.minimal and group.minimal.matters:
            wrong.append(_cell("; ".join(group.minimal.matters), _WORDS))
        wrong += [f"[known]({issue.link})" for issue in group.known[:2]]
        row = [
            f"{group.outcome} at {group.stage}, {_cell(path)}",
            _cell(listed(group.overloads, 4)),
            "<br>".join(wrong),
            f"`{entry.case_id}`" + (f" of {_cell(entry.shown_in)}" if several else ""),
            f"`{_cell(group.call, _CALL).replace('`', '')}`",
            _cell(group.evidence.split(". ")[0], _WORDS),
            str(group.cases),
            str(group.callers or ""),
        ]
        row += [_cell(", ".join(entry.runs))] * several
        yield f"| {' | '.join(row)} |"


def _said(group: FailureGroup) -> str:
    """What is wrong, in a line: an exporter's own first lines are about itself."""
    if group.outcome not in SPEECHLESS:
        return group.signature
    message = group.minimal.message if group.minimal else group.message
    return (message.strip().splitlines() or [""])[0]


def _gaps(entries: Sequence[CatalogueEntry]) -> Iterator[str]:
    """A declared gap needs no proof: name who declares it, for what operators, in what words."""
    yield "| at | who | operators | says |"
    yield "| --- | --- | --- | --- |"
    for entry in entries:
        group = entry.group
        who = group.backends if group.blame == "backend" else group.converters
        row = [
            str(group.stage),
            _cell(listed(who, 3)),
            _cell(listed(group.overloads, 4)),
            _cell(group.cause, _WORDS),
        ]
        yield f"| {' | '.join(row)} |"


def _named(run: CataloguedRun, option: str) -> str:
    names = run.info.options.get(option)
    return _cell(", ".join(map(str, names))) if isinstance(names, list) else ""


def _cell(text: str, limit: int | None = None) -> str:
    """Text that cannot end a cell of a table or become markup, cut to `limit` characters."""
    line = " ".join(text.split())
    if limit is not None and len(line) > limit:
        line = line[: limit - 1] + "…"
    return line.replace("|", "\\|").replace("<", "&lt;")
