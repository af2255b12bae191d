"""The calls of a program run one by one: what a backend gives for each feeds those behind it.

A program is right where each of its calls is right by itself, on the values that the backend gave for the calls
before, and the chain of these results is what the backend gives for the program: nothing is wrong between the calls
then, whatever the whole is compared with. So what a single call may leave open, such as an overflow on its way to a
mean, a program may, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx

from harness.compare.comparison import compare, wrong_elements
from harness.compare.judge import CLOSE, Mask
from harness.compare.nearness import tolerance_of
from harness.compare.output_comparison import OutputComparison
from harness.convert.converter import Converter
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Argument, Invocation, Literal, Result, TensorSpec, Weight, contiguous_strides
from harness.core.program import Program, with_arguments
from harness.core.tensors import held_tensor
from harness.execute.program import Exportable, export_alone
from harness.execute.reference import Reference, run_reference
from harness.execute.run_steps import StepFailure, outputs_or_failure
from harness.execute.torch_call import CallRejected, to_numpy
from harness.run.backend import Backend, DeviceLost

#: Elements of a value above which a call is not run by itself: its values are written out.
MOST = 4096


@dataclass(frozen=True)
class CallAlone:
    """A call of a program by itself.

    Attributes:
        invocation: The call, with the values that it gets in the program as its inputs.
        reference: PyTorch's answer.
        model: Its export; None where there is none.
        got: What the backend gives, or why it gives nothing; None where there is no model.
    """

    invocation: Invocation
    reference: Reference
    model: onnx.ModelProto | None = None
    got: tuple[Array, ...] | StepFailure | None = None

    @property
    def outputs(self) -> tuple[Array, ...]:
        """What the backend gives; none where it gives nothing."""
        return self.got if isinstance(self.got, tuple) else ()

    @cached_property
    def comparison(self) -> OutputComparison | None:
        """What is wrong with what the backend gives; None where it gives nothing."""
        if not isinstance(self.got, tuple):
            return None
        return compare(self.reference.judge, self.reference, self.got)

    @property
    def passes(self) -> bool:
        """Whether the backend's answer is right."""
        return self.comparison is not None and self.comparison.problem is None


def run_calls(
    invocation: Invocation, converter: Converter, backend: Backend, *, opset: int | None, index: int = 0
) -> Iterator[CallAlone | None]:
    """Run each call of a program by itself, in order; None for one that cannot be.

    Where a call gives nothing, or something wrong, those behind it get PyTorch's values.
    """
    program = Program.of(invocation)
    results: list[tuple[Array, ...]] = []

    def valued(argument: Argument) -> Argument:
        if isinstance(argument, Weight):
            return argument.spec if not argument.dtype else _spec(to_numpy(held_tensor(argument)))
        return _spec(results[argument.call][argument.output]) if isinstance(argument, Result) else argument

    for call in program.calls:
        alone = with_arguments(call, valued)
        try:
            reference = run_reference(alone)
        except CallRejected:
            # With what the backend gave for those before.
            yield None
            return
        results.append(reference.expected)
        if any(spec.numel > MOST for spec in alone.tensors()):
            yield None
            continue
        found = _run(reference, converter, backend, opset, index)
        yield found
        if found is not None and found.passes:
            results[-1] = found.outputs


def _run(
    reference: Reference, converter: Converter, backend: Backend, opset: int | None, index: int
) -> CallAlone | None:
    alone = reference.invocation
    structure = Exportable.of(alone, [alone], outputs=len(reference.expected), index=index)
    try:
        model = export_alone(converter, structure, opset=opset)
        got = outputs_or_failure(backend, model, structure.feeds(model, reference.feeds))
    except DeviceLost:
        raise
    except Exception:
        # It cannot be exported by itself: that is no result to compare.
        return None
    return CallAlone(alone, reference, model, got)


def is_chain_of_right_calls(
    reference: Reference, got: Sequence[Array], converter: Converter, backend: Backend, *, opset: int | None
) -> bool:
    """Whether what a backend gives for a program is what its calls give one by one, each of which is right."""
    calls = []
    for call in run_calls(reference.invocation, converter, backend, opset=opset):
        if call is None or not call.passes:
            return False
        calls.append(call)
    chained = [calls[result.call].outputs[result.output] for result in Program.of(reference.invocation).returns]
    if len(chained) != len(got):
        return False
    wrong = wrong_elements(reference.judge, reference, got)
    return all(map(_same, chained, got, wrong))


def _same(chained: Array, got: Array, wrong: Mask) -> bool:
    """Whether both are the same but for the last places where something is wrong."""
    dtype = str(got.dtype)
    if (chained.shape, str(chained.dtype)) != (got.shape, dtype):
        return False
    if dtype not in PRECISION:
        return bool((chained == got)[wrong].all())
    return bool(tolerance_of(CLOSE, dtype).accepts(chained.astype(np.float64), got.astype(np.float64))[wrong].all())


def _spec(array: Array) -> TensorSpec:
    # JSON and PyTorch know no numbers of ml_dtypes.
    wide = array.astype(np.float64) if str(array.dtype) in PRECISION else array
    values = Literal(tuple(wide.flatten().tolist()))
    return TensorSpec(array.shape, str(array.dtype), contiguous_strides(array.shape), 0, values)
