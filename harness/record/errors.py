"""What can be wrong with a results directory, said to a person."""

from __future__ import annotations


class ResultsError(Exception):
    """A results directory that cannot be written or read; the message is one line that says what to do."""


def reason(error: BaseException) -> str:
    """The first line of an exception's words, for the end of a message of ours."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(said).strip().splitlines()[0] if str(said).strip() else type(error).__name__
