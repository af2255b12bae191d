"""Text and JSON that is kept, sent to another process, or printed.

Text that came from somewhere else, made safe to print.

JSON documents: what is kept, sent to another process, or printed.

Their types are dataclasses. `msgspec` makes plain data of them and checks what is read. The text itself is
the standard library's: committed files keep their bytes, and it writes the infinities that JSON lacks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

import msgspec
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


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 case``, ``1,234 cases``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or f'{noun}s'}"


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


_Document = TypeVar("_Document")


def json_text(data: Any, indent: int = 2) -> str:
    """A JSON document for people: keys keep their order; NaN and infinities, which JSON lacks, are null."""
    return json.dumps(_finite(data), indent=indent, ensure_ascii=False, allow_nan=False)


def as_data(document: Any) -> Any:
    """Plain JSON data of a document; fields keep their order."""
    return msgspec.to_builtins(document, str_keys=True, enc_hook=_plain)


def as_json(document: Any, indent: int | None = None) -> str:
    """A document as JSON text without a line end, on one line unless `indent` is given."""
    return json.dumps(as_data(document), indent=indent)


def of_data(kind: type[_Document], data: Any) -> _Document:
    """The document that plain data hold; fields that a later version added are ignored.

    Raises:
        ValueError: they hold something else; the message says what is wrong, and where.
    """
    try:
        return msgspec.convert(data, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(re.sub(r"^Object missing required field", "no", str(error))) from None


def of_json(kind: type[_Document], text: str | bytes) -> _Document:
    """As `of_data`, from JSON text; raises as that does."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    return of_data(kind, data)


def _plain(value: object) -> object:
    """A text or number of a type of its own, such as ``torch.__version__``, as what it is."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{type(value).__name__} is not JSON data")


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
