"""What models are called in the record; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.record import ResultsError, read_run_info

#: What the overload column of the record begins with for a whole model.
PREFIX = "model."


def split_word(word: str) -> tuple[Path | None, str]:
    """File and function of ``FILE.py:FUNCTION`` or ``FILE.pt2``; no file for a registered name."""
    head, colon, function = word.rpartition(":")
    path = head if colon and head.endswith(".py") else word
    if path.endswith((".py", ".pt2")):
        return Path(path), function if path == head else ""
    return None, ""


def model_name(word: str) -> str:
    """What the model that a user's word names is called in the record."""
    file, function = split_word(word)
    if file is None:
        return word
    return function or file.stem


def refuse_model(case_id: str, overload: str, what: str) -> None:
    """Say of a model's case what can be done with it in place of what is done with an operator's.

    Args:
        case_id: The case.
        overload: What the record calls its operator or model.
        what: What cannot be done: ``shrunk``.

    Raises:
        ResultsError: it is a model's.
    """
    if overload.startswith(PREFIX):
        raise ResultsError(
            f"case {case_id} is of a whole model and cannot be {what}: "
            f"`conformance diverge {overload.removeprefix(PREFIX)}` finds the operator where it goes wrong"
        )


def model_word(results_dir: Path, overloads: Sequence[str]) -> str | None:
    """How a run's user named the model that a failure is of; None where it is of an operator."""
    if not overloads or not overloads[0].startswith(PREFIX):
        return None
    name = overloads[0].removeprefix(PREFIX)
    words = read_run_info(results_dir).options.get("model")
    named = [str(word) for word in words if model_name(str(word)) == name] if isinstance(words, list) else []
    return named[0] if named else name
