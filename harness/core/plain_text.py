"""Text that came from somewhere else, made safe to print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from rich.text import Text

#: ECMA-48: control sequences, strings up to their end, two or more characters, one that was cut short.
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[@-_])?")


def without_escapes(words: str) -> str:
    """`words` without the colours and other sequences that a terminal obeys."""
    return _ESCAPE_SEQUENCE.sub("", words) if "\x1b" in words else words


def plain(words: str, limit: int | None = None) -> str:
    """`words` on one line without anything that a terminal obeys, cut to `limit` characters."""
    words = without_escapes(words)
    words = " ".join("".join(c if c.isprintable() else " " for c in words).split())
    return words if limit is None or len(words) <= limit else words[: limit - 1] + "…"


def shown(words: str, style: str = "", limit: int | None = None) -> Text:
    """`words` as rich is to print them: never as markup."""
    return Text(plain(words, limit), style=style)


def markdown_cell(words: str) -> str:
    """`words` in a cell of a Markdown table, cut: neither a table nor HTML of their own."""
    return plain(words, 200).replace("|", "\\|").replace("<", "&lt;")


def listed(names: list[str] | tuple[str, ...], limit: int) -> str:
    """Names with commas between, the first `limit` of them."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def count(number: int, noun: str) -> str:
    """``1 case``, ``1,234 cases``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def describe_error(error: BaseException) -> str:
    """The error's type and words, its causes' too, innermost last; at most a few thousand characters."""
    said = (without_escapes(f"{type(e).__name__}: {e}") for e in islice(with_causes(error), 4))
    return "\ncaused by ".join(words[:2000] for words in said)


def with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what caused it, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def one_line(error: BaseException) -> str:
    """The error's words on one line."""
    return " ".join(str(error).split())


def first_line(error: BaseException) -> str:
    """The first line of `describe_error`, at most 160 characters."""
    return describe_error(error).partition("\n")[0][:160]
