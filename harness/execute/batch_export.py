"""Export groups together, in as few models as succeed, and check each model. Runs in the worker process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import onnx

from harness.compare import Outcome, Stage
from harness.convert import Converter, ExportRequest, RuleBook, UnsupportedOperator
from harness.execute.member import Accepted, Converted, halves, keys_of
from harness.execute.program import emitted_opset, export_request
from harness.execute.task import MemberKey, Settings, Step


class Fail(Protocol):
    """Records the failure of cases before any backend has taken part."""

    def __call__(
        self,
        keys: Sequence[MemberKey],
        stage: Stage,
        outcome: Outcome,
        error: Exception,
        *,
        blame: str,
        converted: Converted | None = None,
        rule: str = "",
    ) -> None:
        """Record it for all backends.

        Args:
            keys: The cases.
            stage: Where they fail.
            outcome: How.
            error: In what words.
            blame: Whose it is.
            converted: The model, if there is one.
            rule: What the user's rules contributed.
        """


class Exporting:
    """Exports with one converter.

    Args:
        settings: Of the task.
        converter: Started.
        book: The user's rules that the converter was started with.
        send: Takes each `Step` before the step is taken.
        fail: Takes what fails.
    """

    def __init__(
        self,
        settings: Settings,
        converter: Converter,
        book: RuleBook | None,
        send: Callable[[object], None],
        fail: Fail,
    ) -> None:
        self._settings = settings
        self._converter = converter
        self._book = book
        self._send = send
        self._fail = fail

    def convert(self, members: Sequence[Accepted]) -> Iterator[Converted]:
        """Export `members` in as few batches as succeed.

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
            self._send(Step(Stage.CONVERT, None, keys))
            try:
                model = self._converter.convert(self._request(batch))
                if len(batch) > 1:
                    # An exporter that cannot bring one case to the opset may leave all at another.
                    check_opset(model, self._settings.opset)
                    if not self._rules_are_clear(batch):
                        size = 1
                        continue
            except Exception as error:
                if len(batch) > 1:
                    rest = self._without_unsupported(batch, error)
                    if len(rest) < len(batch):
                        members = [*rest, *members[start + len(batch) :]]
                        start, size = 0, max(1, len(rest))
                        continue
                    size = max(1, len(batch) // 4)
                    continue
                outcome = Outcome.UNSUPPORTED if isinstance(error, UnsupportedOperator) else Outcome.ERROR
                self._fail(keys, Stage.CONVERT, outcome, error, blame="converter", rule=self._fired())
                size = 1
            else:
                elapsed = 1e3 * (time.perf_counter() - started)
                yield from self._check(Converted(model, tuple(batch), elapsed / len(keys), self._fired()))
                size = 2 * len(batch)
            start += len(batch)

    def _fired(self) -> str:
        """The rules that the last export called."""
        return ", ".join(sorted(self._book.fired)) if self._book else ""

    def _rules_are_clear(self, batch: Sequence[Accepted]) -> bool:
        """Whether the rules that the last export called took part in each of its cases.

        A rule for the very operator of every case, called as often as there are cases, did; one that
        decompositions reach, or that the exporter bypasses for some attributes, tells only of a case alone.
        """
        if self._book is None or not self._book.fired:
            return True
        rules = {self._book.rules.get(member.group.exported.overload) for member in batch}
        labels = {rule.label for rule in rules if rule is not None}
        return (
            None not in rules and labels == set(self._book.fired) and self._book.fired.total() == len(batch)
        )

    def _without_unsupported(self, batch: Sequence[Accepted], error: Exception) -> list[Accepted]:
        """The members left once those are reported that need an operator without any conversion.

        For each such operator one member is exported alone, which must fail in the same way and says in
        which words; the others with the same operator would fail in them too.
        """
        missing = error.missing if isinstance(error, UnsupportedOperator) else {}
        rest = list(batch)
        for operator in dict.fromkeys(missing.values()):
            needing = [m for m in rest if any(missing.get(n) == operator for n in m.structure.output_names)]
            self._send(Step(Stage.CONVERT, None, needing[0].keys))
            try:
                self._converter.convert(self._request(needing[:1]))
            except UnsupportedOperator as alone:
                if set(alone.missing.values()) == {operator}:
                    self._fail(keys_of(needing), Stage.CONVERT, Outcome.UNSUPPORTED, alone, blame="converter")
                    rest = [m for m in rest if m not in needing]
            except Exception:
                # It fails in another way: all of them are tried again.
                continue
        return rest

    def _request(self, members: Sequence[Accepted]) -> ExportRequest:
        return export_request(
            [m.structure for m in members], opset=self._settings.opset, dynamic=self._settings.dynamic
        )

    def _check(self, converted: Converted) -> list[Converted]:
        keys = keys_of(converted.members)
        self._send(Step(Stage.CHECK, None, keys))
        try:
            _check_model(converted, self._settings.opset)
        except Exception as error:
            if len(converted.members) > 1:
                return [c for half in halves(converted.members) for c in self._check(converted.part(half))]
            self._fail(keys, Stage.CHECK, Outcome.ERROR, error, blame="converter", converted=converted)
            return []
        return [converted]


def check_opset(model: onnx.ModelProto, opset: int | None) -> None:
    """Whether a model has the opset that was asked for.

    Raises:
        ValueError: it has another.
    """
    emitted = emitted_opset(model)
    if opset is not None and emitted != opset:
        raise ValueError(f"asked for opset {opset}, the converter emitted opset {emitted}")


def _check_model(converted: Converted, opset: int | None) -> None:
    """Raise where the model is not valid ONNX, not at the opset asked for, or not what was exported."""
    model = converted.model
    check_opset(model, opset)
    outputs = [o.name for o in model.graph.output]
    wanted = [n for m in converted.members for n in m.structure.output_names]
    if outputs != wanted:
        raise ValueError(f"the program returns {len(wanted)} tensors, the graph has {len(outputs)} outputs")
    onnx.checker.check_model(model, full_check=True)
