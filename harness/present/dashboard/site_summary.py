"""The newest run in a few numbers, for other pages: ``summary.json`` and badges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.core import json_text
from harness.present.dashboard.badges import badge, file_name
from harness.present.dashboard.built import Built
from harness.present.dashboard.cells import STANDINGS, column_standings
from harness.present.dashboard.embed import write_text
from harness.present.dashboard.index import moved_data
from harness.present.dashboard.runs import COMPLETE


def write_summary(directory: Path, built: Built) -> dict[str, Any]:
    """Write ``summary.json`` and ``badges/``; what the former says."""
    data = _summary(built)
    state = "" if not built.runs or built.runs[-1].state == COMPLETE else "partial"
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
    run, last = built.runs[-1], len(built.runs) - 1
    moved = moved_data(built)
    numbers = built.columns_of(last)
    standings = column_standings(built.tallies[last], numbers, len(built.lost[last]))
    columns: list[dict[str, Any]] = []
    for number, counts in zip(numbers, standings, strict=True):
        converter, backend = built.words.column_names[number]
        taken = {column["badge"].removeprefix("badges/") for column in columns}
        columns.append(
            {
                "converter": converter,
                "backend": backend,
                "operators": dict(zip(STANDINGS, counts, strict=False)),
                "cases": {"passed": counts[-2], "total": counts[-1]},
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
        "moved": moved and {"since": built.runs[-2].info.run_id, **moved["counts"]},
        "runs": [
            {"run_id": one.info.run_id, "started": one.info.started, "state": one.state} for one in built.runs
        ],
        "aside": aside,
    }
