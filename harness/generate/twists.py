"""Change one thing about a program: a constant, an edge, an attribute, an input, or what it returns.

An optimiser's rule is wrong where it does not look: at the rank of a constant, at a second reader, at an attribute. A
program that a rule applies to, with one such thing changed, is where that shows; with two things changed the rule is
mostly not reached. A twist is one function under the decorator `twist`; it knows programs, and no pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from random import Random
from typing import Any, TypeAlias, TypeVar

import torch

from harness.core.invocation import (
    Argument,
    Enumerated,
    Invocation,
    Literal,
    Recipe,
    Result,
    TensorSpec,
    Weight,
    contiguous_strides,
)
from harness.core.plugins import definition_place
from harness.core.program import Program, Returned, map_parts, results_in, share_inputs, unshare_inputs
from harness.core.size_operators import is_size_operator
from harness.core.tensors import draws_at_random, overload
from harness.generate.any_call import Value, add_any_call, shapes_of
from harness.generate.case_library import load_cases
from harness.generate.draw import Draw
from harness.generate.draws import draw_invocation
from harness.generate.programs import ProgramDraw
from harness.generate.variations import give_argument

_T = TypeVar("_T")
#: An operator of one operand, and its other arguments.
_Step: TypeAlias = tuple[str, Mapping[str, Argument]]

#: Numbers that a rule for one number may take for it, or that are lost on the way.
_NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, float("nan"), float("inf"), float("-inf"), 1e30, 1e-30)
#: Factors within and beyond the tolerances by which rules compare constants: 1e-8 to 1e-2.
_FACTORS = (-1.0, 1 + 1e-7, 1 + 2e-5, 1 + 1e-3, 1.01, 1.5)
#: Draws of an operator's case, to find another value of an attribute.
_DRAWS = 8
#: Attempts to find a twist that PyTorch accepts.
_ATTEMPTS = 6
_FLOATS = ("float16", "float32", "float64", "bfloat16")
_OTHERS = ("float16", "float32", "float64", "int32", "int64", "bool")


@dataclass(frozen=True)
class TwistDraw:
    """A program that is to be changed, and the choices of how.

    Attributes:
        program: The program, with an input for each place that takes one.
        random: Makes the choices.
        values: The results of its calls.
    """

    program: Program
    random: Random
    values: Sequence[Value]

    def choose(self, options: Sequence[_T]) -> _T | None:
        """Choose an option; None if there are none."""
        return self.random.choice(options) if options else None

    def places(self, kind: type[_T]) -> list[tuple[int, str, _T]]:
        """Return the arguments of a type: the index of the call, the name and the value."""
        return [
            (index, name, value)
            for index, call in enumerate(self.program.calls)
            for name, value in call.arguments
            if isinstance(value, kind) and not isinstance(value, bool)
        ]

    def give(self, index: int, name: str, value: Argument) -> Program:
        """Return the program with another value of an argument."""
        return _replace_call(self.program, index, give_argument(self.program.calls[index], name, value))

    def value(self, result: Result) -> Value | None:
        """Return a result as a value; None if it is not a tensor."""
        return next((value for value in self.values if value.result == result), None)


Twist: TypeAlias = Callable[[TwistDraw], "Program | None"]
#: Filled at import by `twist`.
TWISTS: dict[str, Twist] = {}
#: Twist → how often it is chosen, compared with the others.
_WEIGHTS: dict[str, int] = {}


def twist(name: str, weight: int = 1) -> Callable[[Twist], Twist]:
    """Register the decorated function as a twist; it returns None for a program that it cannot change.

    Raises:
        ValueError: Another twist has this name.
    """

    def register(function: Twist) -> Twist:
        if name in TWISTS and definition_place(TWISTS[name]) != definition_place(function):
            raise ValueError(f"twist {name!r} is registered twice")
        TWISTS[name], _WEIGHTS[name] = function, weight
        return function

    return register


def twist_program(program: Program, random: Random) -> Program:
    """Return the program with one thing changed, or unchanged if no change is found that PyTorch accepts."""
    if any(draws_at_random(call) for call in program.calls):
        # Each of its calls has a part in how its result is judged.
        return program
    plain = unshare_inputs(program)
    try:
        draw = TwistDraw(plain, random, shapes_of(plain.calls))
    except Exception:
        # PyTorch rejects it as it is, or cannot say without computing values.
        return program
    for _ in range(_ATTEMPTS):
        (name,) = random.choices([*_WEIGHTS], [*_WEIGHTS.values()])
        twisted = TWISTS[name](draw)
        if twisted is not None and twisted != plain and _is_accepted(twisted):
            return share_inputs(twisted)
    return program


def _is_accepted(program: Program) -> bool:
    try:
        results = {value.result for value in shapes_of(program.calls)}
    except Exception:
        # PyTorch rejects it, or cannot say without computing values.
        return False
    return all(value in results for value in program.returns if isinstance(value, Result))


# Constants


@twist("number")
def _change_number(draw: TwistDraw) -> Program | None:
    """Change a number: to one that rules treat apart, or to one near it."""
    place = draw.choose([*draw.places(float), *draw.places(int)])
    if place is None:
        return None
    index, name, value = place
    if isinstance(value, int):
        return draw.give(index, name, draw.random.choice((value + 1, value - 1, -value)))
    return draw.give(index, name, draw.random.choice((*_NUMBERS, *(value * factor for factor in _FACTORS))))


@twist("number-as-tensor")
def _hold_number(draw: TwistDraw) -> Program | None:
    """Make a number a constant tensor: of rank 0, of a higher rank, or a row that begins with it."""
    numbers = [
        (i, float(number))
        for i, call in enumerate(draw.program.calls)
        if call.overload.endswith(".Scalar") and isinstance(number := dict(call.arguments).get("other"), int | float)
    ]
    place = draw.choose(numbers)
    own = None if place is None else draw.value(Result(place[0]))
    if place is None or own is None:
        return None
    index, number = place
    columns = own.shape[-1] if own.shape else 1
    shape = draw.random.choice(((), (), (1,), (1,) * (len(own.shape) + 1), (columns,)))
    row = [number * (1 + i) for i in range(prod(shape))]
    dtype = own.dtype if own.dtype in _FLOATS else "float32"
    held = Weight(TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(tuple(row))))
    call = draw.program.calls[index]
    name = call.overload.removesuffix(".Scalar") + ".Tensor"
    if not _exists(name):
        return None
    return _replace_call(draw.program, index, replace(give_argument(call, "other", held), overload=name))


@twist("weight")
def _change_weight(draw: TwistDraw) -> Program | None:
    """Change the rank, dtype or numbers of a constant tensor, or make it an input."""
    place = draw.choose(draw.places(Weight))
    if place is None:
        return None
    index, name, weight = place
    spec, random = weight.spec, draw.random
    kind = random.choice(("number", "special", "rank", "row", "dtype", "input"))
    if kind == "input":
        return draw.give(index, name, spec)
    if kind == "dtype":
        changed = spec.reshaped(spec.shape, random.choice(_OTHERS))
    elif kind == "rank":
        shape = random.choice(((1, *spec.shape), (*spec.shape, 1), (1,) * len(spec.shape), (1, 1, *spec.shape)))
        changed = spec.reshaped(shape)
    elif kind == "row":
        changed = spec.reshaped((random.randint(2, 4), *spec.shape[1:]) if spec.shape else (2,))
    else:
        numbers = [random.choice(_NUMBERS)] * spec.numel
        if kind == "special" and spec.numel > 1:
            numbers[1:] = [1.0] * (spec.numel - 1)
        changed = replace(spec.reshaped(spec.shape), values=Literal(tuple(numbers)))
    return draw.give(index, name, replace(weight, spec=changed)) if _holds_its_numbers(changed) else None


@twist("names")
def _name_weights(draw: TwistDraw) -> Program | None:
    """Hold all constant tensors as buffers, under names that exporters give to values of their own."""
    weights = [weight for _, _, weight in draw.places(Weight)]
    packets = [call.overload.split(".")[1] for call in draw.program.calls]
    # `val_0` is a value of a conversion function, `add` that of a call, and optimisers add the endings.
    ends = ("", "_1", "_min", "_max", "_bias", "_scaled")
    names = {f"val_{i}" for i in range(6)} | {f"{name}{draw.random.choice(ends)}" for name in packets}
    free = sorted(name for name in names if not hasattr(torch.nn.Module, name))
    draw.random.shuffle(free)
    named = dict(zip(dict.fromkeys(weights), free, strict=False))

    def with_name(part: Argument) -> Argument:
        return replace(part, name=named.get(part, part.name)) if isinstance(part, Weight) else part

    return map_parts(draw.program, with_name) if named else None


# Edges


def _step(name: str, /, **arguments: Argument) -> _Step:
    return name, arguments


def _insert(draw: TwistDraw, steps: Callable[[Value], Sequence[_Step]]) -> Program | None:
    """Return the program with steps between a value and a call that reads it; None if no call reads a tensor.

    The first step takes the value, each further step the result of the one before, and the call the last result.
    """
    edges = [(i, r) for i, call in enumerate(draw.program.calls) for r in dict.fromkeys(results_in(call))]
    edge = draw.choose([(i, value) for i, r in edges if (value := draw.value(r)) is not None])
    if edge is None:
        return None
    reader, value = edge
    added: list[Invocation] = []
    for name, arguments in steps(value):
        source = value.result if not added else Result(reader + len(added) - 1)
        added.append(Invocation(name, (("self", source), *arguments.items())))
    return _splice(draw.program, reader, added, value.result) if added else None


def _splice(program: Program, reader: int, added: Sequence[Invocation], read: Result) -> Program:
    """Return the program with calls inserted before call `reader`, which takes their last result in place of `read`."""

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, Result) and argument.call >= reader:
            return replace(argument, call=argument.call + len(added))
        return argument

    def read_again(argument: Argument) -> Argument:
        return Result(reader + len(added) - 1) if argument == read else argument

    calls = program.calls
    changed = map_parts(Program("", (calls[reader],), ()), read_again).calls[0]
    later = map_parts(Program("", calls[reader + 1 :], program.returns), moved)
    return replace(program, calls=(*calls[:reader], *added, changed, *later.calls), returns=later.returns)


@twist("cast-between")
def _cast_between(draw: TwistDraw) -> Program | None:
    """Cast a value to another dtype, and usually back, before a call reads it."""

    def steps(value: Value) -> Sequence[_Step]:
        names = draw.random.choice(_OTHERS), value.dtype
        both = [_step("aten.to.dtype", dtype=Enumerated("dtype", name)) for name in names]
        return both[: draw.random.choice((1, 2, 2, 2))]

    return _insert(draw, steps)


@twist("move-between")
def _move_between(draw: TwistDraw) -> Program | None:
    """Permute, reshape, pad, tile or cut a value before a call reads it, and perhaps undo that."""

    def steps(value: Value) -> Sequence[_Step]:
        shape, rank = value.shape, len(value.shape)
        turned = _step("aten.permute.default", dims=tuple(reversed(range(rank))))
        flat, back = (_step("aten.reshape.default", shape=sizes) for sizes in ((-1,), shape))
        longer, shorter = _step("aten.unsqueeze.default", dim=0), _step("aten.squeeze.dim", dim=0)
        moves: list[Sequence[_Step]] = [[flat, back], [flat], [longer, shorter], [longer]]
        moves.append([_step("aten.expand.default", size=(2, *shape))])
        if rank:
            padded = _step("aten.constant_pad_nd.default", pad=(0, 1), value=draw.random.choice((0.0, 1.5)))
            cut = _step("aten.slice.Tensor", dim=rank - 1, start=0, end=shape[-1])
            moves += [[turned, turned], [turned], [padded, cut], [padded]]
            moves += [[_step("aten.repeat.default", repeats=(2,) * rank)], [_step("aten.flip.default", dims=(0,))]]
        return draw.random.choice(moves)

    return _insert(draw, steps)


@twist("arithmetic-between")
def _compute_between(draw: TwistDraw) -> Program | None:
    """Apply an operator of one operand to a value before a call reads it."""
    names = ("neg", "relu", "abs", "sigmoid", "clone", "exp", "contiguous", "alias", "detach", "square")
    return _insert(draw, lambda value: [_step(f"aten.{draw.random.choice(names)}.default")])


@twist("call-between")
def _splice_call(draw: TwistDraw) -> Program | None:
    """Let a call read the result of a drawn call of any operator, which takes values of the program."""
    reader = draw.random.randrange(len(draw.program.calls))
    call = draw.program.calls[reader]
    read = draw.choose([r for r in results_in(call) if draw.value(r) is not None])
    if read is None:
        return None
    p = ProgramDraw(draw.random, getattr(draw.value(read), "dtype", "float32"))
    p.calls = list(draw.program.calls[:reader])
    try:
        added = add_any_call(p)
    except Exception:
        # PyTorch rejects the values of the calls before it.
        return None
    return None if added is None else _splice(draw.program, reader, [p.calls[-1]], read)


# Fusions drop the values between their nodes, so this is their commonest fault.
@twist("second-reader", weight=4)
def _read_again(draw: TwistDraw) -> Program | None:
    """Return an intermediate value, or add a call that reads it."""
    returned = set(draw.program.returns)
    middle = [value for value in draw.values if value.result not in returned]
    value = draw.choose(middle)
    if value is None:
        return None
    returns: tuple[Returned, ...] = draw.program.returns
    kind = draw.random.choice(("returned", "squared", "compared"))
    if kind == "returned":
        return replace(draw.program, returns=(*returns, value.result))
    square = (("self", value.result), ("other", value.result))
    further = (
        Invocation("aten.mul.Tensor", square)
        if kind == "squared"
        else Invocation("aten.ne.Scalar", (("self", value.result), ("other", 0)))
    )
    calls = (*draw.program.calls, further)
    return replace(draw.program, calls=calls, returns=(*returns, Result(len(calls) - 1)))


@twist("in-place")
def _compute_in_place(draw: TwistDraw) -> Program | None:
    """Make a call change its first operand in place, and return that operand."""
    places = [
        (i, f"{packet}_.{name}", first)
        for i, call in enumerate(draw.program.calls)
        if call.arguments and isinstance(first := call.arguments[0][1], Result) and not is_size_operator(call.overload)
        for packet, name in [call.overload.rsplit(".", 1)]
        if _exists(f"{packet}_.{name}")
    ]
    place = draw.choose(places)
    if place is None:
        return None
    index, name, first = place
    changed = _replace_call(draw.program, index, replace(draw.program.calls[index], overload=name))
    return changed if first in changed.returns else replace(changed, returns=(*changed.returns, first))


# Attributes


@twist("attribute")
def _change_attribute(draw: TwistDraw) -> Program | None:
    """Give an argument other than a tensor a value that the operator's case draws."""
    index = draw.random.randrange(len(draw.program.calls))
    call = draw.program.calls[index]
    case = load_cases().get(call.overload)
    if case is None:
        return None
    own = dict(call.arguments)
    for _ in range(_DRAWS):
        drawn = draw_invocation(Draw(draw.random.randrange, draw.random.choice(case.dtypes)), case)
        others = [(n, v) for n, v in drawn.arguments if not _has_tensor(v) and own.get(n) != v]
        chosen = draw.choose(others)
        if chosen is not None:
            return draw.give(index, *chosen)
    return None


@twist("dimensions")
def _change_dimensions(draw: TwistDraw) -> Program | None:
    """Change a sequence of integers: one of them, their order, or their number."""
    sequences: list[tuple[int, str, tuple[int, ...]]] = [
        (i, n, v) for i, n, v in draw.places(tuple) if v and all(type(x) is int for x in v)
    ]
    place = draw.choose(sequences)
    if place is None:
        return None
    index, name, value = place
    at = draw.random.randrange(len(value))
    options = [value[::-1], value[:at] + value[at + 1 :], (*value[:at], value[at] + 1, *value[at + 1 :])]
    options.append((*value[:at], value[at] - 1, *value[at + 1 :]))
    return draw.give(index, name, draw.random.choice(options))


@twist("flag")
def _turn_flag(draw: TwistDraw) -> Program | None:
    """Turn a flag, whether it is given or left at its default."""
    index = draw.random.randrange(len(draw.program.calls))
    call = draw.program.calls[index]
    if is_size_operator(call.overload):
        return None
    given = dict(call.arguments)
    flags = [a for a in overload(call.overload)._schema.arguments if str(a.type) == "bool"]
    flag = draw.choose(flags)
    return None if flag is None else draw.give(index, flag.name, not given.get(flag.name, flag.default_value))


@twist("operands")
def _swap_operands(draw: TwistDraw) -> Program | None:
    """Exchange the two operands of a call."""
    places = [(i, dict(c.arguments)) for i, c in enumerate(draw.program.calls)]
    place = draw.choose([(i, a) for i, a in places if _has_tensor(a.get("self")) and _has_tensor(a.get("other"))])
    if place is None:
        return None
    index, arguments = place
    call = give_argument(draw.program.calls[index], "self", arguments["other"])
    return _replace_call(draw.program, index, give_argument(call, "other", arguments["self"]))


# Inputs


@twist("input")
def _change_input(draw: TwistDraw) -> Program | None:
    """Change the shape of an input at all its places: a size, the rank, the order of the sizes, or to no elements."""
    specs = list(dict.fromkeys(spec for _, _, spec in draw.places(TensorSpec)))
    spec = draw.choose([spec for spec in specs if isinstance(spec.values, Recipe)])
    if spec is None:
        return None
    shape, random = spec.shape, draw.random
    at = random.randrange(len(shape)) if shape else 0
    shapes = [(1, *shape)]
    if shape:
        shapes += [(*shape[:at], 1, *shape[at + 1 :]), (max(shape),) * len(shape), shape[1:], shape[::-1]]
        shapes += [(*shape[:at], shape[at] + 1, *shape[at + 1 :]), (0, *shape[1:])]
    changed = spec.reshaped(random.choice(shapes))
    return map_parts(draw.program, lambda part: changed if part == spec else part)


@twist("equal-sizes")
def _make_sizes_equal(draw: TwistDraw) -> Program | None:
    """Make all sizes of inputs and constants equal, so that a wrong order of dimensions goes unnoticed."""
    specs = [spec for _, _, spec in draw.places(TensorSpec)] + [held.spec for _, _, held in draw.places(Weight)]
    size = draw.choose([n for spec in specs for n in spec.shape if n > 1])
    if size is None:
        return None

    def equal(part: Argument) -> Argument:
        if isinstance(part, Weight):
            return replace(part, spec=_equal(part.spec))
        return _equal(part) if isinstance(part, TensorSpec) else part

    def _equal(spec: TensorSpec) -> TensorSpec:
        return spec.reshaped(tuple(size if n > 1 else n for n in spec.shape))

    return map_parts(draw.program, equal)


# Helpers


def _holds_its_numbers(spec: TensorSpec) -> bool:
    """Whether a tensor's dtype has numbers for those that it is given."""
    dtype = getattr(torch, spec.dtype)
    if isinstance(spec.values, Recipe) or dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return True
    limits = torch.iinfo(dtype)
    numbers = spec.values.values
    return all(not isinstance(number, complex) and limits.min <= number <= limits.max for number in numbers)


def _has_tensor(argument: Any) -> bool:
    parts = argument if isinstance(argument, tuple) else (argument,)
    return any(isinstance(part, TensorSpec | Weight | Result) for part in parts)


def _replace_call(program: Program, index: int, call: Invocation) -> Program:
    calls = list(program.calls)
    calls[index] = call
    return replace(program, calls=tuple(calls))


def _exists(name: str) -> bool:
    try:
        overload(name)
    except LookupError:
        return False
    return True
