"""The cells of one family as text for code review: a block per operator, a line per cell and per failure.

    aten.celu.default
      float32 dynamo ort-cpu 8/2 #229717c4 pass 8 ulp 0.5:1 2:1
      float64 dynamo ort-cpu 8/2 #89261a55 pass 0
        error load 8/2 Celu: <dtype> type

``8/2``: eight cases of two structures; ``#``: a hash of their ids; ``ulp 0.5:1 2:1``: of the structures that passed,
one has a largest error of at most half a unit in the last place, one of at most two (omitted if all are within half).
A failure has its outcome, its stage, its number of cases, their codes (omitted if it covers all cases of the cell) and
its signature. ``ulp`` may be followed by ``failing 2`` (structures, if several fail), ``skip 3`` and other
outcomes, and ``rule`` with the user's conversion functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import PROGRAM
from harness.gate.baseline.cells import FLAKY, BaselineCell, FailingCases
from harness.gate.baseline.error_bounds import ROUNDED, Ulps, format_bound

_LEGEND = (
    "# dtype converter backend cases/structures #hash pass N; harness/gate/baseline/cell_text.py explains the rest"
)
_OVERLOAD = re.compile(rf"\w+(\.\w+){{2,}}|{re.escape(PROGRAM)}[\w.-]+")
_OTHER = {FLAKY, *(str(outcome) for outcome in Outcome if not outcome.is_failure)}


def encode(cells: Iterable[BaselineCell]) -> str:
    """Return the text of the cells of one family, operator by operator."""
    lines = [_LEGEND]
    overload = ""
    for cell in sorted(cells, key=lambda c: (c.overload, c.converter, c.backend, c.shape_mode, c.dtype)):
        if cell.overload != overload:
            overload = cell.overload
            lines.append(overload)
        lines += _lines(cell)
    return "\n".join(lines) + "\n"


def decode(text: str, family: str) -> Iterator[BaselineCell]:
    """Yield the cells that `encode` wrote.

    Raises:
        ValueError: A line is invalid; the message begins with its number.
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
                yield _complete(cell)
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
        yield _complete(cell)
    if not text.endswith("\n"):
        raise ValueError(f"{number}: the file ends within a line")


def _lines(cell: BaselineCell) -> Iterator[str]:
    mode = "" if cell.shape_mode == "static" else f" {cell.shape_mode}"
    parts = [
        f"  {cell.dtype} {cell.converter} {cell.backend}{mode}",
        f"{cell.cases}/{cell.structures} #{cell.digest} pass {cell.passed}",
    ]
    if any(bound > ROUNDED for bound, _ in cell.ulps):
        parts.append("ulp " + " ".join(f"{format_bound(bound)}:{count}" for bound, count in cell.ulps))
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
    # If the line does not give these numbers, they follow from the failures: see `_complete`.
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


def _failure(line: str, cell: BaselineCell) -> FailingCases:
    outcome, stage, counts, *rest = line.split(" ")
    cases, structures = _counts(counts)
    codes: tuple[str, ...] = ()
    if cases != cell.cases and rest[0].startswith("#"):
        codes = tuple(rest.pop(0)[1:].split(","))
    # Baselines of early versions have one hash for all cases of a failure.
    codes = codes if len(codes) == cases else ()
    return FailingCases(str(Outcome(outcome)), str(Stage(stage)), " ".join(rest), cases, structures, codes)


def _complete(cell: BaselineCell) -> BaselineCell:
    """Fill in the numbers that a cell's line omits."""
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
