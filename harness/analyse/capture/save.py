"""Captured calls as corpus entries: one file of a model's, or the directories that every run reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.analyse.capture.call_capture import Capture, kind
from harness.generate import Corpus, CorpusEntry, load_cases
from harness.record import ResultsError, layout, reason

#: Models and modules named in a note.
_NAMED = 4


def entries_of(captures: Sequence[Capture]) -> list[CorpusEntry]:
    """What is worth running again of `captures`: each kind of call once, sorted by operator."""
    found: dict[tuple[Any, ...], CorpusEntry] = {}
    models: dict[tuple[Any, ...], list[str]] = {}
    for captured in captures:
        for call in captured.calls:
            key = kind(call.invocation)
            found.setdefault(key, CorpusEntry(invocation=call.invocation, origin="captured"))
            places = [place for place in call.places if place][:1]
            where = f" ({places[0]})" if places and len(captures) == 1 else ""
            models.setdefault(key, []).append(f"{captured.model} ×{call.calls}{where}")
    noted = [replace(entry, note=_note(models[key])) for key, entry in found.items()]
    return sorted(noted, key=lambda entry: entry.overload)


def _note(models: Sequence[str]) -> str:
    return ", ".join(models[:_NAMED]) + (f" and {len(models) - _NAMED} more" if len(models) > _NAMED else "")


def save_file(path: Path, entries: Iterable[CorpusEntry]) -> None:
    """Write one file, for ``--source corpus:FILE``.

    Raises:
        ResultsError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}") from None
    with layout.replacing(path) as temporary:
        temporary.write_text("".join(f"{entry.line}\n" for entry in entries), encoding="utf-8")


def save_directory(directory: Path, entries: Sequence[CorpusEntry]) -> None:
    """Put `entries` in place of all captured ones in a corpus directory; others stay.

    Every run reads such a directory. It gets calls of operators that have a case: the others are a kernel's
    own, below the composite that an exporter sees.

    Raises:
        ResultsError: it cannot be read or written.
    """
    corpus = Corpus([directory])
    by_overload: dict[str, list[CorpusEntry]] = {name: [] for name in corpus.overloads()}
    known = load_cases()
    for entry in (entry for entry in entries if entry.overload in known):
        by_overload.setdefault(entry.overload, []).append(entry)
    for overload, captured in by_overload.items():
        corpus.update(overload, partial(_replaced, captured))


def _replaced(captured: list[CorpusEntry], kept: tuple[CorpusEntry, ...]) -> list[CorpusEntry]:
    return [*(entry for entry in kept if entry.origin != "captured"), *captured]
