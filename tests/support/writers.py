"""Functions with which processes write at the same time, in a file that needs few imports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Barrier

from harness.generate.regressions.corpus_store import Corpus, CorpusEntry
from harness.record.archive.archive import AddResult, Dataset


def add_to_dataset(dataset: str, run: Path) -> AddResult:
    """Add a run, and say what became of it."""
    return Dataset(dataset).add(run).result


def add_to_corpus(directory: Path, entries: Sequence[CorpusEntry], ready: Barrier) -> None:
    """Add entries one by one, once all writers are ready."""
    ready.wait(120)
    for entry in entries:
        Corpus([directory]).add(entry)
