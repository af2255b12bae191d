"""The tolerance matrix: the numerical error of passing cases, and the tolerance that they need."""

from __future__ import annotations

import csv
import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.compare import DEFAULT, Outcome
from harness.core import count, json_text, plain
from harness.record import ResultsError, layout, reason

#: What a row of the matrix is about.
KEY = ("overload", "dtype", "converter", "backend", "shape_mode")
COLUMNS = (*KEY, "case_id", "outcome", "max_ulp_error", "max_abs_error", "needed_rtol", "needed_atol")
COMPARED = pc.field("outcome").isin([str(Outcome.PASS), str(Outcome.MISMATCH)])

#: Name without its ending of the files that `write` makes.
FILE = "tolerance"


@dataclass(frozen=True, kw_only=True)
class ErrorDistribution:
    """Passing cases of one overload × dtype × converter × backend × kind of shapes.

    The ULP error of a case is the largest error of its elements. Percentiles are nearest-rank: each is the
    error of some case. Wrong answers are counted, and have no part in the errors.

    Attributes:
        dtype: The cases' main dtype.
        shape_mode: ``static`` or ``dynamic``.
        cases: How many passed with outputs that have an error in ULP.
        wrong: How many gave a wrong answer.
        median_ulp: Units in the last place of PyTorch's result, as are the next two.
        p99_ulp: 99th percentile.
        max_abs: In the unit of the values.
        rtol: The rtol of the smallest pair that accepts all, as `harness.compare` defines it; None if no
            element needs one, or if the record is older than these numbers.
        atol: The atol of that pair, in the unit of the values.
        default_rtol: The default of `torch.testing` for the dtype; None if there is none.
        worst_case: Id of the case at the maximum.
    """

    overload: str
    dtype: str
    converter: str
    backend: str
    shape_mode: str
    cases: int
    wrong: int
    median_ulp: float
    p99_ulp: float
    max_ulp: float
    max_abs: float | None
    rtol: float | None
    atol: float | None
    default_rtol: float | None
    default_atol: float | None
    worst_case: str


_KINDS = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "float | None": pa.float64()}
SCHEMA = pa.schema([pa.field(f.name, _KINDS[str(f.type)]) for f in dataclasses.fields(ErrorDistribution)])

_Key: TypeAlias = tuple[str, ...]


def distributions(verdicts: pa.Table) -> list[ErrorDistribution]:
    """The tolerance matrix, largest errors first, of rows with `COLUMNS` for which `COMPARED` holds."""
    right: defaultdict[_Key, list[dict[str, Any]]] = defaultdict(list)
    wrong: defaultdict[_Key, int] = defaultdict(int)
    for row in verdicts.select(COLUMNS).to_pylist():
        key = tuple(row[name] for name in KEY)
        if row["outcome"] != Outcome.PASS:
            wrong[key] += 1
        elif row["max_ulp_error"] is not None:
            right[key].append(row)
    found = [_distribution(key, rows, wrong[key]) for key, rows in right.items()]
    return sorted(
        found, key=lambda d: (-d.max_ulp, d.overload, d.dtype, d.converter, d.backend, d.shape_mode)
    )


def _distribution(key: _Key, rows: Sequence[dict[str, Any]], wrong: int) -> ErrorDistribution:
    ulps = np.array([row["max_ulp_error"] for row in rows])
    median, p99 = (float(np.quantile(ulps, q, method="inverted_cdf")) for q in (0.5, 0.99))
    worst = min(rows, key=lambda row: (-row["max_ulp_error"], row["case_id"]))
    identity = dict(zip(KEY, key, strict=True))
    default = DEFAULT.get(identity["dtype"])
    return ErrorDistribution(
        **identity,
        cases=len(rows),
        wrong=wrong,
        median_ulp=median,
        p99_ulp=p99,
        max_ulp=float(ulps.max()),
        max_abs=_largest(rows, "max_abs_error"),
        rtol=_largest(rows, "needed_rtol"),
        atol=_largest(rows, "needed_atol"),
        default_rtol=default.rtol if default else None,
        default_atol=default.atol if default else None,
        worst_case=worst["case_id"],
    )


def _largest(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)


def write(found: Sequence[ErrorDistribution], directory: Path, about: dict[str, Any]) -> list[Path]:
    """Write the matrix as ``tolerance.csv``, ``.json`` and ``.parquet``; the JSON has `about` too.

    Returns:
        The files.

    Raises:
        ResultsError: they cannot be written.
    """
    rows = [dataclasses.asdict(distribution) for distribution in found]
    files = [directory / f"{FILE}.{ending}" for ending in ("csv", "json", "parquet")]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(
            f"cannot write to {directory}: {reason(error)}; choose another place with --out"
        ) from None
    with layout.replacing(files[0]) as path, path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, SCHEMA.names)
        writer.writeheader()
        writer.writerows(rows)
    with layout.replacing(files[1]) as path:
        path.write_text(json_text({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    with layout.replacing(files[2]) as path:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path, compression="zstd")
    return files


def render(found: Sequence[ErrorDistribution], limit: int | None = None) -> RenderableType:
    """The matrix for a terminal, largest errors first: at most `limit` rows, or all for None."""
    if not found:
        return Text("No case passed with an error in ULP, so there is nothing to measure.")
    varying = [
        name for name in ("converter", "backend", "shape_mode") if len({getattr(d, name) for d in found}) > 1
    ]
    constant = [
        getattr(found[0], name) for name in ("converter", "backend", "shape_mode") if name not in varying
    ]
    title = Text(
        f"{count(sum(d.cases for d in found), 'case')} that passed; errors in ULP of PyTorch's result; "
        + ", ".join(map(plain, constant))
    )
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("operator", overflow="fold")
    table.add_column("dtype")
    for name in varying:
        table.add_column(name.removesuffix("_mode"))
    for name in ("cases", "median", "p99", "max", "rtol", "atol"):
        table.add_column(name, justify="right")
    table.add_column("case at max")
    for d in found[:limit]:
        table.add_row(
            plain(short(d.overload)),
            d.dtype,
            *(plain(getattr(d, name)) for name in varying),
            f"{d.cases:,}",
            *map(_few_digits, (d.median_ulp, d.p99_ulp, d.max_ulp, d.rtol, d.atol)),
            d.worst_case,
            style="yellow" if _beyond_default(d) else "",
        )
    parts: list[RenderableType] = [title, Text(), table]
    if limit is not None and len(found) > limit:
        exact = sum(d.max_ulp == 0 for d in found[limit:])
        parts.append(Text(f"and {count(len(found) - limit, 'more row')}, {exact} of them without any error"))
    return Group(*parts)


def _few_digits(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value < 1000 and value == round(value) else f"{value:.2g}"


def short(overload: str) -> str:
    """An overload without what all share: ``celu``, ``add.Tensor``."""
    return overload.removeprefix("aten.").removesuffix(".default")


def _beyond_default(d: ErrorDistribution) -> bool:
    return (d.rtol or 0.0) > (d.default_rtol or 0.0) or (d.atol or 0.0) > (d.default_atol or 0.0)
