"""Rows of the record as numbers: a hundred thousand of them are grouped without a look at each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.analyse.failure_key import CAUSE_COLUMNS, Cause, cause_of, guilty_step
from harness.core import InvalidInvocation, Invocation
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

    def at(self, places: Iterable[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """The rows at some places, decoded."""
        rows: list[dict[str, Any]] = self.table.select(columns).take(pa.array(places, pa.int64())).to_pylist()
        return rows

    def holding(self, conditions: Iterable[Condition]) -> Iterator[int]:
        """The places for which all conditions hold, in order.

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
        for place in kept.tolist():
            if all(holds(self.table["invocation"][place].as_py()) for holds in of_calls):
                yield place

    @cached_property
    def causes(self) -> tuple[list[Cause], Numbers]:
        """The distinct causes of failed rows, and each row's place among them."""
        steps = [guilty_step(words) for words in self.words("evidence").to_pylist()]
        kinds = {step: number for number, step in enumerate(dict.fromkeys(steps))}
        of_word = np.array([kinds[step] for step in steps], dtype=np.int64)
        packed = of_word[self.numbers("evidence")]
        for name in CAUSE_COLUMNS:
            if name != "evidence":
                packed = packed * max(len(self.words(name)), 1) + self.numbers(name)
        _, first, alike = np.unique(packed, return_index=True, return_inverse=True)
        found: dict[Cause, int] = {}
        number = [found.setdefault(cause_of(row), len(found)) for row in self.at(first, CAUSE_COLUMNS)]
        return list(found), np.array(number, dtype=np.int64)[alike]

    def smallest(self, group: Numbers) -> Numbers:
        """The place of the smallest case of each group: fewest tensor elements, then shortest JSON.

        Args:
            group: Per row a number from 0, each of which some row has.
        """
        case, texts = self.numbers("case_id"), self.table["invocation"].combine_chunks()
        first = np.unique(case, return_index=True)[1]
        documents = texts.take(pa.array(first)).to_pylist()
        size = _at_least(documents)
        exact = np.zeros(len(size), dtype=bool)
        while True:
            found = self._smallest(group, size[case], texts)
            unsure = [n for n in np.unique(case[found]).tolist() if not exact[n]]
            wrong = [n for n in unsure if _elements(documents[n]) != size[n]]
            exact[unsure] = True
            if not wrong:
                return found
            # Something else than the harness wrote them: nothing is known of the group's others either.
            others = np.unique(case[np.isin(group, group[found][np.isin(case[found], wrong)])])
            size[others] = [_elements(documents[n]) for n in others.tolist()]
            exact[others] = True

    def _smallest(self, group: Numbers, size: npt.NDArray[np.float64], texts: pa.Array) -> Numbers:
        """The place of the row of each group with the smallest size, then with the shortest text."""
        least = np.full(int(group.max()) + 1, math.inf)
        np.minimum.at(least, group, size)
        left = np.flatnonzero(size == least[group])
        length = pc.utf8_length(texts.take(pa.array(left))).to_numpy(zero_copy_only=False)
        names = ("backend", "converter", "case_id")
        ranks = [pc.rank(self.words(name)).to_numpy()[self.numbers(name)[left]] for name in names]
        order = np.lexsort([*ranks, length, group[left]])
        found: Numbers = left[order[np.unique(group[left][order], return_index=True)[1]]]
        return found


def _at_least(documents: Sequence[str]) -> npt.NDArray[np.float64]:
    """The tensor elements of invocations as the harness writes them, and no more than those of any other."""
    known: dict[str, int] = {}

    def elements(shape: str) -> int:
        if shape not in known:
            sizes = shape.split(",") if shape else []
            known[shape] = math.prod(map(int, sizes)) if all(map(str.isdecimal, sizes)) else 0
        return known[shape]

    shapes = (
        [part.partition("]")[0] for part in text.split('"tensor":{"shape":[')[1:]] for text in documents
    )
    return np.array([sum(map(elements, some)) for some in shapes], dtype=np.float64)


def _elements(document: str) -> float:
    """Tensor elements; an invocation of another version sorts last."""
    try:
        return sum(spec.numel for spec in Invocation.from_json(document).tensors())
    except InvalidInvocation:
        return math.inf
