"""Rows of the record as numbers: a hundred thousand of them are grouped without a look at each."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.analyse.blame_facts import blame_facts
from harness.analyse.call_facts import TELLING_CALL, call_facts
from harness.analyse.failure_key import CAUSE_COLUMNS, Cause, cause_of
from harness.analyse.message_facts import TELLING, message_facts
from harness.core import InvalidInvocation, Invocation, without_escapes
from harness.record import Numbers, numbered_column

#: A column of text, and what must hold of it.
Condition: TypeAlias = tuple[str, Callable[[str], object]]


class CodedRows:
    """Rows of the record, dictionary-encoded or not."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.unify_dictionaries()
        self._columns: dict[str, tuple[Numbers, pa.Array]] = {}

    def __len__(self) -> int:
        rows: int = self.table.num_rows
        return rows

    def numbers(self, name: str) -> Numbers:
        """A column of text, each word as its place in `words`."""
        return self._column(name)[0]

    def words(self, name: str) -> pa.Array:
        """What the numbers of a column stand for."""
        return self._column(name)[1]

    def _column(self, name: str) -> tuple[Numbers, pa.Array]:
        if name not in self._columns:
            self._columns[name] = numbered_column(self.table[name])
        return self._columns[name]

    def at(self, places: Sequence[int] | Numbers, columns: Sequence[str]) -> list[dict[str, Any]]:
        """The rows at some places, decoded; messages without the escapes that old records hold."""
        rows: list[dict[str, Any]] = self.table.select(columns).take(pa.array(places, pa.int64())).to_pylist()
        for row in rows:
            if "message" in row:
                row["message"] = without_escapes(row["message"])
        return rows

    def holding(self, conditions: Iterable[Condition], group: Numbers | None = None) -> Iterator[int]:
        """The places for which all conditions hold, in order; with `group` the first one of each group.

        An invocation's is asked last, and only as far as the places are taken: nearly all of them differ.
        """
        kept, of_calls = np.arange(len(self)), list[Callable[[str], object]]()
        for name, holds in conditions:
            if name == "invocation":
                of_calls.append(holds)
                continue
            if not len(kept):
                return
            numbers, words = self.numbers(name)[kept], self.words(name)
            present = np.flatnonzero(np.bincount(numbers, minlength=len(words)))
            right = np.zeros(len(words), dtype=bool)
            right[present] = [bool(holds(word)) for word in words.take(pa.array(present)).to_pylist()]
            kept = kept[right[numbers]]
        if group is not None and not of_calls:
            kept = kept[np.sort(np.unique(group[kept], return_index=True)[1])]
        met = set[int]()
        for place in kept.tolist():
            if group is not None and int(group[place]) in met:
                continue
            if all(holds(self.table["invocation"][place].as_py()) for holds in of_calls):
                if group is not None:
                    met.add(int(group[place]))
                yield place

    @cached_property
    def causes(self) -> tuple[list[Cause], Numbers]:
        """The distinct causes of failed rows, and each row's place among them."""
        # What these say of a defect is the same for many, and little of it.
        facts = {
            "evidence": self._coded("evidence", blame_facts),
            # Most messages name nothing: it is left to Arrow to find those that may.
            "message": self._coded("message", message_facts, TELLING),
            "invocation": self._coded("invocation", call_facts, TELLING_CALL),
        }
        packed, size = np.zeros(len(self), dtype=np.int64), 1
        for name in CAUSE_COLUMNS:
            number, count = facts.get(name) or (self.numbers(name), len(self.words(name)))
            if size * count > np.iinfo(np.int64).max:
                kept, packed = np.unique(packed, return_inverse=True)
                size = len(kept)
            packed, size = packed * count + number, size * count
        _, first, alike = np.unique(packed, return_index=True, return_inverse=True)
        found: dict[Cause, int] = {}
        named = [found.setdefault(cause_of(row), len(found)) for row in self.at(first, CAUSE_COLUMNS)]
        return list(found), np.array(named, dtype=np.int64)[alike]

    def _coded(self, name: str, facts: Callable[[str], Hashable], telling: str = "") -> tuple[Numbers, int]:
        """What `facts` says of each row's word, as a number, and how many there are.

        Nothing is asked of words without `telling`, a regular expression.
        """
        words = self.words(name)
        asked = np.flatnonzero(pc.match_substring_regex(words, telling).to_numpy(zero_copy_only=False))
        kinds: dict[Hashable, int] = {}
        of_word = np.full(len(words), -1, dtype=np.int64)
        of_word[asked] = [
            kinds.setdefault(facts(word), len(kinds)) for word in words.take(pa.array(asked)).to_pylist()
        ]
        return of_word[self.numbers(name)] + 1, len(kinds) + 1

    def smallest(self, group: Numbers, places: Numbers | None = None) -> Numbers:
        """The place of the smallest case of each group: fewest tensor elements, then shortest JSON.

        Args:
            group: Per row a number from 0, each of which some row has.
            places: The rows that count, to which `group` belongs; None for all.
        """
        places = np.arange(len(self)) if places is None else places
        while True:
            found = self._smallest(group, places)
            unsure = found[~self._exact[found]]
            said = self._size[unsure]
            self._make_exact(unsure)
            wrong = np.isin(found, unsure[self._size[unsure] != said])
            if not wrong.any():
                return found
            # Something else than the harness wrote them: nothing is known of the group's others either.
            others = places[np.isin(group, np.flatnonzero(wrong))]
            self._make_exact(others[~self._exact[others]])

    def _smallest(self, group: Numbers, places: Numbers) -> Numbers:
        """The place of the row of each group with the smallest size, then with the shortest text."""
        size = self._size[places]
        least = np.full(int(group.max()) + 1, math.inf)
        np.minimum.at(least, group, size)
        left = size == least[group]
        group, left = group[left], places[left]
        names = ("backend", "converter", "case_id")
        ranks = [pc.rank(self.words(name)).to_numpy()[self.numbers(name)[left]] for name in names]
        order = np.lexsort([*ranks, self._length[left], group])
        found: Numbers = left[order[np.unique(group[order], return_index=True)[1]]]
        return found

    @cached_property
    def _length(self) -> Numbers:
        """Characters of each invocation."""
        lengths: Numbers = pc.utf8_length(self.table["invocation"]).to_numpy()
        return lengths

    @cached_property
    def _size(self) -> npt.NDArray[np.float64]:
        """Tensor elements of each invocation; at least so many where it is not `_exact`."""
        return _at_least(self.table["invocation"])

    @cached_property
    def _exact(self) -> npt.NDArray[np.bool_]:
        return np.zeros(len(self), dtype=bool)

    def _make_exact(self, places: Numbers) -> None:
        self._size[places] = [_elements(row["invocation"]) for row in self.at(places, ["invocation"])]
        self._exact[places] = True


def _taken(table: pa.Table, places: Numbers) -> pa.Table:
    """As `pa.Table.take`, which would first copy all texts of a column in order to take a few."""
    order = np.argsort(places, kind="stable")
    ordered, start, parts = places[order], 0, []
    for batch in table.to_batches():
        first, end = np.searchsorted(ordered, [start, start + batch.num_rows])
        if first < end:
            parts.append(batch.take(pa.array(ordered[first:end] - start)))
        start += batch.num_rows
    return pa.Table.from_batches(parts, table.schema).take(pa.array(np.argsort(order)))


def _at_least(texts: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """The tensor elements of invocations as the harness writes them, and no more than those of any other."""
    known: dict[str, int] = {}

    def elements(shape: str) -> int:
        if shape not in known:
            sizes = shape.split(",") if shape else []
            known[shape] = math.prod(map(int, sizes)) if all(map(str.isdecimal, sizes)) else 0
        return known[shape]

    found = [np.zeros(0)]
    for chunk in texts.chunks:
        parts = pc.split_pattern(chunk, '"tensor":{"shape":[')
        first, parts = parts.offsets.to_numpy()[:-1], parts.values
        later = np.ones(len(parts), dtype=bool)
        later[first] = False
        ends = pc.split_pattern(parts.filter(pa.array(later)), "]", max_splits=1)
        shapes = ends.values.take(ends.offsets[:-1]).dictionary_encode()
        sizes = np.array(list(map(elements, shapes.dictionary.to_pylist())), dtype=float)
        of_part = np.zeros(len(parts))
        of_part[later] = sizes[shapes.indices.to_numpy()]
        found.append(np.add.reduceat(of_part, first) if len(first) else np.zeros(0))
    return np.concatenate(found)


def _elements(document: str) -> float:
    """Tensor elements; an invocation of another version sorts last."""
    try:
        return sum(spec.numel for spec in Invocation.from_json(document).tensors())
    except InvalidInvocation:
        return math.inf
