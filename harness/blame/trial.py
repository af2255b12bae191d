"""One failing case in the worker process, with what witnesses need to look at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from harness import backends
from harness.backends.base import Backend, DeviceLost, HasPlain, ShapeRange, UnsupportedModel
from harness.blame.testimony import Finding
from harness.converters.base import Converter
from harness.dtypes import PRECISION
from harness.pipeline.execute import describe_error, judge_of
from harness.pipeline.program import Exportable, export_request, varying_dims
from harness.pipeline.reference import Reference, run_reference
from harness.pipeline.task import Complaint, Settings
from harness.tensors import bind, build_tensors
from harness.verdict.compare import Comparison, compare
from harness.verdict.judge import Array, Evidence, Judge, Mask
from harness.verdict.nearness import tolerance_of
from harness.verdict.verdict import Outcome


@dataclass(frozen=True)
class Answer:
    """What a backend makes of a model.

    Attributes:
        outputs: One per output; None where it failed.
        error: Why it failed.
        unsupported: Whether it admits a gap.
    """

    outputs: tuple[Array, ...] | None = None
    error: str = ""
    unsupported: bool = False


@dataclass(frozen=True)
class _Given:
    """An oracle that knows one answer only: to tell whether two answers are the same."""

    expected: tuple[Array, ...]
    arguments: Mapping[str, Any]
    truth: None = None
    magnitude: None = None
    unscaled: None = None
    marked: None = None
    sensitivity: None = None
    flushed: None = None


class Trial:
    """A failure and the means to look into it.

    Args:
        complaint: The failure.
        settings: The run's.
        converter: Started converters by name.
        backend: Started backends by name.
        exports: Kept for all trials of one task.
    """

    def __init__(
        self,
        complaint: Complaint,
        settings: Settings,
        converter: Callable[[str], Converter],
        backend: Callable[[str], Backend],
        exports: dict[tuple[int, str], onnx.ModelProto | Exception],
    ) -> None:
        self.complaint = complaint
        self.settings = settings
        self.converter = converter
        self.backend = backend
        self._exports = exports
        self.invocation = dict(complaint.group.cases)[complaint.case]
        self.judge = judge_of(self.invocation)
        self.model = onnx.load_model_from_string(complaint.model)

    @property
    def accused(self) -> Backend:
        """The backend that failed."""
        return self.backend(self.complaint.backend)

    @cached_property
    def reference(self) -> Reference:
        """PyTorch's answer."""
        return run_reference(self.invocation)

    @cached_property
    def got(self) -> tuple[Array, ...] | None:
        """The failing backend's answer to the case alone; None where it fails."""
        return self.ask(self.accused, self.model).outputs

    @cached_property
    def comparison(self) -> Comparison | None:
        """What is wrong with `got`; None where there is nothing to compare."""
        return None if self.got is None else compare(self.judge, self.reference, self.got)

    @cached_property
    def wrong(self) -> tuple[Mask, ...]:
        """Elements of `got` that are not PyTorch's, per output; see `differs`."""
        assert self.got is not None
        return self.differs(self.got)

    @cached_property
    def plain(self) -> Answer | None:
        """The failing backend's answer with its graph optimisations off; None where it has no such thing."""
        accused = self.accused
        return self.ask(accused.plain(), self.model) if isinstance(accused, HasPlain) else None

    def differs(self, outputs: Sequence[Array]) -> tuple[Mask, ...]:
        """Elements of `outputs` that are wrong or not close to PyTorch's, per output; all of an output whose
        shape or dtype differs."""
        expected, judge, arguments = self.reference.expected, self.judge, self.reference.arguments
        undefined: Sequence[Mask | None] = [None] * len(expected)
        if judge.undefined:
            undefined = judge.undefined(arguments, expected)
        masks = []
        for i, (e, g, skip) in enumerate(zip(expected, outputs, undefined, strict=True)):
            mask = _differs(judge, e, g)
            if i in judge.rules and e.shape == g.shape and e.dtype == g.dtype:
                mask = judge.rules[i](Evidence(arguments, expected, outputs), i)
            masks.append(mask if skip is None else mask & ~skip)
        return tuple(masks)

    @cached_property
    def structure(self) -> Exportable:
        """What was exported."""
        group = self.complaint.group
        return Exportable(
            index=group.index,
            call=bind(group.exported),
            tensors=build_tensors(group.exported),
            outputs=len(self.reference.expected),
            dynamic_dims=varying_dims(group.exported, [invocation for _, invocation in group.cases]),
        )

    def export(self, converter: Converter, kind: str) -> onnx.ModelProto:
        """The export of this case's structure alone; made once for all trials of the structure.

        Args:
            converter: Makes it.
            kind: Tells the exports of one structure apart.

        Raises:
            Exception: the converter's own.
        """
        key = self.complaint.group.index, kind
        if key not in self._exports:
            opset, dynamic = self.settings.opset, self.settings.dynamic
            request = export_request([self.structure], opset=opset, dynamic=dynamic)
            try:
                self._exports[key] = converter.convert(request)
            except Exception as error:
                self._exports[key] = error
        found = self._exports[key]
        if isinstance(found, Exception):
            raise found
        return found

    def feeds(self, model: onnx.ModelProto, reference: Reference | None = None) -> dict[str, Array]:
        """Input name → array, for the inputs that `model` has."""
        values = (reference or self.reference).feeds
        present = {value.name for value in model.graph.input}
        named = zip(self.structure.input_names, values, strict=True)
        return {name: array for name, array in named if name in present}

    def ask(self, backend: Backend, model: onnx.ModelProto, reference: Reference | None = None) -> Answer:
        """Run `model` in `backend` on the case's inputs, or on those of `reference`."""
        try:
            session = backend.load(model, self._ranges(model))
            if not session.runnable:
                return Answer(error="it cannot run on this machine", unsupported=True)
            return Answer(tuple(session.run(self.feeds(model, reference))))
        except DeviceLost:
            raise
        except UnsupportedModel as error:
            return Answer(error=_short(error), unsupported=True)
        except Exception as error:
            return Answer(error=_short(error))

    def find(self, answer: Answer) -> tuple[Finding, str]:
        """What `answer` is in view of PyTorch's and the failing backend's, and how it is wrong."""
        if answer.outputs is None:
            return (Finding.LACKS if answer.unsupported else Finding.REFUSES), answer.error
        comparison = compare(self.judge, self.reference, answer.outputs)
        if comparison.problem is None:
            return Finding.RIGHT, ""
        wrong = f"{comparison.problem}: {comparison.detail}"
        if self.complaint.outcome is Outcome.MISMATCH and self._is_same(answer.outputs, comparison):
            return Finding.SAME, wrong
        return Finding.OTHER, wrong

    def _is_same(self, outputs: Sequence[Array], comparison: Comparison) -> bool:
        if comparison.problem in ("shape", "dtype", "number of outputs"):
            # The detail says all of it.
            assert self.comparison is not None
            return comparison.detail == self.comparison.detail
        return self.is_given(outputs, self.got)

    def is_given(self, outputs: Sequence[Array], answer: tuple[Array, ...] | None) -> bool:
        """Whether `outputs` are the same as `answer`."""
        if answer is None:
            return False
        try:
            given = _Given(answer, self.reference.arguments)
            return compare(self.judge, given, outputs).problem is None
        except Exception:
            # A rule may rest on what only PyTorch's outputs are.
            return False

    def is_as_wrong(self, outputs: Sequence[Array]) -> bool:
        """Whether `outputs` are what the failing backend gives with its optimisations off, and are wrong
        wherever it is wrong with them: the optimisations change a result that is wrong without them."""
        plain = self.plain.outputs if self.plain else None
        if self.got is None or plain is None or not self.is_given(outputs, plain):
            return False
        return all(not (w & ~o).any() for w, o in zip(self.wrong, self.differs(outputs), strict=True))

    def agrees(self, outputs: Sequence[Array]) -> bool:
        """Whether the failing backend would be right if PyTorch had answered `outputs`."""
        assert self.got is not None
        other = replace(self.reference, expected=tuple(outputs))
        return compare(self.judge, other, self.got).problem is None

    def narrows(self, backend: Backend) -> bool:
        """Whether `backend` would compute the case in a narrower dtype."""
        return any(backend.narrows(dtype) for dtype in self.reference.dtypes)

    def is_independent(self, name: str) -> bool:
        """Whether backend `name` shares no engine with the failing one."""
        return _engine(name) != _engine(self.complaint.backend)

    def _ranges(self, model: onnx.ModelProto) -> dict[str, ShapeRange] | None:
        if not self.settings.dynamic:
            return None
        present = {value.name for value in model.graph.input}
        cases = [invocation for _, invocation in self.complaint.group.cases]
        shapes = [[spec.shape for spec in invocation.tensors()] for invocation in cases]
        return {
            name: ShapeRange(
                min=tuple(map(min, zip(*seen, strict=True))),
                opt=seen[0],
                max=tuple(map(max, zip(*seen, strict=True))),
            )
            for j, name in enumerate(self.structure.input_names)
            if name in present
            for seen in [[s[j] for s in shapes]]
        }


def _engine(name: str) -> str:
    entry, _ = backends.find(name)
    return entry.engine or name


def _short(error: Exception) -> str:
    return describe_error(error).partition("\ncaused by ")[0].replace("\n", " ")[:200]


def _differs(judge: Judge, expected: Array, got: Array) -> Mask:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return np.ones(expected.shape, dtype=bool)
    if str(expected.dtype) not in PRECISION:
        return np.asarray(expected != got)
    with np.errstate(all="ignore"):
        e, g = expected.astype(np.float64), got.astype(np.float64)
        tolerance = tolerance_of(judge, str(expected.dtype))
        close = (e == g) | (np.isnan(e) & np.isnan(g))
        close |= np.isfinite(e) & (np.abs(e - g) <= tolerance.atol + tolerance.rtol * np.abs(e))
        return np.asarray(~close | ((e == 0) & (g == 0) & (np.signbit(e) != np.signbit(g))))
