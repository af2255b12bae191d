"""Numbers for words that repeat, the same in every run of a site."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]

_Word = TypeVar("_Word", bound=Hashable)


class Vocabulary(Generic[_Word]):
    """Words in the order in which they were first met."""

    def __init__(self) -> None:
        self._numbers: dict[_Word, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def words(self) -> list[_Word]:
        """All of them; a word's place is its number."""
        return list(self._numbers)

    def number(self, word: _Word) -> int:
        """The number of a word, which is given one if it has none."""
        return self._numbers.setdefault(word, len(self._numbers))

    def find(self, word: _Word) -> int | None:
        """The number of a word; None for one that was never met."""
        return self._numbers.get(word)

    def numbers(self, words: Iterable[_Word]) -> Numbers:
        """One number per word."""
        return np.fromiter((self.number(word) for word in words), dtype=np.int64)


def column_numbers(column: pa.ChunkedArray, vocabulary: Vocabulary[str]) -> Numbers:
    """A column of strings as numbers of a vocabulary, null as the empty word."""
    encoded = column.combine_chunks().fill_null("").dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    indices: Numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return vocabulary.numbers(encoded.dictionary.to_pylist())[indices]


def combined_numbers(columns: list[Numbers], vocabulary: Vocabulary[tuple[int, ...]]) -> Numbers:
    """Rows of several columns as numbers of their distinct combinations."""
    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64)
    packed = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        packed = packed * (int(column.max()) + 1) + column
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    words = zip(*(column[first].tolist() for column in columns), strict=True)
    return vocabulary.numbers(words)[inverse]
