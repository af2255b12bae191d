"""Vary drawn calls beyond their operator case: combine arguments that it draws apart, and use the smallest shapes.

An operator case may draw an argument in only one of its branches, or never draw an empty tensor, although converters
have code for both. So some calls of a collection get an argument that another call has. Each collection also gets a
call of 0-d tensors, an empty one and one of a single element, unless its first calls include these; and a call without
elements, which says nothing of its Scalars, gets a companion with some. PyTorch may reject them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

from harness.core.invocation import Argument, Invocation, Recipe, TensorSpec
from harness.core.onnx_operators import find_schema, is_onnx_operator
from harness.core.tensors import argument_names, overload
from harness.generate.provider import ChoiceStream

#: One call in so many gets an argument of another call.
_EVERY = 6
#: Types of arguments that fit any shape, as the schema writes them.
_SHAPELESS = (
    "bool",
    "Optional[bool]",
    "number",
    "Optional[number]",
    "float",
    "Optional[float]",
    "str",
    "Optional[str]",
)
#: Tensors of a call that is made smallest, at most: the shapes of more depend on each other.
_MOST_TENSORS = 3
#: Domains whose parameters do not speak of shapes.
_ANY_SHAPE = ("any", "finite", "at_least", "nonzero", "range")


class Transplants:
    """Adds to calls an optional argument that they omit, with a value that another call of the collection gives it.

    Only omitted arguments change: a given one may be what other arguments were drawn for.

    Args:
        name: Name of the collection; the same name and calls give the same changes on every machine.
        operator: The overload of the calls.
    """

    def __init__(self, name: str, operator: str) -> None:
        # A stream of its own, so that the calls are drawn as they are without it.
        self._stream = ChoiceStream(f"{name}/transplants")
        self._seen: dict[str, dict[str, Argument]] = {argument: {} for argument in _optional(operator)}
        self._calls = 0
        self._is_onnx = is_onnx_operator(operator)

    def vary(self, call: Invocation) -> Invocation:
        """Return the call, or the call with another argument."""
        given = dict(call.arguments)
        for name, value in call.arguments:
            if name in self._seen:
                self._note(name, value)
        self._calls += 1
        lacking = [name for name, values in self._seen.items() if values and name not in given]
        if not lacking or self._calls % _EVERY:
            return call
        name = self._choose("name", lacking)
        value = self._seen[name][self._choose(name, list(self._seen[name]))]
        return give_argument(call, name, value)

    def _note(self, name: str, value: Argument) -> None:
        values = self._seen[name]
        values.setdefault(repr(value), value)
        # ONNX has attributes that are limits or deviations, which are not negative.
        if isinstance(value, int | float) and not isinstance(value, bool) and not self._is_onnx:
            values.setdefault(repr(-value), -value)

    def _choose(self, place: str, options: Sequence[str]) -> str:
        self._stream.place, self._stream.options = (place, len(options)), options
        return options[self._stream.below(len(options))]


@cache
def scalar_names(operator: str) -> tuple[str, ...]:
    """Return the names of an overload's Scalars, which PyTorch promotes; ONNX has none."""
    if is_onnx_operator(operator):
        return ()
    arguments = overload(operator)._schema.arguments
    return tuple(a.name for a in arguments if str(a.type) in ("number", "Optional[number]"))


@cache
def _optional(operator: str) -> tuple[str, ...]:
    if is_onnx_operator(operator):
        # An integer may be an axis, which has to fit the shapes; a constant has one value.
        if ".Constant." in operator:
            return ()
        return tuple(a.name for a in find_schema(operator).attributes if a.kind == "float" and not a.is_required)
    arguments = overload(operator)._schema.arguments
    return tuple(a.name for a in arguments if a.has_default_value() and str(a.type) in _SHAPELESS)


def give_argument(call: Invocation, name: str, value: Argument) -> Invocation:
    """Return a call with one argument set to another value, in the order of the schema."""
    given = {**dict(call.arguments), name: value}
    return replace(call, arguments=tuple((n, given[n]) for n in argument_names(call.overload) if n in given))


def smallest_calls(calls: Sequence[Invocation]) -> Iterator[Invocation]:
    """Yield a 0-d call, an empty one and one of a single element, except those that a collection already has."""
    for is_so, shape_of in _SMALLEST:
        if any(map(is_so, calls)):
            continue
        base = next((call for call in calls if _can_be_reshaped(call)), None)
        if base is not None:
            yield base.map_tensors(partial(_reshaped, shape_of=shape_of))


def filled_call(call: Invocation) -> Invocation | None:
    """Return a call without elements with a size of `_FILLED` in place of each 0; None for any other call, for one
    without Scalars, or if its shapes depend on more than its tensors."""
    scalars = scalar_names(call.overload)
    if not any(name in scalars for name, _ in call.arguments):
        return None
    specs = list(call.tensors())
    lists = [value for _, value in call.arguments if isinstance(value, tuple)]
    if not specs or any(spec.numel for spec in specs) or any(0 in value for value in lists):
        return None
    if len(specs) > _MOST_TENSORS or not all(_is_free(spec) for spec in specs):
        return None
    return call.map_tensors(lambda spec: spec.reshaped(tuple(size or _FILLED for size in spec.shape)))


#: A size that is no vector's width.
_FILLED = 3


def _is_free(spec: TensorSpec) -> bool:
    """Whether the values do not refer to a shape."""
    return isinstance(spec.values, Recipe) and spec.values.domain[0] in _ANY_SHAPE


def _first_shape(call: Invocation) -> tuple[int, ...] | None:
    spec = next(call.tensors(), None)
    return None if spec is None else spec.shape


def _is_scalar(call: Invocation) -> bool:
    return _first_shape(call) == ()


def _is_empty(call: Invocation) -> bool:
    return 0 in (_first_shape(call) or ())


def _is_of_one(call: Invocation) -> bool:
    shape = _first_shape(call)
    return bool(shape) and set(shape or ()) == {1}


#: Whether a call is of a kind, and the shape of its tensors that makes it one.
_SMALLEST: tuple[tuple[Callable[[Invocation], bool], Callable[[tuple[int, ...]], tuple[int, ...]]], ...] = (
    (_is_scalar, lambda shape: ()),
    (_is_empty, lambda shape: (0, *shape[1:])),
    (_is_of_one, lambda shape: (1,) * len(shape)),
)


def _can_be_reshaped(call: Invocation) -> bool:
    """Whether nothing but the operator itself speaks of the shapes of a call's tensors."""
    specs = list(call.tensors())
    return 0 < len(specs) <= _MOST_TENSORS and bool(specs[0].shape) and all(map(_is_free, specs))


def _reshaped(spec: TensorSpec, shape_of: Callable[[tuple[int, ...]], tuple[int, ...]]) -> TensorSpec:
    return spec.reshaped(shape_of(spec.shape))
