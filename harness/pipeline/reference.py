"""PyTorch's answer to a case: its outputs in the case's dtype, and in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch

from harness.compare.judge import Judge
from harness.compare.nearness import SCALES, KnownSensitivity, Sensitivity, paired
from harness.core.dtypes import PARTS, Array, is_float
from harness.core.invocation import Argument, Invocation
from harness.core.program import Program, is_program, weights_of, widen_weights
from harness.core.tensors import bind, build_tensors, output_tensors
from harness.core.torch_arrays import to_numpy
from harness.generate.operator_case import judge_of
from harness.pipeline import perturbation
from harness.pipeline.case import CaseOracle
from harness.pipeline.definition import defined_outputs
from harness.pipeline.rounding_oracle import Move, RoundingOracle
from harness.pipeline.torch_call import call_in_float64, call_invocation, reference_outputs

OracleT = TypeVar("OracleT", bound=CaseOracle)


@dataclass(frozen=True)
class CallOracle(CaseOracle):
    """PyTorch's answer to a call, and the same call in float64."""

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """Schema name → value, tensors as arrays, complex numbers as such; for rules."""
        return self.invocation.arguments_with(self.feeds)

    @property
    def judge(self) -> Judge:
        """Return the judge of a backend's outputs."""
        return judge_of(self.invocation)

    @cached_property
    def sensitivity(self) -> tuple[Sensitivity | None, ...] | None:
        """Return the sensitivity to inputs in the neighbourhood; None if float64 has no answer."""
        coordinates = judge_of(self.invocation).coordinates
        dtypes = [str(a.dtype) for a in self.expected]
        return perturbation.sensitivity(self.invocation, self._float64_outputs, dtypes, coordinates)

    @cached_property
    def _float64_outputs(self) -> tuple[Array | None, ...] | None:
        return _run_wide(self.invocation)

    @cached_property
    def flushed(self) -> tuple[Array, ...] | None:
        """Return the outputs with zeros in place of subnormal inputs; None if no input is subnormal."""
        outputs = perturbation.flushed(self.invocation)
        return None if outputs is None else tuple(outputs)

    @cached_property
    def truth(self) -> tuple[Array | None, ...] | None:
        """The outputs in float64; None for an output, or as a whole, if float64 gives none.

        A sum of products that has an infinity among its factors is decided by their signs, of which float64
        loses sight where other products overflow on the way.
        """
        found = self._float64_outputs
        judge = judge_of(self.invocation)
        if found is None or not judge.accumulates or judge.terms or all(map(_is_finite, found)):
            return found
        if all(map(_is_finite, self.feeds)):
            return found
        signs = _run_wide(self.invocation, _sign, keep_scales=True)
        return found if signs is None else tuple(map(_decided, found, signs))

    @cached_property
    def magnitude(self) -> tuple[Array | None, ...] | None:
        """The outputs in float64 for the absolute values of the inputs."""
        return self._pair_parts(_run_wide(self.invocation, _absolute))

    @cached_property
    def unscaled(self) -> tuple[Array | None, ...] | None:
        """The magnitude with scales of at least one."""
        return self._pair_parts(_run_wide(self.invocation, _absolute, least_scale=1))

    @cached_property
    def marked(self) -> tuple[Array | None, ...] | None:
        """The magnitude with 1 for every finite number, scales of at least one: finite if all numbers are."""
        return self._pair_parts(_run_wide(self.invocation, _marked, least_scale=1))

    @cached_property
    def finite_terms(self) -> tuple[tuple[Array | None, ...] | None, tuple[Array | None, ...] | None]:
        """The truth and the magnitude with zeros for infinite inputs and NaN."""
        truth = _run_wide(self.invocation, _zeroed, keep_scales=True)
        return truth, self._pair_parts(_run_wide(self.invocation, lambda tensor: _absolute(_zeroed(tensor))))

    @cached_property
    def definition(self) -> tuple[Array, ...] | None:
        """The outputs of PyTorch's own definition of the operator; see `harness.pipeline.definition`."""
        return defined_outputs(self.invocation)

    def _pair_parts(self, found: tuple[Array | None, ...] | None) -> tuple[Array | None, ...] | None:
        """Return outputs for real inputs, once for each part if the case's own are complex."""
        if found is None or len(found) != len(self.expected):
            return found
        return tuple(
            None if one is None else paired(one, expected.shape)
            for one, expected in zip(found, self.expected, strict=True)
        )


class ProgramOracle(CaseOracle):
    """PyTorch's answer to a program, with its float64 result and the effect of its calls' roundings."""

    @cached_property
    def _rounding(self) -> RoundingOracle:
        program = widen_weights(Program.of(self.invocation))
        steps = bind(program.invocation)

        @contextmanager
        def wide() -> Iterator[Callable[[Move], Sequence[torch.Tensor]]]:
            inputs = [t.double() if t.is_floating_point() else t for t in build_tensors(self.invocation)]

            def compute(move: Move) -> Sequence[torch.Tensor]:
                # A weight that a call changes in place is built anew.
                moved = [move(t) if t.is_floating_point() else t.clone() for t in inputs]
                now = bind(program.invocation) if program.changes_in_place else steps
                return output_tensors(now(moved))

            yield compute

        return RoundingOracle(self.expected, self._dtypes_of_calls, wide)

    @property
    def _dtypes_of_calls(self) -> frozenset[str]:
        """Return the dtypes of inputs, weights and outputs: the calls round to the narrowest."""
        return self.dtypes | {weight.dtype or weight.spec.dtype for weight in weights_of(Program.of(self.invocation))}

    @property
    def judge(self) -> Judge:
        """Accept close results, and any result that roundings decide."""
        return self._rounding.judge

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The inputs, by place."""
        return {str(place): feed for place, feed in enumerate(self.feeds)}

    @property
    def truth(self) -> tuple[Array | None, ...] | None:
        """See `RoundingOracle`."""
        return self._rounding.truth

    @property
    def sensitivity(self) -> tuple[KnownSensitivity | None, ...] | None:
        """See `RoundingOracle`."""
        return self._rounding.sensitivity


def run_contiguous(oracle: OracleT) -> OracleT:
    """Return PyTorch's answer to the same call or program with row-major copies of its inputs."""
    tensors = [tensor.contiguous() for tensor in build_tensors(oracle.invocation)]
    outputs = call_invocation(oracle.invocation, tensors)
    return replace(oracle, expected=tuple(to_numpy(t) for t in outputs))


def run_reference(invocation: Invocation) -> CallOracle | ProgramOracle:
    """Run the case in PyTorch eager on the CPU.

    Raises:
        CallRejected: PyTorch raises for the call.
        NothingToCompare: the call returns nothing that can be compared.
    """
    # The call may change its tensors in place.
    feeds = tuple(to_numpy(t) for t in build_tensors(invocation))
    outputs = reference_outputs(invocation, build_tensors(invocation))
    kind = ProgramOracle if is_program(invocation) else CallOracle
    return kind(invocation, feeds, tuple(to_numpy(t) for t in outputs))


def _scale(name: str, argument: Argument, least: int) -> Argument:
    if name in SCALES and isinstance(argument, int | float | complex) and not isinstance(argument, bool):
        return max(abs(argument), least)
    return argument


def _absolute(tensor: torch.Tensor) -> torch.Tensor:
    # PyTorch has no `abs` for most unsigned dtypes.
    return tensor if str(tensor.dtype).startswith("torch.uint") else tensor.abs()


def _sign(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.complex(_sign(tensor.real), _sign(tensor.imag))
    return torch.where(tensor.isfinite(), tensor.sign(), tensor)


def _zeroed(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor.isfinite(), tensor, 0) if tensor.is_floating_point() or tensor.is_complex() else tensor


def _is_finite(array: Array | None) -> bool:
    return array is None or array.dtype.kind not in "fcV" or bool(np.isfinite(array).all())


def _decided(found: Array | None, signs: Array | None) -> Array | None:
    """Return a float64 result with infinities and NaN taken from `signs`, the result for the signs of the inputs."""
    if found is None or signs is None or signs.shape != found.shape:
        return found
    return np.where(np.isfinite(signs), found, signs)


def _marked(tensor: torch.Tensor) -> torch.Tensor:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        # Before 2.12 PyTorch has no `where` for most unsigned dtypes.
        return torch.ones_like(tensor)
    return torch.where(tensor.isfinite(), 1, tensor.abs())


def _run_wide(
    invocation: Invocation,
    magnitude: Callable[[torch.Tensor], torch.Tensor] | None = None,
    *,
    least_scale: int = 0,
    keep_scales: bool = False,
) -> tuple[Array | None, ...] | None:
    """Run the call with floating and complex tensors in float64; return None if PyTorch has no such call.

    Args:
        invocation: The case.
        magnitude: Applied to the floating and complex inputs, and to integer tensors if there are none of
            these, so that none is an index. `SCALES` are made positive then.
        least_scale: Lower bound of the scales.
        keep_scales: Whether the scales stay unchanged.
    """
    only_integers = not any(is_float(spec.dtype) or spec.dtype in PARTS for spec in invocation.tensors())
    if magnitude and not keep_scales:
        scaled = tuple((n, _scale(n, a, least_scale)) for n, a in invocation.arguments)
        invocation = replace(invocation, arguments=scaled)
    tensors = []
    for tensor in build_tensors(invocation):
        if tensor.is_floating_point():
            tensor = tensor.double()
        elif tensor.is_complex():
            tensor = tensor.to(torch.complex128)
        floating = tensor.is_floating_point() or tensor.is_complex()
        if magnitude and (floating or (only_integers and tensor.dtype is not torch.bool)):
            tensor = magnitude(tensor)
        tensors.append(tensor)
    return call_in_float64(invocation, tensors)
