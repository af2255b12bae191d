"""One failing case in the worker process, with what witnesses need to look at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from harness import backends
from harness.backends.base import Backend, DeviceLost, ShapeRange, UnsupportedModel
from harness.blame.testimony import Finding
from harness.converters.base import Converter
from harness.dtypes import PRECISION
from harness.pipeline.execute import describe_error, judge_of
from harness.pipeline.program import Exportable, export_request, varying_dims
from harness.pipeline.reference import Reference, run_reference
from harness.pipeline.task import Complaint, Settings
from harness.tensors import bind, build_tensors
from harness.verdict.compare import compare
from harness.verdict.judge import Array, Mask
from harness.verdict.tolerances import DEFAULT
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
    def problem(self) -> str | None:
        """What is wrong with `got`, in a word; None where nothing is."""
        return None if self.got is None else compare(self.judge, self.reference, self.got).problem

    @cached_property
    def wrong(self) -> tuple[Mask, ...]:
        """Elements of `got` that are not close to PyTorch's, per output; all of an output whose shape or
        dtype differs."""
        assert self.got is not None
        return tuple(_differs(e, g) for e, g in zip(self.reference.expected, self.got, strict=True))

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
            options = {"opset": self.settings.opset, "dynamic": self.settings.dynamic}
            try:
                self._exports[key] = converter.convert(export_request([self.structure], **options))
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
        if self.complaint.outcome is Outcome.MISMATCH and self.is_given(answer.outputs):
            return Finding.SAME, ""
        return Finding.OTHER, f"{comparison.problem}: {comparison.detail}"

    def is_given(self, outputs: Sequence[Array]) -> bool:
        """Whether `outputs` are the failing backend's answer."""
        if self.got is None:
            return False
        try:
            given = _Given(self.got, self.reference.arguments)
            return compare(self.judge, given, outputs).problem is None
        except Exception:
            # A rule may rest on what only PyTorch's outputs are.
            return False

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


def _differs(expected: Array, got: Array) -> Mask:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return np.ones(expected.shape, dtype=bool)
    if str(expected.dtype) not in PRECISION:
        return np.asarray(expected != got)
    with np.errstate(all="ignore"):
        e, g = expected.astype(np.float64), got.astype(np.float64)
        tolerance = DEFAULT[str(expected.dtype)]
        close = (e == g) | (np.isnan(e) & np.isnan(g))
        close |= np.isfinite(e) & (np.abs(e - g) <= tolerance.atol + tolerance.rtol * np.abs(e))
        return np.asarray(~close | ((e == 0) & (g == 0) & (np.signbit(e) != np.signbit(g))))
