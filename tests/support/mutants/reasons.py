"""Why mutations survive: `survivors.toml`, by the id of the mutation."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("survivors.toml")
#: No input can show it; some input could, but none gets there; some drawn case should have shown it.
KINDS = ("equivalent", "out of reach", "miss")


@dataclass(frozen=True)
class Reason:
    """Why no case notices a mutation.

    Attributes:
        kind: One of `KINDS`.
    """

    kind: str
    why: str


def reasons() -> dict[str, Reason]:
    """Those that are known."""
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8")).get("survivor", [])
    found = {entry["mutation"]: Reason(entry["kind"], entry["why"].strip()) for entry in entries}
    for name, reason in found.items():
        if reason.kind not in KINDS or not reason.why:
            raise ValueError(f"survivors.toml: {name}: a kind of {', '.join(KINDS)}, and why")
    return found
