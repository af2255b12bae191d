"""A program of several calls, as a plain value: an invocation whose arguments are the calls and what is returned.

A tensor argument of a call is an input of the program (a `TensorSpec`), a weight that the program holds (a `Weight`) or
the result of an earlier call (a `Result`). As an invocation a program has canonical JSON and a content hash, and flows
through all stages as a single call does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.core.dtypes import is_float
from harness.core.invocation import PROGRAM, Argument, InvalidInvocation, Invocation, Result, Weight


def is_program(invocation: Invocation) -> bool:
    """Whether an invocation is a program of several calls."""
    return invocation.overload.startswith(PROGRAM)


def calls_of(invocation: Invocation) -> tuple[str, ...]:
    """The overloads of a program's calls, in order; the invocation's own where it is one call."""
    return tuple(c.overload for c in Program.of(invocation).calls) if is_program(invocation) else (invocation.overload,)


@dataclass(frozen=True)
class Program:
    """The calls of a program, each an invocation whose arguments may be results of earlier ones, and what it returns.

    Attributes:
        name: Of the pattern that it was drawn by.
    """

    name: str
    calls: tuple[Invocation, ...]
    returns: tuple[Result, ...]

    @classmethod
    def of(cls, invocation: Invocation) -> Program:
        """The program that an invocation stands for.

        Raises:
            InvalidInvocation: it is not a program, or a call takes a result of a later one.
        """
        given: dict[str, Any] = dict(invocation.arguments)
        try:
            calls = tuple(Invocation(overload, tuple((n, a) for n, a in pairs)) for overload, pairs in given["calls"])
            returns = tuple(given["returns"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInvocation(f"{invocation.overload}: not a program: {error!r}") from None
        for place, call in enumerate(calls):
            if any(result.call >= place for result in results_in(call)):
                raise InvalidInvocation(f"{invocation.overload}: call {place} takes what is computed later")
        return cls(invocation.overload.removeprefix(PROGRAM), calls, returns)

    @property
    def changes_in_place(self) -> bool:
        """Whether a call changes one of its arguments, which other calls may see."""
        return any(call.overload.split(".")[1].endswith("_") for call in self.calls)

    @property
    def invocation(self) -> Invocation:
        """The program as an invocation."""
        calls = tuple((call.overload, tuple((name, value) for name, value in call.arguments)) for call in self.calls)
        return Invocation(PROGRAM + self.name, (("calls", calls), ("returns", self.returns)))


def results_in(call: Invocation) -> Iterator[Result]:
    """The results of earlier calls that a call takes."""
    for _, argument in call.arguments:
        yield from (part for part in parts_of(argument) if isinstance(part, Result))


def parts_of(argument: Argument) -> Iterator[Argument]:
    """An argument, or the elements of one that is a sequence, at any depth."""
    if isinstance(argument, tuple):
        for element in argument:
            yield from parts_of(element)
    else:
        yield argument


def with_arguments(call: Invocation, change: Callable[[Argument], Argument]) -> Invocation:
    """A call with `change` of every argument; of the elements of those that are sequences."""

    def changed(argument: Argument) -> Argument:
        return tuple(map(changed, argument)) if isinstance(argument, tuple) else change(argument)

    return replace(call, arguments=tuple((name, changed(value)) for name, value in call.arguments))


def with_wide_weights(program: Program) -> Program:
    """The program with its floating weights in float64."""

    def widened(argument: Argument) -> Argument:
        is_narrow = isinstance(argument, Weight) and is_float(argument.dtype or argument.spec.dtype)
        return replace(argument, dtype="float64") if is_narrow else argument  # type: ignore[type-var]

    return replace(program, calls=tuple(with_arguments(call, widened) for call in program.calls))


def weights_of(program: Program) -> Sequence[Weight]:
    """The weights, in order, one for each place that takes one."""
    parts = (part for call in program.calls for _, argument in call.arguments for part in parts_of(argument))
    return [part for part in parts if isinstance(part, Weight)]
