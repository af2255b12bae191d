"""Confirm the results of a fast export by public exports. Runs in the worker process.

1. A failure before the model is loaded that is new for its operator (by its signature) is exported once more, alone and
   by the plain public call. The same failure confirms it for all cases that fail in this way.
2. A share of the successful exports is exported once more in the same way, and the graphs are compared as they are
   before any transform. So are all dynamic exports of operators whose kernels the exporter replaces, which the fast
   lane does not do.
3. If the public export differs, the fast lane is no longer used for the operator in this process, the run says so,
   and the cases at hand are exported again: every verdict is that of the public export.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import onnx

from harness.compare.signatures import normalise
from harness.convert.converter import Converter, HasFastLane
from harness.convert.graph_lines import graph_lines
from harness.convert.torch_private import RECURRENT
from harness.core.program import calls_of, is_composed
from harness.core.text import count, describe_error, plain
from harness.pipeline.batch_export import BatchExport, Converted, Member, NotConverted


class DoubleCheck:
    """Passes the results of an export on, after correcting those that a public export contradicts.

    Args:
        exports: The export whose results are checked.
    """

    def __init__(self, exports: BatchExport) -> None:
        self._exports = exports
        converter = exports.converter
        self._trust = converter.trust if isinstance(converter, HasFastLane) else None
        self._public: BatchExport | None = None
        self._audits: BatchExport | None = None
        if isinstance(converter, HasFastLane) and self._trust is not None:
            public = converter.public()
            self._public = exports.alone_with(public)
            self._audits = exports.alone_with(public, transforms=False)

    @property
    def converter(self) -> Converter:
        """Return the converter."""
        return self._exports.converter

    def again(self, converted: Converted, members: Sequence[Member]) -> Iterator[Converted | NotConverted]:
        """See `BatchExport.again`."""
        return self._exports.again(converted, members)

    def alone(self, member: Member) -> Iterator[Converted | NotConverted]:
        """See `BatchExport.alone`."""
        return self._exports.alone(member)

    def export(self, accepted: Sequence[Member]) -> Iterator[Converted | NotConverted]:
        """Export as `BatchExport.export` does, with results that public exports agree with."""
        for result in self._exports.export(accepted):
            if isinstance(result, NotConverted):
                yield from self._failed(result)
            else:
                yield from self._succeeded(result)

    def _failed(self, result: NotConverted) -> Iterator[Converted | NotConverted]:
        if self._trust is None or self._public is None:
            yield result
            return
        signature = _signature(result)
        confirmed: list[Member] = []
        for overload, members in _group_by_overload(result.members).items():
            # The fast lane is left for operators, and not for a pattern of programs.
            is_public = not self._trust.covers(overload) and not is_composed(overload)
            if is_public or self._trust.is_confirmed(overload, signature):
                confirmed += members
                continue
            (public, *_) = self._public.export(members[:1])
            if isinstance(public, NotConverted) and _signature(public) == signature:
                self._trust.confirm(overload, signature)
                confirmed += members
                continue
            ending = _signature(public) if isinstance(public, NotConverted) else "exported"
            self._trust.end_for(overload, f"fast: {plain(signature, 120)}; public: {plain(ending, 120)}")
            yield public
            yield from self._public.export(members[1:])
        if confirmed:
            yield replace(result, members=tuple(confirmed))

    def _succeeded(self, result: Converted) -> Iterator[Converted | NotConverted]:
        if self._trust is None or self._public is None or self._audits is None:
            yield result
            return
        rest = list(result.members)
        for member in result.members:
            exported = member.group.exported
            if member not in rest or not self._trust.covers(exported.overload):
                continue
            if not self._trust.is_audited(str(exported)) and not (self._exports.dynamic and _replaced(member)):
                continue
            (public, *_) = self._audits.export([member])
            difference = _difference(onnx.ModelProto.FromString(result.untransformed.alone(member)), public)
            if difference:
                for name in _replaced(member) or (exported.overload,):
                    self._trust.end_for(name, difference)
                again = [m for m in rest if m.group.exported.overload == exported.overload]
                rest = [m for m in rest if m not in again]
                yield from self._public.export(again)
        if rest:
            yield from self._exports.again(result, rest)


def _replaced(member: Member) -> tuple[str, ...]:
    """Return the operators of a structure whose kernels the exporter replaces while it exports dynamic shapes."""
    return tuple(sorted(RECURRENT.intersection(calls_of(member.group.exported))))


def _difference(fast: onnx.ModelProto, public: Converted | NotConverted) -> str:
    """Describe the difference between a graph and the one of a public export; "" if there is none."""
    if isinstance(public, NotConverted):
        return f"fast: exported; public: {plain(_signature(public), 120)}"
    (member,) = public.members
    expected = graph_lines(onnx.ModelProto.FromString(public.alone(member)))
    found = graph_lines(fast)
    if found == expected:
        return ""
    different = sum(a != b for a, b in zip(found, expected, strict=False)) + abs(len(found) - len(expected))
    return f"{count(different, 'line')} of the graph"


def _signature(result: NotConverted) -> str:
    failure = result.failure
    return f"{failure.stage.value} {failure.outcome.value}: {normalise(describe_error(failure.error))}"


def _group_by_overload(members: Sequence[Member]) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(member.group.exported.overload, []).append(member)
    return found
