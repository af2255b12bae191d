"""The distinct failures of a run, worst first, for a terminal or as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.causes.groups import FailureGroup, GroupKind
from harness.causes.inaccuracies import Inaccuracy
from harness.causes.known_issues import NoLongerFailing
from harness.compare.faults import Fault
from harness.compare.verdict import FAILURES, SPEC
from harness.core.text import count, listed, markdown_cell, plain, shown
from harness.present.evidence import SPEECHLESS, fault_text, place_text


def render(groups: Sequence[FailureGroup], limit: int | None = 10) -> RenderableType:
    """Render the groups for a terminal, worst first, each with its distinguishing facts and its smallest case.

    No more than `limit` are shown; all for None.
    """
    return Group(*_blocks(groups, limit))


def render_first(groups: Sequence[FailureGroup], limit: int = 10) -> RenderableType:
    """Render the failures that most models meet for the end of a run: two lines each, and no more than `limit`."""
    return Group(*_first(groups, limit))


def _first(groups: Sequence[FailureGroup], limit: int) -> Iterator[RenderableType]:
    defects, left_open = _apart(groups)
    if defects:
        yield Text(f"{count(len(defects), 'distinct failure')}{kinds_text(defects)}", style="bold")
    has_gap = any(group.kind is GroupKind.GAP for group in defects)
    # A run ends on one screen, so these share a line.
    notes = ("declared gap: reported as unsupported" if has_gap else "", _open_text(left_open))
    if any(notes):
        yield Text(f"({'; '.join(filter(None, notes))})", style="dim")
    if not defects:
        return
    yield Text("First those that models meet, by use and by how silent they are:", style="bold")
    for number, group in enumerate(defects[:limit], start=1):
        place = place_text(group.cause)
        symptom = f": {group.signature}" if group.signature else ""
        wrong = f" {fault_text(group.cause)}" if group.cause.fault not in ("", Fault.FAILS) else symptom
        use = f"{count(group.callers, 'model')}, " if group.callers else ""
        cases = f"{use}{count(group.cases, 'case')}"
        yield shown(f"#{number} {group.outcome} ({cases}): {place}{wrong}", limit=99)
        # The smallest call may be one that no model makes.
        usual = group.usual
        which = group.minimal.minimal_id if usual is group and group.minimal else usual.case_id
        yield Text.assemble("   ", shown(f"{which} {usual.call}", style="cyan", limit=96))


#: Printed for a run whose failures have no diagnosis.
EARLIER = "An earlier version recorded this run without root causes: failures with the same message are one entry."


def _blocks(groups: Sequence[FailureGroup], limit: int | None) -> Iterator[RenderableType]:
    if any(not group.cause.fault for group in groups):
        yield Text(EARLIER, style="yellow")
    defects, left_open = _apart(groups)
    if defects:
        yield Text(f"{count(len(defects), 'distinct failure')}, worst first{kinds_text(defects)}", style="bold")
    yield from _numbered(defects, limit, start=1)
    if left_open:
        yield Text(_open_text(left_open), style="bold")
    shown_defects = len(defects) if limit is None else min(limit, len(defects))
    yield from _numbered(left_open, None if limit is None else limit - shown_defects, start=len(defects) + 1)


def _apart(groups: Sequence[FailureGroup]) -> tuple[list[FailureGroup], list[FailureGroup]]:
    """Return the distinct failures, and the differences that are none: a specification leaves them open."""
    return [group for group in groups if group.blame != SPEC], [group for group in groups if group.blame == SPEC]


def _open_text(left_open: Sequence[FailureGroup]) -> str:
    if not left_open:
        return ""
    return f"{count(len(left_open), 'difference')} left open by the specification: not a defect"


#: Characters of a call in a table.
_CALL = 160


def markdown(groups: Sequence[FailureGroup], limit: int | None = None) -> str:
    """Return the groups as Markdown, worst first, a line each; no more than `limit`, all for None.

    What a specification leaves open has a table of its own.
    """
    defects, left_open = _apart(groups)
    rest = None if limit is None else max(limit - len(defects), 0)
    parts = []
    if defects:
        title = f"{count(len(defects), 'distinct failure')}{kinds_text(defects)}"
        parts.append(f"{title}\n\n{_table(defects[:limit], start=1)}")
    if left_open[:rest]:
        parts.append(f"{_open_text(left_open)}\n\n{_table(left_open[:rest], start=len(defects) + 1)}")
    return "\n".join(parts)


def _table(groups: Sequence[FailureGroup], start: int) -> str:
    heads = ("", "place", "what is wrong", "ends", "operators", "dtypes", "cases", "models", "smallest case")
    lines = [f"| {' | '.join(heads)} |", f"| ---: |{' --- |' * 5} ---: | ---: | --- |"]
    for number, group in enumerate(groups, start=start):
        path = listed(group.converters, 3) + (f" → {listed(group.backends, 4)}" if group.backends else "")
        ends = f"{group.outcome} at {group.stage}, {path}"
        counts = str(group.cases), str(group.callers or "")
        call = group.call if len(group.call) <= _CALL else f"{group.call[: _CALL - 1]}…"
        names = listed(group.overloads, 4), listed(group.dtypes, 6)
        cells = (str(number), place_text(group.cause), fault_text(group.cause), ends, *names, *counts)
        links = "".join(f" [known]({issue.link})" for issue in group.known[:3])
        smallest = f"`{group.case_id}` {markdown_cell(call)}{links}"
        lines.append(f"| {' | '.join([*map(markdown_cell, cells), smallest])} |")
    return "".join(f"{line}\n" for line in lines)


def kinds_text(groups: Sequence[FailureGroup]) -> str:
    """Return ``: 670 defects, 389 declared gaps, 6 undecided``, for a heading; "" if all are of one kind."""
    kinds = Counter(group.kind for group in groups)
    if len(kinds) < 2:
        return ""
    named = (count(kinds[kind], str(kind)) for kind in (GroupKind.DEFECT, GroupKind.GAP) if kinds[kind])
    undecided = kinds[GroupKind.UNDECIDED]
    return f": {', '.join((*named, *((f'{undecided:,} undecided',) if undecided else ())))}"


def _numbered(groups: Sequence[FailureGroup], limit: int | None, start: int) -> Iterator[RenderableType]:
    for number, group in enumerate(groups[:limit], start=start):
        yield from _block(number, group)
    hidden = Counter(group.outcome for group in groups[len(groups) if limit is None else limit :])
    if hidden:
        kinds = ", ".join(f"{hidden[outcome]} {outcome}" for outcome in FAILURES if hidden[outcome])
        yield Text(f"and {hidden.total()} more: {kinds}", style="bold")


def _block(number: int, group: FailureGroup) -> Iterator[RenderableType]:
    path = listed(group.converters, 3)
    if group.backends:
        path += f" → {listed(group.backends, 4)}"
    more = "" if group.blame in ("", "unknown") else f", blame: {plain(group.cause.owner)}"
    took_part = group.rule and group.rule not in group.cause.owner
    more += f", with the rule {plain(group.rule)}" if took_part else ""
    yield Text.assemble(
        f"{number:>3} ",
        (str(group.outcome), "bold red"),
        f" at {group.stage}, {plain(path)}, {count(group.cases, 'case')}",
        f" ({group.ordinary_cases:,} ordinary), " if group.ordinary else ", ",
        plain(listed(group.dtypes, 6)),
        f", called by {count(group.callers, 'model')}" if group.callers else "",
        more,
    )
    message = group.message if group.outcome in SPEECHLESS else group.signature
    wrong = f" {fault_text(group.cause)}" if group.cause.fault not in ("", Fault.FAILS) else ""
    place = place_text(group.cause, group.file.rpartition("/")[2])
    details: list[RenderableType] = [
        shown(f"{place}{wrong}", style="bold", limit=240),
        shown(f"{count(len(group.overloads), 'operator')}: {listed(group.overloads, 4)}", style="cyan"),
        shown(message or group.signature or group.message, limit=240),
    ]
    which = f"minimal: {group.minimal.minimal_id}" if group.minimal else f"smallest: {group.case_id}"
    details += [shown(f"{which} {group.call}", limit=400)]
    if group.minimal and group.minimal.matters:
        details += [shown("; ".join(group.minimal.matters), limit=240)]
    # A link is there to be clicked or copied.
    links = (f"known: {plain(issue.link)}" for issue in group.known[:3])
    details += [Text(link, no_wrap=True, overflow="ignore") for link in links]
    yield Padding(Group(*details), (0, 0, 0, 4), expand=False)


def render_inaccuracies(found: Sequence[Inaccuracy], limit: int | None = 10) -> RenderableType:
    """Render the kernels that are less exact than PyTorch, the largest error first, for a terminal."""
    lines = [Text(f"{count(len(found), 'inaccuracy', 'inaccuracies')}, not counted as failures", style="bold")]
    for one in found[:limit]:
        size = f"off by up to {one.largest_error:.2g} ({one.largest_ulps:,.3g} ULP)"
        lines.append(
            Text(
                f"  {one.component}: {one.place}, {count(one.cases, 'case')}, {listed(one.dtypes, 4)}: {size}; "
                f"largest: {one.case_id}"
            )
        )
    return Group(*lines)


def render_no_longer_failing(gone: Sequence[NoLongerFailing]) -> RenderableType:
    """Render the known issues that no longer fail, for a terminal."""
    lines = [Text("Listed as known, and no longer failing:", style="bold green")]
    for entry in gone:
        passed = f"{plain(listed(entry.issue.overload, 3))}: {count(entry.passed, 'case')} of the kind passed"
        lines += [Text(f"  {passed}. {plain(entry.issue.note)}"), Text(f"    {plain(entry.issue.link)}")]
    return Group(*lines)
