"""Add a run's smallest failures to the corpus, and drop entries that no longer fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from harness.compare.verdict import Outcome, Verdict
from harness.core.invocation import Invocation
from harness.generate.regressions.corpus_store import Corpus, CorpusEntry, CorpusKey, failure_entry

#: Failures kept of each kind, and of one operator in all.
_OF_A_KIND = 3
_OF_AN_OPERATOR = 16

#: Outcomes that show that a case no longer fails. A skipped one was not tried.
_HEALED = (Outcome.PASS,)

#: Stage, outcome, backend, signature, converter.
_Kind: TypeAlias = tuple[str, str, str, str, str]
#: Tensor elements, length of the JSON, the JSON.
_Size: TypeAlias = tuple[int, int, str]


@dataclass(frozen=True)
class Remembered:
    """Changes of the corpus.

    Attributes:
        added: Number of new failures.
        dropped: Number of entries that no longer fail.
    """

    added: int = 0
    dropped: int = 0


class Memory:
    """Follows the verdicts on one operator, and at the end brings the corpus up to date.

    Args:
        corpus: Its last directory is changed.
        overload: The operator.
    """

    def __init__(self, corpus: Corpus, overload: str) -> None:
        self._corpus = corpus
        self._overload = overload
        self._smallest: dict[_Kind, list[tuple[_Size, CorpusEntry]]] = {}
        self._failing: dict[CorpusKey, CorpusEntry] = {}
        self._healed: set[CorpusKey] = set()

    def add(self, verdicts: Sequence[Verdict]) -> None:
        """Take note of more verdicts."""
        for verdict in verdicts:
            if verdict.outcome in _HEALED:
                exported = _exported(verdict)
                exported_id = exported.case_id if exported else ""
                self._healed.add((verdict.case_id, exported_id, verdict.converter, verdict.backend))
            elif verdict.outcome.is_failure:
                self._add_failure(failure_entry(vars(verdict)))

    def _add_failure(self, entry: CorpusEntry) -> None:
        self._failing[entry.key] = entry
        smallest = self._smallest.setdefault(_kind(entry), [])
        smallest.append((_size(entry), entry))
        smallest.sort(key=lambda sized: sized[0])
        del smallest[_OF_A_KIND:]

    def commit(self) -> Remembered:
        """Change the corpus; a `ResultsError` says why it cannot be read or written."""
        if not self._failing and self._overload not in self._corpus.overloads():
            return Remembered()
        result = Remembered()

        def change(kept: tuple[CorpusEntry, ...]) -> list[CorpusEntry]:
            nonlocal result
            result, entries = self._changed(kept)
            return entries

        self._corpus.update(self._overload, change)
        return result

    def _changed(self, kept: tuple[CorpusEntry, ...]) -> tuple[Remembered, list[CorpusEntry]]:
        staying = [entry for entry in kept if entry.key not in self._healed or not entry.converter]
        known = {entry.key for entry in staying}
        # Committed entries are run again in any case.
        others = {entry.key[:2] for entry in self._committed()}
        found = [entry for sized in self._smallest.values() for _, entry in sized]
        new = [entry for entry in found if entry.key not in known and entry.key[:2] not in others]
        candidates = [self._with_present_outcome(entry) for entry in staying] + new
        chosen = _trimmed(candidates)
        added = sum(entry.key not in known for entry in chosen)
        return Remembered(added, len(kept) - len(staying)), chosen

    def _committed(self) -> tuple[CorpusEntry, ...]:
        elsewhere = self._corpus.directories[:-1]
        return Corpus(elsewhere).read(self._overload).entries if elsewhere else ()

    def _with_present_outcome(self, entry: CorpusEntry) -> CorpusEntry:
        now = self._failing.get(entry.key)
        if now is None:
            return entry
        return replace(entry, stage=now.stage, outcome=now.outcome, signature=now.signature)


def _trimmed(entries: Sequence[CorpusEntry]) -> list[CorpusEntry]:
    """Return `entries` in their order, oldest first, without the failures above the limit.

    The smallest of each kind stay; then the first of every kind come before the second of any, worse outcomes
    before milder ones, and the newer before the older.
    """
    kinds: dict[_Kind, list[int]] = {}
    for place, entry in enumerate(entries):
        if entry.converter:
            kinds.setdefault(_kind(entry), []).append(place)
    ranked = []
    for places in kinds.values():
        places.sort(key=lambda place: _size(entries[place]))
        for rank, place in enumerate(places[:_OF_A_KIND]):
            outcome = entries[place].outcome
            ranked.append((rank, outcome.severity if outcome else len(Outcome), -place))
    staying = {-place for *_, place in sorted(ranked)[:_OF_AN_OPERATOR]}
    return [entry for place, entry in enumerate(entries) if place in staying or not entry.converter]


def _exported(verdict: Verdict) -> Invocation | None:
    return Invocation.from_json(verdict.exported_invocation) if verdict.exported_invocation else None


def _kind(entry: CorpusEntry) -> _Kind:
    return str(entry.stage), str(entry.outcome), entry.backend, entry.signature, entry.converter


def _size(entry: CorpusEntry) -> _Size:
    text = entry.invocation.json
    return sum(spec.numel for spec in entry.invocation.tensors()), len(text), text
