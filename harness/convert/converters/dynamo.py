"""`dynamo`: ``torch.onnx.export(..., dynamo=True)``, PyTorch's default exporter."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import onnx
import torch

from harness.convert.change import Change
from harness.convert.conversion_sources import later_conversions
from harness.convert.converter import (
    ConverterEntry,
    ExportRequest,
    ExportStep,
    PartialResult,
    UnsupportedOperator,
    register,
)
from harness.convert.exporter_passes import OptimiserLimit
from harness.convert.fast.exporter_check import exporter_check, exporter_notes
from harness.convert.fast.fast_export import FastExport
from harness.convert.fast.trust import Trust
from harness.convert.rules.rule import RuleBook
from harness.convert.second_export import SecondExports
from harness.convert.torch_private import forget_recurrent_kernels, quiet, torchlib_functions
from harness.core.plugins import Unavailable, installed, installed_version
from harness.core.snippet import ExportSnippet, ExportWanted
from harness.core.tensors import overload
from harness.core.torch_operators import register_all_operators


class DynamoConverter:
    """Exports through `torch.export` and torchlib.

    Args:
        public_api: Call the public function and keep nothing between calls.
        book: Conversion functions in place of torchlib's.
    """

    name = "dynamo"

    def __init__(self, public_api: bool, book: RuleBook | None = None) -> None:
        register_all_operators()
        self.version = _version()
        self._book = book
        functions = book.functions() if book else {}
        self._table: dict[Any, Any] | None = {overload(n): f for n, f in functions.items()} or None
        self._optimize = True
        #: Whether the whole optimiser runs.
        self._is_whole = True
        #: Makes what is active while the exporter runs, of the names of the outputs.
        self._passes: Callable[[Sequence[str]], contextlib.AbstractContextManager[None]] = _unlimited
        self._second = SecondExports(self.name, partial(self.public()._publicly, as_in_new_process=False))
        self._fast: FastExport | None = None
        if not public_api:
            self._fast = FastExport(Trust(self.name, self.version), lambda: self._table is not None)

    @property
    def trust(self) -> Trust | None:
        """See `harness.convert.converter.HasFastLane`."""
        return self._fast.trust if self._fast is not None else None

    @property
    def notes(self) -> tuple[str, ...]:
        """See `harness.convert.converter.HasNotes`."""
        return (*(self.trust.notes if self.trust else ()), *self._second.notes)

    def public(self) -> DynamoConverter:
        """See `harness.convert.converter.HasFastLane`."""
        other = copy.copy(self)
        other._fast = None
        return other

    def unoptimised(self) -> DynamoConverter:
        """See `harness.convert.converter.HasUnoptimised`."""
        other = copy.copy(self)
        other._optimize = other._is_whole = False
        return other

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.convert.converter.Converter`."""
        return self.program(request).model_proto

    def stopped_after(self, limit: int | None, changes: list[Change]) -> DynamoConverter:
        """See `harness.convert.converter.HasExporterPasses`."""
        other = copy.copy(self)
        other._passes = lambda names: OptimiserLimit(limit, changes, names).active()
        other._is_whole = self._is_whole and limit is None
        return other

    def program(self, request: ExportRequest) -> torch.onnx.ONNXProgram:
        """Convert as `convert` does, and return the PyTorch graph, too; values have the same names in both.

        Raises:
            UnsupportedOperator: no conversion for an operator.
            Exception: anything else is the converter's error.
        """
        if self._book:
            self._book.start()
        program = self._fast.program(request, self._export) if self._fast is not None else None
        if program is None:
            program = self._publicly(request)
            if self._is_whole:
                self._second.compare(request, program)
        return program

    def convert_parts(
        self, request: ExportRequest, begin: Callable[[Sequence[int]], None]
    ) -> Iterator[PartialResult] | None:
        """See `harness.convert.converter.ConvertsParts`."""
        # Which rules take part in a call is known of exports of the whole program only.
        if self._fast is None or self._book:
            return None
        return self._fast.parts(request, self._export, begin)

    def _publicly(self, request: ExportRequest, as_in_new_process: bool = True) -> torch.onnx.ONNXProgram:
        with quiet():
            try:
                call = request.model_call
                return self._export(
                    call.program,
                    call.onnx_arguments,
                    request.input_names,
                    request.output_names,
                    kwargs=dict(call.keywords) or None,
                    opset_version=request.opset,
                    dynamic_shapes=call.dynamic_shapes,
                    as_in_new_process=as_in_new_process,
                )
            except Exception as error:
                if exporter_check().lacks_conversion(error):
                    raise UnsupportedOperator(str(error)) from error
                raise

    def _export(
        self,
        program: Any,
        inputs: Any,
        input_names: Sequence[str],
        output_names: Sequence[str],
        *,
        as_in_new_process: bool = True,
        **options: Any,
    ) -> torch.onnx.ONNXProgram:
        if as_in_new_process and options.get("dynamic_shapes") is not None:
            # Otherwise the result would depend on what the process has exported before.
            forget_recurrent_kernels()
        with self._passes(output_names):
            exported = torch.onnx.export(
                program,
                inputs,
                input_names=list(input_names),
                output_names=list(output_names),
                custom_translation_table=self._table,
                dynamo=True,
                optimize=self._optimize,
                verbose=False,
                **options,
            )
        assert exported is not None
        return exported


def _unlimited(output_names: Sequence[str]) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _version() -> str:
    return f"torch {torch.__version__} onnxscript {installed_version('onnxscript')}"


def _probe() -> Unavailable | None:
    if installed("onnxscript"):
        return None
    return Unavailable(reason="onnxscript is not installed", install="pip install onnxscript")


def snippet(wanted: ExportWanted, *more: str) -> ExportSnippet:
    """Return the code of the public call, with keyword arguments `more` added."""
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


register(
    ConverterEntry(
        name="dynamo",
        steps=frozenset({ExportStep.EXPLICIT_DTYPES, ExportStep.NUMBERS}),
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
        later_conversions=lambda: later_conversions("dynamo"),
        notes=exporter_notes,
    )
)
