"""Trust in a fast lane within one process.

A fast lane exports many calls for the price of one public export by doing parts of the exporter's work itself. A
mistake there would look like the converter's. So it is never trusted alone:

- a failure that is new for an operator is confirmed by a public export before it is recorded;
- a share of the successful exports is compared with the public graph;
- an exception of its own ends its use in the process.
"""

from __future__ import annotations

import json
import zlib
from functools import cache
from importlib import resources

#: One successful export in so many is compared with the public graph.
AUDIT_INTERVAL = 500
#: The same for versions of the exporter whose failures in a whole sweep have been confirmed.
CONFIRMED_AUDIT_INTERVAL = 5_000
_CONFIRMED = "confirmed.json"


class Trust:
    """The record of trust in the fast lane of one converter.

    Args:
        converter: Its name, for notes.
        version: The exporting packages with versions. Failures that public exports of this very version confirmed in
            whole sweeps are known (`confirmed.json`, written by `ci/confirm_failures`) and are not confirmed again.
    """

    def __init__(self, converter: str, version: str) -> None:
        self._converter = converter
        known = _confirmed().get(version)
        self._confirmed = {(name, code) for name, codes in (known or {}).items() for code in codes}
        self._interval = AUDIT_INTERVAL if known is None else CONFIRMED_AUDIT_INTERVAL
        self._ended: set[str] = set()
        #: Messages for the user, a line each.
        self.notes: list[str] = []
        #: Whether the fast lane itself raised, so that this process no longer uses it.
        self.ended = False

    def covers(self, overload: str) -> bool:
        """Whether exports of an operator go through the fast lane."""
        return not self.ended and overload not in self._ended

    def end(self, reason: str) -> None:
        """No longer use the fast lane in this process, since it raised an exception of its own."""
        self.ended = True
        self.notes.append(
            f"{self._converter}: the fast export failed by itself ({reason}); "
            "from there on a process exports with the plain public call, which is slower"
        )

    def end_for(self, overload: str, difference: str) -> None:
        """No longer use the fast lane for an operator, since a public export differs."""
        self._ended.add(overload)
        self.notes.append(
            f"{self._converter}: the fast export of {overload} differs from the public one ({difference}); "
            "its cases are exported with the plain public call"
        )

    def is_confirmed(self, overload: str, signature: str) -> bool:
        """Whether a public export of the operator is known to fail with this signature."""
        return (overload, signature_code(signature)) in self._confirmed

    def confirm(self, overload: str, signature: str) -> None:
        """Note that a public export of the operator fails with this signature."""
        self._confirmed.add((overload, signature_code(signature)))

    def is_audited(self, structure: str) -> bool:
        """Whether a structure, as text, is one of those whose graph is compared with the public one: the same
        structures in every run."""
        return zlib.crc32(structure.encode()) % self._interval == 0


def signature_code(signature: str) -> str:
    """Return a short name of a failure's signature: eight hexadecimal digits."""
    return f"{zlib.crc32(signature.encode()):08x}"


@cache
def _confirmed() -> dict[str, dict[str, list[str]]]:
    """Version → overload → codes of signatures."""
    found: dict[str, dict[str, list[str]]] = json.loads(
        resources.files("harness.convert.fast").joinpath(_CONFIRMED).read_text(encoding="utf-8")
    )
    return found
