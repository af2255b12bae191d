"""Encode columns of text as integers, so that NumPy can count, group and compare millions of rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

_Word = TypeVar("_Word", bound=Hashable)
#: Row numbers stay below this, which leaves 16 of 64 bits to callers.
_MOST = 2**48


class Vocabulary(Generic[_Word]):
    """Values numbered in the order in which they were first seen."""

    def __init__(self) -> None:
        self._numbers: dict[_Word, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def words(self) -> list[_Word]:
        """All values; a value's index is its number."""
        return list(self._numbers)

    def number(self, word: _Word) -> int:
        """Return the number of a value, which is added if it is new."""
        return self._numbers.setdefault(word, len(self._numbers))

    def find(self, word: _Word) -> int | None:
        """Return the number of a value; None if it was never seen."""
        return self._numbers.get(word)

    def numbers(self, words: Iterable[_Word]) -> Numbers:
        """Return one number per value."""
        return np.fromiter((self.number(word) for word in words), dtype=np.int64)


def numbered_column(column: pa.ChunkedArray) -> tuple[Numbers, pa.Array]:
    """Return a column of strings, dictionary-encoded or not, as numbers and the strings that they stand for.

    The strings are in the order of their first occurrence. Null counts as "".
    """
    if pa.types.is_dictionary(column.type) and column.num_chunks:
        chunks = (column if _share_a_dictionary(column) else column.unify_dictionaries()).chunks
        indices = pa.chunked_array([chunk.indices for chunk in chunks]).combine_chunks()
        # A filtered column may no longer use all words of its dictionary.
        places = indices.dictionary_encode(null_encoding="encode")
        numbers, words = places.indices, chunks[0].dictionary.take(places.dictionary)
    else:
        # This gives all chunks one dictionary; combining them first would copy the whole text.
        chunks = column.cast(pa.string()).dictionary_encode(null_encoding="encode").chunks
        numbers = pa.chunked_array([chunk.indices for chunk in chunks], pa.int32()).combine_chunks()
        words = chunks[-1].dictionary if chunks else pa.array([], pa.string())
    return numbers.to_numpy(zero_copy_only=False).astype(np.int64), words.fill_null("")


def _share_a_dictionary(column: pa.ChunkedArray) -> bool:
    """Whether the chunks of an encoded column share one dictionary object, not just equal ones."""
    places = {
        (words.offset, len(words), *(part.address for part in words.buffers() if part is not None))
        for words in (chunk.dictionary for chunk in column.chunks)
    }
    return len(places) == 1


def column_numbers(column: pa.ChunkedArray, vocabulary: Vocabulary[str]) -> Numbers:
    """Return a column of strings as numbers of a vocabulary; null counts as ""."""
    numbers, words = numbered_column(column)
    return vocabulary.numbers(words.to_pylist())[numbers]


def combined_numbers(columns: list[Numbers], vocabulary: Vocabulary[tuple[int, ...]]) -> Numbers:
    """Number the rows of several columns by their distinct combinations."""
    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64)
    packed = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        packed = packed * (int(column.max()) + 1) + column
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    words = zip(*(column[first].tolist() for column in columns), strict=True)
    return vocabulary.numbers(words)[inverse]


def ordered_numbers(columns: Sequence[pa.ChunkedArray]) -> Numbers:
    """Return one number per row of several text columns, such that the numbers sort as the rows do."""
    packed, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        numbers, words = numbered_column(column)
        rank = pc.rank(words, tiebreaker="dense").to_numpy().astype(np.int64) - 1
        count = max(len(words), 1)
        if size * count > _MOST:
            packed = np.unique(packed, return_inverse=True)[1]
            size = int(packed.max()) + 1
        packed, size = packed * count + rank[numbers], size * count
    return packed
