"""What a run says of its models beyond the verdicts: ``RESULTS/models.jsonl``.

A JSON object per line and verdict: overload, case_id, exported_invocation, converter, backend, change, error,
own_error, explained_error, traced, divergence. The errors are those of `harness.execute.Growth`, null where
nothing was compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.core import as_json
from harness.plan.model_unit import ModelOutcome
from harness.record import ResultsError, reason

MODELS_FILE = "models.jsonl"


def write_details(results_dir: Path, outcomes: Iterable[ModelOutcome]) -> None:
    """Add to what a run says; several processes may do so.

    Raises:
        ResultsError: the file cannot be written.
    """
    text = "".join(f"{as_json(_data(outcome))}\n" for outcome in outcomes)
    try:
        with (results_dir / MODELS_FILE).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ResultsError(f"cannot write {results_dir / MODELS_FILE}: {reason(error)}") from None


def _data(outcome: ModelOutcome) -> dict[str, Any]:
    verdict, growth = outcome.verdict, outcome.growth
    return {
        "overload": verdict.overload,
        "case_id": verdict.case_id,
        "exported_invocation": verdict.exported_invocation,
        "converter": verdict.converter,
        "backend": verdict.backend,
        "change": outcome.case.change,
        "error": growth.error if growth else None,
        "own_error": growth.own if growth else None,
        "explained_error": growth.explained if growth else None,
        "traced": outcome.traced.what if outcome.traced else "",
        "divergence": outcome.divergence.to_data() if outcome.divergence is not None else None,
    }
