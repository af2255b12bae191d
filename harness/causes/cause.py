"""A root cause: the component whose code is wrong, where, and what is wrong there; read from columns of the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.compare.diagnosis import Detail
from harness.compare.verdict import BEFORE_BACKEND, PYTORCH, SPEC, UNKNOWN, Outcome
from harness.core.route import FILE, route_label

#: The columns that determine the root cause of a failed row.
CAUSE_COLUMNS = ("blame", "component", "place", "fault", "detail", "rule")


@dataclass(frozen=True, order=True)
class RootCause:
    """The facts that failures of one defect share.

    Attributes:
        blame: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``.
        component: The component whose code is wrong: ``torchlib``, ``ort-cpu``, ``PyTorch``.
        place: The function, kernel or pass of the component.
        fault: The fault there, one of `harness.compare.faults`.
        symptom: The distinction between causes with this fault; see `harness.compare.diagnosis.Detail`.
        choice: The argument that selects the failing algorithm of the place; "" for all.
        rule: The user's conversion functions that took part; "" if there are none.
    """

    blame: str
    component: str
    place: str
    fault: str
    symptom: str = ""
    choice: str = ""
    rule: str = ""

    @property
    def owner(self) -> str:
        """The one whose code is wrong, by name: ``torchlib``, ``ort-cpu``, ``the rule my_rules.py:celu``,
        ``the transform float16``, ``PyTorch``.

        The list of failures, a case, the page, a script and an issue all name it so.
        """
        if self.blame == SPEC:
            return f"the specification of {self.component}" if self.component else "the specification"
        if self.blame == UNKNOWN or not self.fault:
            # A record of an early version has no component.
            return {PYTORCH: "PyTorch"}.get(self.blame, self.blame or UNKNOWN)
        if self.component in ("rule", "transform"):
            return f"the {self.component} {self.place}"
        return "the file" if self.component == FILE else self.component

    @property
    def where(self) -> tuple[str, str, str, str]:
        """The place and who is blamed for it; rules merge causes only within one."""
        return self.blame, self.component, self.place, self.rule


def root_cause(row: Mapping[str, Any]) -> RootCause:
    """Return the root cause of a failed row, given at least `CAUSE_COLUMNS`, ``signature`` and ``backend``.

    A row of an early version has no fault; failures with the same signature then have the same cause.
    """
    blame = row["blame"] or "unknown"
    if not row["fault"]:
        early = row["stage"] in BEFORE_BACKEND
        component = row["converter"] if early else route_label(row["converter"], row["backend"])
        # Messages of wrong results and crashes are the same for every operator, so they need the operator as well.
        is_specific = row["outcome"] in (Outcome.ERROR, Outcome.UNSUPPORTED)
        place = "" if is_specific else row["overload"].rpartition(".")[0]
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
