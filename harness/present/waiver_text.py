"""The use of waivers in a run, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from harness.core.text import count, listed
from harness.gate.waivers import Waiver, WaiverUse

#: Names of a waiver's operators.
_SHOWN = 3


def waiver_lines(uses: Sequence[WaiverUse]) -> Iterator[str]:
    """Yield how many failures were waived, and the waivers that have expired or that no failure met."""
    held = [use for use in uses if use.cases and not use.is_expired]
    if held:
        cases = sum(use.cases for use in held)
        yield f"waived: {count(cases, 'failing case')}, by {count(len(held), 'waiver')}"
    for use in uses:
        if use.is_expired:
            counted = f"; {count(use.cases, 'failing case')} of it count" if use.cases else ""
            yield f"waiver expired on {use.waiver.until}: {waiver_name(use.waiver)}{counted}"
        elif use.is_unused:
            yield f"waiver without use, since nothing fails so: {waiver_name(use.waiver)}"


def waiver_data(uses: Sequence[WaiverUse]) -> list[dict[str, Any]]:
    """Return the use of each waiver as plain data."""
    return [
        {
            "overload": list(use.waiver.overload),
            "reason": use.waiver.reason,
            "link": use.waiver.link,
            "until": use.waiver.until.isoformat() if use.waiver.until else None,
            "cases": use.cases,
            "expired": use.is_expired,
            "unused": use.is_unused,
        }
        for use in uses
    ]


def waiver_name(waiver: Waiver) -> str:
    """Return a waiver's operators, or its words about the failure, with its reason."""
    where = listed(waiver.overload, _SHOWN) or waiver.signature or waiver.pattern or waiver.message or waiver.place
    return f"{where} ({waiver.reason.rstrip('.')})"
