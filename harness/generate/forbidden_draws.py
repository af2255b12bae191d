"""Break a call of an ONNX operator in one way that its text may forbid.

What a text forbids must be refused, by ONNX's checker or by the runtime, and must not end its process. Whether a change
is forbidden depends on the operator: ONNX's checker and the limits in the texts decide (`harness.pipeline.nodes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import TypeAlias

from harness.core.invocation import Argument, Invocation, Literal, Recipe, TensorSpec, Weight, contiguous_strides
from harness.core.onnx_operators import OnnxSchema, find_schema

#: Changes the arguments of a call; None if it finds nothing to change.
_Break: TypeAlias = "Callable[[Mapping[str, Argument], OnnxSchema, Random], Mapping[str, Argument] | None]"

#: Numbers beyond most limits. Sizes are smaller: a tensor of a huge size would take all memory.
_FAR = (-1, 7, 64, -9, 2**31 - 1, -(2**31))
_SIZES = (-1, -9, 7, 64)
_MAKES_SIZES = frozenset(
    {"Expand", "Tile", "ConstantOfShape", "Range", "Pad", "Reshape", "EyeLike", "OneHot", "Resize"}
)
#: Attributes that are sizes.
_SIZE_ATTRIBUTES = ("pad", "shape", "size", "scale", "output", "times", "repeats", "num_outputs", "length", "bands")
_DTYPES = ("float32", "int64", "bool", "float16", "uint8", "float64", "int32")
_INTEGERS = ("int64", "int32")
#: Attempts to find a change that a call allows.
_TRIES = 4


def forbid(call: Invocation, random: Random) -> Invocation | None:
    """Return a call with one change; None if a few attempts find nothing to change.

    Args:
        call: A call of an ONNX operator.
        random: Decides what is changed.
    """
    schema, arguments = find_schema(call.overload), dict(call.arguments)
    for change in random.sample(_BREAKS, _TRIES):
        changed = change(arguments, schema, random)
        if changed is not None:
            return replace(call, arguments=tuple(changed.items()))
    return None


def _leave_out(arguments: Mapping[str, Argument], schema: OnnxSchema, random: Random) -> Mapping[str, Argument] | None:
    """Leave out an input or an attribute that the operator needs."""
    needed = [p.name for p in schema.inputs if not p.is_optional] + [a.name for a in schema.attributes if a.is_required]
    given = [name for name in needed if name in arguments]
    if not given:
        return None
    left_out = random.choice(given)
    return {name: value for name, value in arguments.items() if name != left_out}


def _change_dtype(
    arguments: Mapping[str, Argument], schema: OnnxSchema, random: Random
) -> Mapping[str, Argument] | None:
    """Give a tensor a dtype that the operator does not take, or another than a tensor that must have the same."""

    def changed(spec: TensorSpec) -> TensorSpec | None:
        dtype = random.choice([dtype for dtype in _DTYPES if dtype != spec.dtype])
        # Any dtype holds 0 and 1.
        return replace(spec, dtype=dtype, values=Literal((0, 1))).reshaped(spec.shape)

    return _change_tensor(arguments, schema, random, changed)


def _change_shape(
    arguments: Mapping[str, Argument], schema: OnnxSchema, random: Random
) -> Mapping[str, Argument] | None:
    """Give a tensor another size or rank."""

    def changed(spec: TensorSpec) -> TensorSpec | None:
        sizes, way = list(spec.shape), random.choice(("size", "size", "more", "fewer", "none"))
        if way == "size" and sizes:
            place = random.randrange(len(sizes))
            sizes[place] = random.choice((sizes[place] + 1, 0, 5))
        elif way == "more":
            sizes.insert(random.randint(0, len(sizes)), random.choice((1, 2)))
        elif way == "fewer" and sizes:
            sizes.pop(random.randrange(len(sizes)))
        else:
            sizes = []
        if tuple(sizes) == spec.shape:
            return None
        # Other recipes make as many numbers as the old shape asks for.
        is_free = isinstance(spec.values, Recipe) and spec.values.domain[0] == "any"
        return (spec if is_free else replace(spec, values=Literal((0, 1)))).reshaped(tuple(sizes))

    return _change_tensor(arguments, schema, random, changed)


def _change_numbers(
    arguments: Mapping[str, Argument], schema: OnnxSchema, random: Random
) -> Mapping[str, Argument] | None:
    """Give a tensor of integers, such as indices or axes, a number that is far out."""
    choices = _SIZES if schema.operator in _MAKES_SIZES else _FAR

    def changed(spec: TensorSpec) -> TensorSpec | None:
        if spec.dtype not in _INTEGERS or not spec.numel:
            return None
        numbers = [random.choice((0, 1)) for _ in range(spec.numel)]
        numbers[random.randrange(spec.numel)] = random.choice(choices)
        plain = replace(spec, strides=contiguous_strides(spec.shape), offset=0)
        return replace(plain, values=Literal(tuple(numbers)))

    return _change_tensor(arguments, schema, random, changed)


def _change_attribute(
    arguments: Mapping[str, Argument], schema: OnnxSchema, random: Random
) -> Mapping[str, Argument] | None:
    """Give an attribute a number that is far out, another length, or an unknown word."""
    given = [a for a in schema.attributes if a.name in arguments and a.kind in ("int", "ints", "string")]
    if not given:
        return None
    attribute = random.choice(given)
    value = arguments[attribute.name]
    is_size = attribute.name.startswith("k") or any(part in attribute.name for part in _SIZE_ATTRIBUTES)
    number = random.choice(_SIZES if is_size else _FAR)
    if isinstance(value, tuple):
        place = random.randint(0, len(value))
        ways = [(*value, 1), value[:-1], (*value[:place], number, *value[place + 1 :])]
        return {**arguments, attribute.name: random.choice([way for way in ways if way != value])}
    return {**arguments, attribute.name: "unheard_of" if isinstance(value, str) else number}


def _change_tensor(
    arguments: Mapping[str, Argument],
    schema: OnnxSchema,
    random: Random,
    change: Callable[[TensorSpec], TensorSpec | None],
) -> Mapping[str, Argument] | None:
    """Return the arguments with one of the inputs changed; None if `change` takes none of them."""
    names = [p.name for p in schema.inputs if isinstance(arguments.get(p.name), TensorSpec | Weight)]
    for name in random.sample(names, len(names)):
        value = arguments[name]
        assert isinstance(value, TensorSpec | Weight)
        changed = change(value.spec if isinstance(value, Weight) else value)
        if changed is not None:
            return {**arguments, name: replace(value, spec=changed) if isinstance(value, Weight) else changed}
    return None


_BREAKS: tuple[_Break, ...] = (
    *(_leave_out, _change_dtype, _change_shape, _change_shape, _change_numbers, _change_numbers),
    *(_change_attribute, _change_attribute),
)
