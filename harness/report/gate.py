"""What differs from the baseline, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from harness.baseline.file import Baseline
from harness.baseline.gate import Finding
from harness.report.plain import plain

_STYLES = {
    Finding.REGRESSION: "bold red",
    Finding.NEW_FAILURE: "bold red",
    Finding.DRIFT: "bold red",
    Finding.FLAKY: "yellow",
    Finding.IMPROVEMENT: "bold green",
}


def render(
    differences: Sequence[tuple[Finding, str]],
    baseline: Baseline | None,
    versions: Mapping[str, str],
    limit: int = 20,
) -> RenderableType:
    """The differences by kind, worst first, and whether the gate is open.

    Args:
        differences: (kind, one line) of each.
        baseline: That they are from; None for a new one.
        versions: Of the run.
        limit: Most lines of each kind.
    """
    return Group(*_lines(differences, baseline, versions, limit))


def _lines(
    differences: Sequence[tuple[Finding, str]],
    baseline: Baseline | None,
    versions: Mapping[str, str],
    limit: int,
) -> Iterator[RenderableType]:
    yield Text("Compared with the baseline", style="bold")
    recorded = baseline.versions if baseline else {}
    for name in sorted({*recorded, *versions}):
        before, after = recorded.get(name), versions.get(name)
        if before and after and before != after:
            yield Text(f"  made with {plain(name)} {plain(before)}, this run with {plain(after)}")
    for finding in Finding:
        lines = [words for kind, words in differences if kind is finding]
        if lines:
            yield Text(f"  {finding}: {len(lines)}", style=_STYLES.get(finding, "bold"))
        for words in lines[:limit]:
            yield Text(f"    {plain(words, 300)}")
        if len(lines) > limit:
            yield Text(f"    and {len(lines) - limit} more")
    worse = sum(kind.fails for kind, _ in differences)
    if worse:
        yield Text(f"  {worse} worse than expected: accept them with --update-baseline, or mend them")
    elif not differences:
        yield Text("  nothing differs", style="green")
