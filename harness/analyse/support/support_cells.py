"""What a record says of each ATen overload and each ONNX operator, by dtype, opset, converter and backend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, TypeAlias

from harness.analyse.explain.known import candidate
from harness.analyse.support.call_kinds import CallKind
from harness.analyse.support.support_answer import SupportLevel, deciding_kinds, standing_of

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
        """For people: ``3 of 40 cases fail; 9 of 20 edge cases besides; error at load: … (case …)``."""
        words = f"{self.failures:,} of {self.cases:,} cases fail"
        if not self.failures:
            words = f"no failure found in {self.cases:,} cases"
        if self.edge_cases:
            words += f"; {self.edge_failures:,} of {self.edge_cases:,} edge cases besides"
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
