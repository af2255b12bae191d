"""JSON documents: data that is kept, sent to another process, or printed.

Their types are dataclasses; `msgspec` converts them to plain data and checks what is read. The text is written by the
standard library, which keeps committed files byte for byte and writes the infinities that JSON lacks.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, TypeVar

import msgspec

_Document = TypeVar("_Document")


def json_text(data: Any, indent: int = 2) -> str:
    """Return a JSON document for people: keys keep their order; NaN and infinities become null."""
    return json.dumps(_finite(data), indent=indent, ensure_ascii=False, allow_nan=False)


def to_data(document: Any) -> Any:
    """Return the plain JSON data of a document; fields keep their order."""
    return msgspec.to_builtins(document, str_keys=True, enc_hook=_plain)


def to_json(document: Any, indent: int | None = None) -> str:
    """Return a document as JSON text, on one line unless `indent` is given, without a final line end."""
    return json.dumps(to_data(document), indent=indent)


def parse_data(kind: type[_Document], data: Any) -> _Document:
    """Return the document of a type that plain data hold; unknown fields, as of a later version, are ignored.

    Raises:
        ValueError: The data do not fit the type; the message says where.
    """
    try:
        return msgspec.convert(data, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(re.sub(r"^Object missing required field", "no", str(error))) from None


def parse_json(kind: type[_Document], text: str | bytes) -> _Document:
    """Return the document of a type that JSON text holds.

    Raises:
        ValueError: The text is not JSON, or does not fit the type.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    return parse_data(kind, data)


def _plain(value: object) -> object:
    """Convert an instance of a subclass of str, int or float, such as ``torch.__version__``, to the plain type."""
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
