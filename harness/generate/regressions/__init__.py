"""Invocations kept from earlier runs: failures found, minimal ones, calls captured from models.

One JSON object per line, one file per overload, in directories: a file is read, edited, reviewed and
committed like any other.
"""

from harness.generate.regressions.entry import ORIGINS, CorpusEntry, InvalidEntry
from harness.generate.regressions.store import Contents, Corpus, CorpusWarning, read_contents, read_file

__all__ = [
    "ORIGINS",
    "Contents",
    "Corpus",
    "CorpusEntry",
    "CorpusWarning",
    "InvalidEntry",
    "read_contents",
    "read_file",
]
