"""A root cause: whose code is wrong, where, and what is wrong there. Read from the record's columns alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.compare.diagnosis import Detail
from harness.compare.verdict import Outcome, Stage
from harness.core.route import route_label

#: The columns that tell the root cause of a failed row.
CAUSE_COLUMNS = ("blame", "component", "place", "fault", "detail", "rule")
#: Where the backend has no part in the failure yet.
BEFORE_BACKEND = frozenset({Stage.REFERENCE, Stage.CONVERT, Stage.CHECK})


@dataclass(frozen=True, order=True)
class RootCause:
    """What the failures of one defect share.

    Attributes:
        blame: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``.
        component: Whose code is wrong: ``torchlib``, ``ort-cpu``, ``PyTorch``.
        place: What of theirs: a function, a kernel, a pass.
        fault: What is wrong there, one of `harness.compare.diagnosis.FAULTS`.
        symptom: What tells it from others with this fault; see `harness.compare.diagnosis.Detail`.
        choice: The algorithm of the place that calls ask for; "" for all.
        rule: The user's conversion functions that took part; "" for none.
    """

    blame: str
    component: str
    place: str
    fault: str
    symptom: str = ""
    choice: str = ""
    rule: str = ""

    @property
    def where(self) -> tuple[str, str, str, str]:
        """Its place, and who is to blame: what rules unite is mostly in one."""
        return self.blame, self.component, self.place, self.rule


def root_cause(row: Mapping[str, Any]) -> RootCause:
    """The root cause of a failed row, given at least `CAUSE_COLUMNS`, ``signature`` and ``backend``.

    A row of an earlier version has no fault: failures with the same signature are then taken for one cause.
    """
    blame = row["blame"] or "unknown"
    if not row["fault"]:
        early = row["stage"] in BEFORE_BACKEND
        component = row["converter"] if early else route_label(row["converter"], row["backend"])
        # The words of a wrong result or a crash are the same for every operator.
        telling = row["outcome"] in (Outcome.ERROR, Outcome.UNSUPPORTED)
        place = "" if telling else row["overload"].rpartition(".")[0]
        return RootCause(blame, component, place, "", row["signature"], rule=row["rule"])
    detail = Detail.from_text(row["detail"])
    return RootCause(
        blame,
        row["component"],
        row["place"],
        row["fault"],
        symptom=detail.symptom,
        choice=detail.choice,
        rule=row["rule"],
    )
