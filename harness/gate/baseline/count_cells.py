"""Count the rows of a record into the cells of a baseline."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa

from harness.compare.verdict import SPEC, CaseKey, Outcome, Verdict
from harness.gate.baseline.cells import FLAKY, BaselineCell, CellKey, FailingCases
from harness.gate.baseline.error_bounds import bound
from harness.gate.case_changes import KEY_COLUMNS
from harness.record.parquet import to_table
from harness.record.query import database

#: The columns that identify a cell.
_KEY = ("overload", "dtype", "converter", "backend", "shape_mode")
#: The columns that are read.
COLUMNS = (
    *(*_KEY, "family", "source", "case_id", "exported_invocation", "structure_id", "outcome", "stage"),
    *("signature", "blame", "max_ulp_error", "rule"),
)


def cells_of(verdicts: Iterable[Verdict], flaky: Collection[CaseKey] = ()) -> list[BaselineCell]:
    """Return the cells of some verdicts, as counted by `cells_in`."""
    return cells_in(to_table(verdicts, ""), flaky)


def code_of(verdict: Verdict) -> str:
    """Return the code in `FailingCases.codes` of a verdict's case."""
    return hashlib.sha256(f"{verdict.case_id} {verdict.exported_invocation}".encode()).hexdigest()[:_CODE]


#: Hexadecimal digits of a case's code; a cell has at most a few hundred cases.
_CODE = 6

#: Only cases from these sources belong to a baseline; others (earlier failures, captured calls) differ from run to run.
DRAWN_SOURCES = ("generated", "programs")

#: The drawn cases with the properties that are counted.
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
    """Return the cells of a record's rows, sorted by key.

    Args:
        rows: Rows with `COLUMNS`.
        flaky: Cases that are known to end differently in different runs.
    """
    listed = pa.table([[case[n] for case in flaky] for n in range(len(KEY_COLUMNS))], _FLAKY_SCHEMA)
    with database({"rows": rows.select(COLUMNS), "flaky": listed}) as asked:
        asked.execute(_CASES)
        heads = asked.sql(_CELLS).fetchall()
        names = asked.sql(_CELLS).columns
        other, errors, failures = (_group_by_cell(asked.sql(q).fetchall()) for q in (_OTHER_CASES, _ERRORS, _FAILURES))
    found = []
    for head in heads:
        fields = dict(zip(names, head, strict=True))
        key: CellKey = head[: len(_KEY)]
        labels = {label for rule in fields.pop("rules") if rule for label in rule.split(", ")}
        ulps: Counter[float] = Counter()
        for error, count in errors[key]:
            ulps[bound(error)] += count
        alike = [
            FailingCases(outcome, stage, signature, cases, structures, () if cases == fields["cases"] else tuple(codes))
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


def _group_by_cell(rows: Iterable[tuple[Any, ...]]) -> defaultdict[CellKey, list[tuple[Any, ...]]]:
    """Group the remaining columns of rows by cell."""
    found: defaultdict[CellKey, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        found[row[: len(_KEY)]].append(row[len(_KEY) :])
    return found
