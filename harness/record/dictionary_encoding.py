"""Columns of text as numbers, on which arrays of a million rows are counted, grouped and compared at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

_Word = TypeVar("_Word", bound=Hashable)
#: Numbers of rows stay below, so that a caller can put something small beside them in 64 bits.
_MOST = 2**48


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


def numbered_column(column: pa.ChunkedArray) -> tuple[Numbers, pa.Array]:
    """A column of strings, dictionary-encoded or not, as numbers and the words that they stand for.

    The words are in the order in which the column has them first. Null is the empty word.
    """
    if pa.types.is_dictionary(column.type) and column.num_chunks:
        chunks = (column if _share_a_dictionary(column) else column.unify_dictionaries()).chunks
        indices = pa.chunked_array([chunk.indices for chunk in chunks]).combine_chunks()
        # Not all words of a dictionary are left in a column that was filtered.
        places = indices.dictionary_encode(null_encoding="encode")
        numbers, words = places.indices, chunks[0].dictionary.take(places.dictionary)
    else:
        # The chunks get one dictionary; to combine them first would copy the whole text.
        chunks = column.cast(pa.string()).dictionary_encode(null_encoding="encode").chunks
        numbers = pa.chunked_array([chunk.indices for chunk in chunks], pa.int32()).combine_chunks()
        words = chunks[-1].dictionary if chunks else pa.array([], pa.string())
    return numbers.to_numpy(zero_copy_only=False).astype(np.int64), words.fill_null("")


def _share_a_dictionary(column: pa.ChunkedArray) -> bool:
    """Whether the chunks of an encoded column have the same dictionary, and not only the same words."""
    places = {
        (words.offset, len(words), *(part.address for part in words.buffers() if part is not None))
        for words in (chunk.dictionary for chunk in column.chunks)
    }
    return len(places) == 1


def column_numbers(column: pa.ChunkedArray, vocabulary: Vocabulary[str]) -> Numbers:
    """A column of strings as numbers of a vocabulary, null as the empty word."""
    numbers, words = numbered_column(column)
    return vocabulary.numbers(words.to_pylist())[numbers]


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


def ordered_numbers(columns: Sequence[pa.ChunkedArray]) -> Numbers:
    """Rows of columns of text as numbers that are in order as the rows are."""
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
