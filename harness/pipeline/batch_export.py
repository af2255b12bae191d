"""Export groups together, in as few models as succeed; transform and check each model. Runs in the worker process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import onnx

from harness.compare.verdict import Outcome, Stage
from harness.convert.change import Change
from harness.convert.converter import (
    Converter,
    ExportRequest,
    KeepsApart,
    UnsupportedOperator,
    supports_partial,
)
from harness.convert.rules.rule import RuleBook
from harness.core.case_group import CaseGroup, MemberKey
from harness.core.dtypes import Array
from harness.core.invocation import Weight
from harness.core.program import is_composed, parts_of
from harness.core.route import Route
from harness.pipeline.case import CaseOracle, Structure
from harness.pipeline.program import conversion_failure
from harness.pipeline.stages import StageFailure, check_opset, check_stage, emitted_opset, opset_to_check
from harness.pipeline.submodel import extract, graph_kind, operators_behind
from harness.pipeline.task import Step
from harness.pipeline.torch_call import CallRejected, Forbidden
from harness.pipeline.transforming import gather_samples, transform_stage
from harness.run.artefact import AnyModel, Artefact


@dataclass(frozen=True, eq=False)
class Member:
    """A group of cases in an export, with what its oracles answer.

    Attributes:
        group: The group.
        structure: The export of the group.
        oracles: Case → its oracle, for the cases that PyTorch accepts.
        rejected: Case → why its oracle rejects it.
        forbidden: The rejected cases that the text of their operator forbids.
    """

    group: CaseGroup
    structure: Structure
    oracles: Mapping[int, CaseOracle]
    rejected: Mapping[int, str] = field(default_factory=dict)
    forbidden: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls,
        structure: Structure,
        group: CaseGroup,
        announce: Callable[[MemberKey], None] = lambda key: None,
    ) -> Self:
        """Return a group with the answers of its cases' oracles; `announce` takes each case before it is asked."""
        oracles: dict[int, CaseOracle] = {}
        rejected: dict[int, str] = {}
        forbidden: set[int] = set()
        for case, invocation in group.cases:
            announce((group.index, case))
            try:
                oracles[case] = structure.oracle(invocation)
            except CallRejected as rejection:
                rejected[case] = rejection.account
                if isinstance(rejection, Forbidden):
                    forbidden.add(case)
        for oracle in oracles.values():
            structure = structure.returning(len(oracle.expected))
            break
        return cls(group, structure, oracles, rejected, frozenset(forbidden))

    def left(self, cases: Sequence[int]) -> Self:
        """Return the same group with some of its cases."""
        return replace(self, oracles={case: self.oracles[case] for case in cases})

    @property
    def keys(self) -> tuple[MemberKey, ...]:
        """Its cases that PyTorch accepts."""
        return tuple((self.group.index, case) for case in self.oracles)

    @property
    def arrays(self) -> list[Array]:
        """The inputs and outputs of all of its cases."""
        return [array for oracle in self.oracles.values() for array in oracle.arrays]


@dataclass(frozen=True)
class Converted:
    """Groups in one model, or in one artefact of another kind, which cannot be cut down.

    Attributes:
        members: The groups, in order.
        convert_ms: Each case's share.
        rule: The user's rules that took part in every member; "" for none.
        is_shared: Whether the exporter has made it of several groups in one piece, so that one group's export may be
            wrong because of the others.
        changes: The changes that the exporter's optimiser made during the export; empty unless they were noted.
        exported: The model before the route's transforms; None if there are none, or if they have not been applied yet.
    """

    model: AnyModel
    members: tuple[Member, ...]
    convert_ms: float
    rule: str = ""
    is_shared: bool = False
    changes: tuple[Change, ...] = ()
    exported: AnyModel | None = None
    _alone: dict[int, bytes] = field(default_factory=dict, compare=False)
    _kinds: dict[int, str] = field(default_factory=dict, compare=False)

    @cached_property
    def onnx_operators(self) -> Mapping[int, str]:
        """Group index → the ONNX operators of its part, with blanks between; empty for an artefact of another kind."""
        if self.graph is None:
            return {}
        behind = operators_behind(self.graph)
        return {
            member.group.index: " ".join(
                sorted(frozenset().union(*(behind.get(name, ()) for name in member.structure.outputs_in(self.graph))))
            )
            for member in self.members
        }

    def rewrites(self, member: Member) -> tuple[str, ...]:
        """Return the rewrite rules of the exporter that changed the graph of `member`, each once."""
        outputs = set(member.structure.outputs_in(self.model))
        return tuple(dict.fromkeys(change.name for change in self.changes if outputs & change.outputs))

    @property
    def graph(self) -> onnx.ModelProto | None:
        """The ONNX model; None for an artefact of another kind."""
        return None if isinstance(self.model, Artefact) else self.model

    def alone(self, member: Member) -> bytes:
        """Return the model cut down to `member`, serialised; b"" for an artefact of another kind."""
        if self.graph is None:
            return b""
        index = member.group.index
        if index not in self._alone:
            self._alone[index] = only(self.graph, [member]).SerializeToString()
        return self._alone[index]

    def kind(self, member: Member) -> str:
        """Return the kind of the graph that computes `member`; "" for an artefact of another kind."""
        if self.graph is None:
            return ""
        index = member.group.index
        if index not in self._kinds:
            self._kinds[index] = graph_kind(only(self.graph, [member]))
        return self._kinds[index]

    def part(self, members: Sequence[Member]) -> Converted:
        """Return the same model, before any transforms, cut down to `members`. An artefact of another kind keeps the
        others' calls, too."""
        if len(members) == len(self.members):
            return self
        whole = self.untransformed.model
        model = whole if isinstance(whole, Artefact) else only(whole, members)
        return Converted(model, tuple(members), self.convert_ms, self.rule, self.is_shared, self.changes)

    @property
    def untransformed(self) -> Converted:
        """The same groups in the model that the converter made."""
        if self.exported is None:
            return self
        return Converted(self.exported, self.members, self.convert_ms, self.rule, self.is_shared, self.changes)

    def transformed(self, model: AnyModel, changes: Sequence[Change]) -> Converted:
        """Return the same groups in the model that the route's transforms made of this one by some changes."""
        is_shared = self.is_shared or len(self.members) > 1
        known = (*self.changes, *changes)
        return Converted(model, self.members, self.convert_ms, self.rule, is_shared, known, self.model)


@dataclass(frozen=True)
class NotConverted:
    """Groups without a valid model.

    Attributes:
        converted: The model that the check rejects; None without a model.
        rule: The user's rules that took part.
    """

    members: tuple[Member, ...]
    failure: StageFailure
    converted: Converted | None = None
    rule: str = ""


def keys_of(members: Sequence[Member]) -> tuple[MemberKey, ...]:
    """Return the keys of the cases of `members`."""
    return tuple(key for m in members for key in m.keys)


def only(model: onnx.ModelProto, members: Sequence[Member]) -> onnx.ModelProto:
    """Return the part of a model that belongs to `members`: the model itself if it has no other part."""
    inputs = [name for m in members for name in m.structure.input_names]
    outputs = [name for m in members for name in m.structure.outputs_in(model)]
    if {value.name for value in (*model.graph.input, *model.graph.output)} <= {*inputs, *outputs}:
        return model
    return extract(model, inputs, outputs)


def halves(members: Sequence[Member]) -> tuple[Sequence[Member], Sequence[Member]]:
    """Return the first half and the rest."""
    middle = len(members) // 2
    return members[:middle], members[middle:]


class BatchExport:
    """Exports groups along one route, with its started converter.

    Args:
        route: The route up to the backends.
        converter: The route's converter, started.
        book: The user's rules that the converter was started with.
        announce: Takes each `Step` before the step is taken.
        batch_size: The number of structures to an export.
        changes: The list that the converter was started to note its optimiser's changes in.
    """

    def __init__(
        self,
        route: Route,
        converter: Converter,
        book: RuleBook | None = None,
        announce: Callable[[Step], None] = lambda step: None,
        batch_size: int = 64,
        changes: list[Change] | None = None,
    ) -> None:
        self._changes = [] if changes is None else changes
        self._route = route
        self._batch_size = batch_size
        self.converter = converter
        self._book = book
        self._announce = announce

    @property
    def dynamic(self) -> bool:
        """Whether the exports have dynamic dimensions."""
        return self._route.dynamic

    def alone_with(self, converter: Converter, *, transforms: bool = True) -> BatchExport:
        """Return the same exports through another converter, one structure at a time, with or without transforms."""
        route = self._route if transforms else replace(self._route, transforms=())
        return BatchExport(route, converter, self._book, self._announce, batch_size=1, changes=self._changes)

    def export(self, accepted: Sequence[Member]) -> Iterator[Converted | NotConverted]:
        """Export all groups, as many at a time as the batch size says."""
        size = self._batch_size
        together = [a for a in accepted if not self._is_apart(a)]
        for start in range(0, len(together), size):
            yield from self._export_partially(together[start : start + size])
        # Exporters keep the constants of a model by value, and −0.0 equals 0.0: whichever comes first is
        # taken for both. In a model of its own a case meets no other case's zero.
        for one in accepted:
            if self._is_apart(one):
                yield from self._batch([one])

    def _is_apart(self, member: Member) -> bool:
        exported, tensors = member.group.exported, member.structure.tensors
        apart = isinstance(self.converter, KeepsApart) and self.converter.keeps_apart(tensors)
        if is_composed(exported.overload) and not tensors:
            # An exporter evaluates a program of constants only where the model has no input at all.
            return True
        # A name that is in the model because of another group would collide, too.
        parts = [part for _, argument in exported.arguments for part in parts_of(argument)]
        return apart or any(_is_negative_zero(part) or (isinstance(part, Weight) and part.name) for part in parts)

    def again(self, converted: Converted, members: Sequence[Member]) -> Iterator[Converted | NotConverted]:
        """Yield some groups of a model in one of their own: cut out, or exported again if it is not an ONNX model.

        What the transforms make of a part need not be that part of what they make of the whole: they are applied again.
        """
        if len(members) == len(converted.members):
            yield converted
        elif converted.graph is None:
            yield from self._batch(members)
        elif converted.exported is not None:
            yield from self._check(converted.part(members))
        else:
            yield converted.part(members)

    def alone(self, member: Member) -> Iterator[Converted | NotConverted]:
        """Export one group by itself."""
        return self._batch([member])

    def _export_partially(self, members: Sequence[Member]) -> Iterator[Converted | NotConverted]:
        """Export `members` with a converter that continues if some of them fail; else as `_batch` does."""
        parts = None
        converter = supports_partial(self.converter)
        if len(members) > 1 and converter is not None:
            self._changes.clear()
            parts = converter.convert_parts(
                self._request(members),
                lambda calls: self._announce(Step(Stage.CONVERT, None, keys_of([members[i] for i in calls]))),
            )
        if parts is None:
            yield from self._batch(members)
            return
        started = time.perf_counter()
        for part in parts:
            some = tuple(members[i] for i in part.calls)
            elapsed = 1e3 * (time.perf_counter() - started)
            if part.failure is not None:
                yield self._failed(some, part.failure)
            elif part.model is None:
                for result in self._batch(some):
                    yield from self._single_out(result) if len(some) > 1 else [result]
            elif not self._keeps_opset(part.model, some):
                yield from self._batch(some)
            else:
                model, share = only(part.model, some), elapsed / len(keys_of(some))
                converted = Converted(model, some, share, changes=tuple(self._changes))
                for result in self._check(converted):
                    yield from self._single_out(result) if part.differs_alone and len(some) > 1 else [result]
            started = time.perf_counter()

    def _single_out(self, result: Converted | NotConverted) -> Iterator[Converted | NotConverted]:
        """Yield groups of a batch that was exported in one piece, without properties that only the batch has."""
        members: Sequence[Member] = result.members
        if isinstance(result, NotConverted):
            # The check quotes names of sizes, which differ in a batch.
            yield from self._batch(members) if result.failure.stage is Stage.CHECK else [result]
            return
        # If several groups return a constant, it is made once, and all but one return a copy of it.
        graph = result.graph
        assert graph is not None
        copies = {name for node in graph.graph.node if node.op_type == "Identity" for name in node.output}
        copying = [m for m in members if not copies.isdisjoint(m.structure.output_names)]
        rest = [m for m in members if m not in copying]
        if rest:
            yield from self.again(result, rest)
        for member in copying:
            yield from self.alone(member)

    def _keeps_opset(self, model: onnx.ModelProto, members: Sequence[Member]) -> bool:
        """Whether a model is at the opset asked for: one call that cannot be brought there may leave all
        others at another."""
        return len(members) == 1 or self._route.opset in (None, emitted_opset(model))

    def _failed(self, members: Sequence[Member], error: Exception) -> NotConverted:
        return NotConverted(tuple(members), conversion_failure(error), rule=self._fired())

    def _batch(self, members: Sequence[Member]) -> Iterator[Converted | NotConverted]:
        """Export `members` in as few models as succeed.

        Members that need an operator without any conversion are set apart at once. A batch that fails for
        another reason is tried again in quarters; after a case that fails alone the next is tried alone,
        and batches grow again from there: where every case fails that costs one export a case, and a
        single guilty case costs about as much as bisection.
        """
        start, size = 0, len(members)
        while start < len(members):
            batch = members[start : start + size]
            started = time.perf_counter()
            keys = keys_of(batch)
            self._announce(Step(Stage.CONVERT, None, keys))
            self._changes.clear()
            try:
                model = self.converter.convert(self._request(batch))
                if len(batch) > 1 and not isinstance(model, Artefact):
                    # An exporter that cannot bring one case to the opset may leave all at another.
                    check_opset(model, self._route.opset)
                    if not self._rules_are_clear(batch):
                        size = 1
                        continue
            except Exception as error:
                if len(batch) > 1:
                    rest = yield from self._split_unsupported(batch, error)
                    if len(rest) < len(batch):
                        members = [*rest, *members[start + len(batch) :]]
                        start, size = 0, max(1, len(rest))
                        continue
                    size = max(1, len(batch) // 4)
                    continue
                yield self._failed(batch, error)
                size = 1
            else:
                elapsed = 1e3 * (time.perf_counter() - started)
                changes, is_shared = tuple(self._changes), len(batch) > 1
                yield from self._check(
                    Converted(model, tuple(batch), elapsed / len(keys), self._fired(), is_shared, changes)
                )
                size = 2 * len(batch)
            start += len(batch)

    def _fired(self) -> str:
        """Return the rules that the last export called."""
        return ", ".join(sorted(self._book.fired)) if self._book else ""

    def _rules_are_clear(self, batch: Sequence[Member]) -> bool:
        """Whether the rules that the last export called took part in each of its cases.

        A rule for the very operator of every case, called as often as there are cases, did; one that
        decompositions reach, or that the exporter bypasses for some attributes, tells only of a case alone.
        """
        if self._book is None or not self._book.fired:
            return True
        rules = {self._book.rules.get(member.group.exported.overload) for member in batch}
        labels = {rule.label for rule in rules if rule is not None}
        return None not in rules and labels == set(self._book.fired) and self._book.fired.total() == len(batch)

    def _split_unsupported(
        self, batch: Sequence[Member], error: Exception
    ) -> Generator[NotConverted, None, list[Member]]:
        """Yield the members that need an operator without any conversion, and return the others.

        For each such operator one member is exported alone. It must fail in the same way, and its message is the one
        that the others with the same operator would give.
        """
        missing = error.missing if isinstance(error, UnsupportedOperator) else {}
        rest = list(batch)
        for operator in dict.fromkeys(missing.values()):
            needing = [m for m in rest if any(missing.get(n) == operator for n in m.structure.output_names)]
            if not needing:
                # All of them need an earlier operator, too.
                continue
            self._announce(Step(Stage.CONVERT, None, needing[0].keys))
            try:
                self.converter.convert(self._request(needing[:1]))
            except UnsupportedOperator as alone:
                if set(alone.missing.values()) == {operator}:
                    failure = StageFailure(Stage.CONVERT, Outcome.UNSUPPORTED, alone)
                    yield NotConverted(tuple(needing), failure)
                    rest = [m for m in rest if m not in needing]
            except Exception:
                # It fails in another way: all of them are tried again.
                continue
        return rest

    def _request(self, members: Sequence[Member]) -> ExportRequest:
        structures = [m.structure for m in members]
        return structures[0].request(self._route, structures[1:])

    def _check(self, converted: Converted) -> Iterator[Converted | NotConverted]:
        """Transform a model, and check what comes of it."""
        members = converted.members
        if self._route.transforms and converted.exported is None:
            self._announce(Step(Stage.TRANSFORM, None, keys_of(members)))
            changes: list[Change] = []
            samples = gather_samples(self._route, [m.structure for m in members], converted.model)
            model = transform_stage(converted.model, self._route, changes, samples)
            if isinstance(model, StageFailure):
                yield from self._rejected(converted, model)
                return
            converted = converted.transformed(model, changes)
        if not members[0].structure.is_checked and not self._route.transforms:
            yield converted
            return
        self._announce(Step(Stage.CHECK, None, keys_of(members)))
        promised = members[0].structure.promised_outputs
        if len(members) > 1:
            promised = [name for m in members for name in m.structure.output_names]
        invalid = check_stage(converted.model, opset_to_check(self._route), promised)
        if invalid is None:
            yield converted
        else:
            yield from self._rejected(converted, invalid)

    def _rejected(self, converted: Converted, failure: StageFailure) -> Iterator[Converted | NotConverted]:
        """Find the groups whose model a transform or the checker rejects by itself."""
        members = converted.members
        if len(members) == 1:
            yield from self.alone(members[0]) if converted.is_shared else [NotConverted(members, failure, converted)]
        elif converted.graph is None:
            for half in halves(members):
                for part in self.again(converted, half):
                    yield from self._check(part) if isinstance(part, Converted) else [part]
        else:
            for half in halves(members):
                yield from self._check(converted.part(half))


def _is_negative_zero(argument: object) -> bool:
    return isinstance(argument, float) and argument == 0.0 and math.copysign(1.0, argument) < 0.0
