"""JSON inside a script that a page loads: how data reach a page that is opened from a file.

A page that comes from a file may load scripts from its directory and nothing else, so each piece of data is a
script of one call. Its argument is JSON in a string: parsed as JSON it is data whatever its content, while an
object literal would take a key ``__proto__`` for an instruction.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from harness.record import layout
from harness.record.layout import ResultsError, reason

#: Characters in a string literal that a script, or the HTML parser around one, would take for something else.
_ESCAPES = (
    ("\\", "\\\\"),
    ("'", "\\'"),
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("&", "\\u0026"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
    ("\r", "\\r"),
    ("\n", "\\n"),
)


def script(name: str, data: Any) -> str:
    """Return the script that hands `data` to the page under `name`."""
    return f"conformanceData({_literal(name)}, {_literal(compact(data))});\n"


def write_script(directory: Path, name: str, data: Any) -> int:
    """Write ``directory/data/NAME.js``; its size in bytes."""
    return write_text(directory / "data" / f"{name}.js", script(name, data))


def write_text(path: Path, text: str) -> int:
    """Write a file of the site at once, making its directory; its size in bytes.

    Raises:
        ResultsError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}; choose another place with --out") from None
    # Half a surrogate pair, which a dying process may have printed, is not text in any file.
    content = text.encode("utf-8", errors="replace")
    with layout.replacing(path) as temporary:
        temporary.write_bytes(content)
    return len(content)


def compact(data: Any) -> str:
    """JSON without blanks; keys keep their order.

    Raises:
        ValueError: a number that JSON does not have; `few` takes these out.
    """
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def few(value: float | None) -> float | None:
    """Return a measured number with six digits, as the page shows and compares it; None for any other value."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def endless(value: float | None) -> float | None:
    """Return an error, which is never negative, as `few` does; −1 for an infinite one."""
    return -1 if value == math.inf else few(value)


def _literal(text: str) -> str:
    for character, escaped in _ESCAPES:
        text = text.replace(character, escaped)
    return f"'{text}'"
