"""PyTorch's own definition of an operator by simpler operators, run in the kernel's place."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.core.control_flow import is_flow_operator
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.tensors import BoundCall, bind, build_tensors, output_tensors, overload
from harness.core.text import error_chain
from harness.core.torch_arrays import to_numpy
from harness.core.torch_operators import OpOverload, TorchDispatchMode, decomposition, is_composite
from harness.pipeline.torch_call import quiet_call

#: How often a definition may come back to its operator: once for each dimension, as `roll` does.
_DEEPEST = 16

#: Exceptions that definitions raise for arguments that kernels accept.
REFUSALS = (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)


class Circular(Exception):
    """The definition ends in the kernel itself, so it cannot check it."""


class InPlaceOfTheKernel(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes the definition wherever the kernel would be called, within the definition too.

    Some definitions call their operator again with simpler arguments (`roll`), others end in a primitive that
    calls the kernel (`asinh`): these would confirm any result of the kernel.
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
                raise Circular
            taken = self._definition
        elif func.namespace == "prims":
            taken = func.impl_aten
        elif is_composite(func):
            # `special_expm1` is an alias of `expm1`: the operator that it calls counts.
            taken = func.decompose
        else:
            return func(*args, **(kwargs or {}))
        self._depth += 1
        try:
            with self:
                return taken(*args, **(kwargs or {}))
        finally:
            self._depth -= 1


class InPlaceOfTheParts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes the definitions of the operators that a composite one calls, wherever these have any.

    A composite operator (`group_norm`) is its own definition but for the kernels that it ends in. Leaving the mode
    raises `Circular` where it was those kernels alone.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._is_taken = False
        self._circular: set[OpOverload] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if is_composite(func):
            with self:
                return func.decompose(*args, **(kwargs or {}))
        definition = None if func in self._circular or func.is_view else decomposition(func)
        if definition is not None and not func._schema.is_mutable:
            try:
                with InPlaceOfTheKernel(func, definition):
                    result = definition(*args, **(kwargs or {}))
            except Circular:
                self._circular.add(func)
            else:
                self._is_taken = True
                return result
        return func(*args, **(kwargs or {}))

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Leave the mode.

        Raises:
            Circular: nothing but kernels was called.
        """
        super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        if kind is None and not self._is_taken:
            raise Circular


def definition_of(invocation: Invocation) -> tuple[BoundCall, TorchDispatchMode] | None:
    """Return the call of an operator's definition with the arguments of a case, and the mode to make it in.

    None if PyTorch has no definition, or one that takes other arguments: some take fewer by position.
    """
    if is_flow_operator(invocation.overload):
        # Its subprograms are not decomposed, and no mode but an exporter's own takes it.
        return None
    call = bind(invocation)
    kernel = overload(invocation.overload)
    definition = decomposition(kernel)
    if definition is None:
        return (call, InPlaceOfTheParts()) if is_composite(kernel) else None
    try:
        inspect.signature(definition).bind(*call.positional, **dict(call.keywords))
    except TypeError:
        return None
    return call.with_target(definition), InPlaceOfTheKernel(kernel, definition)


def defined_outputs(invocation: Invocation) -> tuple[Array, ...] | None:
    """Return the result of the operator's definition for a case, in the case's dtypes; None if there is none."""
    try:
        results = _run_definition(invocation)
        return None if results is None else tuple(map(to_numpy, results))
    except (Circular, *REFUSALS):
        return None


def _run_definition(invocation: Invocation) -> Sequence[torch.Tensor] | None:
    """Return the tensors that the operator's definition gives for a case; None if it has no definition.

    Raises `Circular` if the definition comes back to the operator, and the definition's own exceptions.
    """
    found = definition_of(invocation)
    if found is None:
        return None
    call, in_its_place = found
    tensors = build_tensors(invocation)
    with quiet_call(), in_its_place:
        return output_tensors(call(tensors))


#: PyTorch's message about a tensor without values, which has no exception class of its own.
_OF_META_TENSORS = re.compile("meta tensors?|Meta tensors?|fake impl", re.IGNORECASE)


def raising_part(invocation: Invocation, failure: BaseException) -> str:
    """Return the part of PyTorch that an export fails in: ``meta kernel`` or ``decomposition``; "" for neither.

    The kernel takes the call. If the operator without values, or its definition by simpler operators, raises
    the very error that an export ends with, no exporter could have done better.

    Args:
        invocation: The call.
        failure: The exception of the export.
    """
    *_, cause = error_chain(failure)
    for part, raised in (("meta kernel", _meta_error(invocation)), ("decomposition", _decomposed(invocation))):
        if raised is None or _OF_META_TENSORS.search(str(raised)) or not str(raised):
            continue
        same = type(raised) is type(cause) and str(cause).startswith(str(raised))
        # `torch.compile` quotes an exception of its capture, or goes on with its own lines.
        quoted = str(failure).startswith(f"{type(raised).__name__}: {raised}") or repr(raised) in str(failure)
        if same or quoted:
            return part
    return ""


def _meta_error(invocation: Invocation) -> Exception | None:
    tensors = [t.to("meta") for t in build_tensors(invocation)]
    try:
        with quiet_call():
            bind(invocation)(tensors)
    except Exception as error:
        return error
    return None


def _decomposed(invocation: Invocation) -> Exception | None:
    try:
        _run_definition(invocation)
    except Circular:
        return None
    except Exception as error:
        return error
    return None
