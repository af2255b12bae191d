"""The fast lane of the dynamo exporter: the only entry to this package's replacements for the exporter's work.

How an export goes:

1. `exporter_check` has compared every private name that is used, and the graphs of a self-test; if anything
   differs, nothing is fast.
2. The calls are captured one by one without tracing (`direct_program`), and the program is built from them.
3. The public function exports it, with process-wide constants kept between calls (`exporter_caches`).
4. An exception that this room raised is its own fault: it is noted, the calls are exported the public way, and the
   process goes on in the public lane.

The exporter's exceptions and each graph still need confirmation: `harness.pipeline.double_check`
confirms it with public exports.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import onnx
import torch

from harness.convert.converter import ExportRequest, PartialResult, UnsupportedOperator
from harness.convert.fast.decomposition import NotDecomposed
from harness.convert.fast.direct_program import (
    CapturedCalls,
    NotDirect,
    can_be_direct,
    captured_directly,
    failing_call,
)
from harness.convert.fast.exporter_caches import (
    OnlyDecomposed,
    cached_composites,
    cached_constants,
    decompositions_at,
    first_decompositions,
)
from harness.convert.fast.exporter_check import exporter_check
from harness.convert.fast.partial_export import KnownFailures, PartialExport
from harness.convert.fast.trust import Trust
from harness.convert.operator_calls import OperatorCalls
from harness.convert.torch_private import decomposition_table, part, quiet
from harness.core.recent import Recent
from harness.core.tensors import BoundCall
from harness.core.text import error_chain, first_line


@contextmanager
def quick_decompositions() -> Iterator[dict[Any, Callable[..., Any]]]:
    """Let `ExportedProgram.run_decompositions` in the block reuse constants of the process, which changes no result.

    It has no effect if PyTorch differs from what the harness knows.

    Yields:
        The table of decompositions that the exporter uses.
    """
    if exporter_check().differences:
        yield dict(decomposition_table())
        return
    known = first_decompositions()
    with cached_composites():
        yield dict(decomposition_table() if known is None else known.table)


class Export(Protocol):
    """Calls the public function of the exporter."""

    def __call__(
        self, program: Any, inputs: Any, input_names: Sequence[str], output_names: Sequence[str], **options: Any
    ) -> torch.onnx.ONNXProgram:
        """Return the exported program."""


class FastExport:
    """Exports through the fast lane.

    Args:
        trust: The record of operators that may take the fast lane.
        adding: Says whether exports add conversion functions to the exporter's, and need a copy of its registry.
    """

    def __init__(self, trust: Trust, adding: Callable[[], bool]) -> None:
        self.trust = trust
        self._adding = adding
        self._failures = KnownFailures()
        # Each entry holds the objects whose identities its key has, so that no other object gets them.
        self._kept: Recent[Hashable, CapturedCalls] = Recent(_CALLS_KEPT)
        self._decomposed: Recent[Hashable, _Decomposed] = Recent(_CALLS_KEPT)

    def _captured(self, request: ExportRequest) -> CapturedCalls:
        """Return the calls of a request, captured; the same ones at another opset are captured once."""
        assert isinstance(request.program, OperatorCalls)
        if request.opset is None:
            return CapturedCalls(request)
        key = _identity(request)
        calls = self._kept.get(key)
        if calls is None or calls.is_sized_by_values:
            # Facts about symbols belong to one export.
            calls = CapturedCalls(request)
            self._kept.keep(key, calls, len(calls))
        return calls

    def covers(self, request: ExportRequest) -> bool:
        """Whether a request may be exported here."""
        # A user's model is exported as its user does.
        if request.call is not None:
            return False
        overloads = request.program.overloads if isinstance(request.program, OperatorCalls) else ()
        return not exporter_check().differences and all(map(self.trust.covers, overloads))

    def program(self, request: ExportRequest, export: Export) -> torch.onnx.ONNXProgram | None:
        """Return the program of a request; None if it must be exported the public way.

        Raises:
            UnsupportedOperator: no conversion for an operator.
            Exception: anything else is the converter's error.
        """
        if not self.covers(request):
            return None
        calls, failing = None, None
        try:
            if can_be_direct(request):
                # Captured once: to see whether it fails, and to be exported.
                calls = self._captured(request)
                failing = None if request.tentative else failing_call(calls)
            known = self._failures.failure(*failing) if failing is not None else None
            if known is None:
                return self._exported(request, export, calls, failing)
        except Exception as error:
            if not self._ends(error):
                raise
            return None
        raise known

    def _exported(
        self,
        request: ExportRequest,
        export: Export,
        calls: CapturedCalls | None,
        failing: tuple[BoundCall, BaseException] | None,
    ) -> torch.onnx.ONNXProgram:
        fallbacks = not request.tentative and not (failing and self._failures.is_known(*failing))

        def whole(program: Any, inputs: Any) -> torch.onnx.ONNXProgram:
            options = {"opset_version": request.opset, "dynamic_shapes": request.dynamic_shapes}
            return export(program, inputs, request.input_names, request.output_names, **options)

        key = self._key(request)
        kept = self._decomposed.get(key) if key is not None else None
        parts = "" if kept is None else "after"
        with cached_constants(fallbacks=fallbacks, parts=parts, adding=self._adding()) as keeping, quiet():
            try:
                if kept is not None:
                    names = request.input_names, request.output_names
                    return export(kept.program, (), *names, opset_version=request.opset)
                captured = captured_directly(calls) if calls is not None else None
                try:
                    found = whole(request.program, request.inputs) if captured is None else whole(captured, ())
                except Exception as error:
                    # Not all calls whose results have sizes that values decide are decomposed here.
                    undecomposed = any(isinstance(cause, NotDecomposed) for cause in error_chain(error))
                    if captured is None or not undecomposed:
                        raise
                    found = whole(request.program, request.inputs)
                if key is not None:
                    # A failure leaves a program behind whose dtypes are promoted in part.
                    self._decomposed.keep(key, _Decomposed(keeping.decomposed, request), len(request.output_names))
                return found
            except Exception as error:
                if failing is not None and fallbacks and isinstance(error, part("not_captured")):
                    self._failures.learn(*failing, error)
                if exporter_check().lacks_conversion(error):
                    raise UnsupportedOperator(str(error), keeping.missing_functions(request.output_names)) from error
                raise

    def _key(self, request: ExportRequest) -> Hashable | None:
        """Return the key of a request's decomposed program; None if no other opset can share the program."""
        by = None if self._adding() or request.opset is None else decompositions_at(request.opset)
        if by is None or not isinstance(request.program, OperatorCalls):
            return None
        return _identity(request), request.dynamic_dims, by

    def parts(
        self, request: ExportRequest, export: Export, begin: Callable[[Sequence[int]], None]
    ) -> Iterator[PartialResult] | None:
        """See `harness.convert.converter.ConvertsParts`."""
        if not can_be_direct(request) or not self.covers(request):
            return None
        return self._parts(request, _Steps(export, request.opset, self._failures, self._adding()), begin)

    def _parts(
        self, request: ExportRequest, steps: _Steps, begin: Callable[[Sequence[int]], None]
    ) -> Iterator[PartialResult]:
        assert isinstance(request.program, OperatorCalls)
        left = set(range(len(request.program.calls)))
        try:
            for result in PartialExport(request, self._captured(request), steps, begin).run():
                if result.failure is not None and self._ends(result.failure):
                    break
                left -= set(result.calls)
                yield result
        except Exception as error:
            if not self._ends(error):
                raise
        if left:
            # Exported again, the public way.
            yield PartialResult(calls=tuple(sorted(left)))

    def _ends(self, error: BaseException) -> bool:
        """End the trust in this lane if an exception is its own fault."""
        place = own_place(error)
        if place:
            self.trust.end(f"{first_line(error)} at {place}")
        return bool(place)


@dataclass(frozen=True)
class _Decomposed:
    """A decomposed program, and the request that it was made for."""

    program: torch.export.ExportedProgram
    request: ExportRequest


def _identity(request: ExportRequest) -> Hashable:
    """Return the calls of a request and the memory of its inputs: a repeated request has both."""
    calls = tuple(id(call.call) for call in request.program.calls) if isinstance(request.program, OperatorCalls) else ()
    return calls, tuple((t.data_ptr(), tuple(t.shape), t.stride(), t.dtype) for t in request.inputs)


#: Those of two units of an operator, static and not.
_CALLS_KEPT = 512
#: Exceptions of this package for work that is left to PyTorch, or for a missing conversion.
_DECISIONS = (NotDirect, NotDecomposed, OnlyDecomposed, UnsupportedOperator)
_ROOM = "harness.convert.fast."
#: Modules of the exporter and of its callees. Frames of other modules belong to the caller.
_KNOWN = ("harness.", "torch.", "onnxscript.", "onnx.", "onnx_ir.")


def own_place(error: BaseException) -> str:
    """Return where this room raised an exception or one of its causes, as ``tracing.py:120``; "" if it did not."""
    for cause in error_chain(error):
        if not isinstance(cause, _DECISIONS) and (frame := _innermost(cause.__traceback__)) is not None:
            module: str = frame.tb_frame.f_globals["__name__"]
            if module.startswith(_ROOM):
                return f"{module.removeprefix(_ROOM)}.py:{frame.tb_lineno}"
    return ""


def _innermost(frame: TracebackType | None) -> TracebackType | None:
    found = None
    while frame is not None:
        if str(frame.tb_frame.f_globals.get("__name__", "")).startswith(_KNOWN):
            found = frame
        frame = frame.tb_next
    return found


@dataclass(frozen=True)
class _Steps:
    """See `harness.convert.fast.partial_export.Exporting`."""

    call: Export
    opset: int | None
    failures: KnownFailures
    adding: bool

    def known_failure(self, call: BoundCall, error: BaseException) -> Exception | None:
        return self.failures.failure(call, error)

    def export(
        self,
        program: torch.export.ExportedProgram,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        decomposed: bool,
    ) -> onnx.ModelProto:
        with cached_constants(parts="after" if decomposed else "", adding=self.adding), quiet():
            try:
                model: onnx.ModelProto = self.call(program, (), inputs, outputs, opset_version=self.opset).model_proto
            except Exception as error:
                if exporter_check().lacks_conversion(error):
                    raise UnsupportedOperator(str(error)) from error
                raise
            return model

    def decompositions(self) -> Hashable | None:
        return None if self.adding else decompositions_at(self.opset)

    def decompose(self, program: torch.export.ExportedProgram) -> tuple[torch.export.ExportedProgram, Sequence[str]]:
        with cached_constants(parts="before", adding=self.adding) as export, quiet():
            try:
                self.call(program, (), (), (), opset_version=self.opset)
            except Exception as error:
                for cause in error_chain(error):
                    if isinstance(cause, NotDecomposed):
                        raise cause from error
                    if isinstance(cause, OnlyDecomposed):
                        break
                else:
                    raise
            return export.decomposed, export.lacking()
