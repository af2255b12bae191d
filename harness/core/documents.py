"""JSON documents: what is kept, sent to another process, or printed.

Their types are dataclasses. `msgspec` makes plain data of them and checks what is read. The text itself is
the standard library's: committed files keep their bytes, and it writes the infinities that JSON lacks.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, TypeVar

import msgspec

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
    raise TypeError(f"{type(value).__name__} is no JSON data")


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
