"""Failed rows of the record, with one row per problem of a case, encoded as numbers.

The numbers allow a hundred thousand rows to be grouped without looking at each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.causes.cause import CAUSE_COLUMNS, RootCause, root_cause
from harness.compare.case_problems import parse_problems
from harness.compare.diagnosis import Detail
from harness.compare.verdict import Outcome
from harness.core.text import strip_escapes
from harness.record.dictionary_encoding import Numbers, numbered_column

#: The column with the problems of a case beyond the first.
PROBLEMS = "problems"
#: The columns that `CodedRows.causes` needs.
CAUSE_INPUTS = (*CAUSE_COLUMNS, "signature", "converter", "backend", "stage", "outcome", "overload")


def each_problem(rows: pa.Table) -> tuple[pa.Table, Numbers]:
    """Return rows followed by one for each further failure, and the index of the row in `rows` that each belongs to.

    A further problem need not be a failure: one output may be wrong, and another one only inaccurate.

    Args:
        rows: Rows of the record with `PROBLEMS`, which the result lacks.
    """
    plain = rows.drop_columns([PROBLEMS])
    places = np.arange(rows.num_rows)
    with_problems = np.flatnonzero(pc.not_equal(rows[PROBLEMS], "").to_numpy())
    if not len(with_problems):
        return plain, places
    further: list[dict[str, str]] = []
    origin: list[int] = []
    texts = rows[PROBLEMS].take(pa.array(with_problems)).to_pylist()
    for place, text in zip(with_problems.tolist(), texts, strict=True):
        for problem in parse_problems(text)[1:]:
            if not Outcome(problem["outcome"]).is_failure:
                continue
            further.append({name: value for name, value in problem.items() if name in plain.column_names})
            origin.append(place)
    added = plain.take(pa.array(origin, pa.int64()))
    for name in {name for problem in further for name in problem}:
        words = pa.array([problem.get(name, "") for problem in further], pa.string())
        column = words.cast(plain.schema.field(name).type)
        added = added.set_column(added.column_names.index(name), name, column)
    return pa.concat_tables([plain, added.cast(plain.schema)]), np.concatenate([places, origin])


#: A text column, and a predicate for its values.
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
        """Return a text column as indices into `words`."""
        return self._column(name)[0]

    def words(self, name: str) -> pa.Array:
        """Return the distinct values of a text column."""
        return self._column(name)[1]

    def _column(self, name: str) -> tuple[Numbers, pa.Array]:
        if name not in self._columns:
            self._columns[name] = numbered_column(self.table[name])
        return self._columns[name]

    def at(self, places: Sequence[int] | Numbers, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows at some places, decoded, without the terminal sequences in messages of old records."""
        rows: list[dict[str, Any]] = self.table.select(columns).take(pa.array(places, pa.int64())).to_pylist()
        for row in rows:
            if "message" in row:
                row["message"] = strip_escapes(row["message"])
        return rows

    def matching(self, conditions: Iterable[Condition], group: Numbers | None = None) -> Iterator[int]:
        """Yield the places where all conditions hold, in order; with `group`, the first one of each group.

        Conditions on the invocation are evaluated last and lazily, since nearly all invocations differ.
        """
        kept, call_conditions = np.arange(len(self)), list[Callable[[str], object]]()
        for name, holds in conditions:
            if name == "invocation":
                call_conditions.append(holds)
                continue
            if not len(kept):
                return
            numbers, words = self.numbers(name)[kept], self.words(name)
            present = np.flatnonzero(np.bincount(numbers, minlength=len(words)))
            right = np.zeros(len(words), dtype=bool)
            right[present] = [bool(holds(word)) for word in words.take(pa.array(present)).to_pylist()]
            kept = kept[right[numbers]]
        if group is not None and not call_conditions:
            kept = kept[np.sort(np.unique(group[kept], return_index=True)[1])]
        met = set[int]()
        for place in kept.tolist():
            if group is not None and int(group[place]) in met:
                continue
            if all(holds(self.table["invocation"][place].as_py()) for holds in call_conditions):
                if group is not None:
                    met.add(int(group[place]))
                yield place

    @cached_property
    def causes(self) -> tuple[list[RootCause], Numbers]:
        """The distinct root causes of failed rows, and each row's index among them."""
        # The cause of a diagnosed row does not depend on the other columns.
        diagnosed = np.array([bool(word) for word in self.words("fault").to_pylist()])[self.numbers("fault")]
        keys = [self.numbers(name) for name in CAUSE_COLUMNS]
        keys += [np.where(diagnosed, -1, self.numbers(name)) for name in CAUSE_INPUTS[len(CAUSE_COLUMNS) :]]
        _, first, same = np.unique(np.stack(keys), axis=1, return_index=True, return_inverse=True)
        index: dict[RootCause, int] = {}
        numbers = [index.setdefault(root_cause(row), len(index)) for row in self.at(first, CAUSE_INPUTS)]
        return list(index), np.array(numbers, dtype=np.int64)[same.reshape(-1)]

    @cached_property
    def details(self) -> list[Detail]:
        """The details that `numbers("detail")` refer to."""
        return [Detail.from_text(text) for text in self.words("detail").to_pylist()]

    def smallest(self, group: Numbers, places: Numbers | None = None) -> Numbers:
        """Return the place of the smallest case of each group: fewest tensor elements, then shortest JSON.

        Args:
            group: The group number of each row; every number from 0 to the largest occurs.
            places: The rows that count, in the order of `group`; None means all.
        """
        return self._smallest(group, np.arange(len(self)) if places is None else places)

    def _smallest(self, group: Numbers, places: Numbers) -> Numbers:
        """Return the place of each group's row with the smallest size, then the shortest text."""
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
        """The length of each invocation in characters."""
        lengths: Numbers = pc.utf8_length(self.table["invocation"]).to_numpy()
        return lengths

    @cached_property
    def _size(self) -> npt.NDArray[np.float64]:
        """The number of tensor elements of each invocation; 0 in records of early versions."""
        sizes: npt.NDArray[np.float64] = pc.fill_null(self.table["elements"], 0).to_numpy().astype(float)
        return sizes

    @cached_property
    def ordinary(self) -> npt.NDArray[np.bool_]:
        """Whether each row's case is ordinary; False in records of early versions."""
        is_ordinary: npt.NDArray[np.bool_] = pc.fill_null(self.table["ordinary"], False).to_numpy(zero_copy_only=False)
        return is_ordinary


def fill_ordinary(rows: pa.Table) -> pa.Table:
    """Return rows in which ``ordinary`` is never null: cases of early versions count as edge cases."""
    place = rows.schema.get_field_index("ordinary")
    return rows.set_column(place, "ordinary", pc.fill_null(rows["ordinary"], False))
