"""A digest as Markdown, as a chat message and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from harness.core import count, listed, markdown_cell, plain
from harness.gate import BaselineComparison, Diff
from harness.present import gate_report as gate, run_changes as changes, weighted_rates
from harness.present.run_digest import Digest, Standing
from harness.record import RunInfo

#: Most rows of a table of the job page, and lines of each kind in a chat, where a message is read on a phone.
_ROWS = 20
_LINES = 5
#: What programs read does not change with the words for people.
_KEYS = {
    Standing.WHOLE: "pass wholly",
    Standing.PART: "in part",
    Standing.NONE: "not at all",
    Standing.UNJUDGED: "not judged",
}


def markdown(found: Digest, link: str = "") -> str:
    """The digest for the page of a CI job, with a link to the dashboard unless that is ""."""
    return "\n".join(_markdown(found, link)) + "\n"


def _markdown(found: Digest, link: str) -> Iterator[str]:
    yield f"## Conformance is {markdown_cell(found.headline)}"
    yield ""
    yield f"Run `{plain(found.info.run_id)}`, {_when(found)}, seed {found.info.seed}." + (
        f" [Dashboard]({link})" if link else ""
    )
    what, *why = reuse_lines(found.info) or [""]
    if what:
        yield f"\n{markdown_cell(what[0].upper() + what[1:])}."
    yield from (f"- {markdown_cell(line)}" for line in why)
    if not found.there.complete:
        yield f"\n> **Incomplete:** {markdown_cell(found.there.said)}. None of that counts as passing.\n"
        yield from _parts(found)
    yield ""
    head = [*Standing, "missing", "ordinary cases that pass", "all cases", "ordinary, by use"]
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
        weighted = "" if column.weighted is None else weighted_rates.percent_of(column.weighted)
        cells += [ordinary, _share(column.passed, column.total), weighted]
        yield f"| {' | '.join(cells)} |"
    if any(column.weighted is not None for column in found.columns):
        yield "\nBy use: an operator in a dtype counts as often as models call it so.\n"
    if found.fallbacks:
        yield "\nNot all ran on the backend's device:\n"
        yield from (f"- {markdown_cell(one.sentence)}" for one in found.fallbacks)
    if isinstance(found.found, BaselineComparison):
        yield "\n" + gate.markdown(found.found, before=found.against, after="this run", limit=_ROWS)
    elif isinstance(found.found, Diff):
        yield "\n" + changes.markdown(found.found, before=found.against, after="this run", limit=_ROWS)
    yield from _failures(found)


def reuse_lines(info: RunInfo) -> list[str]:
    """What to say at the end of a run; empty where nothing was to be reused."""
    report: Any = info.reused
    if not report:
        return []
    runs = report["runs"]
    words = f"reused: {report['verdicts']:,} of {count(report['of'], 'verdict')}"
    if runs:
        newest = max(runs)
        more = f" and {count(len(runs) - 1, 'earlier run')}" if len(runs) > 1 else ""
        words += f", found in {newest}{more}"
    return [words, *(f"  {plain(note, 300)}" for note in report["notes"])]


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
    yield f"\n### {count(len(found.groups), 'distinct failure')}, worst first\n"
    yield "| outcome | whose | operators | cases | smallest |"
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
    """The digest as the payload of an incoming webhook: Slack, Mattermost and Google Chat take ``text``.

    It ends with a link to the dashboard unless that is "".
    """
    return {"text": "\n".join(_chat(found, link))}


def _chat(found: Digest, link: str) -> Iterator[str]:
    yield f"Conformance is {plain(found.headline, 300)}"
    for column in found.columns:
        whole, lacking = column.operators[Standing.WHOLE], len(found.there.unfinished)
        words = f"no failure found in {whole:,} of {column.operators.total() + lacking:,} operators"
        yield f"{plain(column.name)}: {words}" + (f", {lacking:,} missing" if lacking else "")
    worse = _worse(found)
    yield from (f"• {plain(line, 200)}" for line in worse[:_LINES])
    if len(worse) > _LINES:
        yield f"and {len(worse) - _LINES:,} more"
    if link:
        yield link


def _worse(found: Digest) -> list[str]:
    """What is worse, a line each."""
    if isinstance(found.found, BaselineComparison):
        return [f"{one.where}: {one.what}" for one in found.found.differences if one.finding.fails]
    if isinstance(found.found, Diff):
        return [
            f"{line.overload}, {line.converter} → {line.backend}: {number:,} {change}"
            for line in found.found.overloads
            for change, number in line.counts.items()
            if change.is_worse
        ]
    return []


def as_json(found: Digest) -> dict[str, Any]:
    """The digest as plain data."""
    return {
        "headline": found.headline,
        "red": found.red,
        "run_id": found.info.run_id,
        "started": found.info.started,
        "complete": found.there.complete,
        "missing": found.there.said,
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
        "fallbacks": [one.to_data() for one in found.fallbacks],
        "reused": found.info.reused,
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
