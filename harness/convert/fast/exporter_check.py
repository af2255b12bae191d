"""Whether PyTorch's exporter is the one that the harness knows: found out once in a process, before its use.

Kept constants rest on private parts of PyTorch. If one of them is missing or has another form, or if a
small program gets another graph with them than from the plain public call, the harness exports with the plain
public call. That costs time and changes no verdict.

The classes of the exporter's errors are learned by making it fail, so that a new name of theirs changes no
verdict either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
import torch

from harness.convert.converter import ExportRequest
from harness.convert.fast.direct_program import CapturedCalls
from harness.convert.fast.exporter_caches import cached_constants, learned
from harness.convert.graph_lines import graph_lines
from harness.convert.operator_calls import OperatorCall, OperatorCalls
from harness.convert.torch_private import PARTS, changes, quiet
from harness.core.tensors import TENSOR_PLACE, BoundCall, output_tensors
from harness.core.text import describe_error, error_chain
from harness.core.torch_operators import OpOverload


@dataclass(frozen=True)
class ExporterCheck:
    """The findings of the exporter's self-test.

    Attributes:
        differences: Differences between the exporter and the one that the harness knows, a clause each.
        no_conversion: The exception it raises for an operator without a conversion; None if it cannot be
            distinguished from other failures.
        conversion_failed: The exception it raises on top of an error of a conversion function; None as above.
    """

    differences: tuple[str, ...]
    no_conversion: type[BaseException] | None
    conversion_failed: type[BaseException] | None

    def lacks_conversion(self, error: BaseException) -> bool:
        """Whether an export failed for lack of a conversion of an operator, its attributes or its dtypes."""
        converting = False
        for cause in error_chain(error):
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
    """Check the private parts and export small programs: about two seconds, once in a process."""
    with quiet():
        differences = changes()
        if not differences:
            differences = tuple(_graph_differences())
        constants = contextlib.nullcontext if differences else cached_constants
        no_conversion, conversion_failed = _learn_errors(constants)
    return ExporterCheck((*differences, *_renamed(no_conversion, conversion_failed)), no_conversion, conversion_failed)


def exporter_notes() -> tuple[str, ...]:
    """Return warnings about exports in this process: a line if the exporter differs from the known one."""
    found = exporter_check().differences
    if not found:
        return ()
    return (
        f"dynamo: PyTorch {torch.__version__} differs from what the harness knows ({'; '.join(found)}); "
        "every case is exported with the plain public call, which is slower",
    )


# The self-test


def _float() -> torch.Tensor:
    return torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.0, -0.25]])


@dataclass(frozen=True)
class _Sample:
    """A call of the self-test: an operator, its tensors, and the arguments after them."""

    operator: OpOverload
    tensors: tuple[torch.Tensor, ...]
    rest: tuple[Any, ...] = ()

    @property
    def call(self) -> OperatorCall:
        places = (TENSOR_PLACE,) * len(self.tensors)
        bound = BoundCall(self.operator, (*places, *self.rest), ())
        return OperatorCall(bound, len(self.tensors), len(output_tensors(bound(self.tensors))))


def _samples() -> dict[str, _Sample]:
    """Return calls that take every path through the fast lane, each under a name for its peculiarity."""
    aten, x = torch.ops.aten, _float()
    return {
        "converted as it is": _Sample(aten.relu.default, (x,)),
        "decomposed": _Sample(aten.hardshrink.default, (x,)),
        "several outputs": _Sample(aten.sort.default, (x,)),
        "a factory": _Sample(aten.arange.start, (), (1, 5)),
        "a decomposition that mutates": _Sample(aten.cosine_similarity.default, (x, x + 1)),
        "a composite": _Sample(aten.rms_norm.default, (x,), ([3],)),
        "a size that values decide": _Sample(aten.nonzero.default, (x,)),
        "complex": _Sample(aten.mul.Tensor, (x.to(torch.complex64), x.to(torch.complex64))),
        "a promoted pair": _Sample(aten.add.Tensor, (x, x.to(torch.int64))),
        "one that folds": _Sample(aten.repeat.default, (x,), ([2, 2],)),
    }


def _request(samples: Sequence[_Sample]) -> ExportRequest:
    calls = [sample.call for sample in samples]
    inputs = tuple(tensor for sample in samples for tensor in sample.tensors)
    outputs = [f"y{i}_{j}" for i, call in enumerate(calls) for j in range(call.results)]
    return ExportRequest(
        program=OperatorCalls(calls).eval(),
        inputs=inputs,
        input_names=tuple(f"x{i}" for i in range(len(inputs))),
        output_names=tuple(outputs),
    )


def _export(request: ExportRequest, program: Any = None, table: dict[Any, Any] | None = None) -> onnx.ModelProto:
    exported = torch.onnx.export(
        request.program if program is None else program,
        request.inputs if program is None else (),
        input_names=request.input_names,
        output_names=request.output_names,
        custom_translation_table=table,
        dynamo=True,
        verbose=False,
    )
    assert exported is not None
    model: onnx.ModelProto = exported.model_proto
    return model


@cache
def public_lines() -> dict[str, tuple[str, ...]]:
    """Return the kind of each call of the self-test → the graph that the plain public call gives it."""
    samples = _samples()
    request = _request(list(samples.values()))
    with quiet(), learned():
        model = _export(request)
    return {kind: graph_lines(model, _outputs(request, i)) for i, kind in enumerate(samples)}


def _outputs(request: ExportRequest, index: int) -> list[str]:
    return [name for name in request.output_names if name.startswith(f"y{index}_")]


def _graph_differences() -> Iterator[str]:
    """Whether the calls of the self-test get their public graphs: captured and kept, built, and alone."""
    samples = _samples()
    request = _request(list(samples.values()))
    whole = samples["converted as it is"]
    try:
        public = public_lines()
        # A size that values decide is captured apart from others.
        built = [sample for kind, sample in samples.items() if kind != "a size that values decide"]
        building = _request(built)
        with cached_constants():
            # A program in which nothing is decomposed goes another way, so the first is exported alone too.
            models = {
                "with kept constants": (request, _export(request), list(samples)),
                "alone": (_request([whole]), _export(_request([whole])), ["converted as it is"]),
                "when its program is built": (
                    building,
                    _export(building, CapturedCalls(building).program()),
                    [kind for kind, sample in samples.items() if sample in built],
                ),
            }
    except Exception as error:
        yield f"its self-test fails: {describe_error(error).splitlines()[0]}"
        return
    for way, (asked, model, kinds) in models.items():
        for i, kind in enumerate(kinds):
            if graph_lines(model, _outputs(asked, i)) != public[kind]:
                yield f"{samples[kind].operator}, {kind}, gets another graph {way}"


# The errors


@cache
def _unconvertible_operator() -> OpOverload:
    """Register and return an operator of a library that exporters do not know."""
    torch.library.define("harness_self_test::without_conversion", "(Tensor x) -> Tensor")
    torch.library.impl("harness_self_test::without_conversion", "default", torch.clone)
    found: OpOverload = torch.ops.harness_self_test.without_conversion.default
    return found


class _Refusal(NotImplementedError):
    """The exception of a conversion function that refuses its arguments."""


def _refuse(self: Any) -> Any:
    raise _Refusal


def _learn_errors(
    constants: Callable[[], AbstractContextManager[Any]],
) -> tuple[type[BaseException] | None, type[BaseException] | None]:
    """Return the classes of `ExporterCheck.no_conversion` and `ExporterCheck.conversion_failed`."""
    relu = torch.ops.aten.relu.default
    lacking = _causes(constants, _unconvertible_operator())
    refused = _causes(constants, relu, {relu: _refuse})
    no_conversion = lacking[-1] if lacking and lacking[-1] not in refused else None
    conversion_failed = refused[refused.index(_Refusal) - 1] if _Refusal in refused[1:] else None
    return no_conversion, conversion_failed


def _causes(
    constants: Callable[[], AbstractContextManager[Any]],
    operator: OpOverload,
    table: dict[Any, Any] | None = None,
) -> list[type[BaseException]]:
    """Return the classes of the errors that an export fails with, outermost first; none if it succeeds."""
    try:
        with constants():
            _export(_request([_Sample(operator, (_float(),))]), table=table)
    except Exception as error:
        return [type(cause) for cause in error_chain(error)]
    return []


def _renamed(*learned: type[BaseException] | None) -> Iterator[str]:
    """Yield how the classes differ from those that the exporter should raise."""
    for name, kind in zip(("no_conversion", "conversion_failed"), learned, strict=True):
        known = PARTS[name]
        if kind is None:
            yield f"{known.path} cannot be distinguished from other errors"
        elif kind.__name__ != known.path:
            yield f"{kind.__name__} is raised in place of {known.path}"
