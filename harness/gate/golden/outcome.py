"""How a golden ended with one converter and one backend, when it was recorded or now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from harness.compare import Outcome, Stage

#: (case id, converter, backend). The backend is "" for an end before any backend took part.
GoldenKey: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True)
class Ending:
    """How and where.

    Attributes:
        stage: As in `harness.compare.verdict.Verdict`.
        outcome: As there.
        signature: As there; "" for a pass.
        message: The failure's own words; not stored, and no part of what endings are compared by.
    """

    stage: Stage
    outcome: Outcome
    signature: str = ""
    message: str = ""

    @property
    def words(self) -> tuple[Stage, Outcome, str]:
        """What makes two endings the same."""
        return self.stage, self.outcome, self.signature


PASSED = Ending(Stage.COMPARE, Outcome.PASS)
