"""Find the operator cases without importing any of them: most readers only want a data file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

#: The package of operator cases that is released with the harness.
HOME = "cases"


class CaseFileError(Exception):
    """A family file that cannot be loaded; the message is one line that names it."""


def cases_directory() -> Path:
    """Return the directory of the operator cases, which also holds the data files and the corpus.

    Raises:
        CaseFileError: they are not installed.
    """
    spec = importlib.util.find_spec(HOME)
    if spec is None or spec.origin is None:
        raise CaseFileError(f"the operator cases {HOME!r} are not installed: pip install -e .")
    return Path(spec.origin).parent
