"""The cells of a baseline: what is expected of one operator in one dtype, counted and as text.

How far the passes of a cell are from PyTorch: structures counted by a bound on their largest error.

The bounds are 0.5, 1, 2, 4 … ULP, so that a last place that differs between machines changes no baseline, and
a growth that counts does.

What is expected of one operator in one dtype, with one converter and backend.

The cells of one family as text that a review can read: a block per operator, a line per cell and failure.

    aten.celu.default
      float32 dynamo ort-cpu 8/2 #229717c4 pass 8 ulp 0.5:1 2:1
      float64 dynamo ort-cpu 8/2 #89261a55 pass 0
        error load 8/2 Celu: <dtype> type

``8/2``: eight cases of two structures; ``#``: a hash of their ids; ``ulp 0.5:1 2:1``: of the structures that
passed one is within half a unit in the last place, one within two (left out where all are within half). A
failure has outcome, stage, how many of the cell's cases, codes of these (left out where it is all) and the
signature. Behind ``ulp`` may follow ``failing 2`` (structures, where there are several failures), ``skip 3``
and the like, and ``rule`` with the user's conversion functions.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from harness.compare.verdict import SPEC, CaseKey, Outcome, Stage, Verdict
from harness.core.invocation import PROGRAM
from harness.gate.case_changes import KEY_COLUMNS
from harness.record.parquet import to_table
from harness.record.query import database

#: (bound in ULP, how many structures have no larger error and one larger than half of it), by bound.
Ulps: TypeAlias = tuple[tuple[float, int], ...]

#: A correctly rounded result is within this many ULP, as is what cannot be measured in ULP.
ROUNDED = 0.5
#: Larger errors pass where the numbers say nothing (PyTorch is as far from float64); they count as infinite.
_LARGEST = 2.0**20


def bound(error: float | None) -> float:
    """The smallest bound that `error` (ULP) keeps to."""
    if error is None or error <= ROUNDED:
        return ROUNDED
    if not error <= _LARGEST:
        return math.inf
    mantissa, exponent = math.frexp(error)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def word(limit: float) -> str:
    """A bound in digits: ``0.5``, ``64``, ``inf``."""
    return f"{limit:.0f}" if limit >= 1 else f"{limit:g}"


def counted(errors: Iterable[float | None]) -> Ulps:
    """Structures by the bound of their largest error (ULP; None where it is not measured)."""
    return tuple(sorted(Counter(bound(error) for error in errors).items()))


def largest(ulps: Ulps) -> float:
    """The bound that all keep to; 0.5 where there is none."""
    return max((limit for limit, _ in ulps), default=ROUNDED)


def growths(before: Ulps, now: Ulps, factor: float) -> Iterator[tuple[float, int, int]]:
    """Where to look for errors that have grown by more than `factor`, a power of two.

    Yields:
        A bound of `before`; how many had an error beyond it; how many have one beyond `factor` times it.
        Where no error of the same structures has grown by more than `factor`, the third is never larger
        than the second; and it is for some bound, where one has grown by more than twice `factor` and the
        others have not shrunk.
    """
    for limit in sorted({ROUNDED, *(limit for limit, _ in before)}):
        yield limit, _beyond(before, limit), _beyond(now, factor * limit)


def _beyond(ulps: Ulps, least: float) -> int:
    return sum(count for limit, count in ulps if limit > least)


#: overload, dtype, converter, backend, shape mode.
CellKey: TypeAlias = tuple[str, str, str, str, str]

#: What `BaselineCell.other` calls cases that ended in two ways.
FLAKY = "flaky"


@dataclass(frozen=True)
class Failure:
    """Cases of a cell that fail alike.

    Attributes:
        structures: How many that differ in more than values, and fail for reasons of their own.
        codes: Which cases, see `code_of`; empty where it is all cases of the cell, or where a baseline of an
            earlier version does not say.
    """

    outcome: str
    stage: str
    signature: str
    cases: int
    structures: int
    codes: tuple[str, ...]

    @property
    def kind(self) -> tuple[str, str, str]:
        """What makes two failures the same one."""
        return self.outcome, self.stage, self.signature


@dataclass(frozen=True, kw_only=True)
class BaselineCell:
    """The cases of one operator, dtype, converter, backend and shape mode.

    A structure is what cases share that differ in the values of tensors only; in a dynamic export it is what
    was exported, whatever sizes it was run with. Structures, not cases, are what chance draws one by one.

    Attributes:
        cases: How many were run.
        structures: Of how many structures.
        digest: Of all case ids: equal for the same cases; "" for several cells taken together.
        ulps: The structures with a case that passed, by their largest error among these.
        failing: How many structures have a case that failed.
        other: Outcome → how many cases, of those that are neither a pass nor a failure, flaky ones too.
        rule: The user's conversion functions that took part; "" for none.
    """

    overload: str
    dtype: str
    converter: str
    backend: str
    shape_mode: str
    family: str
    cases: int
    structures: int
    digest: str
    passed: int
    ulps: Ulps = ()
    failing: int = 0
    failures: tuple[Failure, ...] = ()
    other: tuple[tuple[str, int], ...] = ()
    rule: str = ""

    @property
    def key(self) -> CellKey:
        """What identifies it."""
        return self.overload, self.dtype, self.converter, self.backend, self.shape_mode

    @property
    def passing(self) -> int:
        """How many structures have a case that passed."""
        return sum(count for _, count in self.ulps)

    @property
    def failed(self) -> int:
        """How many cases failed."""
        return sum(failure.cases for failure in self.failures)

    @property
    def flaky(self) -> int:
        """How many cases ended in two ways."""
        return dict(self.other).get(FLAKY, 0)


def scope(key: CellKey) -> tuple[str, ...]:
    """All of a cell's key but the dtype: overload, converter, backend, shape mode."""
    return key[0], *key[2:]


def key_of(verdict: Verdict) -> CellKey:
    """The cell that a verdict belongs to."""
    return verdict.overload, verdict.dtype, verdict.converter, verdict.backend, verdict.shape_mode


def kind_of(verdict: Verdict) -> tuple[str, str, str] | None:
    """`Failure.kind` of a verdict; None for no failure, and for one that the specifications leave open."""
    if not verdict.outcome.is_failure or verdict.is_open:
        return None
    return str(verdict.outcome), str(verdict.stage), " ".join(verdict.signature.split())


def passes(verdict: Verdict) -> bool:
    """Whether a verdict counts as a pass here."""
    return verdict.outcome is Outcome.PASS or verdict.is_open


def together(cells: Sequence[BaselineCell]) -> BaselineCell:
    """One cell of those of one operator that differ in dtype."""
    failures: defaultdict[tuple[str, str, str], list[Failure]] = defaultdict(list)
    other: Counter[str] = Counter()
    errors: Counter[float] = Counter()
    for cell in cells:
        other.update(dict(cell.other))
        errors.update(dict(cell.ulps))
        for failure in cell.failures:
            failures[failure.kind].append(failure)
    return replace(
        cells[0],
        dtype=", ".join(cell.dtype for cell in cells),
        cases=sum(cell.cases for cell in cells),
        structures=sum(cell.structures for cell in cells),
        digest="",
        passed=sum(cell.passed for cell in cells),
        ulps=tuple(sorted(errors.items())),
        failing=sum(cell.failing for cell in cells),
        failures=tuple(
            Failure(*kind, sum(f.cases for f in alike), sum(f.structures for f in alike), ())
            for kind, alike in sorted(failures.items())
        ),
        other=tuple(sorted(other.items())),
        rule=", ".join(sorted({cell.rule for cell in cells} - {""})),
    )


_LEGEND = "# dtype converter backend cases/structures #hash pass N; harness/gate/baseline/cells.py explains the rest"
_OVERLOAD = re.compile(rf"\w+(\.\w+){{2,}}|{re.escape(PROGRAM)}[\w.-]+")
_OTHER = {FLAKY, *(str(outcome) for outcome in Outcome if not outcome.is_failure)}


def encode(cells: Iterable[BaselineCell]) -> str:
    """The text of cells of one family, operator by operator."""
    lines = [_LEGEND]
    overload = ""
    for cell in sorted(cells, key=lambda c: (c.overload, c.converter, c.backend, c.shape_mode, c.dtype)):
        if cell.overload != overload:
            overload = cell.overload
            lines.append(overload)
        lines += _lines(cell)
    return "\n".join(lines) + "\n"


def decode(text: str, family: str) -> Iterator[BaselineCell]:
    """The cells that `encode` wrote.

    Raises:
        ValueError: a line is none of these; begins with its number.
    """
    cell: BaselineCell | None = None
    overload = ""
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.lstrip(" ")
        indent = len(line) - len(words)
        try:
            if not words or words.startswith("#"):
                continue
            if indent == 4:
                if cell is None:
                    raise ValueError("a failure of nothing")
                cell = replace(cell, failures=(*cell.failures, _failure(words, cell)))
                continue
            if cell is not None:
                yield _whole(cell)
                cell = None
            if indent == 0:
                if not _OVERLOAD.fullmatch(words):
                    raise ValueError("no name of an overload")
                overload = words
            elif indent == 2 and overload:
                cell = _cell(words, overload, family)
            else:
                raise ValueError("unexpected indentation")
        except (ValueError, IndexError) as error:
            raise ValueError(f"{number}: not a line of a baseline ({error})") from None
    if cell is not None:
        yield _whole(cell)
    if not text.endswith("\n"):
        raise ValueError(f"{number}: the file ends within a line")


def _lines(cell: BaselineCell) -> Iterator[str]:
    mode = "" if cell.shape_mode == "static" else f" {cell.shape_mode}"
    parts = [
        f"  {cell.dtype} {cell.converter} {cell.backend}{mode}",
        f"{cell.cases}/{cell.structures} #{cell.digest} pass {cell.passed}",
    ]
    if any(bound > ROUNDED for bound, _ in cell.ulps):
        parts.append("ulp " + " ".join(f"{word(bound)}:{count}" for bound, count in cell.ulps))
    elif cell.passing != cell.structures - cell.failing:
        parts.append(f"ulp {ROUNDED}:{cell.passing}")
    if len(cell.failures) > 1:
        parts.append(f"failing {cell.failing}")
    parts += [f"{outcome} {count}" for outcome, count in cell.other]
    if cell.rule:
        parts.append(f"rule {cell.rule}")
    yield " ".join(parts)
    for failure in cell.failures:
        which = f" #{','.join(failure.codes)}" if failure.codes else ""
        yield (
            f"    {failure.outcome} {failure.stage} {failure.cases}/{failure.structures}{which} "
            f"{failure.signature}".rstrip()
        )


def _cell(line: str, overload: str, family: str) -> BaselineCell:
    line, _, rule = line.partition(" rule ")
    dtype, converter, backend, *words = line.split(" ")
    mode = words.pop(0) if words[0] == "dynamic" else "static"
    cases, structures = _counts(words[0])
    if words[2] != "pass":
        raise ValueError("no word `pass`")
    passed, words, digest = int(words[3]), words[4:], words[1]
    ulps: Ulps | None = None
    if words[:1] == ["ulp"]:
        some = [part for part in words[1:] if ":" in part]
        pairs = [part.split(":") for part in some]
        ulps = tuple((float(bound), int(count)) for bound, count in pairs if int(count))
        words = words[1 + len(some) :]
    named = {name: int(count) for name, count in zip(words[::2], words[1::2], strict=True)}
    # Where nothing is said of them, they are whatever the failures leave: see `_whole`.
    failing = named.pop("failing", -1)
    if not set(named) <= _OTHER:
        raise ValueError(f"{', '.join(sorted(set(named) - _OTHER))} is not an outcome")
    return BaselineCell(
        overload=overload,
        dtype=dtype,
        converter=converter,
        backend=backend,
        shape_mode=mode,
        family=family,
        cases=cases,
        structures=structures,
        digest=_digest(digest),
        passed=passed,
        ulps=((-1.0, 0),) if ulps is None else ulps,
        failing=failing,
        other=tuple(sorted(named.items())),
        rule=rule,
    )


def _failure(line: str, cell: BaselineCell) -> Failure:
    outcome, stage, counts, *rest = line.split(" ")
    cases, structures = _counts(counts)
    codes: tuple[str, ...] = ()
    if cases != cell.cases and rest[0].startswith("#"):
        codes = tuple(rest.pop(0)[1:].split(","))
    # A baseline of an earlier version has one hash of all these cases.
    codes = codes if len(codes) == cases else ()
    return Failure(str(Outcome(outcome)), str(Stage(stage)), " ".join(rest), cases, structures, codes)


def _whole(cell: BaselineCell) -> BaselineCell:
    """The cell with what its line leaves to be understood."""
    if cell.failing < 0:
        cell = replace(cell, failing=sum(failure.structures for failure in cell.failures))
    if cell.ulps[:1] == ((-1.0, 0),):
        passing = cell.structures - cell.failing
        cell = replace(cell, ulps=((ROUNDED, passing),) if passing else ())
    return cell


def _counts(part: str) -> tuple[int, int]:
    cases, structures = part.split("/")
    return int(cases), int(structures)


def _digest(part: str) -> str:
    if not part.startswith("#"):
        raise ValueError("no #hash")
    return part[1:]


#: What makes a cell.
_KEY = ("overload", "dtype", "converter", "backend", "shape_mode")
#: What is looked at of a row.
COLUMNS = (
    *(*_KEY, "family", "source", "case_id", "exported_invocation", "structure_id", "outcome", "stage"),
    *("signature", "blame", "max_ulp_error", "rule"),
)


def cells_of(verdicts: Iterable[Verdict], flaky: Collection[CaseKey] = ()) -> list[BaselineCell]:
    """The cells of some verdicts, as `cells_in` counts them."""
    return cells_in(to_table(verdicts, ""), flaky)


def code_of(verdict: Verdict) -> str:
    """What `Failure.codes` calls the case of a verdict."""
    return hashlib.sha256(f"{verdict.case_id} {verdict.exported_invocation}".encode()).hexdigest()[:_CODE]


#: Hexadecimal digits of a case's code. A cell has few hundred cases.
_CODE = 6

#: Sources whose cases a baseline is of: what else a run tries (found failures, captured calls) differs from one run to
#: the next.
DRAWN_SOURCES = ("generated", "programs")

#: The drawn cases with what is counted of them.
_CASES = f"""
    CREATE TEMP TABLE cases AS
    WITH drawn AS (
        SELECT {", ".join(_KEY)}, family, rule, outcome, stage,
            case_id || ' ' || coalesce(exported_invocation, '') AS name,
            -- What cases share that differ in the values of tensors only.
            coalesce(nullif(exported_invocation, ''), structure_id) AS structure,
            regexp_replace(trim(signature), '\\s+', ' ', 'g') AS signature,
            outcome IN ({", ".join(f"'{o}'" for o in Outcome if o.is_failure)}) AS failing,
            failing AND blame = '{SPEC}' AS left_open,
            EXISTS (
                FROM flaky f WHERE f.case_id = rows.case_id AND f.exported_invocation = rows.exported_invocation
                AND f.converter = rows.converter AND f.backend = rows.backend
            ) AS unsteady,
            -- How far from PyTorch a result is that is left open says nothing.
            CASE WHEN left_open OR isnan(max_ulp_error) THEN 0 ELSE coalesce(max_ulp_error, 0) END AS error
        FROM rows WHERE source IN {DRAWN_SOURCES}
    )
    SELECT *,
        (outcome = '{Outcome.PASS}' OR left_open) AND NOT unsteady AS passes,
        failing AND NOT left_open AND NOT unsteady AS fails
    FROM drawn
"""
_CELLS = f"""
    SELECT {", ".join(_KEY)}, first(family) AS family, count(*) AS cases, count(DISTINCT structure) AS structures,
        substr(sha256(string_agg(name, chr(10) ORDER BY name)), 1, 8) AS digest,
        count(*) FILTER (passes) AS passed, count(DISTINCT structure) FILTER (fails) AS failing,
        list(DISTINCT rule) AS rules
    FROM cases GROUP BY {", ".join(_KEY)} ORDER BY ALL
"""
_OTHER_CASES = f"""
    SELECT {", ".join(_KEY)}, CASE WHEN unsteady THEN '{FLAKY}' ELSE outcome END AS ending, count(*)
    FROM cases WHERE NOT passes AND NOT fails GROUP BY {", ".join(_KEY)}, ending ORDER BY ALL
"""
_ERRORS = f"""
    SELECT {", ".join(_KEY)}, largest, count(*)
    FROM (
        SELECT {", ".join(_KEY)}, structure, max(error) AS largest
        FROM cases WHERE passes GROUP BY {", ".join(_KEY)}, structure
    )
    GROUP BY {", ".join(_KEY)}, largest
"""
_FAILURES = f"""
    SELECT {", ".join(_KEY)}, outcome, stage, signature, count(*), count(DISTINCT structure),
        list_sort(list(substr(sha256(name), 1, {_CODE})))
    FROM cases WHERE fails GROUP BY {", ".join(_KEY)}, outcome, stage, signature ORDER BY ALL
"""
_FLAKY_SCHEMA = pa.schema([(name, pa.string()) for name in KEY_COLUMNS])


def cells_in(rows: pa.Table, flaky: Collection[CaseKey] = ()) -> list[BaselineCell]:
    """The cells of a record's rows, by key.

    Args:
        rows: With `COLUMNS`.
        flaky: Cases that are known to have ended in two ways.
    """
    listed = pa.table([[case[n] for case in flaky] for n in range(len(KEY_COLUMNS))], _FLAKY_SCHEMA)
    with database({"rows": rows.select(COLUMNS), "flaky": listed}) as asked:
        asked.execute(_CASES)
        heads = asked.sql(_CELLS).fetchall()
        names = asked.sql(_CELLS).columns
        other, errors, failures = (_by_cell(asked.sql(q).fetchall()) for q in (_OTHER_CASES, _ERRORS, _FAILURES))
    found = []
    for head in heads:
        fields = dict(zip(names, head, strict=True))
        key: CellKey = head[: len(_KEY)]
        labels = {label for rule in fields.pop("rules") if rule for label in rule.split(", ")}
        ulps: Counter[float] = Counter()
        for error, count in errors[key]:
            ulps[bound(error)] += count
        alike = [
            Failure(outcome, stage, signature, cases, structures, () if cases == fields["cases"] else tuple(codes))
            for outcome, stage, signature, cases, structures, codes in failures[key]
        ]
        cell = BaselineCell(
            **fields,
            ulps=tuple(sorted(ulps.items())),
            failures=tuple(alike),
            other=tuple(other[key]),
            rule=", ".join(sorted(labels)),
        )
        found.append(cell)
    return found


def _by_cell(rows: Iterable[tuple[Any, ...]]) -> defaultdict[CellKey, list[tuple[Any, ...]]]:
    """Cell → what is said of it."""
    found: defaultdict[CellKey, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        found[row[: len(_KEY)]].append(row[len(_KEY) :])
    return found
