"""A share of operators as an SVG badge, for a README."""

from __future__ import annotations

import re
from collections.abc import Collection
from xml.sax.saxutils import escape, quoteattr

#: Width of a character of 11 px Verdana, on average, in pixels.
_CHARACTER = 6.6
_PADDING = 6
#: Fill by share that passes, from the top; each with white text on it has a contrast of 4.5 or more.
_FILLS = ((0.9, "#1a6fb3"), (0.5, "#50678a"), (0.0, "#a8480f"))
_GREY = "#5f6670"


def badge(label: str, passing: int, total: int, note: str = "") -> str:
    """An SVG image: `label`, and how many of how many operators pass all their cases.

    Args:
        label: What it is about: ``dynamo → ort-cpu``.
        note: Said after the numbers: ``partial``.
    """
    value = f"{passing:,}/{total:,} operators" if total else "no operators"
    value += f" · {note}" if note else ""
    share = passing / total if total else None
    fill = _GREY if share is None or note else next(f for least, f in _FILLS if share >= least)
    left, right = (round(len(text) * _CHARACTER) + 2 * _PADDING for text in (label, value))
    title = quoteattr(f"{label}: {value}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f"aria-label={title}><title>{escape(f'{label}: {value}')}</title>"
        f'<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
        '<g clip-path="url(#r)">'
        f'<rect width="{left}" height="20" fill="#3d434b"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{fill}"/></g>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14" textLength="{left - 2 * _PADDING}">{escape(label)}</text>'
        f'<text x="{left + right / 2}" y="14" textLength="{right - 2 * _PADDING}">{escape(value)}</text>'
        "</g></svg>\n"
    )


def file_name(converter: str, backend: str, taken: Collection[str] = ()) -> str:
    """A file's name for a column that no file system or address minds; unlike those that are `taken`."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{converter}--{backend}")[:80].strip(".") or "column"
    name, number = f"{base}.svg", 2
    while name in taken:
        name, number = f"{base}-{number}.svg", number + 1
    return name
