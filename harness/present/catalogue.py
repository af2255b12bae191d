"""The catalogue of defects: the root causes that one or several runs found.

The catalogue of defects as Markdown, to commit and to link to: a page for each component, worst first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.causes.groups import COLUMNS, FAILED, FailureGroup, GroupKind, failure_groups
from harness.causes.known_issues import KnownIssue
from harness.causes.rows import CodedRows, each_problem
from harness.compare.verdict import SPEC, Stage
from harness.core.documents import count, listed
from harness.present.evidence import SPEECHLESS, fault_text, group_data, group_evidence, group_place, place_text
from harness.record import store
from harness.record.json_lines import LocatedFailure, Minimal, read_located, read_minimal
from harness.record.run_info import RunInfo, read_run_info


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
        shown_in: The run in which the case that is shown failed so.
    """

    group: FailureGroup
    runs: tuple[str, ...]
    shown_in: str

    @property
    def case_id(self) -> str:
        """Of the case that is shown: the minimal one, else the smallest."""
        return self.group.minimal.minimal_id if self.group.minimal else self.group.case_id

    @property
    def recorded(self) -> tuple[str, ...]:
        """The id of the case that is shown, or that it was shrunk from, and its converter."""
        return _recorded(self.group)

    @property
    def is_gap(self) -> bool:
        """Whether a component declares that something is missing, which is not a defect."""
        return self.group.kind is GroupKind.GAP


@dataclass(frozen=True)
class Catalogue:
    """The root causes that some runs found, worst first; what specifications leave open is last."""

    runs: tuple[CataloguedRun, ...]
    entries: tuple[CatalogueEntry, ...]

    def defects(self, run: str | None = None) -> list[CatalogueEntry]:
        """Those of a run or of all that are defects: no declared gaps, nothing left open or undecided."""
        return [
            entry
            for entry in self.entries
            if entry.group.kind is GroupKind.DEFECT and (run is None or run in entry.runs)
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
            "entries": [{**group_data(entry.group), "runs": list(entry.runs)} for entry in self.entries],
        }


def catalogue(directories: Sequence[Path], known: Sequence[KnownIssue] = ()) -> Catalogue:
    """Group the failures of all runs together, and say which run found which.

    Raises:
        ResultsError: a run cannot be read.
    """
    tables: dict[str, pa.Table] = {}
    minimals: list[Minimal] = []
    located: list[LocatedFailure] = []
    runs: list[CataloguedRun] = []
    for directory in directories:
        name = directory.resolve().name
        tables[name] = store.read(directory, COLUMNS, FAILED, encoded=True)
        minimals += read_minimal(directory)
        located += read_located(directory)
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
    failures = {name: _failures(table) for name, table in tables.items()}
    groups = failure_groups(pa.concat_tables(tables.values()), minimals, known, located=located)
    return Catalogue(
        tuple(runs),
        tuple(
            CatalogueEntry(
                group,
                tuple(name for name in tables if group.causes & found[name]),
                next(name for name in tables if _recorded(group) in failures[name]),
            )
            for group in groups
        ),
    )


def _failures(table: pa.Table) -> set[tuple[str, ...]]:
    """Which case failed with which converter: two runs may have a case in common."""
    columns = (table[name].to_pylist() for name in ("case_id", "converter"))
    return set(zip(*columns, strict=True))


def _recorded(group: FailureGroup) -> tuple[str, ...]:
    """The case that is shown or that it was shrunk from, and the converter that it failed with."""
    shown = group.minimal or group
    return shown.case_id, shown.converter


#: Entries of a component that are told in full; a table has the others, a line for each place.
_IN_FULL = 20
_CALL, _WORDS, _BRIEF, _EVIDENCE = 300, 240, 110, 400
_BLAMED = {"pytorch": "PyTorch", "unknown": "Undecided", SPEC: "Left open by a specification"}
#: What to know of entries that are not a defect, or not yet anybody's.
_ABOUT = {
    "Undecided": "The witnesses disagree, or none could say. These are not counted as defects.",
    "Left open by a specification": "Not a defect: the text decides nothing.",
}


@dataclass
class _Component:
    """A converter, a backend or PyTorch: what it answers for, worst first."""

    name: str
    defects: list[CatalogueEntry] = field(default_factory=list)
    gaps: list[CatalogueEntry] = field(default_factory=list)


def markdown(found: Catalogue) -> str:
    """The whole as Markdown."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Catalogue) -> Iterator[str]:
    components = _components(found.entries)
    yield "# Defects that the harness has found"
    yield ""
    yield (
        f"{count(len(found.defects()), 'distinct defect')} by root cause: a place, and what is wrong "
        "there, in whichever operators, dtypes, backends and converters it shows. First come those that most "
        "models meet, silently and in ordinary use. Generated by `conformance catalogue`; "
        "`conformance replay CASE --run RUN` runs a case again."
    )
    yield from ("", *_runs(found), "")
    yield "| component | root causes | places | operators | cases | declared gaps |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for component in components:
        places = {group_place(entry.group) for entry in component.defects}
        operators = {name for entry in component.defects for name in entry.group.overloads}
        cases = sum(entry.group.cases for entry in component.defects)
        # As GitHub makes one of a heading: of `dynamo, torchscript` the comma goes.
        link = re.sub(r"[^\w -]", "", component.name.lower()).replace(" ", "-")
        yield (
            f"| [{component.name}](#{link}) | {len(component.defects):,} | {len(places):,} | {len(operators):,} "
            f"| {cases:,} | {len(component.gaps) or ''} |"
        )
    for component in components:
        yield from _page(component, several=len(found.runs) > 1)


def _components(entries: Sequence[CatalogueEntry]) -> list[_Component]:
    """Converters, then backends, then PyTorch, each with what it answers for."""
    found: dict[tuple[int, str], _Component] = {}
    order = ("converter", "backend", *_BLAMED)
    for entry in entries:
        blame = entry.group.blame or "unknown"
        group = entry.group
        name = _BLAMED.get(blame, "") or listed(group.converters if blame == "converter" else group.backends, 3)
        one = found.setdefault((order.index(blame), name), _Component(name))
        (one.gaps if entry.is_gap else one.defects).append(entry)
    return [one for _, one in sorted(found.items(), key=lambda item: item[0])]


def _runs(found: Catalogue) -> Iterator[str]:
    yield "| run | converters | backends | seed | cases per operator | operators | cases | defects found |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for run in found.runs:
        said = [_cell(run.name), _named(run, "converter"), _named(run, "backend"), str(run.info.seed)]
        said += [str(run.info.options.get("examples", "")), f"{run.overloads:,}", f"{run.cases:,}"]
        yield f"| {' | '.join(said)} | {len(found.defects(run.name))} |"
    yield ""
    yield f"Versions: {_versions(found.runs)}."


def _versions(runs: Sequence[CataloguedRun]) -> str:
    said: dict[str, set[str]] = {}
    for run in runs:
        for name, version in run.info.versions.items():
            said.setdefault(name, set()).add(version)
    return ", ".join(f"{name} {' and '.join(sorted(versions))}" for name, versions in sorted(said.items()))


def _page(component: _Component, *, several: bool) -> Iterator[str]:
    yield from ("", f"## {component.name}", "")
    if component.name in _ABOUT:
        yield from (_ABOUT[component.name], "")
    full, rest = component.defects[:_IN_FULL], component.defects[_IN_FULL:]
    if full:
        yield "| | place | what is wrong | operators | cases | models |"
        yield "| --- | --- | --- | --- | --- | --- |"
    for number, entry in enumerate(full, start=1):
        group = entry.group
        yield (
            f"| {number} | {_cell(place_text(group.cause))} | {_cell(_wrong(entry), _BRIEF)} "
            f"| {len(group.overloads)} | {group.cases} | {group.callers or ''} |"
        )
    for number, entry in enumerate(full, start=1):
        yield from ("", *_in_full(number, entry, several=several))
    if rest:
        yield from ("", f"### {component.name}: {count(len(rest), 'further root cause')}", "")
        yield from _by_place(rest)
    if component.gaps:
        yield from ("", f"### {component.name}: declared gaps", "", *_gaps(component.gaps))


def _in_full(number: int, entry: CatalogueEntry, *, several: bool) -> Iterator[str]:
    group = entry.group
    yield f"### {number}. {_cell(place_text(group.cause))}: {_cell(_wrong(entry), _BRIEF)}"
    yield ""
    path = listed(group.converters, 3) + (f" → {listed(group.backends, 3)}" if group.backends else "")
    counted = f"{count(group.cases, 'case')} ({group.ordinary_cases:,} ordinary)"
    used = f", called by {count(group.callers, 'model')}" if group.callers else ""
    yield f"{group.outcome} at {group.stage}, {_cell(path)}: {counted}{used}."
    yield ""
    where = group.file
    if group.line:
        line = group.line
        where = f"`{line.file}:{line.line}` in `{line.function}`"
        yield f"- likeliest line: {where}: `{_code(line.text)}`"
    elif where:
        yield f"- place: `{where}`"
    yield f"- operators: {_cell(listed(group.overloads, 12))}; in {_cell(listed(group.dtypes, 12))}"
    yield f"- smallest case: `{_code(group.call)}`"
    yield f"- says: {_cell(_said(entry), _WORDS)}"
    if group.minimal and group.minimal.matters:
        yield f"- depends on: {_cell('; '.join(group.minimal.matters), _EVIDENCE)}"
    if group.blame in ("backend", "pytorch", SPEC):
        yield f"- evidence: {_cell(group_evidence(group), _EVIDENCE)}"
    for issue in group.known[:3]:
        yield f"- [known]({issue.link}): {_cell(issue.note, _WORDS)}"
    case_id, converter = entry.recorded
    options = f" --converter {converter}" + (f" --backend {group.backend}" if group.backend else "")
    found_by = f" (found by {_cell(', '.join(entry.runs))})" if several else ""
    yield f"- script: `conformance repro {case_id} --run {entry.shown_in}{options}`{found_by}"


def _by_place(entries: Sequence[CatalogueEntry]) -> Iterator[str]:
    """A line for each place, in the order of the worst that is wrong there."""
    yield "| place | what is wrong | operators | cases | smallest case |"
    yield "| --- | --- | --- | --- | --- |"
    places: defaultdict[str, list[CatalogueEntry]] = defaultdict(list)
    for entry in entries:
        places[place_text(entry.group.cause)].append(entry)
    for place, there in places.items():
        wrong = "<br>".join(_cell(_brief(entry), _BRIEF) for entry in there)
        operators = sorted({name for entry in there for name in entry.group.overloads})
        cases = sum(entry.group.cases for entry in there)
        yield (
            f"| {_cell(place)} | {wrong} | {_cell(listed(operators, 4))} | {cases} "
            f"| `{there[0].case_id}` `{_code(there[0].group.call, 120)}` |"
        )


def _brief(entry: CatalogueEntry) -> str:
    """What is wrong, and of a wrong result how."""
    said, cause = _said(entry), _wrong(entry)
    if entry.group.outcome not in SPEECHLESS:
        return cause
    return said if said.startswith(cause) else f"{cause} ({said})"


def _wrong(entry: CatalogueEntry) -> str:
    """What is wrong, without the words that nearly all rejected models have in common."""
    return fault_text(entry.group.cause)


def _said(entry: CatalogueEntry) -> str:
    """The failure's own words, in a line: an exporter's own first lines are about itself."""
    group = entry.group
    if group.stage is Stage.CONVERT and group.outcome not in SPEECHLESS:
        return group.signature
    message = group.minimal.message if group.minimal else group.message
    return (message.strip().splitlines() or [group.signature])[0]


def _gaps(entries: Sequence[CatalogueEntry]) -> Iterator[str]:
    """A declared gap needs no proof: what is missing, in few words, and for which operators."""
    without = sorted(name for entry in entries if (name := _missing(entry)))
    if without:
        yield f"No conversion function: {', '.join(f'`{name}`' for name in without)}."
    others = [entry for entry in entries if not _missing(entry)]
    if without and others:
        yield ""
    if others:
        yield "| place | says | operators | dtypes | cases |"
        yield "| --- | --- | --- | --- | --- |"
    for place, there in groupby(sorted(others, key=_place), key=_place):
        for group in (entry.group for entry in there):
            yield (
                f"| {_cell(place)} | {_cell(fault_text(group.cause), _WORDS)} "
                f"| {_cell(listed(group.overloads, 4))} | {_cell(listed(group.dtypes, 6))} | {group.cases} |"
            )


def _place(entry: CatalogueEntry) -> str:
    return place_text(entry.group.cause)


def _missing(entry: CatalogueEntry) -> str:
    """The operator that a converter has no function for; "" for another gap."""
    cause = entry.group.cause
    return cause.place.removeprefix("no conversion of ") if cause.fault == "no-conversion" else ""


def _named(run: CataloguedRun, option: str) -> str:
    names = run.info.options.get(option)
    return _cell(", ".join(map(str, names))) if isinstance(names, list) else ""


def _code(call: str, limit: int = _CALL) -> str:
    line = " ".join(call.split())
    return (line if len(line) <= limit else line[: limit - 1] + "…").replace("|", "\\|").replace("`", "")


def _cell(text: str, limit: int | None = None) -> str:
    """Text that cannot end a cell of a table or become markup, cut to `limit` characters."""
    line = " ".join(text.split())
    if limit is not None and len(line) > limit:
        line = line[: limit - 1] + "…"
    return line.replace("|", "\\|").replace("<", "&lt;")
