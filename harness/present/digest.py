"""A run in a few lines, for the page of a CI job and for a chat.

A digest as Markdown, as a chat message and as JSON.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.causes import groups as failures, known_issues
from harness.causes.groups import FailureGroup
from harness.causes.inaccuracies import COLUMNS, INACCURATE, inaccuracies
from harness.causes.real_use import RealUse, real_use
from harness.causes.richness import CausesOfRuns, causes_of_runs
from harness.causes.rows import fill_ordinary
from harness.compare.verdict import SPEC
from harness.core.route import route_label
from harness.core.text import count, listed, markdown_cell, plain
from harness.gate.diff_inputs import BaselineComparison, Found, Side, compare_as_fits, find_side
from harness.gate.run_diff import Diff
from harness.gate.waivers import NO_WAIVERS, Waivers
from harness.present import gate_report as gate, matrix, report as reports, run_changes as changes
from harness.present.composition_text import composition, render_composition
from harness.present.failures_text import kinds_text, render_inaccuracies
from harness.present.opset_text import opset_differences, render_opsets
from harness.present.pass_reach import PassReach, pass_reach
from harness.present.real_use_text import kinds_sentence, real_use_sentence
from harness.present.run_counts import (
    COUNTED_COLUMNS,
    Fallback,
    OnnxReach,
    Refusals,
    counts,
    fallbacks,
    onnx_reach,
    refusals,
    table_rows,
)
from harness.record import store
from harness.record.json_lines import read_minimal
from harness.record.progress import Completeness, completeness
from harness.record.run_info import RunInfo, read_run_info


class Standing(StrEnum):
    """The status of an operator in one column; only `WHOLE` is a pass.

    `UNJUDGED`: none of its cases passed and none failed, such as an engine that was built and not run.
    """

    WHOLE = "no failure found"
    PART = "some pass"
    NONE = "none pass"
    UNJUDGED = "not judged"

    @classmethod
    def of(cls, cell: matrix.MatrixCell) -> Standing:
        """Return the status of the operator of a cell."""
        if not cell.passes:
            return cls.NONE if cell.failures else cls.UNJUDGED
        return cls.WHOLE if cell.passes == cell.total else cls.PART


@dataclass(frozen=True)
class DigestColumn:
    """One converter and backend.

    Attributes:
        operators: Status → operators, without those that are missing.
        passed: Cases, out of the `total` that could have passed.
        ordinary_passed: Cases of ordinary use that passed, out of `ordinary_total`.
        weighted: The share of ordinary cases that pass, weighted by use; None if no model calls any.
    """

    converter: str
    backend: str
    operators: Counter[Standing]
    passed: int
    total: int
    ordinary_passed: int
    ordinary_total: int
    weighted: float | None

    @property
    def name(self) -> str:
        """``dynamo → ort-cpu``."""
        return route_label(self.converter, self.backend)


@dataclass(frozen=True, kw_only=True)
class Digest:
    """A run in a few lines.

    Attributes:
        there: The completeness of the run.
        groups: The distinct failures, worst first, without those that a specification leaves open.
        against: The name of the reference that it was compared with; "" if there was none.
        found: The differences; None if there was no comparison.
        fallbacks: Cases that did not run on the backends' devices.
        use: The results of real models' calls, by converter and backend.
        reach: The ONNX operators that each backend computed.
        refusals: How each backend met invalid nodes.
        passes: The optimiser passes that changed its programs.
        causes: The root causes of this run and of earlier ones; None if no other run was named.
        outcomes: A head, and a row of verdicts by stage for each outcome.
        details: What programs, opsets and inaccuracies show, as a terminal has it; "" for nothing.
    """

    info: RunInfo
    there: Completeness
    columns: tuple[DigestColumn, ...]
    groups: tuple[FailureGroup, ...]
    against: str = ""
    found: Found | None = None
    fallbacks: tuple[Fallback, ...] = ()
    use: tuple[RealUse, ...] = ()
    reach: tuple[OnnxReach, ...] = ()
    refusals: tuple[Refusals, ...] = ()
    passes: tuple[PassReach, ...] = ()
    causes: CausesOfRuns | None = None
    outcomes: tuple[tuple[str, ...], ...] = (("outcome",),)
    details: str = ""

    @property
    def worse(self) -> int:
        """Return the number of findings that are worse than in the reference."""
        if isinstance(self.found, BaselineComparison):
            return self.found.worse
        if isinstance(self.found, Diff):
            return sum(number for change, number in self.found.counts.items() if change.is_worse)
        return 0

    @property
    def red(self) -> bool:
        """Whether something is worse or missing, or there is nothing to compare with."""
        return bool(self.worse) or not self.there.complete or self._apart

    @property
    def _apart(self) -> bool:
        """Whether it has no entry in common with its reference."""
        return self.found is not None and not self.found.compared

    @property
    def headline(self) -> str:
        """``red: shard 2/4 is missing; 2 worse than golden/baseline``."""
        parts = [] if self.there.complete else [self.there.summary.partition(" (")[0]]
        if self.worse:
            parts.append(f"{self.worse:,} worse than {self.against}")
        elif self._apart:
            parts.append(f"no entry in common with {self.against}")
        elif self.against:
            parts.append("nothing else is worse" if parts else "nothing is worse")
        else:
            parts.append(count(len(self.groups), "distinct failure"))
        if not self.red and not self.against:
            return f"{'; '.join(parts)} (no baseline)"
        word = "red" if self.red else "green"
        return f"{word}: {'; '.join(parts)}"

    @property
    def title(self) -> str:
        """Return ``Conformance is red: …``, or ``Conformance: 4 distinct failures (no baseline)``."""
        return f"Conformance is {self.headline}" if self.red or self.against else f"Conformance: {self.headline}"

    @property
    def differences(self) -> str:
        """``2 regression, 1 flaky``; "" if nothing was compared."""
        if isinstance(self.found, BaselineComparison):
            return gate.summary(self.found)
        return changes.summary(self.found) if isinstance(self.found, Diff) else ""


def digest(
    run: Path, against: str | None = None, earlier: Sequence[Path] = (), waivers: Waivers = NO_WAIVERS
) -> Digest:
    """Sum up a run, compared with a run, a baseline or a git revision, as `conformance diff` takes it.

    Args:
        run: The run.
        against: What it is compared with.
        earlier: Other runs, whose root causes are counted along with its own.
        waivers: Failures that are expected, and so are not worse.

    Raises:
        ResultsError: one of them cannot be read.
    """
    there = completeness(run)
    columns = sorted({*matrix.COLUMNS, *matrix.RATE_COLUMNS, *COUNTED_COLUMNS})
    rows = store.read(run, columns, encoded=True, made=fill_ordinary).unify_dictionaries()
    weighted = {(rate.converter, rate.backend): rate.ordinary for rate in matrix.weighted_rates(rows)}
    groups = failures.failure_groups(
        store.read(run, failures.COLUMNS, failures.FAILED, encoded=True),
        read_minimal(run),
        known_issues.read_known_issues(),
    )
    defects = tuple(group for group in groups if group.blame != SPEC)
    own = Side(run.name, run=run)
    side = find_side(against, own) if against is not None else None
    return Digest(
        info=read_run_info(run),
        there=there,
        columns=tuple(_columns(matrix.matrix(rows), weighted, set(there.unfinished))),
        groups=defects,
        against=side.name if side else "",
        found=compare_as_fits(side, own, waivers) if side else None,
        fallbacks=tuple(fallbacks(run)),
        use=tuple(real_use(run)),
        reach=tuple(onnx_reach(run)),
        refusals=tuple(refusals(run)),
        passes=tuple(pass_reach(run)),
        outcomes=tuple(table_rows(counts(rows))),
        details=_details(run),
        causes=causes_of_runs(run, earlier) if earlier else None,
    )


def _details(run: Path) -> str:
    """Return what programs, opsets and inaccuracies show, as a terminal has it; "" for nothing."""
    console = Console(file=io.StringIO(), width=110)
    inexact = inaccuracies(store.read(run, COLUMNS, INACCURATE).to_pylist())
    parts = (*render_composition(composition(run)), *render_opsets(opset_differences(run)))
    for part in (*parts, *((render_inaccuracies(inexact),) if inexact else ())):
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def _columns(
    counts: matrix.Matrix, weighted: Mapping[matrix.Column, float | None], lacking: Collection[str]
) -> Iterator[DigestColumn]:
    for name in counts.columns:
        rows = [row for row in counts.rows if name in row.cells and row.overload not in lacking]
        cells = [row.cells[name] for row in rows]
        ordinary = [row.ordinary[name] for row in rows if name in row.ordinary]
        yield DigestColumn(
            *name,
            operators=Counter(map(Standing.of, cells)),
            passed=sum(cell.passes for cell in cells),
            total=sum(cell.total for cell in cells),
            ordinary_passed=sum(cell.passes for cell in ordinary),
            ordinary_total=sum(cell.total for cell in ordinary),
            weighted=weighted.get(name),
        )


#: Most rows of a table of the job page, and lines of each kind in a chat, where a message is read on a phone.
_ROWS = 20
_LINES = 5
#: Keys for programs, which do not change with the words for people.
_KEYS = {
    Standing.WHOLE: "pass wholly",
    Standing.PART: "in part",
    Standing.NONE: "not at all",
    Standing.UNJUDGED: "not judged",
}


def markdown(found: Digest, link: str = "") -> str:
    """Return the digest for the page of a CI job, with a link to the dashboard unless that is ""."""
    return "\n".join(_markdown(found, link)) + "\n"


def _markdown(found: Digest, link: str) -> Iterator[str]:
    yield f"## {markdown_cell(found.title)}"
    yield ""
    yield f"Run `{plain(found.info.run_id)}`, {_when(found)}, seed {found.info.seed}." + (
        f" [Dashboard]({link})" if link else ""
    )
    if not found.there.complete:
        yield f"\n> **Incomplete:** {markdown_cell(found.there.summary)}. None of that counts as passing.\n"
        yield from _parts(found)
    yield ""
    head = [*Standing, "missing", "ordinary cases that pass", "all cases", "ordinary, weighted by use"]
    yield f"| | operators | {' | '.join(head)} |"
    yield f"| --- | ---: |{' ---: |' * len(head)}"
    lacking = len(found.there.unfinished)
    for column in found.columns:
        numbers = [
            column.operators.total() + lacking,
            *(column.operators[standing] for standing in Standing),
            lacking,
        ]
        cells = [markdown_cell(column.name), *(f"{number:,}" for number in numbers)]
        ordinary = _share(column.ordinary_passed, column.ordinary_total)
        weighted = "" if column.weighted is None else matrix.percent_of(column.weighted)
        cells += [ordinary, _share(column.passed, column.total), weighted]
        yield f"| {' | '.join(cells)} |"
    if any(column.weighted is not None for column in found.columns):
        yield "\nWeighted by use: each operator/dtype counts once per model that uses it.\n"
    for use in found.use:
        yield f"\n{markdown_cell(real_use_sentence(use))} {markdown_cell(kinds_sentence(use))}.\n"
    yield ""
    titles, *ended = found.outcomes
    yield f"| {' | '.join(titles)} |"
    yield f"| --- |{' ---: |' * (len(titles) - 1)}"
    yield from (f"| {' | '.join(row)} |" for row in ended)
    yield ""
    for reach in found.reach:
        yield f"\n{markdown_cell(reach.sentence)}.\n"
    for refused in found.refusals:
        yield f"\n{markdown_cell(refused.sentence)}.\n"
    for passes in found.passes:
        yield f"\n{passes.sentence}.\n"
    if found.details:
        yield f"\n```\n{found.details.strip()}\n```\n"
    if found.causes is not None:
        yield f"\n{_causes_sentence(found.causes)}\n"
    if found.fallbacks:
        yield "\nNot all ran on the backend's device:\n"
        yield from (f"- {markdown_cell(fallback.sentence)}" for fallback in found.fallbacks)
    if isinstance(found.found, BaselineComparison):
        yield "\n" + reports.markdown(gate.report(found.found, f"Conformance: {found.against} → this run"), _ROWS)
    elif isinstance(found.found, Diff):
        yield "\n" + reports.markdown(changes.report(found.found, f"Conformance: {found.against} → this run"), _ROWS)
    yield from _failures(found)


def _causes_sentence(causes: CausesOfRuns) -> str:
    words = (
        f"Root causes: {causes.each[0]:,} drawn in this run, {causes.new:,} of them in no other; "
        f"{causes.together:,} drawn in the last {len(causes.each):,} runs together."
    )
    if causes.kept:
        words += f" Cases kept from earlier runs show {causes.kept:,} more in this run."
    if causes.estimated is not None:
        words += f" There are at least about {causes.estimated:,} (Chao2 estimate)."
    return words


def _parts(found: Digest) -> Iterator[str]:
    if len(found.there.parts) > 1:
        yield "| shard | state | operators | missing |"
        yield "| --- | --- | ---: | ---: |"
        for part in found.there.parts:
            cells = f"{part.index}/{part.count} | {part.state} | {len(part.operators):,}"
            yield f"| {cells} | {len(part.unfinished):,} |"


def _failures(found: Digest) -> Iterator[str]:
    if not found.groups:
        return
    yield f"\n### {count(len(found.groups), 'distinct failure')}, worst first{kinds_text(found.groups)}\n"
    yield "| outcome | fault | operators | cases | smallest |"
    yield "| --- | --- | --- | ---: | --- |"
    for group in found.groups[:_ROWS]:
        smallest = f"{group.minimal.minimal_id if group.minimal else group.case_id} {group.call}"
        cells = [
            f"{group.outcome} at {group.stage}",
            group.blame,
            listed(group.overloads, 3),
            f"{group.cases:,}",
            smallest,
        ]
        yield f"| {' | '.join(map(markdown_cell, cells))} |"
    if len(found.groups) > _ROWS:
        yield f"\nand {len(found.groups) - _ROWS:,} more"


def chat(found: Digest, link: str = "") -> dict[str, Any]:
    """Return the digest as the payload of an incoming webhook: Slack, Mattermost and Google Chat take ``text``.

    It ends with a link to the dashboard unless that is "".
    """
    return {"text": "\n".join(_chat(found, link))}


def _chat(found: Digest, link: str) -> Iterator[str]:
    yield plain(found.title, 320)
    for column in found.columns:
        whole, lacking = column.operators[Standing.WHOLE], len(found.there.unfinished)
        words = f"{whole:,} of {column.operators.total() + lacking:,} operators pass all their cases"
        yield f"{plain(column.name)}: {words}" + (f", {lacking:,} missing" if lacking else "")
    worse = _worse(found)
    yield from (f"• {plain(line, 200)}" for line in worse[:_LINES])
    if len(worse) > _LINES:
        yield f"and {len(worse) - _LINES:,} more"
    if link:
        yield link


def _worse(found: Digest) -> list[str]:
    """Return the worse findings, a line each."""
    if isinstance(found.found, BaselineComparison):
        return [
            f"{difference.where}: {difference.what}"
            for difference in found.found.differences
            if difference.finding.fails
        ]
    if isinstance(found.found, Diff):
        return [
            f"{line.overload}, {route_label(line.converter, line.backend)}: {number:,} {change}"
            for line in found.found.overloads
            for change, number in line.counts.items()
            if change.is_worse
        ]
    return []


def digest_data(found: Digest) -> dict[str, Any]:
    """Return the digest as plain data."""
    return {
        "headline": found.headline,
        "red": found.red,
        "run_id": found.info.run_id,
        "started": found.info.started,
        "complete": found.there.complete,
        "missing": found.there.summary,
        "shards": [
            {
                "index": part.index,
                "count": part.count,
                "state": str(part.state),
                "operators": len(part.operators),
                "unfinished": list(part.unfinished),
            }
            for part in found.there.parts
        ],
        "columns": [
            {
                "converter": column.converter,
                "backend": column.backend,
                "operators": {_KEYS[standing]: column.operators[standing] for standing in Standing},
                "passed": column.passed,
                "total": column.total,
                "ordinary": {"passed": column.ordinary_passed, "total": column.ordinary_total},
                "ordinary_by_use": column.weighted,
            }
            for column in found.columns
        ],
        "failures": len(found.groups),
        "onnx_operators": [reach.to_data() for reach in found.reach],
        "invalid_nodes": [refused.to_data() for refused in found.refusals],
        "passes": [reach.to_data() for reach in found.passes],
        "fallbacks": [fallback.to_data() for fallback in found.fallbacks],
        "causes": None if found.causes is None else asdict(found.causes),
        "real_use": [asdict(use) for use in found.use],
        "against": found.against,
        "worse": found.worse,
        "differences": found.differences,
    }


def _when(found: Digest) -> str:
    try:
        return f"{datetime.fromisoformat(found.info.started):%-d %B %Y %H:%M} UTC"
    except ValueError:
        return plain(found.info.started)


def _share(passed: int, total: int) -> str:
    return f"{passed:,} of {total:,} ({passed / total:.1%})" if total else "none"
