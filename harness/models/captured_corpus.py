"""Save captured calls as corpus entries: to a file of a model's calls, or to the directories that every run reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.generate.case_library import load_cases
from harness.generate.regressions.corpus_store import Corpus, CorpusEntry
from harness.models.capture import Capture, kind

#: Number of models that a note names.
_NAMED = 4


def corpus_entries(captures: Sequence[Capture]) -> list[CorpusEntry]:
    """Return one entry for each kind of call in `captures`, sorted by operator."""
    entries: dict[tuple[Any, ...], CorpusEntry] = {}
    models: dict[tuple[Any, ...], list[str]] = {}
    for captured in captures:
        for call in captured.calls:
            key = kind(call.invocation)
            entries.setdefault(key, CorpusEntry(invocation=call.invocation, origin="captured"))
            places = [place for place in call.places if place][:1]
            where = f" ({places[0]})" if places and len(captures) == 1 else ""
            models.setdefault(key, []).append(f"{captured.model} ×{call.calls}{where}")
    noted = [replace(entry, note=_note(models[key])) for key, entry in entries.items()]
    return sorted(noted, key=lambda entry: entry.overload)


def _note(models: Sequence[str]) -> str:
    return ", ".join(models[:_NAMED]) + (f" and {len(models) - _NAMED} more" if len(models) > _NAMED else "")


def save_directory(directory: Path, entries: Sequence[CorpusEntry]) -> None:
    """Replace all captured entries in a corpus directory, which every run reads, and keep the others.

    Only operators with an operator case are saved: others belong to kernels, below the composite operator that an
    exporter sees.

    Raises:
        ResultsError: The directory cannot be read or written.
    """
    corpus = Corpus([directory])
    by_overload: dict[str, list[CorpusEntry]] = {name: [] for name in corpus.overloads()}
    known = load_cases()
    for entry in (entry for entry in entries if entry.overload in known):
        by_overload.setdefault(entry.overload, []).append(entry)
    for overload, captured in by_overload.items():
        corpus.update(overload, partial(_replace_captured, captured))


def _replace_captured(captured: list[CorpusEntry], kept: tuple[CorpusEntry, ...]) -> list[CorpusEntry]:
    return [*(entry for entry in kept if entry.origin != "captured"), *captured]
