"""Why something optional cannot take part here, said so that a person can act on it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """A converter or backend that cannot run here, in one line each.

    Attributes:
        reason: What is missing, e.g. ``onnxruntime is not installed``.
        install: What the user types to get it, e.g. ``pip install '.[openvino]'``.
    """

    reason: str
    install: str


class UnknownName(LookupError):
    """A converter, backend or dtype that nobody registered; the message names near ones.

    Args:
        kind: What was asked for, as in ``--backend``.
        name: The user's word.
        known: What there is.
    """

    def __init__(self, kind: str, name: str, known: Sequence[str]) -> None:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
        super().__init__(f"--{kind} {name}: no such {kind}; {hint}")


def load_entry_points(group: str) -> None:
    """Import what installed packages declare in `group`, so that it registers itself."""
    for point in entry_points(group=group):
        point.load()
