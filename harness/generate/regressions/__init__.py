"""Invocations kept from earlier runs: failures found, minimal ones, calls captured from models.

One JSON object per line, one file per overload, in directories: a file is read, edited, reviewed and
committed like any other.
"""

from harness.generate.regressions.corpus_store import Corpus, CorpusContents, CorpusEntry, read_contents

__all__ = ["Corpus", "CorpusContents", "CorpusEntry", "read_contents"]
