"""Questions about rows of the record, asked in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb


@contextmanager
def database(tables: Mapping[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory with these tables, which are not copied; DuckDB's dialect of SQL."""
    # Imported where it is used: commands that ask nothing start without it.
    import duckdb

    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        yield connection
