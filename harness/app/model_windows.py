"""Programs of models for a run: the source of draws for `--programs --model MODEL`.

1. The controlling process runs the models and writes their windows to a file under ``.conformance/windows``.
2. It and the processes that pytest-xdist starts read that file as the source ``corpus:FILE``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from harness.core.overloads import UnknownOperator, match
from harness.core.plugins import UnknownName
from harness.generate.case_library import load_cases
from harness.pipeline.model_loading import ModelProblem
from harness.plan.options import UsageProblem

_DIRECTORY = Path(".conformance") / "windows"


def is_wanted(given: Any) -> bool:
    """Whether the user wants programs of models."""
    return bool(given.programs and given.model)


def window_file(given: Any) -> Path:
    """Return the file for the windows of these models that contain the operators the user names."""
    name = "-".join(Path(word.partition(":")[0]).stem for word in given.model)[:60]
    words = "\n".join((*given.model, *given.op))
    return _DIRECTORY / f"{name}-{hashlib.sha256(words.encode()).hexdigest()[:8]}.jsonl"


def write_windows(given: Any) -> None:
    """Write that file.

    Raises:
        UsageProblem: a model or an operator is not known, a model cannot be run, or no window contains the operators.
        ResultsError: the file cannot be written.
    """
    from harness.models.windows import save_windows

    try:
        known = sorted(load_cases())
        containing = {overload for word in given.op for overload in match(word, known)}
        count = save_windows(given.model, window_file(given), containing)
    except (UnknownName, UnknownOperator, ModelProblem) as error:
        raise UsageProblem(str(error)) from None
    if not count:
        what = f" that contains {' or '.join(given.op)}" if given.op else ""
        raise UsageProblem(f"--programs --model {' '.join(given.model)}: no program of 2 to 6 calls{what}")
