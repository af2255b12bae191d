"""A program of several calls, as a plain value: an invocation whose arguments are the calls and what is returned.

A tensor argument of a call is an input of the program (a `TensorSpec`; an `Input` where an earlier argument has
described it), a weight that the program holds (a `Weight`) or the result of an earlier call (a `Result`). As an
invocation a program has canonical JSON and a content hash, and flows through all stages as a single call does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from harness.core.dtypes import is_float
from harness.core.invocation import (
    GRAPH,
    MODEL,
    PROGRAM,
    Argument,
    Input,
    InvalidInvocation,
    Invocation,
    Result,
    TensorSpec,
    Weight,
)

#: What a program may return: what a call gives, an input unchanged, or a weight.
Returned: TypeAlias = Result | Input | Weight
#: A value whose name in a graph is that of another with a suffix; the value, the other one, the suffix.
DerivedName: TypeAlias = tuple[Returned, Returned, str]


def is_program(invocation: Invocation) -> bool:
    """Whether an invocation is a program of several calls."""
    return invocation.overload.startswith(PROGRAM)


def is_graph(invocation: Invocation) -> bool:
    """Whether an invocation is a graph of several ONNX operators, written as a program of their calls."""
    return invocation.overload.startswith(GRAPH)


def is_composed(overload: str) -> bool:
    """Whether cases of an overload column consist of several calls: programs, graphs and models."""
    return overload.startswith((PROGRAM, GRAPH, MODEL))


def calls_of(invocation: Invocation) -> tuple[str, ...]:
    """Return the overloads of a program's calls, in order; the invocation's own if it is one call."""
    is_composed_of_calls = is_program(invocation) or is_graph(invocation)
    return tuple(c.overload for c in Program.of(invocation).calls) if is_composed_of_calls else (invocation.overload,)


@dataclass(frozen=True)
class Program:
    """The calls of a program, each an invocation whose arguments may be results of earlier ones, and what it returns.

    Attributes:
        name: The pattern that it was drawn by.
        prefix: The prefix of its overload: of a program of PyTorch's calls, or of a graph of ONNX operators.
        names: Values of a graph that are named after others; the names of all others say nothing.
    """

    name: str
    calls: tuple[Invocation, ...]
    returns: tuple[Returned, ...]
    prefix: str = PROGRAM
    names: tuple[DerivedName, ...] = ()

    @classmethod
    def of(cls, invocation: Invocation) -> Program:
        """Return the program that an invocation stands for.

        Raises:
            InvalidInvocation: it is not a program, or a call takes a result of a later one, or an input that nothing
                describes.
        """
        given: dict[str, Any] = dict(invocation.arguments)
        try:
            calls = tuple(Invocation(overload, tuple((n, a) for n, a in pairs)) for overload, pairs in given["calls"])
            returns = tuple(given["returns"])
            names = tuple((value, base, str(suffix)) for value, base, suffix in given.get("names", ()))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInvocation(f"{invocation.overload}: not a program: {error!r}") from None
        for place, call in enumerate(calls):
            if any(result.call >= place for result in results_in(call)):
                raise InvalidInvocation(f"{invocation.overload}: call {place} takes what is computed later")
        prefix = GRAPH if is_graph(invocation) else PROGRAM
        found = cls(invocation.overload.removeprefix(prefix), calls, returns, prefix, names)
        described = 0
        for part in _parts(found):
            described += isinstance(part, TensorSpec)
            if isinstance(part, Input) and part.place >= described:
                raise InvalidInvocation(f"{invocation.overload}: takes input {part.place} before it is described")
        return found

    @property
    def changes_in_place(self) -> bool:
        """Whether a call changes one of its arguments, which other calls may see."""
        return any(call.overload.split(".")[1].endswith("_") for call in self.calls)

    @property
    def invocation(self) -> Invocation:
        """The program as an invocation."""
        calls = tuple((call.overload, tuple((name, value) for name, value in call.arguments)) for call in self.calls)
        names = (("names", self.names),) if self.names else ()
        return Invocation(self.prefix + self.name, (("calls", calls), ("returns", self.returns), *names))


def results_in(call: Invocation) -> Iterator[Result]:
    """Yield the results of earlier calls that a call takes."""
    for _, argument in call.arguments:
        yield from (part for part in parts_of(argument) if isinstance(part, Result))


def calls_behind(program: Program, outputs: Collection[int]) -> frozenset[int]:
    """Return the places of the calls that some outputs of a program depend on."""
    open_places = [value.call for place in outputs if isinstance(value := program.returns[place], Result)]
    found: set[int] = set()
    while open_places:
        place = open_places.pop()
        if place not in found:
            found.add(place)
            open_places += [result.call for result in results_in(program.calls[place])]
    return frozenset(found)


def disjoint_outputs(program: Program) -> list[tuple[int, ...]]:
    """Return the outputs of a program in groups: outputs of different groups share no call.

    A call that changes a value in place may act on any other, so that all outputs are one group.
    """
    groups: list[tuple[tuple[int, ...], frozenset[int]]] = []
    for output in range(len(program.returns)):
        behind = calls_behind(program, (output,))
        joined = [group for group in groups if program.changes_in_place or group[1] & behind]
        groups = [group for group in groups if group not in joined]
        outputs = sorted((output, *(place for places, _ in joined for place in places)))
        groups.append((tuple(outputs), behind.union(*(calls for _, calls in joined))))
    return sorted(outputs for outputs, _ in groups)


def parts_of(argument: Argument) -> Iterator[Argument]:
    """Yield an argument, or the elements of one that is a sequence, at any depth."""
    if isinstance(argument, tuple):
        for element in argument:
            yield from parts_of(element)
    else:
        yield argument


def map_arguments(call: Invocation, change: Callable[[Argument], Argument]) -> Invocation:
    """Return a call with `change` of every argument; of the elements of those that are sequences."""

    def changed(argument: Argument) -> Argument:
        return tuple(map(changed, argument)) if isinstance(argument, tuple) else change(argument)

    return replace(call, arguments=tuple((name, changed(value)) for name, value in call.arguments))


def widen_weights(program: Program) -> Program:
    """Return the program with its floating weights in float64."""

    def widened(argument: Argument) -> Argument:
        is_narrow = isinstance(argument, Weight) and is_float(argument.dtype or argument.spec.dtype)
        return replace(argument, dtype="float64") if is_narrow else argument  # type: ignore[type-var]

    return map_parts(program, widened)


def map_parts(program: Program, change: Callable[[Argument], Argument]) -> Program:
    """Return the program with `change` applied to every argument of its calls, and to its results if they allow it."""
    calls = tuple(map_arguments(call, change) for call in program.calls)
    returns = tuple(c if isinstance(c := change(value), Returned) else value for value in program.returns)
    return replace(program, calls=calls, returns=returns)


def weights_of(program: Program) -> Sequence[Weight]:
    """Return the weights, in order, one for each place that takes one."""
    return [part for part in _parts(program) if isinstance(part, Weight)]


def open_named_weights(program: Program) -> tuple[Program, Mapping[int, Weight]]:
    """Return the program with an input in place of each weight that has a name, and input → weight.

    Of several weights of one name only the first is opened, as a module holds one, and none that is only returned.
    """
    places: dict[Weight, int] = {}
    #: The index of each input of the program → its index among all inputs.
    moved: list[int] = []

    def opened(argument: Argument) -> Argument:
        if isinstance(argument, Input):
            return Input(moved[argument.place])
        if isinstance(argument, TensorSpec):
            moved.append(len(moved) + len(places))
            return argument
        if not isinstance(argument, Weight) or not argument.name:
            return argument
        if argument in places:
            return Input(places[argument])
        if any(held.name == argument.name for held in places):
            return argument
        places[argument] = len(moved) + len(places)
        return replace(argument.spec, dtype=argument.dtype or argument.spec.dtype)

    calls = tuple(map_arguments(call, opened) for call in program.calls)
    returns = tuple(
        Input(places[value])
        if isinstance(value, Weight) and value in places
        else Input(moved[value.place])
        if isinstance(value, Input)
        else value
        for value in program.returns
    )
    return replace(program, calls=calls, returns=returns), {place: weight for weight, place in places.items()}


def share_inputs(program: Program) -> Program:
    """Return the program with equal inputs made one: the first place describes it, and the others have an `Input`."""
    places: dict[TensorSpec, int] = {}
    shared_places: list[int] = []

    def shared(argument: Argument) -> Argument:
        if isinstance(argument, Input):
            return Input(shared_places[argument.place])
        if not isinstance(argument, TensorSpec):
            return argument
        is_first = argument not in places
        shared_places.append(places.setdefault(argument, len(places)))
        return argument if is_first else Input(shared_places[-1])

    return map_parts(program, shared)


def unshare_inputs(program: Program) -> Program:
    """Return the program with an input for each place of a call that takes one: the opposite of `share_inputs`."""
    inputs = list(program.invocation.tensors())
    described: list[TensorSpec] = []
    places: dict[int, int] = {}

    def described_again(argument: Argument) -> Argument:
        if not isinstance(argument, TensorSpec | Input):
            return argument
        place = argument.place if isinstance(argument, Input) else len(places)
        places.setdefault(place, len(described))
        described.append(inputs[place])
        return inputs[place]

    calls = tuple(map_arguments(call, described_again) for call in program.calls)
    returns = tuple(Input(places[value.place]) if isinstance(value, Input) else value for value in program.returns)
    return replace(program, calls=calls, returns=returns)


def _parts(program: Program) -> Iterator[Argument]:
    for call in program.calls:
        for _, argument in call.arguments:
            yield from parts_of(argument)
    yield from program.returns
