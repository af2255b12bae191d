"""The tolerance matrix: the numerical error of passing cases, and the tolerance that they need.

The second report counts the excuses by the rules of comparison in a run, with examples.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.compare.output_comparison import parse_excuses
from harness.compare.tolerances import DEFAULT
from harness.compare.verdict import Outcome
from harness.core.documents import json_text
from harness.core.text import count, listed, plain
from harness.record import layout
from harness.record.dictionary_encoding import numbered_column, ordered_numbers
from harness.record.layout import ResultsError, reason

#: The columns that identify a row of the matrix.
KEY = ("overload", "dtype", "converter", "backend", "shape_mode")
COLUMNS = (*KEY, "case_id", "outcome", "max_ulp_error", "max_abs_error", "needed_rtol", "needed_atol")
COMPARED = pc.field("outcome").isin([str(Outcome.PASS), str(Outcome.MISMATCH)])

#: The measured columns of each case, in the order of `_distribution`'s parameters.
_MEASURED = ("case_id", "max_ulp_error", "max_abs_error", "needed_rtol", "needed_atol")

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
        cases: Number of passing cases whose outputs have an error in ULP.
        wrong: Number of wrong answers.
        median_ulp: Units in the last place of PyTorch's result, as are the next two.
        p99_ulp: 99th percentile.
        max_abs: Largest absolute error, in the unit of the values.
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


def distributions(verdicts: pa.Table) -> list[ErrorDistribution]:
    """Return the tolerance matrix, largest errors first, of rows with `COLUMNS` for which `COMPARED` holds."""
    rows = verdicts.select(COLUMNS).unify_dictionaries()
    if not rows.num_rows:
        return []
    _, first, cell = np.unique(ordered_numbers([rows[name] for name in KEY]), return_index=True, return_inverse=True)
    heads = rows.select(KEY).take(pa.array(first)).to_pylist()
    outcome, outcomes = numbered_column(rows["outcome"])
    passed = np.array([word == Outcome.PASS for word in outcomes.to_pylist()])[outcome]
    wrong = np.bincount(cell[~passed], minlength=len(heads)).tolist()
    right = np.flatnonzero(passed & rows["max_ulp_error"].is_valid().to_numpy())
    right = right[np.argsort(cell[right], kind="stable")]
    measured = rows.select(_MEASURED).take(pa.array(right))
    columns = [measured[name].to_pylist() for name in _MEASURED]
    starts = np.searchsorted(cell[right], np.arange(len(heads) + 1)).tolist()
    found = [
        _distribution(head, wrong[n], *(column[starts[n] : starts[n + 1]] for column in columns))
        for n, head in enumerate(heads)
        if starts[n] < starts[n + 1]
    ]
    return sorted(found, key=lambda d: (-d.max_ulp, d.overload, d.dtype, d.converter, d.backend, d.shape_mode))


def _distribution(
    head: dict[str, str], wrong: int, cases: list[str], ulps: list[float], *largest: list[float | None]
) -> ErrorDistribution:
    median, p99 = (_nearest_rank(ulps, share) for share in (0.5, 0.99))
    max_abs, rtol, atol = (max((v for v in some if v is not None), default=None) for some in largest)
    default = DEFAULT.get(head["dtype"])
    return ErrorDistribution(
        **head,
        cases=len(cases),
        wrong=wrong,
        median_ulp=median,
        p99_ulp=p99,
        max_ulp=max(ulps),
        max_abs=max_abs,
        rtol=rtol,
        atol=atol,
        default_rtol=default.rtol if default else None,
        default_atol=default.atol if default else None,
        worst_case=min(zip(ulps, cases, strict=True), key=lambda one: (-one[0], one[1]))[1],
    )


def _nearest_rank(values: list[float], share: float) -> float:
    """Return the smallest value that at least a share of all values does not exceed."""
    return sorted(values)[max(math.ceil(len(values) * share - 1), 0)]


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
        raise ResultsError(f"cannot write to {directory}: {reason(error)}; choose another place with --out") from None
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
    """Render the matrix for a terminal, largest errors first: at most `limit` rows, or all for None."""
    if not found:
        return Text("No case passed with an error in ULP, so there is nothing to measure.")
    varying = [name for name in ("converter", "backend", "shape_mode") if len({getattr(d, name) for d in found}) > 1]
    constant = [getattr(found[0], name) for name in ("converter", "backend", "shape_mode") if name not in varying]
    title = Text(
        f"{count(sum(d.cases for d in found), 'case')} that passed; errors in ULP of PyTorch's result; "
        + ", ".join(map(plain, constant))
    )
    # Numbers are never cut off: in a narrow terminal a name has several lines.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    table.add_column("operator", overflow="fold")
    for name in ("dtype", *(name.removesuffix("_mode") for name in varying)):
        table.add_column(name, no_wrap=True)
    for name in ("cases", "p99", "max", "rtol", "atol"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("at max", no_wrap=True)
    for d in found[:limit]:
        table.add_row(
            plain(short(d.overload)),
            d.dtype,
            *(plain(getattr(d, name)) for name in varying),
            f"{d.cases:,}",
            *map(_few_digits, (d.p99_ulp, d.max_ulp, d.rtol, d.atol)),
            d.worst_case[:_SHORT_ID],
            style="yellow" if _beyond_default(d) else "",
        )
    parts: list[RenderableType] = [title, Text(), table]
    if limit is not None and len(found) > limit:
        exact = sum(d.max_ulp == 0 for d in found[limit:])
        parts.append(Text(f"and {count(len(found) - limit, 'more row')}, {exact} of them without any error"))
    return Group(*parts)


#: Digits of a case id that every command accepts for the whole id.
_SHORT_ID = 8


def _few_digits(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value < 1000 and value == round(value) else f"{value:.2g}"


def short(overload: str) -> str:
    """Return an overload without its common prefix and suffix: ``celu``, ``add.Tensor``."""
    return overload.removeprefix("aten.").removesuffix(".default")


def _beyond_default(d: ErrorDistribution) -> bool:
    return (d.rtol or 0.0) > (d.default_rtol or 0.0) or (d.atol or 0.0) > (d.default_atol or 0.0)


EXCUSED_COLUMNS = ("overload", "case_id", "excused")
EXCUSED = pc.field("excused") != ""
#: Operators that a line names.
_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class ExcuseCount:
    """The use of one rule that accepts elements which differ from PyTorch's by more than the last places.

    Attributes:
        rule: Its words, as in the column ``excused``.
        cases: Number of cases.
        elements: Number of elements, over all rows.
        operators: The operators concerned, those with the most rows first.
        example: Id of a case with the most such elements.
    """

    rule: str
    cases: int
    elements: int
    operators: tuple[str, ...]
    example: str

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return dataclasses.asdict(self)


def excuse_counts(rows: pa.Table) -> list[ExcuseCount]:
    """Return each rule that excused something, the one with the most cases first.

    Args:
        rows: Rows with `EXCUSED_COLUMNS`, for which `EXCUSED` holds.
    """
    rows = rows.select(EXCUSED_COLUMNS).unify_dictionaries()
    texts, words = numbered_column(rows["excused"])
    parts = [parse_excuses(text) for text in words.to_pylist()]
    found = []
    for rule in sorted({why for part in parts for why, _ in part}):
        elements = np.array([dict(part).get(rule, 0) for part in parts])[texts]
        places = np.flatnonzero(elements)
        most = int(places[np.argmax(elements[places])])
        some = rows.take(pa.array(places))
        operators = Counter(some["overload"].to_pylist())
        found.append(
            ExcuseCount(
                rule=rule,
                cases=len(pc.unique(some["case_id"])),
                elements=int(elements.sum()),
                operators=tuple(name for name, _ in operators.most_common()),
                example=rows["case_id"][most].as_py(),
            )
        )
    return sorted(found, key=lambda one: (-one.cases, one.rule))


def render_excuses(found: Sequence[ExcuseCount]) -> RenderableType:
    """Render the rules for a terminal."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("rule", overflow="fold")
    table.add_column("cases", justify="right")
    table.add_column("elements", justify="right")
    table.add_column("operators", overflow="fold")
    table.add_column("example")
    for one in found:
        operators = listed([short(name) for name in one.operators], _SHOWN)
        table.add_row(plain(one.rule), f"{one.cases:,}", f"{one.elements:,}", plain(operators), one.example)
    title = f"{count(len(found), 'rule')} accepted elements that differ from PyTorch's by more than the last places"
    return Group(Text(title), Text(), table)
