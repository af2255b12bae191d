"""Give each operator that a runtime claims one of five outcomes, by the record of a run.

The outcomes are those of ONNX Runtime's design of a conformance suite for execution providers (onnxruntime#32213).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.plan.profile import Profile
from harness.record import store


class ClaimOutcome(StrEnum):
    """The outcome of a claim, the worst first.

    Attributes:
        FAIL: A claimed case is wrong, or fails otherwise.
        UNSUPPORTED: A claimed case is refused.
        NOT_RUN: No claimed case was compared.
        PASS: All claimed cases are right.
        EXCLUDED: The profile does not claim the operator.
    """

    FAIL = "FAIL"
    UNSUPPORTED = "UNSUPPORTED"
    NOT_RUN = "NOT_RUN"
    PASS = "PASS"
    EXCLUDED = "EXCLUDED"


@dataclass(frozen=True)
class Claim:
    """A claimed operator and its outcome in a run.

    Attributes:
        backend: The backend.
        overload: The operator.
        outcome: The outcome.
        compared: Cases that were compared.
        failing: Cases that are wrong, fail, or are refused.
        example: The id of the worst case; "" for none.
    """

    backend: str
    overload: str
    outcome: ClaimOutcome
    compared: int
    failing: int
    example: str

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def read_claims(run: Path, profile: Profile) -> list[Claim]:
    """Return the claims of each backend of a run, the worst first.

    Raises:
        ResultsError: the run cannot be read.
    """
    rows: dict[tuple[str, str], list[Verdict]] = {}
    backends: dict[str, None] = {}
    for verdict in store.verdicts(run):
        backends[verdict.backend] = None
        if profile.claims(verdict.overload, verdict.dtype):
            rows.setdefault((verdict.backend, verdict.overload), []).append(verdict)
    claims = list(_judge(rows, backends, profile.dtypes))
    order = list(ClaimOutcome)
    return sorted(claims, key=lambda c: (c.backend, order.index(c.outcome), c.overload))


def _judge(
    rows: Mapping[tuple[str, str], Collection[Verdict]], backends: Collection[str], claimed: Collection[str]
) -> Iterator[Claim]:
    for backend in backends:
        for overload in claimed:
            verdicts = rows.get((backend, overload), ())
            failing = [v for v in verdicts if v.outcome.is_failure and not v.is_open]
            compared = sum(v.stage is Stage.COMPARE for v in verdicts)
            worst = min(failing, key=lambda v: v.outcome.severity, default=None)
            outcome = ClaimOutcome.PASS if compared else ClaimOutcome.NOT_RUN
            if worst is not None:
                is_refused = all(v.outcome is Outcome.UNSUPPORTED for v in failing)
                outcome = ClaimOutcome.UNSUPPORTED if is_refused else ClaimOutcome.FAIL
            yield Claim(backend, overload, outcome, compared, len(failing), worst.case_id if worst else "")


def is_kept(claim: Claim) -> bool:
    """Whether nothing speaks against a claim."""
    return claim.outcome in (ClaimOutcome.PASS, ClaimOutcome.NOT_RUN)


def claims_table(claims: Sequence[Claim], *, excluded: int) -> Iterator[RenderableType]:
    """Yield a table of the claims that are not kept, and a line of counts for each backend.

    Args:
        claims: The claims.
        excluded: The number of operators that the profile does not claim.
    """
    broken = [claim for claim in claims if not is_kept(claim)]
    if broken:
        table = Table("backend", "operator", "outcome", "failing", "example")
        for claim in broken:
            total = f"{claim.failing} of {max(claim.compared, claim.failing)}"
            table.add_row(claim.backend, claim.overload, claim.outcome, total, claim.example)
        yield table
    for backend in dict.fromkeys(claim.backend for claim in claims):
        counts = Counter(claim.outcome for claim in claims if claim.backend == backend)
        counts[ClaimOutcome.EXCLUDED] = excluded
        yield f"{backend}: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in ClaimOutcome if counts[outcome])
