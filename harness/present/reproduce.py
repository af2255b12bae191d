"""The command that reruns one recorded case."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path


def shown_path(path: Path, cwd: Path | None = None) -> str:
    """`path` as a person would type it: relative where it is below `cwd` (the current directory)."""
    path, here = path.absolute(), (cwd or Path.cwd()).absolute()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def command(
    results_dir: Path,
    case_id: str,
    *,
    converter: str | None = None,
    backend: str | None = None,
    model: str | None = None,
    rules: Sequence[Path] = (),
    cwd: Path | None = None,
) -> str:
    """What to type in `cwd` to rerun a case or a whole model.

    Args:
        results_dir: The run that recorded it.
        case_id: Its id, or the beginning of it.
        converter: Only with this one; None for all. The same holds for `backend`.
        model: The model of the case, as its user named it; None for an operator's case.
        rules: Files of conversion functions that took part.
    """
    words = ["pytest", "harness", "--replay", shown_path(results_dir, cwd), "--case", case_id]
    if model is not None:
        words = ["pytest", "harness", "--model", model]
    for option, value in (("--converter", converter), ("--backend", backend)):
        if value:
            words += [option, value]
    for file in rules:
        words += ["--rules", shown_path(file, cwd)]
    return shlex.join(words)
