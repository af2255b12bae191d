"""Keep a case of every root cause that some runs found, so that later runs with other seeds try it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from harness.causes.groups import FAILED
from harness.causes.rows import CAUSE_INPUTS, PROBLEMS, CodedRows, each_problem
from harness.compare.verdict import SPEC
from harness.core.invocation import MODEL
from harness.generate.regressions.corpus_store import CorpusEntry, failure_entry
from harness.record import store

_COLUMNS = (*CAUSE_INPUTS, PROBLEMS, "case_id", "elements", "invocation", "exported_invocation")


def cases_of_causes(runs: Sequence[Path]) -> list[CorpusEntry]:
    """Return the smallest case of each root cause on each converter and backend, sorted by operator.

    Whole models and what a specification leaves open are left out.

    Raises:
        harness.record.layout.ResultsError: a run cannot be read.
    """
    tables = [store.read(run, _COLUMNS, FAILED, encoded=True) for run in runs]
    rows = CodedRows(each_problem(pa.concat_tables(tables))[0])
    if not len(rows):
        return []
    _, cause = rows.causes
    kinds = np.stack([cause, rows.numbers("converter"), rows.numbers("backend")])
    _, kind = np.unique(kinds, axis=1, return_inverse=True)
    smallest = rows.at(rows.smallest(kind.reshape(-1)), rows.table.column_names)
    kept = [failure_entry(row) for row in smallest if row["blame"] != SPEC and not row["overload"].startswith(MODEL)]
    by_key = {entry.key: entry for entry in kept}
    return [by_key[key] for key in sorted(by_key, key=lambda key: (by_key[key].overload, key))]
