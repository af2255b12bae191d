"""A report: notes, versions, and findings under headings, rendered for a terminal, as Markdown and as a page.

The differences between two runs, or from a baseline or before an upgrade, are described once, in a `Report`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape

from rich.console import Group, RenderableType
from rich.text import Text

from harness.core.text import count, markdown_cell, plain


@dataclass(frozen=True)
class Note:
    """A sentence without a full stop, and its style in a terminal."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Row:
    """A finding.

    Attributes:
        where: The operator, converter and backend, or a name.
        what: The difference.
        why: The versions or rules that explain it; "" if none do.
        number: Number of cases; None for a single finding.
    """

    where: str
    what: str
    why: str = ""
    number: int | None = None


@dataclass(frozen=True, kw_only=True)
class Section:
    """Findings of one kind.

    Attributes:
        title: The kind of the findings, and their number.
        rows: Findings, worst first; a rendering shows some of them.
        noun: Noun for the findings that are not shown.
    """

    title: str
    rows: tuple[Row, ...] = ()
    style: str = "bold"
    noun: str = "finding"


@dataclass(frozen=True, kw_only=True)
class Report:
    """Notes, the two sides of a comparison, findings, and advice.

    Attributes:
        title: The two sides of the comparison.
        before: Notes above the findings.
        differences: Versions and options: name → (before, after).
        after: Notes below the findings.
    """

    title: str
    before: tuple[Note, ...] = ()
    differences: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    after: tuple[Note, ...] = ()


def render(report: Report, limit: int = 20) -> RenderableType:
    """Render the report for a terminal, with at most `limit` rows of each section."""
    return Group(*_terminal(report, limit))


def _terminal(report: Report, limit: int) -> Iterator[Text]:
    first, *others = report.before or (Note(""),)
    if report.title:
        yield Text(f"{plain(report.title)}: {plain(first.text)}" if first.text else plain(report.title), style="bold")
    for name, (before, after) in report.differences.items():
        yield Text(f"  {plain(name)}: {plain(before) or 'absent'} → {plain(after) or 'absent'}")
    yield from (Text(f"  {plain(note.text)}", style=note.style) for note in others)
    for section in report.sections:
        yield Text(f"  {plain(section.title)}", style=section.style)
        for row in section.rows[:limit]:
            number = "" if row.number is None else f"{row.number:>4} "
            yield Text(f"    {number}{plain(row.where, 120)}: {plain(row.what, 300)}")
            if row.why:
                yield Text(f"      [{plain(row.why, 600)}]")
        if len(section.rows) > limit:
            yield Text(f"    and {count(len(section.rows) - limit, f'more {section.noun}')}")
    yield from (Text(f"  {plain(note.text)}", style=note.style) for note in report.after)


def markdown(report: Report, limit: int = 50) -> str:
    """Return the report for a pull request, with at most `limit` rows of each section.

    Rows are list items, which a phone wraps, and findings that nobody has to act on are folded.
    """
    return "\n".join(_markdown(report, limit)) + "\n"


def _markdown(report: Report, limit: int) -> Iterator[str]:
    yield from _markdown_head(report)
    for section in report.sections:
        title = markdown_cell(section.title[:1].upper() + section.title[1:])
        is_folded = bool(section.rows) and "red" not in section.style
        yield from ("", f"<details><summary>{title}</summary>" if is_folded else f"#### {title}", "")
        for row in section.rows[:limit]:
            cases = f" ({count(row.number, 'case')})" if row.number else ""
            parts = (f"- **{markdown_cell(row.where)}**{cases}", markdown_cell(row.what), markdown_cell(row.why))
            yield "<br>".join(filter(None, parts))
        if len(section.rows) > limit:
            yield from ("", f"and {count(len(section.rows) - limit, f'more {section.noun}')}")
        if is_folded:
            yield from ("", "</details>")


def _markdown_head(report: Report) -> Iterator[str]:
    """Yield the title, the notes and the versions."""
    if report.title:
        yield f"### {markdown_cell(report.title)}"
    for note in sorted((*report.before, *report.after), key=lambda note: "red" not in note.style):
        sentence = f"{note.text[:1].upper()}{note.text[1:]}."
        yield from ("", f"**{markdown_cell(sentence)}**" if "red" in note.style else markdown_cell(sentence))
    if report.differences:
        yield from ("", "| | before | after |", "| --- | --- | --- |")
        for name, (before, after) in report.differences.items():
            yield f"| {' | '.join(map(markdown_cell, (name, before, after)))} |"


def markdown_table(report: Report) -> str:
    """Return the report with a table of each section, for a document."""
    lines = list(_markdown_head(report))
    for section in report.sections:
        lines += ["", "| where | what | why |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(map(markdown_cell, (row.where, row.what, row.why)))} |" for row in section.rows]
    return "\n".join(lines) + "\n"


#: As the dashboard looks, in the colours that the reader's system prefers.
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --red: #c62828; --green: #2e7d32; --yellow: #a66300; }
@media (prefers-color-scheme: dark) { :root { --red: #ff8a80; --green: #81c784; --yellow: #ffcc80; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top; padding: .4rem .6rem;
border-top: 1px solid var(--line); overflow-wrap: anywhere; } td:first-child { width: 32%; } .why { opacity: .8; }
.red { color: var(--red); font-weight: 600; } .green { color: var(--green); font-weight: 600; }
.yellow { color: var(--yellow); font-weight: 600; }
"""


def page(report: Report, date: str, versions: Mapping[str, str]) -> str:
    """Return the report as a page of its own, with all rows: one file that needs no other.

    Args:
        report: The report.
        date: Date of the findings, as ISO 8601.
        versions: Name → version of the packages that took part.
    """
    body = "\n".join(_html(report))
    about = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(report.title)}</title>\n'
        f'<style>{_STYLE}</style>\n{body}\n<p class="why">{escape(date[:10])}: {escape(about)}</p>\n</html>\n'
    )


def _html(report: Report) -> Iterator[str]:
    yield f"<h1>{escape(report.title)}</h1>"
    yield from (f'<p class="{escape(note.style)}">{_sentence(note)}</p>' for note in report.before)
    if report.differences:
        yield "<table><tr><th></th><th>before</th><th>after</th></tr>"
        for name, (before, after) in report.differences.items():
            yield f"<tr><td>{escape(name)}</td><td>{escape(before)}</td><td>{escape(after)}</td></tr>"
        yield "</table>"
    for section in report.sections:
        yield f"<h2>{escape(section.title[:1].upper() + section.title[1:])}</h2>"
        if section.rows:
            yield "<table>"
            yield from map(_html_row, section.rows)
            yield "</table>"
    yield from (f'<p class="{escape(note.style)}">{_sentence(note)}</p>' for note in report.after)


def _sentence(note: Note) -> str:
    return escape(f"{note.text[:1].upper()}{note.text[1:]}")


def _html_row(row: Row) -> str:
    number = "" if row.number is None else f"{row.number} "
    why = f'<div class="why">{escape(row.why)}</div>' if row.why else ""
    return f"<tr><td>{number}{escape(row.where)}</td><td>{escape(row.what)}{why}</td></tr>"
