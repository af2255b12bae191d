"""From recorded kinds of calls to an answer: supported, partly, unsupported or unknown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.analyse.support.call_kinds import CallKind
from harness.analyse.support.model_calls import ModelCall
from harness.analyse.support.model_loading import Loading
from harness.analyse.support.support_record import Provenance, SupportRecord
from harness.core import count, listed


class SupportLevel(StrEnum):
    """What a record says, the worst first."""

    UNSUPPORTED = "unsupported"
    """No recorded case of it passes."""
    PARTLY = "partly"
    """Some pass and some fail."""
    UNKNOWN = "unknown"
    """No case was recorded that would tell."""
    SUPPORTED = "supported"
    """All pass. That is evidence and no proof: the number of cases belongs to the answer."""


@dataclass(frozen=True, kw_only=True)
class CallSupport:
    """The answer for one overload, in the dtypes and with the attributes that were asked for.

    Attributes:
        call: What was asked: of an operator as such, without dtypes and attributes.
        exact: Whether the cases that are counted have its attributes and the opset that was asked for. If
            not, they are the nearest evidence and decide nothing: the answer is unknown.
        cases: How many cases there are, ordinary ones where there are any, or else everyday values in another
            dtype where there are any; `failures` of them fail.
        edge_cases: How many other cases there are; `edge_failures` of them fail.
        dtypes: Dtypes of the tensors as text → the answer for these.
        how: The commonest failure; "" for none.
        case_id: A case of it.
    """

    call: ModelCall
    standing: SupportLevel
    exact: bool
    cases: int
    failures: int
    edge_cases: int
    edge_failures: int
    dtypes: Mapping[str, SupportLevel]
    how: str = ""
    case_id: str = ""

    @property
    def said(self) -> str:
        """One line for people: ``aten.celu.default: partly: 3 of 40 ordinary cases fail; …``."""
        name = str(self.call) if self.call.dtypes or self.call.attributes else self.call.overload
        if not self.cases:
            return f"{name}: unknown: no case of it is in the record"
        fail = "fails" if self.cases == 1 else "fail"
        words = [f"{self.failures} of {count(self.cases, 'case')} {fail}"]
        if not self.failures:
            # Passing is evidence and no proof.
            words = [f"no failure found in {count(self.cases, 'case')}"]
        if not self.exact:
            words = ["no case has these attributes or this opset", f"of similar calls, {words[0]}"]
        if self.edge_cases:
            fail = "fails" if self.edge_cases == 1 else "fail"
            words.append(f"{self.edge_failures} of {count(self.edge_cases, 'edge case')} {fail}")
        worse = [name for name, answer in self.dtypes.items() if answer is not SupportLevel.SUPPORTED]
        if worse and len(self.dtypes) > 1:
            words.append(f"some cases fail in {listed(worse, 6)}")
        if self.how:
            words.append(f"{self.how} (case {self.case_id})")
        return f"{name}: {self.standing}: {'; '.join(words)}"


@dataclass(frozen=True, kw_only=True)
class Support:
    """The answer to a question; true only where everything that was asked for is supported.

    Attributes:
        asked: What was asked, as text.
        opset: That was asked for; None for whichever was recorded.
        calls: One or more.
        unmapped: Parts of a model that are no known ATen operator.
        provenance: Of the record that answered.
        loading: Whether an ONNX model loads in the installed backend; None where none was asked about.
    """

    asked: str
    converter: str
    backend: str
    opset: int | None
    calls: tuple[CallSupport, ...]
    unmapped: tuple[str, ...]
    provenance: Provenance
    loading: Loading | None = None

    @property
    def standing(self) -> SupportLevel:
        """The worst of all calls; unknown where a part of a model is unknown and nothing is worse.

        An ONNX model that the installed backend cannot load is unsupported; if the backend is not installed,
        the model is at best unknown.
        """
        if self.loading is not None and self.loading.loads is False:
            return SupportLevel.UNSUPPORTED
        open_parts = bool(self.unmapped) + (self.loading is not None and self.loading.loads is None)
        found = [call.standing for call in self.calls] + [SupportLevel.UNKNOWN] * open_parts
        return min(found or [SupportLevel.UNKNOWN], key=list(SupportLevel).index)

    def __bool__(self) -> bool:
        return self.standing is SupportLevel.SUPPORTED

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "asked": self.asked,
            "converter": self.converter,
            "backend": self.backend,
            "opset": self.opset,
            "standing": str(self.standing),
            "calls": [
                {
                    "overload": one.call.overload,
                    "dtypes": dict(one.call.dtypes),
                    "attributes": dict(one.call.attributes),
                    "standing": str(one.standing),
                    "these_attributes": one.exact,
                    "cases": one.cases,
                    "failures": one.failures,
                    "edge_cases": one.edge_cases,
                    "edge_failures": one.edge_failures,
                    "by_dtypes": {name: str(answer) for name, answer in one.dtypes.items()},
                    "how": one.how,
                    "case_id": one.case_id,
                }
                for one in self.calls
            ],
            "unmapped": list(self.unmapped),
            "loading": None if self.loading is None else {"loads": self.loading.loads, "words": self.loading.words},
            "record": {
                "run": self.provenance.run,
                "recorded": self.provenance.recorded,
                "versions": dict(self.provenance.versions),
            },
        }


def support_of(
    calls: Sequence[ModelCall],
    record: SupportRecord,
    *,
    asked: str,
    converter: str,
    backend: str,
    opset: int | None = None,
    opsets: Collection[int] = (),
    unmapped: Sequence[str] = (),
    loading: Loading | None = None,
) -> Support:
    """What a record says of some calls with one converter and one backend.

    Args:
        calls: What is asked about; dtypes and attributes that a call leaves out may be any.
        asked: The question as text.
        opset: Only what was recorded with this one; None for whichever was recorded.
        opsets: Those of all models of the record with this converter and backend. Where no model was emitted
            a case has no opset; such failures count for these.
        unmapped: Parts of a model that are no known operator.
        loading: Whether the installed backend loads the model that was asked about.
    """
    kinds = [kind for kind in record.kinds if (kind.converter, kind.backend) == (converter, backend)]
    wanted = {0, opset} if opset in opsets else {opset}
    return Support(
        asked=asked,
        converter=converter,
        backend=backend,
        opset=opset,
        calls=tuple(_of_call(call, kinds, wanted if opset else None) for call in calls),
        unmapped=tuple(unmapped),
        provenance=record.provenance,
        loading=loading,
    )


def _of_call(call: ModelCall, kinds: Iterable[CallKind], opsets: Collection[int | None] | None) -> CallSupport:
    similar = [kind for kind in kinds if kind.overload == call.overload and kind.has_dtypes(call)]
    same = [k for k in similar if k.has_attributes(call) and (opsets is None or k.opset in opsets)]
    exact = bool(same)
    pool = same or similar
    deciding = deciding_kinds(pool)
    beside = [kind for kind in pool if kind not in deciding]
    worst = max(deciding, key=lambda kind: kind.failures, default=None)
    return CallSupport(
        call=call,
        standing=standing_of(deciding) if exact else SupportLevel.UNKNOWN,
        exact=exact,
        cases=_cases(deciding),
        failures=_failures(deciding),
        edge_cases=_cases(beside),
        edge_failures=_failures(beside),
        dtypes=_by_dtypes(pool),
        how=worst.how if worst else "",
        case_id=worst.case_id if worst else "",
    )


def _by_dtypes(kinds: Sequence[CallKind]) -> dict[str, SupportLevel]:
    """The answer for each combination of dtypes, ordinary cases first where there are any."""
    names = dict.fromkeys(", ".join(dict.fromkeys(kind.dtypes.values())) for kind in kinds)
    found = {}
    for name in names:
        some = [kind for kind in kinds if ", ".join(dict.fromkeys(kind.dtypes.values())) == name]
        found[name or "no tensors"] = standing_of(deciding_kinds(some))
    return found


def deciding_kinds(kinds: Sequence[CallKind]) -> Sequence[CallKind]:
    """Those that answer for all: ordinary ones, or everyday values in rarer dtypes, or whatever there is."""
    ordinary = [kind for kind in kinds if kind.ordinary]
    return ordinary or [kind for kind in kinds if kind.everyday] or kinds


def standing_of(kinds: Sequence[CallKind]) -> SupportLevel:
    """Whether all, some or none of the cases of some kinds pass."""
    cases, failures = _cases(kinds), _failures(kinds)
    if not cases:
        return SupportLevel.UNKNOWN
    if not failures:
        return SupportLevel.SUPPORTED
    return SupportLevel.UNSUPPORTED if failures == cases else SupportLevel.PARTLY


def _cases(kinds: Iterable[CallKind]) -> int:
    return sum(kind.cases for kind in kinds)


def _failures(kinds: Iterable[CallKind]) -> int:
    return sum(kind.failures for kind in kinds)
