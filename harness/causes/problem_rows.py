"""Failed rows with a row for each problem of their cases, so that none hides behind the first one."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.compare import problems_of
from harness.record import Numbers

#: The column that says what else is wrong.
PROBLEMS = "problems"


def each_problem(rows: pa.Table) -> tuple[pa.Table, Numbers]:
    """Rows with one more behind them for each further problem, and which row of `rows` each is about.

    Args:
        rows: Of the record, with `PROBLEMS`, which the result lacks.
    """
    plain = rows.drop_columns([PROBLEMS])
    places = np.arange(rows.num_rows)
    with_more = np.flatnonzero(pc.not_equal(rows[PROBLEMS], "").to_numpy())
    if not len(with_more):
        return plain, places
    more: list[dict[str, str]] = []
    origin: list[int] = []
    texts = rows[PROBLEMS].take(pa.array(with_more)).to_pylist()
    for place, text in zip(with_more.tolist(), texts, strict=True):
        for problem in problems_of(text)[1:]:
            more.append({name: value for name, value in asdict(problem).items() if name in plain.column_names})
            origin.append(place)
    added = plain.take(pa.array(origin))
    for name in {name for problem in more for name in problem}:
        words = pa.array([problem.get(name, "") for problem in more], pa.string())
        column = words.cast(plain.schema.field(name).type)
        added = added.set_column(added.column_names.index(name), name, column)
    return pa.concat_tables([plain, added.cast(plain.schema)]), np.concatenate([places, origin])
