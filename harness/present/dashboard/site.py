"""Writing the site: the page, its libraries, and the data of the runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.causes import KnownIssue, read_known_issues
from harness.present.dashboard.built import Built, build
from harness.present.dashboard.downloads import write_downloads
from harness.present.dashboard.embed import write_script
from harness.present.dashboard.evidence import UnreadableRun, operator_files
from harness.present.dashboard.index import index_data
from harness.present.dashboard.run_files import RunFindings, write_cases, write_findings
from harness.present.dashboard.runs import SetAside
from harness.present.dashboard.site_summary import write_summary
from harness.record import ResultsError, reason

_HERE = Path(__file__).parent
#: Files of a site that tell it from a directory that holds something else.
_MARKS = ("index.html", "summary.json", "data")


@dataclass(frozen=True)
class Site:
    """A site that was written: what it shows, what it does not, and what its ``summary.json`` says."""

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
        directories: Of the runs, in any order. Those that cannot be read are set aside.
        out: Where; a site that is there is replaced once the new one is whole.
        known: Known defects; None for those that come with the operator cases.
        progress: Told what is being done.

    Raises:
        ResultsError: `out` cannot be written or holds something else.
    """
    known = read_known_issues() if known is None else known
    with _in_place_of(out) as place:
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
    place: Path, built: Built, known: tuple[KnownIssue, ...], progress: Callable[[str], None]
) -> dict[str, Any]:
    found = write_findings(place, built, known, progress)
    progress("writing operators")
    tolerances = {number: findings.tolerances for number, findings in found.items()}
    for name, data in operator_files(built, known, tolerances):
        write_script(place, f"operator/{name}", data)
    progress("writing runs")
    write_cases(place, built)
    shown = found.get(built.shown, RunFindings())
    write_downloads(place, built, shown.tolerances, shown.failures)
    summary = write_summary(place, built)
    badges = [
        {"label": f"{column['converter']} → {column['backend']}", "path": column["badge"]}
        for column in summary["columns"]
    ]
    write_script(place, "index", {**index_data(built), "badges": badges})
    return summary


@contextmanager
def _in_place_of(out: Path) -> Iterator[Path]:
    """A directory to write to that takes the place of `out` when the block ends well."""
    if out.exists() and not out.is_dir():
        raise ResultsError(f"{out} is no directory; choose another place with --out")
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
