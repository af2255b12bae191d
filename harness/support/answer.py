"""From recorded kinds of calls to an answer: supported, partly, unsupported or unknown.

What a record says of each ATen overload and each ONNX operator, by dtype, opset, converter and backend.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, TypeAlias

from harness.core.documents import count, listed
from harness.explain.onnx_operator import candidate
from harness.support.model_calls import ModelCall
from harness.support.model_loading import Loading
from harness.support.record import CallKind, Provenance, SupportRecord


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
            return f"{name}: unknown: not in the record"
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
        unmapped: Parts of a model that are not known as an ATen operator.
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
                    "overload": call.call.overload,
                    "dtypes": dict(call.call.dtypes),
                    "attributes": dict(call.call.attributes),
                    "standing": str(call.standing),
                    "these_attributes": call.exact,
                    "cases": call.cases,
                    "failures": call.failures,
                    "edge_cases": call.edge_cases,
                    "edge_failures": call.edge_failures,
                    "by_dtypes": {name: str(answer) for name, answer in call.dtypes.items()},
                    "how": call.how,
                    "case_id": call.case_id,
                }
                for call in self.calls
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
        unmapped: Parts of a model that are not known as an operator.
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


#: Name, converter, backend, opset, dtype.
_Key: TypeAlias = tuple[str, str, str, int, str]


@dataclass(frozen=True, kw_only=True)
class SupportCell:
    """The answer for one operator in one dtype.

    Attributes:
        name: An ATen overload, or an ONNX operator.
        opset: Of the emitted models; 0 where none was emitted with any.
        dtype: Of the first tensor; "" without tensors.
        cases: How many cases decided, ordinary ones where there are any, or else everyday values where there
            are any; `failures` of them fail.
        edge_cases: How many other cases there are; `edge_failures` of them fail.
        how: The commonest failure; "" for none.
        blame: Whose it is.
        case_id: A case of it.
        overloads: Of an ONNX operator: whose cases these are.
    """

    name: str
    converter: str
    backend: str
    opset: int
    dtype: str
    standing: SupportLevel
    cases: int
    failures: int
    edge_cases: int
    edge_failures: int
    how: str
    blame: str
    case_id: str
    overloads: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """For people: ``3 of 40 cases fail; 9 of 20 edge cases in addition; error at load: … (case …)``."""
        words = f"{self.failures:,} of {self.cases:,} cases fail"
        if not self.failures:
            words = f"no failure found in {self.cases:,} cases"
        if self.edge_cases:
            words += f"; {self.edge_failures:,} of {self.edge_cases:,} edge cases in addition"
        return f"{words}; {self.how} (case {self.case_id})" if self.how else words

    def to_data(self) -> dict[str, Any]:
        """As JSON, without the name."""
        data = {**asdict(self), "standing": str(self.standing), "overloads": list(self.overloads)}
        del data["name"]
        return data


def aten_cells(kinds: Sequence[CallKind]) -> list[SupportCell]:
    """The answers for all ATen overloads of a record, in the order of their names."""
    return _cells((kind.overload, kind) for kind in kinds)


def onnx_cells(kinds: Sequence[CallKind]) -> list[SupportCell]:
    """The answers for ONNX operators: how backends do in the cases of ATen operators of that meaning.

    A case that a backend refuses for want of a kernel is a failure of the operator that it names. What fails
    before it gets to a backend, or is not the backend's defect, is left out.
    """
    return _cells(_of_onnx(kinds), with_overloads=True)


def _of_onnx(kinds: Iterable[CallKind]) -> Iterator[tuple[str, CallKind]]:
    for kind in kinds:
        meant = _counterpart(kind.overload)
        if kind.missing:
            yield kind.missing, replace(kind, cases=kind.failures)
        if meant and kind.failures and (kind.missing or kind.blame != "backend"):
            kind = replace(kind, cases=kind.cases - kind.failures, failures=0, how="", blame="", case_id="")
        if meant and kind.cases:
            yield meant, kind


@cache
def _counterpart(overload: str) -> str:
    known = candidate(overload.rpartition(".")[0].replace(".", "::", 1))
    return known.onnx if known is not None else ""


def _cells(named: Iterable[tuple[str, CallKind]], *, with_overloads: bool = False) -> list[SupportCell]:
    by_key: defaultdict[_Key, list[CallKind]] = defaultdict(list)
    opsets: defaultdict[tuple[str, str, str], set[int]] = defaultdict(set)
    for name, kind in named:
        dtype = next(iter(kind.dtypes.values()), "")
        by_key[name, kind.converter, kind.backend, kind.opset, dtype].append(kind)
        opsets[name, kind.converter, kind.backend].add(kind.opset)
    # Where no model was emitted there is none for any opset.
    for key in [key for key in by_key if not key[3]]:
        name, converter, backend, _, dtype = key
        emitted = opsets[name, converter, backend] - {0}
        for opset in emitted:
            by_key[name, converter, backend, opset, dtype] += by_key[key]
        if emitted:
            del by_key[key]
    return [_cell(key, some, with_overloads) for key, some in sorted(by_key.items(), key=lambda one: one[0])]


def _cell(key: _Key, kinds: Sequence[CallKind], with_overloads: bool) -> SupportCell:
    deciding = deciding_kinds(kinds)
    beside = [kind for kind in kinds if kind not in deciding]
    failing = [kind for kind in deciding if kind.failures] or [kind for kind in beside if kind.failures]
    worst = max(failing, key=lambda kind: kind.failures, default=None)
    name, converter, backend, opset, dtype = key
    return SupportCell(
        name=name,
        converter=converter,
        backend=backend,
        opset=opset,
        dtype=dtype,
        standing=standing_of(deciding),
        cases=sum(kind.cases for kind in deciding),
        failures=sum(kind.failures for kind in deciding),
        edge_cases=sum(kind.cases for kind in beside),
        edge_failures=sum(kind.failures for kind in beside),
        how=worst.how if worst else "",
        blame=worst.blame if worst else "",
        case_id=worst.case_id if worst else "",
        overloads=tuple(sorted({kind.overload for kind in kinds})) if with_overloads else (),
    )
