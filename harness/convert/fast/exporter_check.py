"""Whether PyTorch's exporter is the one that the harness knows: found out once in a process, before its use.

Kept constants rest on private parts of PyTorch. Where one of them is missing or has another form, or where a
small program gets another graph with them than from the plain public call, the harness exports with the plain
public call. That costs time and changes no verdict.

The classes of the exporter's errors are learned by making it fail, so that a new name of theirs changes no
verdict either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
import torch

from harness.convert.converter import ExportRequest
from harness.convert.fast.direct_program import CapturedCalls
from harness.convert.fast.exporter_caches import KeptExport, kept as kept_constants, learned
from harness.convert.fast.torch_private import PARTS, changes, quiet
from harness.convert.operator_calls import OperatorCall, OperatorCalls
from harness.core.documents import describe_error, with_causes
from harness.core.tensors import TENSOR_PLACE, BoundCall
from harness.core.torch_operators import OpOverload


@dataclass(frozen=True)
class ExporterCheck:
    """What was found out.

    Attributes:
        differences: How the exporter differs from the one that the harness knows: a clause each.
        no_conversion: What it raises for an operator without a conversion; None if it cannot be
            distinguished from other failures.
        conversion_failed: What it raises on top of an error of a conversion function; None as above.
    """

    differences: tuple[str, ...]
    no_conversion: type[BaseException] | None
    conversion_failed: type[BaseException] | None

    def lacks_conversion(self, error: BaseException) -> bool:
        """Whether an export failed for want of a conversion of an operator, its attributes or its dtypes."""
        converting = False
        for cause in with_causes(error):
            if self.no_conversion is not None and isinstance(cause, self.no_conversion):
                return True
            # A conversion function refuses an attribute or a dtype with NotImplementedError. Raised
            # elsewhere, as by a meta kernel of PyTorch, it says nothing of conversions.
            if converting and isinstance(cause, NotImplementedError):
                return True
            converting = self.conversion_failed is not None and isinstance(cause, self.conversion_failed)
        return False


@cache
def exporter_check() -> ExporterCheck:
    """Look at the private parts and export small programs: about two seconds, once in a process."""
    with quiet():
        differences = changes()
        if not differences:
            differences = tuple(_graph_differences())
        constants = contextlib.nullcontext if differences else kept_constants
        no_conversion, conversion_failed = _learn_errors(constants)
    return ExporterCheck((*differences, *_renamed(no_conversion, conversion_failed)), no_conversion, conversion_failed)


def exporter_notes() -> tuple[str, ...]:
    """What a person should know of exports in this process: a line where the exporter is another one."""
    found = exporter_check().differences
    if not found:
        return ()
    return (
        f"dynamo: PyTorch {torch.__version__} differs from what the harness knows ({'; '.join(found)}); "
        "every case is exported with the plain public call, which is slower",
    )


def kept(*, fallbacks: bool = True, parts: str = "", adding: bool = True) -> AbstractContextManager[KeptExport | None]:
    """As `kept_constants.kept` where this PyTorch is as it should be; elsewhere nothing is kept."""
    if exporter_check().differences:
        return contextlib.nullcontext()
    return kept_constants(fallbacks=fallbacks, parts=parts, adding=adding)


# The self-test


class _Calls(torch.nn.Module):
    """One call of each operator, which takes one tensor: an input of its own."""

    def __init__(self, *operators: Callable[..., Any]) -> None:
        super().__init__()
        self._operators = operators

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(call(value) for call, value in zip(self._operators, inputs, strict=True))


def _export_built(*operators: OpOverload) -> onnx.ModelProto:
    calls = [OperatorCall(BoundCall(operator, (TENSOR_PLACE,), ()), 1, 1) for operator in operators]
    names = tuple(map(str, range(len(calls))))
    inputs = tuple(torch.ones(2, 3) for _ in calls)
    request = ExportRequest(program=OperatorCalls(calls), inputs=inputs, input_names=names, output_names=names)
    return _export(*operators, program=CapturedCalls(request).program())


def _export(
    *operators: Callable[..., Any],
    table: dict[Any, Any] | None = None,
    program: torch.export.ExportedProgram | None = None,
) -> onnx.ModelProto:
    exported = torch.onnx.export(
        _Calls(*operators).eval() if program is None else program,
        tuple(torch.ones(2, 3) for _ in operators) if program is None else (),
        input_names=[f"x{i}" for i in range(len(operators))],
        output_names=[f"y{i}" for i in range(len(operators))],
        custom_translation_table=table,
        dynamo=True,
        verbose=False,
    )
    assert exported is not None
    model: onnx.ModelProto = exported.model_proto
    return model


def _graph_differences() -> Iterator[str]:
    """Whether an operator that is converted as it is and one that is decomposed get their public graphs.

    One public export of both costs half of two. Kept constants treat a program in which nothing is taken
    apart in another way, so that the first operator is exported alone too. A program that is built rather
    than captured is the third way.
    """
    whole, apart = torch.ops.aten.relu.default, torch.ops.aten.hardshrink.default
    try:
        with learned():
            public = _export(whole, apart)
        with kept_constants():
            both, alone, built = _export(whole, apart), _export(whole), _export_built(whole, apart)
    except Exception as error:
        yield f"its self-test fails: {describe_error(error).splitlines()[0]}"
        return
    if _lines(public) != _lines(both):
        yield f"{apart} gets another graph with kept constants"
    if _lines(public, "y0") != _lines(alone, "y0"):
        yield f"{whole} gets another graph with kept constants"
    if _lines(public) != _lines(built):
        yield f"{whole} and {apart} get another graph when their program is built"


def _lines(model: onnx.ModelProto, output: str | None = None) -> list[bytes]:
    """What a model computes, without what says where its nodes come from; all of it, or one output."""
    wanted = {value.name for value in model.graph.output} if output is None else {output}
    lines = [opset.SerializeToString(deterministic=True) for opset in model.opset_import]
    for node in reversed(model.graph.node):
        if wanted & set(node.output):
            wanted |= set(node.input)
            bare = onnx.NodeProto()
            bare.CopyFrom(node)
            for field in ("name", "doc_string", "metadata_props"):
                bare.ClearField(field)
            lines.append(bare.SerializeToString(deterministic=True))
    for weight in model.graph.initializer:
        if weight.name in wanted:
            lines.append(weight.SerializeToString(deterministic=True))
    return lines


# The errors


@cache
def _without_conversion() -> Callable[..., Any]:
    """An operator of no library that exporters know."""
    torch.library.define("harness_self_test::without_conversion", "(Tensor x) -> Tensor")
    torch.library.impl("harness_self_test::without_conversion", "default", torch.clone)
    found: Callable[..., Any] = torch.ops.harness_self_test.without_conversion.default
    return found


class _Refusal(NotImplementedError):
    """What a conversion function raises that refuses its arguments."""


def _refuse(self: Any) -> Any:
    raise _Refusal


def _learn_errors(
    constants: Callable[[], AbstractContextManager[Any]],
) -> tuple[type[BaseException] | None, type[BaseException] | None]:
    """The classes of `ExporterCheck.no_conversion` and `ExporterCheck.conversion_failed`."""
    relu = torch.ops.aten.relu.default
    lacking = _causes(constants, _without_conversion())
    refused = _causes(constants, relu, {relu: _refuse})
    no_conversion = lacking[-1] if lacking and lacking[-1] not in refused else None
    conversion_failed = refused[refused.index(_Refusal) - 1] if _Refusal in refused[1:] else None
    return no_conversion, conversion_failed


def _causes(
    constants: Callable[[], AbstractContextManager[Any]],
    operator: Callable[..., Any],
    table: dict[Any, Any] | None = None,
) -> list[type[BaseException]]:
    """Classes of the errors that an export fails with, outermost first; none if it succeeds."""
    try:
        with constants():
            _export(operator, table=table)
    except Exception as error:
        return [type(cause) for cause in with_causes(error)]
    return []


def _renamed(*learned: type[BaseException] | None) -> Iterator[str]:
    """How the classes differ from those that the exporter should raise."""
    for name, kind in zip(("no_conversion", "conversion_failed"), learned, strict=True):
        known = PARTS[name]
        if kind is None:
            yield f"{known.path} cannot be distinguished from other errors"
        elif kind.__name__ != known.path:
            yield f"{kind.__name__} is raised in place of {known.path}"
