"""The rows of all runs as numbers, so that thirty nightly runs of a hundred thousand rows fit in memory.

The runs with pages of their own, and the run whose evidence each operator's page shows, are chosen in this file, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.causes.rows import fill_ordinary
from harness.compare.verdict import SPEC, CaseKey, Outcome, Stage, is_judged
from harness.gate.case_changes import CaseState, EndedCases
from harness.present.dashboard.runs import SiteRun
from harness.record import store
from harness.record.dictionary_encoding import Numbers, Vocabulary, column_numbers, combined_numbers, numbered_column
from harness.record.layout import ResultsError

COLUMNS = (
    "case_id", "exported_invocation", "overload", "family", "dtype", "converter", "backend", "stage",
    "outcome", "blame", "signature", "max_ulp_error", "rule", "source",
    "shape_mode", "ordinary",
)  # fmt: skip


@dataclass(frozen=True)
class Bucket:
    """A kind and an outcome of cases, as far as the matrix filters by it.

    Attributes:
        ordinary: Whether they are ordinary use of their operator, as `harness.generate.call_traits` says.
    """

    outcome: str
    stage: str
    blame: str
    ordinary: bool

    @property
    def fails(self) -> bool:
        """Whether an operator item fails for it."""
        return Outcome(self.outcome).is_failure and self.blame != SPEC

    @property
    def judged(self) -> bool:
        """Whether it counts in shares."""
        return is_judged(Outcome(self.outcome), self.blame)


@dataclass(frozen=True)
class ShownState(CaseState):
    """The end of a case, as far as the page tells cases apart by it.

    Attributes:
        measured: Whether an error in ULP is known.
        rule: The user's conversion functions that took part.
    """

    measured: bool
    rule: str


@dataclass(frozen=True, kw_only=True)
class CodedRun(EndedCases):
    """One run's rows as numbers of the `Words` of the site, a row per place in each array.

    A key has 64 bits that identify case, export, converter and backend in all runs; `case` has the case ids,
    and `kind` numbers of source and kind of shapes.
    """

    operator: Numbers
    column: Numbers
    dtype: Numbers
    kind: Numbers
    bucket: Numbers
    case: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.key)

    def only(self, rows: npt.NDArray[Any]) -> CodedRun:
        """Return the run with some of its rows, given by places or by a mask."""
        return CodedRun(**{name: values[rows] for name, values in vars(self).items()})


@dataclass
class Words:
    """The meanings of the numbers; `families` has each operator's family in the newest run."""

    operators: Vocabulary[str] = field(default_factory=Vocabulary)
    columns: Vocabulary[tuple[int, ...]] = field(default_factory=Vocabulary)
    dtypes: Vocabulary[str] = field(default_factory=Vocabulary)
    kinds: Vocabulary[tuple[int, ...]] = field(default_factory=Vocabulary)
    families: dict[int, str] = field(default_factory=dict)
    _names: Vocabulary[str] = field(default_factory=Vocabulary)
    _texts: Vocabulary[str] = field(default_factory=Vocabulary)
    _buckets: Vocabulary[tuple[int, ...]] = field(default_factory=Vocabulary)
    _states: Vocabulary[tuple[int, ...]] = field(default_factory=Vocabulary)

    @property
    def column_names(self) -> list[tuple[str, str]]:
        """(converter, backend) by number."""
        names = self._names.words
        return [(names[a], names[b]) for a, b in self.columns.words]

    @property
    def buckets(self) -> list[Bucket]:
        """Return the buckets by number."""
        names = self._names.words
        return [
            Bucket(names[outcome], names[stage], names[blame], bool(ordinary))
            for outcome, stage, blame, ordinary in self._buckets.words
        ]

    @property
    def states(self) -> list[ShownState]:
        """Return the states by number."""
        names, texts = self._names.words, self._texts.words
        return [
            ShownState(names[outcome], names[stage], texts[signature], bool(left), bool(measured), texts[rule])
            for outcome, stage, signature, left, measured, rule in self._states.words
        ]

    def code(self, run: SiteRun) -> CodedRun:
        """Read a run's rows.

        Raises:
            ResultsError: a file of it is damaged, or has values of no known version of the record.
        """
        table = store.read(run.directory, COLUMNS, encoded=True, made=fill_ordinary)
        _check(table, run)
        names = {
            name: column_numbers(table[name], self._names)
            for name in ("converter", "backend", "stage", "outcome", "blame", "source", "shape_mode")
        }
        operator = column_numbers(table["overload"], self.operators)
        column = combined_numbers([names["converter"], names["backend"]], self.columns)
        ulp = table["max_ulp_error"].to_numpy().astype(np.float64)
        left_open = (names["blame"] == self._names.number(SPEC)).astype(np.int64)
        state = combined_numbers(
            [
                names["outcome"],
                names["stage"],
                column_numbers(table["signature"], self._texts),
                left_open,
                (~np.isnan(ulp)).astype(np.int64),
                column_numbers(table["rule"], self._texts),
            ],
            self._states,
        )
        self._remember_families(operator, table["family"])
        case = table["case_id"].combine_chunks().fill_null("")
        key = _identity(case) ^ _exported(table["exported_invocation"])
        ended = [names[name] for name in ("outcome", "stage", "blame")]
        ordinary = table["ordinary"].to_numpy().astype(np.int64)
        coded = CodedRun(
            operator=operator,
            column=column,
            dtype=column_numbers(table["dtype"], self.dtypes),
            kind=combined_numbers([names["source"], names["shape_mode"]], self.kinds),
            bucket=combined_numbers([*ended, ordinary], self._buckets),
            state=state,
            ulp=ulp,
            key=(key << np.uint64(16)) | column.astype(np.uint64),
            case=np.asarray(case.to_pylist(), dtype=np.str_),
        )
        return _drop_repeats(coded)

    def cells(self, operator: Numbers, column: Numbers, dtype: Numbers, kind: Numbers) -> pa.Table:
        """Return the words of numbers, for `harness.gate.run_request.RunRequest.asks`."""
        columns, names = self.column_names, self._names.words
        kinds = [(names[a], names[b]) for a, b in self.kinds.words]
        words = {
            "overload": (operator, self.operators.words),
            "converter": (column, [converter for converter, _ in columns]),
            "backend": (column, [backend for _, backend in columns]),
            "dtype": (dtype, self.dtypes.words),
            "source": (kind, [source for source, _ in kinds]),
            "shape_mode": (kind, [mode for _, mode in kinds]),
        }
        arrays = {
            name: pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(some, pa.string()))
            for name, (numbers, some) in words.items()
        }
        return pa.table(arrays)

    def keys_of(self, cases: Collection[CaseKey]) -> npt.NDArray[np.uint64]:
        """Return the keys of cases, without those of a converter or backend without rows."""
        keys = []
        for case_id, exported, converter, backend in cases:
            names = self._names.find(converter), self._names.find(backend)
            column = None if None in names else self.columns.find(names)  # type: ignore[arg-type]
            if column is not None:
                identity = _identity(pa.array([case_id]))[0] ^ np.uint64(_hash(exported) if exported else 0)
                keys.append((identity << np.uint64(16)) | np.uint64(column))
        return np.array(keys, dtype=np.uint64)

    def _remember_families(self, operator: Numbers, family: pa.ChunkedArray) -> None:
        words: Vocabulary[str] = Vocabulary()
        numbers = column_numbers(family, words)
        present, first = np.unique(operator, return_index=True)
        for number, row in zip(present.tolist(), first.tolist(), strict=True):
            self.families[number] = words.words[numbers[row]]


def _check(table: pa.Table, run: SiteRun) -> None:
    for name, kind in (("outcome", Outcome), ("stage", Stage)):
        for word in numbered_column(table[name])[1].to_pylist():
            if word not in set(kind):
                raise ResultsError(f"{run.directory.name} holds the {name} {word!r}, which is none")


def _drop_repeats(coded: CodedRun) -> CodedRun:
    """Keep only the last row of a repeated case, as `harness.gate.run_diff` does."""
    _, last = np.unique(coded.key[::-1], return_index=True)
    if len(last) == len(coded):
        return coded
    keep = np.sort(len(coded) - 1 - last)
    return coded.only(keep)


def _identity(case: pa.Array) -> npt.NDArray[np.uint64]:
    """Case ids, 12 hexadecimal digits, as numbers; of other ids a hash."""
    texts = case.to_pylist()
    try:
        return np.array([int(text, 16) & 0xFFFFFFFFFFFF for text in texts], dtype=np.uint64)
    except ValueError:
        return np.array([_hash(text) for text in texts], dtype=np.uint64)


def _exported(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    words: Vocabulary[str] = Vocabulary()
    numbers = column_numbers(column, words)
    hashes = np.array([_hash(word) if word else 0 for word in words.words], dtype=np.uint64)
    return hashes[numbers] if len(numbers) else np.zeros(0, dtype=np.uint64)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).digest())


#: Rows of pages of their own, for each row of the run that is shown first; with more the site becomes large.
_BESIDE = 0.5
#: Odd numbers with which keys and states are mixed.
_KEY, _STATE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True)
class EvidenceChoice:
    """The runs of the evidence, by the numbers of operators.

    Attributes:
        of: Operator → the run whose evidence stands for all runs in which its cases ended in the same way. It
            is the one that is shown first, or the newest that has it.
        own: Run → operators whose cases ended differently in it, with pages of their own.
        unlike: Run → such operators without, since there would be too many.
    """

    of: dict[int, int]
    own: dict[int, list[int]]
    unlike: dict[int, list[int]]

    @property
    def runs(self) -> set[int]:
        """Return the runs whose evidence some page shows."""
        return {*self.of.values(), *(run for run, operators in self.own.items() if operators)}


def choose_evidence(coded: Sequence[CodedRun], shown: int) -> EvidenceChoice:
    """Choose for all runs, oldest first; `shown` is the one that is shown first."""
    ways = [_ways(run) for run in coded]
    of: dict[int, int] = {}
    for number in [*range(len(coded)), *([shown] if shown >= 0 else [])]:
        of.update(dict.fromkeys(ways[number], number))
    own: dict[int, list[int]] = {}
    unlike: dict[int, list[int]] = {}
    room = len(coded[shown]) * _BESIDE if coded else 0
    for number in reversed(range(len(coded))):
        theirs = [operator for operator, way in ways[number].items() if way != ways[of[operator]][operator]]
        rows = int(np.isin(coded[number].operator, theirs).sum())
        fits = rows <= room
        room -= rows if fits else 0
        own[number], unlike[number] = (theirs, []) if fits else ([], theirs)
    return EvidenceChoice(of, own, unlike)


def _ways(run: CodedRun) -> dict[int, int]:
    """Operator → a number that is the same for runs in which the same cases of it ended in the same way."""
    with np.errstate(over="ignore"):
        key, state = run.key.astype(np.uint64), run.state.astype(np.uint64) + np.uint64(1)
        mixed: npt.NDArray[np.uint64] = (key * _KEY) ^ (state * _STATE)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _STATE
        order = np.argsort(run.operator, kind="stable")
        operators, firsts = np.unique(run.operator[order], return_index=True)
        sums = np.add.reduceat(mixed[order], firsts) if len(order) else mixed
    return dict(zip(operators.tolist(), sums.tolist(), strict=True))
