"""The run that is shown first in a few numbers, for other pages: ``summary.json`` and badges."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from harness.core import json_text
from harness.present.dashboard.built import Built
from harness.present.dashboard.cells import STANDINGS
from harness.present.dashboard.embed import write_text
from harness.present.dashboard.moved import moved_data
from harness.present.dashboard.runs import COMPLETE

#: Width of a character of 11 px Verdana, on average, in pixels.
_CHARACTER = 6.6
_PADDING = 6
#: Fill by share that passes, from the top; each with white text on it has a contrast of 4.5 or more.
_FILLS = ((0.9, "#1a6fb3"), (0.5, "#50678a"), (0.0, "#a8480f"))
_GREY = "#5f6670"


def write_summary(directory: Path, built: Built) -> dict[str, Any]:
    """Write ``summary.json`` and ``badges/``; what the former says."""
    data = _summary(built)
    state = "" if not built.runs or built.runs[built.shown].state == COMPLETE else "partial"
    for column in data["columns"]:
        operators = column["operators"]
        label = f"{column['converter']} → {column['backend']}"
        image = badge(label, operators["whole"], sum(operators.values()), state)
        write_text(directory / column["badge"], image)
    write_text(directory / "summary.json", json_text(data) + "\n")
    return data


def _summary(built: Built) -> dict[str, Any]:
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
    """An SVG image: `label`, and how many of how many operators pass all their cases.

    Args:
        label: What it is about: ``dynamo → ort-cpu``.
        note: Said after the numbers: ``partial``.
    """
    value = f"{passing:,}/{total:,} operators" if total else "no operators"
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
    """A file's name for a column that no file system or address minds; unlike those that are `taken`."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{converter}--{backend}")[:80].strip(".") or "column"
    name, number = f"{base}.svg", 2
    while name in taken:
        name, number = f"{base}-{number}.svg", number + 1
    return name
