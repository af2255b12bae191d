"""What it means to fail in the same way."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.compare import Outcome, Stage, Verdict
from harness.core import PRECISION

#: Blame that says nothing.
_OPEN = frozenset({"", "unknown"})


@dataclass(frozen=True, kw_only=True)
class Target:
    """A failure that is to be kept.

    Attributes:
        stage: Where it ends.
        outcome: How.
        signature: In what words; of a mismatch, what is wrong.
        blame: Whose it is.
        gross: Of wrong values, whether they are beyond rounding; None where that cannot be said.
    """

    stage: Stage
    outcome: Outcome
    signature: str
    blame: str
    gross: bool | None

    @classmethod
    def of(cls, verdict: Verdict) -> Target:
        """The failure of `verdict`."""
        return cls(
            stage=verdict.stage,
            outcome=verdict.outcome,
            signature=verdict.signature,
            blame=verdict.blame,
            gross=_is_gross(verdict),
        )

    def is_met_by(self, verdict: Verdict) -> bool:
        """Whether `verdict` is the same failure, but for its blame.

        Values that are wrong by rounding and values that are wrong altogether are different failures although
        both are called wrong.
        """
        gross = _is_gross(verdict)
        return (verdict.stage, verdict.outcome, verdict.signature) == (
            self.stage,
            self.outcome,
            self.signature,
        ) and (gross == self.gross or gross is None or self.gross is None)

    def is_blamed_alike(self, verdict: Verdict) -> bool:
        """Whether `verdict` blames whom the original did, where both say whom."""
        return verdict.blame == self.blame or bool({verdict.blame, self.blame} & _OPEN)


def _is_gross(verdict: Verdict) -> bool | None:
    """Whether more than half of the significant bits are wrong in the worst element.

    None where no error was measured: other shapes, NaN against numbers, integers.
    """
    ulp, precision = verdict.max_ulp_error, PRECISION.get(verdict.dtype)
    if verdict.outcome is not Outcome.MISMATCH or ulp is None or precision is None or math.isnan(ulp):
        return None
    if ulp == 0:
        return None
    return bool(ulp > 2.0 ** (precision / 2))
