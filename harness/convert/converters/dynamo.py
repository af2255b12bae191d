"""`dynamo`: ``torch.onnx.export(..., dynamo=True)``, PyTorch's default exporter."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx
import torch

from harness.convert.converter import ConverterEntry, ExportRequest, PartialResult, UnsupportedOperator, register
from harness.convert.exporter_passes import passes_left_out
from harness.convert.fast.decomposition import NotDecomposed
from harness.convert.fast.direct_program import CapturedCalls, can_be_direct, captured_directly, failing_call
from harness.convert.fast.exporter_caches import OnlyDecomposed
from harness.convert.fast.exporter_check import exporter_check, exporter_notes, kept
from harness.convert.fast.partial_export import KnownFailures, PartialExport
from harness.convert.fast.torch_private import part, quiet, torchlib_functions
from harness.convert.rules.rule import RuleBook
from harness.convert.rules.template import Skeleton, SkeletonWanted, body
from harness.core.documents import with_causes
from harness.core.plugins import Unavailable, installed, installed_version
from harness.core.snippet import ExportSnippet, ExportWanted
from harness.core.tensors import BoundCall, overload


class DynamoConverter:
    """Exports through `torch.export` and torchlib.

    Args:
        public_api: Call the public function and keep nothing between calls.
        book: Conversion functions in place of torchlib's.
    """

    name = "dynamo"

    def __init__(self, public_api: bool, book: RuleBook | None = None) -> None:
        self.version = _version()
        self._public_api = public_api
        self._book = book
        functions = book.functions() if book else {}
        self._table: dict[Any, Any] | None = {overload(n): f for n, f in functions.items()} or None
        self._optimize = True
        #: Active while the exporter runs.
        self._passes: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._failures = KnownFailures()

    def unoptimised(self) -> DynamoConverter:
        """See `harness.convert.converter.HasUnoptimised`."""
        other = copy.copy(self)
        other._optimize = False
        return other

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.convert.converter.Converter`."""
        return self.program(request).model_proto

    def optimised(self, request: ExportRequest, left_out: Collection[str]) -> tuple[onnx.ModelProto, tuple[str, ...]]:
        """See `harness.convert.converter.HasExporterPasses`."""
        other, changing = copy.copy(self), dict[str, None]()
        other._passes = partial(passes_left_out, left_out, changing)
        return other.convert(request), tuple(changing)

    def program(self, request: ExportRequest) -> torch.onnx.ONNXProgram:
        """As `convert`, with the PyTorch graph that was translated; values have the same names in both.

        Raises:
            UnsupportedOperator: no conversion for an operator.
            Exception: anything else is the converter's error.
        """
        if self._book:
            self._book.start()
        direct = not (self._public_api or exporter_check().differences) and can_be_direct(request)
        # Captured once: to see whether it fails, and to be exported.
        calls = CapturedCalls(request) if direct else None
        failing = None if calls is None or request.tentative else failing_call(calls)
        if failing is not None and (known := self._failures.failure(*failing)) is not None:
            raise known
        fallbacks = not request.tentative and not (failing and self._failures.is_known(*failing))
        keeping = contextlib.nullcontext() if self._public_api else kept(fallbacks=fallbacks, adding=self._adding)
        with keeping as export, quiet():
            captured = None if calls is None or export is None else captured_directly(calls)
            try:
                if captured is not None:
                    try:
                        return self._export_whole(request, captured, ())
                    except Exception as error:
                        # Not all calls whose results have sizes that values decide are decomposed here.
                        if not any(isinstance(cause, NotDecomposed) for cause in with_causes(error)):
                            raise
                return self._export_whole(request, request.program, request.inputs)
            except Exception as error:
                if failing is not None and fallbacks and isinstance(error, part("not_captured")):
                    self._failures.learn(*failing, error)
                if exporter_check().lacks_conversion(error):
                    missing = export.missing_functions(request.output_names) if export is not None else {}
                    raise UnsupportedOperator(str(error), missing) from error
                raise

    def convert_parts(
        self, request: ExportRequest, begin: Callable[[Sequence[int]], None]
    ) -> Iterator[PartialResult] | None:
        """See `harness.convert.converter.ConvertsParts`."""
        # Which rules take part in a call is known of exports of the whole program only.
        known = not (self._public_api or self._book or exporter_check().differences)
        if not known or not can_be_direct(request):
            return None
        steps = _Steps(self._export, request.opset, self._failures, self._adding)
        return PartialExport(request, steps, begin).run()

    @property
    def _adding(self) -> bool:
        """Whether exports add conversion functions to the exporter's."""
        return self._table is not None

    def _export_whole(self, request: ExportRequest, program: Any, inputs: Any) -> torch.onnx.ONNXProgram:
        return self._export(
            program,
            inputs,
            request.input_names,
            request.output_names,
            opset_version=request.opset,
            dynamic_shapes=request.dynamic_shapes,
        )

    def _export(
        self, program: Any, inputs: Any, input_names: Sequence[str], output_names: Sequence[str], **more: Any
    ) -> torch.onnx.ONNXProgram:
        with self._passes():
            exported = torch.onnx.export(
                program,
                inputs,
                input_names=list(input_names),
                output_names=list(output_names),
                custom_translation_table=self._table,
                dynamo=True,
                optimize=self._optimize,
                verbose=False,
                **more,
            )
        assert exported is not None
        return exported


@dataclass(frozen=True)
class _Steps:
    """See `harness.convert.fast.partial_export.Exporting`."""

    call: Callable[..., torch.onnx.ONNXProgram]
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
        with kept(parts="after" if decomposed else "", adding=self.adding), quiet():
            try:
                model: onnx.ModelProto = self.call(program, (), inputs, outputs, opset_version=self.opset).model_proto
            except Exception as error:
                if exporter_check().lacks_conversion(error):
                    raise UnsupportedOperator(str(error)) from error
                raise
            return model

    def decompose(self, program: torch.export.ExportedProgram) -> tuple[torch.export.ExportedProgram, Sequence[str]]:
        with kept(parts="before", adding=self.adding) as export, quiet():
            assert export is not None
            try:
                self.call(program, (), (), (), opset_version=self.opset)
            except Exception as error:
                for cause in with_causes(error):
                    if isinstance(cause, NotDecomposed):
                        raise cause from error
                    if isinstance(cause, OnlyDecomposed):
                        break
                else:
                    raise
            return export.decomposed, export.lacking()


def _version() -> str:
    return f"torch {torch.__version__} onnxscript {installed_version('onnxscript')}"


def _probe() -> Unavailable | None:
    if installed("onnxscript"):
        return None
    return Unavailable(reason="onnxscript is not installed", install="pip install onnxscript")


def snippet(wanted: ExportWanted, *more: str) -> ExportSnippet:
    """The public call, with keyword arguments `more` added."""
    keywords = [f"input_names={wanted.names}", "dynamo=True", "verbose=False", *more]
    if wanted.opset is not None:
        keywords.append(f"opset_version={wanted.opset}")
    if wanted.dynamic is not None:
        keywords.append(f"dynamic_shapes={wanted.dynamic_shapes}")
    if wanted.rules:
        table = ", ".join(f"torch.ops.{name}: {function}" for name, function in wanted.rules.items())
        keywords.append(f"custom_translation_table={{{table}}}")
    return ExportSnippet(
        code=(
            *(("dynamic = torch.export.Dim.DYNAMIC",) if wanted.dynamic is not None else ()),
            "program = torch.onnx.export(",
            f"    Model().eval(), {wanted.arguments}, {', '.join(keywords[:3])},",
            *(f"    {keyword}," for keyword in keywords[3:]),
            ")",
            "model = program.model_proto",
        ),
        packages=("onnxscript",),
    )


def _skeleton(wanted: SkeletonWanted) -> Skeleton:
    functions = []
    for signature in wanted.signatures:
        # Numbers and lists come as Python values; what stays dynamic comes as a value of the graph.
        names = [p.declaration for p in signature.parameters]
        first_keyword = next((i for i, p in enumerate(signature.parameters) if p.keyword), None)
        if first_keyword is not None:
            names.insert(first_keyword, "*")
        functions += [
            f'@dynamo("{signature.torch_name}")',
            f"def {signature.function_name}({', '.join(names)}):",
            *body(wanted, signature),
            "",
            "",
        ]
    return Skeleton(
        code="\n".join(functions).rstrip() + "\n",
        imports=("from onnxscript import opset18 as op", "from harness.convert.rules import dynamo"),
    )


register(
    ConverterEntry(
        name="dynamo",
        probe=_probe,
        create=DynamoConverter,
        create_with_rules=DynamoConverter,
        version=_version,
        default=True,
        summary="torch.onnx.export(dynamo=True)",
        snippet=snippet,
        tracker="pytorch/pytorch",
        issue_form={
            "🐛 Describe the bug": (
                "{summary}\n\nThis script exits 1 while the defect is there:\n\n{code}\n\n"
                "Expected: {expected}\n\nActual:\n\n{actual}\n\n{diagnosis}\n\n{model}"
            ),
            "Versions": "{versions}",
        },
        decomposes=True,
        witness=1,
        conversions=torchlib_functions,
        notes=exporter_notes,
        skeleton=_skeleton,
    )
)
