"""PyTorch's own definition of the operator by simpler operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.blame.witnesses.decomposed_program import operators_of, translated_program
from harness.compare import compare, wrong_elements
from harness.core import (
    Array,
    BoundCall,
    OpOverload,
    TorchDispatchMode,
    bind,
    build_tensors,
    first_line,
    output_tensors,
    overload,
    own_definition,
)
from harness.execute import Reference, quiet_call, to_numpy

#: How often a definition may come back to its operator: once for each dimension, as `roll` does.
_DEEPEST = 16

#: What definitions raise for arguments that kernels take.
_REFUSALS = (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)


class _Circular(Exception):
    """The definition ends in the kernel itself, of which it says nothing."""


class _InPlaceOfTheKernel(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes the definition wherever the kernel would be called, within the definition too.

    Some definitions call their operator again with simpler arguments (`roll`), others end in a primitive that
    calls the kernel (`asinh`): these would confirm whatever the kernel computes.
    """

    def __init__(self, kernel: OpOverload, definition: Callable[..., Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kernel, self._definition = kernel, definition
        self._depth = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        taken: Callable[..., Any] = func
        if func is self._kernel:
            # Primitives count, too, so that the depth may pass the limit by. An exception of Python's own
            # limit would leave this mode active for whatever the process does next.
            if self._depth >= _DEEPEST:
                raise _Circular
            taken = self._definition
        elif func.namespace == "prims":
            taken = func.impl_aten
        else:
            return func(*args, **(kwargs or {}))
        self._depth += 1
        try:
            with self:
                return taken(*args, **(kwargs or {}))
        finally:
            self._depth -= 1


@witness("PyTorch's decomposition", place=10)
def ask_decomposition(trial: Trial) -> Iterator[Testimony]:
    """What PyTorch's compilers compute in the kernel's place; no part of the kernel."""
    call = bind(trial.invocation)
    kernel = overload(trial.invocation.overload)
    definition = own_definition(kernel)
    if trial.got is None or definition is None or not _takes(definition, call):
        return
    tensors = build_tensors(trial.invocation)
    in_its_place = _InPlaceOfTheKernel(kernel, definition)
    try:
        with quiet_call(), in_its_place:
            results = output_tensors(call.with_target(definition)(tensors))
    except _Circular:
        return
    except _REFUSALS as error:
        yield Testimony(Role.DECOMPOSITION, Finding.REFUSES, "decomposition", {"error": first_line(error)})
        return
    outputs = [to_numpy(t) for t in results]
    if compare(trial.judge, trial.reference, outputs).problem is None:
        yield Testimony(Role.DECOMPOSITION, Finding.CONFIRMS, "decomposition")
        return
    would_pass = _would_pass(trial, outputs, in_its_place)
    if would_pass or trial.is_same(outputs):
        facts = {"backend": trial.complaint.backend, "converter": trial.complaint.converter}
        # The second costs an export.
        if would_pass or _is_all_there_is(trial, outputs) or _takes_part(trial):
            yield Testimony(Role.DECOMPOSITION, Finding.CONTRADICTS, "decomposition", facts)
        else:
            yield Testimony(Role.DECOMPOSITION, Finding.OTHER, "decomposition", facts)


def _would_pass(trial: Trial, outputs: list[Array], in_its_place: _InPlaceOfTheKernel) -> bool:
    """Whether the backend's result would do, were the definition the kernel.

    It need not be much nearer to the definition at every element: where sums cancel (`gelu` of -5.5), the
    definition is as far from the truth as the backend is. What the judge allows for that is asked of the
    definition, too.
    """
    reference = trial.reference
    if trial.got is None or not isinstance(reference, Reference) or _is_of_form(trial):
        return False
    defined = Reference(reference.invocation, reference.feeds, tuple(outputs))
    try:
        with quiet_call(), in_its_place:
            return compare(trial.judge, defined, trial.got).problem is None
    except _Circular:
        return False


def _is_of_form(trial: Trial) -> bool:
    """Whether a shape or a dtype is wrong: a kernel's rules for them are better than its definition's."""
    return trial.comparison is None or trial.comparison.problem in ("shape", "dtype")


def _is_all_there_is(trial: Trial, outputs: list[Array]) -> bool:
    """Whether the definition departs from the kernel wherever the backend does: a graph that says nothing
    else than PyTorch's own definition is no worse than that."""
    if trial.got is None or _is_of_form(trial):
        return False
    got, own = (wrong_elements(trial.judge, trial.reference, some) for some in (trial.got, outputs))
    return all(g.shape == o.shape and not (g & ~o).any() for g, o in zip(got, own, strict=True))


def _takes_part(trial: Trial) -> bool:
    """Whether the exporter may have decomposed the operator before it translated anything.

    An exporter with a conversion of its own for the operator leaves the definition alone: what its graph has
    in common with it, the conversion has. Which operators it has one for does not hang on the call.
    """

    def found() -> bool:
        program = translated_program(trial)
        return program is None or trial.invocation.overload not in operators_of(program)

    try:
        return trial.kept_of_operator("is decomposed", found)
    except Exception:
        # Which operators it would have translated is not known then.
        return True


def _takes(definition: Callable[..., Any], call: BoundCall) -> bool:
    """Whether a definition takes the arguments of a call as the kernel does: some take fewer by position."""
    try:
        inspect.signature(definition).bind(*call.positional, **dict(call.keywords))
    except TypeError:
        return False
    return True
