"""Write the site: the page, its libraries, the index of its runs, their data, ``summary.json`` and badges."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

import harness
from harness.causes.known_issues import KnownIssue, read_known_issues
from harness.core.documents import json_text
from harness.core.route import route_label
from harness.gate.case_changes import CHANGES, DRIFT, MOVED, ROUNDING
from harness.present.dashboard.case_pages import case_files
from harness.present.dashboard.cells import STANDINGS
from harness.present.dashboard.downloads import write_downloads
from harness.present.dashboard.embed import write_script, write_text
from harness.present.dashboard.evidence import UnreadableRun, operator_files
from harness.present.dashboard.figures import use_data
from harness.present.dashboard.run_files import RunFindings, moved_data, write_cases, write_findings
from harness.present.dashboard.runs import COMPLETE, SetAside, SiteRun, differences, earlier_run
from harness.present.dashboard.site_model import SiteModel, build
from harness.record.layout import ResultsError, reason
from harness.record.run_info import OPTION, RULES, SOURCE, RunInfo


def index_data(built: SiteModel) -> dict[str, Any]:
    """Return the content of the page's first file."""
    words = built.words
    return {
        "harness": harness.__version__,
        "standings": list(STANDINGS),
        "changes": [{"name": str(change), "worse": change.is_worse} for change in CHANGES],
        "bounds": {"moved": MOVED, "rounding": ROUNDING, "drift": DRIFT},
        # The run that is shown by default.
        "shown": built.shown,
        "runs": [_run(built, number, run) for number, run in enumerate(built.runs)],
        "aside": [{"name": one.name, "message": one.message} for one in built.gathered.aside],
        "operators": built.names,
        "use": use_data(built),
        "families": _indexed(built.families),
        "columns": [list(name) for name in words.column_names],
        "dtypes": built.dtypes,
        "dtypeOrder": built.dtype_order,
        "buckets": [[b.outcome, b.stage, b.blame, int(b.fails), int(b.ordinary)] for b in words.buckets],
        # Per operator, the run that its page shows the evidence of; −1 for none.
        "evidence": _evidence(built),
        "differences": differences(built.requests),
    }


def _run(built: SiteModel, number: int, run: SiteRun) -> dict[str, Any]:
    info, coded = run.info, built.coded[number]
    columns = built.columns_of(number)
    return {
        "id": info.run_id,
        "name": run.directory.name,
        # The path as it was typed, for commands: an absolute path of this machine means nothing elsewhere.
        "place": f"results/{run.directory.name}" if run.directory.is_absolute() else str(run.directory),
        "started": info.started,
        "finished": info.finished,
        "state": run.state,
        "notes": run.notes,
        "seed": info.seed,
        "options": {k: v for k, v in info.options.items() if v not in (None, [], False, "")},
        "versions": {str(k): str(v) for k, v in info.versions.items()},
        "host": {str(k): str(v) for k, v in info.host.items()},
        "rules": _rules(info),
        "source": info.basis.get(SOURCE, ""),
        "rows": len(coded),
        "cases": len(np.unique(coded.case)),
        "operators": len(np.unique(coded.operator)),
        "missing": len(built.lost[number]),
        # The run with which it is compared.
        "before": earlier_run(built.requests, number),
        # Operators that this run or the one shown first has and the other has not.
        "unlike": len(np.setxor1d(built.operators_of(number), built.operators_of(built.shown))),
        "columns": columns,
        "standings": [counts.to_data() for counts in built.counts_of(number)],
    }


def _indexed(words: list[str]) -> dict[str, Any]:
    names = sorted(set(words))
    place = {name: number for number, name in enumerate(names)}
    return {"names": names, "of": [place[word] for word in words]}


def _evidence(built: SiteModel) -> list[int]:
    found = [-1] * len(built.names)
    for number, run in built.evidence.of.items():
        found[built.rank[number]] = run
    return found


def _rules(info: RunInfo) -> dict[str, Any]:
    """Return the user's conversion functions: the names of their files, and hashes of their content."""
    files = info.options.get(OPTION)
    names = [Path(str(file)).name for file in files] if isinstance(files, list) else []
    return {"files": names, "digest": info.basis.get(RULES, "")}


#: Width of a character of 11 px Verdana, on average, in pixels.
_CHARACTER = 6.6
_PADDING = 6
#: Fill by share that passes, from the top; each with white text on it has a contrast of 4.5 or more.
_FILLS = ((0.9, "#1a6fb3"), (0.5, "#50678a"), (0.0, "#a8480f"))
_GREY = "#5f6670"


def write_summary(directory: Path, built: SiteModel) -> dict[str, Any]:
    """Write ``summary.json`` and ``badges/``, and return the content of the former."""
    data = _summary(built)
    state = "" if not built.runs or built.runs[built.shown].state == COMPLETE else "partial"
    for column in data["columns"]:
        operators = column["ordinary"]["operators"]
        label = route_label(column["converter"], column["backend"])
        image = badge(label, operators["whole"], sum(operators.values()), state)
        write_text(directory / column["badge"], image)
    write_text(directory / "summary.json", json_text(data) + "\n")
    return data


def _summary(built: SiteModel) -> dict[str, Any]:
    aside = [{"name": one.name, "message": one.message} for one in built.gathered.aside]
    if not built.runs:
        return {"run": None, "columns": [], "moved": None, "runs": [], "aside": aside}
    last = built.shown
    run, moved = built.runs[last], moved_data(built, last)
    numbers = built.columns_of(last)
    columns: list[dict[str, Any]] = []
    for number, counts in zip(numbers, built.counts_of(last), strict=True):
        converter, backend = built.words.column_names[number]
        taken = {column["badge"].removeprefix("badges/") for column in columns}
        columns.append(
            {
                "converter": converter,
                "backend": backend,
                "operators": dict(zip(STANDINGS, counts.standings, strict=True)),
                "cases": {"passed": counts.passed, "total": counts.total},
                "ordinary": {
                    "passed": counts.ordinary_passed,
                    "total": counts.ordinary_total,
                    "operators": dict(zip(STANDINGS, counts.ordinary_standings, strict=True)),
                },
                "badge": f"badges/{file_name(converter, backend, taken)}",
            }
        )
    return {
        "run": {
            "run_id": run.info.run_id,
            "started": run.info.started,
            "finished": run.info.finished,
            "state": run.state,
            "notes": run.notes,
            "versions": dict(run.info.versions),
        },
        "columns": columns,
        "moved": moved and {"since": built.runs[moved["before"]].info.run_id, **moved["counts"]},
        "runs": [{"run_id": one.info.run_id, "started": one.info.started, "state": one.state} for one in built.runs],
        "aside": aside,
    }


def badge(label: str, passing: int, total: int, note: str = "") -> str:
    """Return an SVG image with `label` and the share of operators that pass all their ordinary cases.

    Args:
        label: Subject of the badge: ``dynamo → ort-cpu``.
        note: Text after the numbers: ``partial``.
    """
    value = f"{passing:,}/{total:,} operators in ordinary use" if total else "no operators in ordinary use"
    value += f" · {note}" if note else ""
    share = passing / total if total else None
    fill = _GREY if share is None or note else next(f for least, f in _FILLS if share >= least)
    left, right = (round(len(text) * _CHARACTER) + 2 * _PADDING for text in (label, value))
    title = quoteattr(f"{label}: {value}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f"aria-label={title}><title>{escape(f'{label}: {value}')}</title>"
        f'<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
        '<g clip-path="url(#r)">'
        f'<rect width="{left}" height="20" fill="#3d434b"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{fill}"/></g>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14" textLength="{left - 2 * _PADDING}">{escape(label)}</text>'
        f'<text x="{left + right / 2}" y="14" textLength="{right - 2 * _PADDING}">{escape(value)}</text>'
        "</g></svg>\n"
    )


def file_name(converter: str, backend: str, taken: Collection[str] = ()) -> str:
    """Return a name for a column's file that is valid in every file system and address; unlike those that are
    `taken`."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{converter}--{backend}")[:80].strip(".") or "column"
    name, number = f"{base}.svg", 2
    while name in taken:
        name, number = f"{base}-{number}.svg", number + 1
    return name


_HERE = Path(__file__).parent
#: Files of a site that tell it from a directory that holds something else.
_MARKS = ("index.html", "summary.json", "data")


@dataclass(frozen=True)
class Site:
    """A site that was written: the runs that it shows and those that it does not, and its ``summary.json``."""

    directory: Path
    runs: int
    aside: tuple[SetAside, ...]
    summary: dict[str, Any]


def write_site(
    directories: Sequence[Path],
    out: Path,
    *,
    known: tuple[KnownIssue, ...] | None = None,
    progress: Callable[[str], None] = lambda words: None,
) -> Site:
    """Write the site of some runs.

    Args:
        directories: Directories of the runs, in any order. Those that cannot be read are set aside.
        out: Directory of the site; an existing site is replaced once the new one is whole.
        known: Known defects; None for the list that comes with the operator cases.
        progress: Called with a description of each step.

    Raises:
        ResultsError: `out` cannot be written or holds something else.
    """
    known = read_known_issues() if known is None else known
    with _replacing(out) as place:
        shutil.copytree(_HERE / "page", place, dirs_exist_ok=True)
        shutil.copytree(_HERE / "vendor", place / "vendor", dirs_exist_ok=True)
        _load_further_views(place)
        sound, aside = list(directories), list[SetAside]()
        while True:
            built = build(sound, progress)
            built.gathered.aside.extend(aside)
            try:
                summary = _write_data(place, built, known, progress)
                break
            except UnreadableRun as found:
                sound = [directory for directory in sound if directory != found.run.directory]
                built.gathered.set_aside(found.run, found.error)
                aside.append(built.gathered.aside[-1])
    return Site(out, len(built.runs), tuple(built.gathered.aside), summary)


def _load_further_views(place: Path) -> None:
    """Make the page load every ``js/view_*.js``, so that a new view is one file."""
    page = place / "index.html"
    text = page.read_text(encoding="utf-8")
    views = sorted(path.name for path in (place / "js").glob("view_*.js"))
    tags = [f'<script defer src="js/{name}"></script>\n' for name in views if f"js/{name}" not in text]
    last = '<script defer src="js/shell.js">'
    page.write_text(text.replace(last, "".join([*tags, last])), encoding="utf-8")


def _write_data(
    place: Path, built: SiteModel, known: tuple[KnownIssue, ...], progress: Callable[[str], None]
) -> dict[str, Any]:
    found = write_findings(place, built, known, progress)
    progress("writing operators")
    tolerances = {number: (*run.tolerances, *run.ordinary_tolerances) for number, run in found.items()}
    failures = {number: run.failures for number, run in found.items()}
    for name, data in operator_files(built, known, tolerances, failures):
        write_script(place, f"operator/{name}", data)
    progress("writing cases")
    written: dict[int, list[str]] = {}
    for number in sorted(built.evidence.runs, reverse=True):
        for digits, data in case_files(built, number):
            write_script(place, f"case/{number}-{digits}", data)
            written.setdefault(number, []).append(digits)
    progress("writing runs")
    write_cases(place, built)
    shown = found.get(built.shown, RunFindings())
    write_downloads(place, built, shown.tolerances, shown.failures)
    summary = write_summary(place, built)
    badges = [
        {"label": route_label(column["converter"], column["backend"]), "path": column["badge"]}
        for column in summary["columns"]
    ]
    # The files of failing cases: a run, the newest first, and the first digits of its cases' ids.
    cases = [[number, digits] for number, digits in written.items()]
    write_script(place, "index", {**index_data(built), "caseFiles": cases, "badges": badges})
    return summary


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """Yield a directory to write to; it takes the place of `out` when the block ends well."""
    if out.exists() and not out.is_dir():
        raise ResultsError(f"{out} is not a directory; choose another place with --out")
    if out.is_dir() and any(out.iterdir()) and not all((out / name).exists() for name in _MARKS):
        raise ResultsError(f"{out} holds something else than a site; choose another place with --out")
    place, old = (out.absolute().with_name(f".{out.name}.{os.getpid()}.{end}") for end in ("tmp", "old"))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir()
        yield place
        if out.exists():
            out.rename(old)
        place.rename(out)
    except OSError as error:
        raise ResultsError(f"cannot write {out}: {reason(error)}") from None
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
