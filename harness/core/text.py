"""Text for people: lists and counts, errors in words, and foreign text made safe to print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from rich.text import Text

#: ECMA-48: control sequences, strings up to their end, two or more characters, one that was cut short.
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[@-_])?")


def strip_escapes(text: str) -> str:
    """Remove colours and other sequences that a terminal interprets."""
    return _ESCAPE_SEQUENCE.sub("", text) if "\x1b" in text else text


def plain(text: str, limit: int | None = None) -> str:
    """Return `text` on one line, without anything that a terminal interprets, cut to `limit` characters."""
    text = strip_escapes(text)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def shown(text: str, style: str = "", limit: int | None = None) -> Text:
    """Return `text` for rich to print verbatim: nothing in it counts as markup."""
    return Text(plain(text, limit), style=style)


def markdown_cell(text: str) -> str:
    """Return `text` for a cell of a Markdown table, shortened, with table and HTML syntax escaped."""
    return plain(text, 200).replace("|", "\\|").replace("<", "&lt;")


def listed(names: list[str] | tuple[str, ...], limit: int) -> str:
    """Join the first `limit` names with commas and say how many follow."""
    remainder = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + remainder


def count(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 case`` or ``1,234 cases``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or f'{noun}s'}"


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error and of up to three causes, innermost last, 2,000 characters each."""
    messages = (strip_escapes(f"{type(e).__name__}: {e}") for e in islice(error_chain(error), 4))
    return "\ncaused by ".join(message[:2000] for message in messages)


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause's cause, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def one_line(error: BaseException) -> str:
    """Return the error's message on one line."""
    return " ".join(str(error).split())


def first_line(error: BaseException) -> str:
    """Return the first line of `describe_error`, at most 160 characters."""
    return describe_error(error).partition("\n")[0][:160]
