"""An operator call with concrete arguments, as a plain value.

The generator draws invocations, the worker process rebuilds their tensors, the record stores them as JSON, and a corpus
is a list of them. An invocation holds no tensors: a tensor argument is a shape, a dtype, strides, and either the values
or a recipe for them. So it takes a few hundred bytes, is hashable, and can be rebuilt bit for bit anywhere.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from harness.core.dtypes import PARTS, Array


class InvalidInvocation(ValueError):
    """The JSON is not an invocation; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe for the values of a tensor.

    Attributes:
        domain: The values that the operator allows: a name from `harness.core.values.DOMAINS` followed by its
            parameters, such as ``("any",)``, ``("range", -1.0, 1.0)`` or ``("index", 5)``.
        style: How to choose among them: a name from `harness.core.values.STYLES` (``plain``), or one from
            `harness.core.styles.PLANNED` followed by its parameters (``alone 2 0 1``).
        seed: The seed of the random words that the values are computed from.
    """

    domain: tuple[str | int | float, ...]
    style: str
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """The values themselves, one per storage element. All NaNs have the default payload.

    Two literals are equal if they are written alike: 0.0 differs from -0.0 and from 0, and NaN equals NaN.
    """

    values: tuple[bool | int | float | complex, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and repr(self.values) == repr(other.values)

    def __hash__(self) -> int:
        return hash(repr(self.values))


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor argument.

    Attributes:
        shape: Sizes; ``()`` is a 0-d tensor.
        dtype: PyTorch's name without ``torch.``: ``float32``, ``bfloat16``, ``int64``, ``bool``.
        strides: Steps in elements, one per dimension; an expanded dimension has 0.
        offset: Position of the first element in the storage, in elements.
        values: Values of the storage in storage order, so that an expanded or overlapping tensor is a single value too.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    offset: int
    values: Recipe | Literal

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def storage_size(self) -> int:
        """Number of elements that the storage must hold."""
        if not self.numel:
            return self.offset
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps (PyTorch's definition)."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1:
                if stride != expected:
                    return self.numel == 0
                expected *= size
        return True

    def reshaped(self, shape: tuple[int, ...], dtype: str = "") -> TensorSpec:
        """Return a row-major tensor of another shape, and of another dtype if one is named, with the same values.

        A recipe makes as many values as the shape asks for; those of a literal are repeated or cut off.
        """
        values, count = self.values, math.prod(shape)
        if isinstance(values, Literal) and values.values:
            values = Literal((values.values * count)[:count])
        return TensorSpec(shape, dtype or self.dtype, contiguous_strides(shape), 0, values)


@dataclass(frozen=True, slots=True)
class Enumerated:
    """An argument that names a PyTorch constant.

    Attributes:
        kind: ``dtype``, ``layout``, ``memory_format`` or ``device``.
        name: PyTorch's name without ``torch.``: ``float32``, ``strided``, ``cpu``.
    """

    kind: str
    name: str


ENUMERATED_KINDS = ("dtype", "layout", "memory_format", "device")


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor that a program holds, as a module holds a parameter.

    Attributes:
        spec: The tensor.
        dtype: The dtype that it is converted to; "" keeps its own.
        name: The name of the module's buffer; "" leaves it to the exporter to name a constant.
    """

    spec: TensorSpec
    dtype: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A result of an earlier call, as an argument of a call in a program.

    Attributes:
        call: Index of the earlier call.
        output: Index among that call's tensors.
    """

    call: int
    output: int = 0


@dataclass(frozen=True, slots=True)
class Input:
    """A repeated use of a program's input, as an argument of a later call or as a returned value.

    The first use describes the input by a `TensorSpec`.

    Attributes:
        place: Index among the inputs of the program, in order.
    """

    place: int


#: The forms of a tensor argument of a call in a program.
TensorArgument: TypeAlias = "TensorSpec | Weight | Result | Input"

Argument: TypeAlias = "TensorArgument | Enumerated | bool | int | float | complex | str | tuple[Argument, ...] | None"


#: Prefix of the overload of a program; the rest names the pattern that it was drawn by.
PROGRAM = "program."
#: Prefix of the overload of a whole model.
MODEL = "model."
#: Prefix of the overload of a graph of several ONNX operators; the rest names the seed that it was made of.
GRAPH = "graph."
#: Prefixes of the overloads of ONNX's operators.
ONNX_DOMAINS = ("ai.onnx.", "com.microsoft.")


def is_exported(overload: str) -> bool:
    """Whether cases of an overload are graphs of ONNX operators, one or several, which no converter makes."""
    return overload.startswith((GRAPH, *ONNX_DOMAINS))


@dataclass(frozen=True)
class Invocation:
    """An ATen overload with concrete arguments, or a program of several calls: see `harness.core.program`.

    Attributes:
        overload: PyTorch's name: ``aten.add.Tensor``, ``aten.celu.default``.
        arguments: Pairs of name and value, in the order of the schema. An omitted argument takes its default; passing
            the default explicitly gives a different invocation.
    """

    overload: str
    arguments: tuple[tuple[str, Argument], ...]

    @cached_property
    def json(self) -> str:
        """Canonical JSON: equal invocations have equal text."""
        return json.dumps(self.to_data(), separators=(",", ":"), allow_nan=False)

    @cached_property
    def case_id(self) -> str:
        """Short content hash that identifies the case; stable across machines and versions."""
        return hashlib.sha256(self.json.encode()).hexdigest()[:12]

    @cached_property
    def structure_id(self) -> str:
        """Hash of everything but tensor values; invocations that share it can share an export."""
        blank = self.with_values(lambda spec: Literal(()))
        return hashlib.sha256(blank.json.encode()).hexdigest()[:12]

    def __str__(self) -> str:
        """Return the call as a person would write it, with tensors as ``float32[2,3]``."""
        if self.overload.startswith((PROGRAM, GRAPH)):
            return "; ".join(_lines(dict(self.arguments)))
        return f"{self.overload}({', '.join(f'{n}={describe(a)}' for n, a in self.arguments)})"

    def tensors(self) -> Iterator[TensorSpec]:
        """Yield the tensor arguments in order, including those in lists."""
        for _, argument in self.arguments:
            yield from _tensors(argument)

    @property
    def dtype(self) -> str:
        """The dtype that matrices list this case under: that of the first tensor other than `where`'s condition, else
        the condition's, else the `dtype` argument's, else PyTorch's default."""
        condition = ""
        for name, argument in self.arguments:
            for spec in _tensors(argument):
                if name != _CONDITION:
                    return spec.dtype
                condition = spec.dtype
        if condition:
            return condition
        for _, argument in self.arguments:
            if isinstance(argument, Enumerated) and argument.kind == "dtype":
                return argument.name
        return "float32"

    def map_tensors(self, change: Callable[[TensorSpec], TensorSpec]) -> Invocation:
        """Return a copy in which `change` has replaced every tensor, in order."""
        return replace(self, arguments=tuple((n, _map_tensors(a, change)) for n, a in self.arguments))

    def with_values(self, choose: Callable[[TensorSpec], Recipe | Literal]) -> Invocation:
        """Return a copy with the same structure and other tensor values."""
        return self.map_tensors(lambda spec: replace(spec, values=choose(spec)))

    def arguments_with(self, arrays: Iterable[Array]) -> dict[str, Any]:
        """Return the arguments by name with `arrays` in place of the tensors, in order, and lists in place of tuples.

        Complex tensors are passed in as pairs of reals and become complex again.
        """
        supply = iter(arrays)
        return {name: _filled(argument, supply) for name, argument in self.arguments}

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "overload": self.overload,
            "arguments": {name: _encode(argument) for name, argument in self.arguments},
        }

    @classmethod
    def from_data(cls, data: Any) -> Invocation:
        """Parse the data of `to_data`.

        Raises:
            InvalidInvocation: The data is not an invocation.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("overload"), str):
            raise InvalidInvocation("an invocation is an object with `overload` and `arguments`")
        arguments = data.get("arguments")
        if not isinstance(arguments, Mapping):
            raise InvalidInvocation(f"{data['overload']}: `arguments` is not an object")
        return cls(
            data["overload"],
            tuple((name, _decode(a, f"{data['overload']}.{name}")) for name, a in arguments.items()),
        )

    @classmethod
    def from_json(cls, text: str) -> Invocation:
        """Parse the text of `json`.

        Raises:
            InvalidInvocation: The text is not an invocation.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidInvocation(f"not JSON: {error}") from None
        return cls.from_data(data)


#: Tensors with at most this many values are described by their values.
_SHOWN = 64
#: The argument of `where` that selects between the other two.
_CONDITION = "condition"


def describe(argument: Argument) -> str:
    """Return one argument as a person would write it: ``float32[2,3]``, ``[1, -1]``, ``0.5``, ``torch.int64``."""
    if isinstance(argument, TensorSpec):
        layout = "" if argument.is_contiguous else f" strides={list(argument.strides)}"
        values = ""
        if isinstance(argument.values, Literal) and len(argument.values.values) <= _SHOWN:
            values = f"={list(argument.values.values)}"
        return f"{argument.dtype}{list(argument.shape)}{layout}{values}".replace(" ", "")
    if isinstance(argument, Enumerated):
        return argument.name if argument.kind == "device" else f"torch.{argument.name}"
    if isinstance(argument, Weight):
        label = f"weight {argument.name}" if argument.name else "weight"
        return f"{label}:{describe(argument.spec)}"
    if isinstance(argument, Result):
        return f"%{argument.call}" + (f".{argument.output}" if argument.output else "")
    if isinstance(argument, Input):
        return f"input {argument.place}"
    if isinstance(argument, tuple):
        return f"[{', '.join(describe(a) for a in argument)}]"
    return repr(argument)


def _lines(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the calls of a program, as ``%0 = aten.relu.default(self=float32[2])``, what it returns, and its names."""
    for place, (overload, given) in enumerate(arguments.get("calls", ())):
        yield f"%{place} = {overload}({', '.join(f'{name}={describe(value)}' for name, value in given)})"
    yield f"return {', '.join(map(describe, arguments.get('returns', ())))}"
    for value, base, suffix in arguments.get("names", ()):
        yield f"the name of {describe(value)} is that of {describe(base)} and {suffix!r}"


def _tensors(argument: Argument) -> Iterator[TensorSpec]:
    if isinstance(argument, TensorSpec):
        yield argument
    elif isinstance(argument, tuple):
        for element in argument:
            yield from _tensors(element)


def _filled(argument: Argument, supply: Iterator[Array]) -> Any:
    if isinstance(argument, TensorSpec):
        array = next(supply)
        return array.view(argument.dtype).reshape(argument.shape) if argument.dtype in PARTS else array
    if isinstance(argument, tuple):
        return [_filled(element, supply) for element in argument]
    return argument


def _map_tensors(argument: Argument, change: Callable[[TensorSpec], TensorSpec]) -> Argument:
    if isinstance(argument, TensorSpec):
        return change(argument)
    if isinstance(argument, tuple):
        return tuple(_map_tensors(element, change) for element in argument)
    return argument


def _encode_number(value: bool | int | float | complex) -> Any:
    if isinstance(value, complex):
        return {"complex": [_encode_number(value.real), _encode_number(value.imag)]}
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no numbers for these.
        return {"float": repr(value)}
    return value


def _encode(argument: Argument) -> Any:
    if isinstance(argument, TensorSpec):
        data: dict[str, Any] = {
            "shape": list(argument.shape),
            "dtype": argument.dtype,
            "strides": list(argument.strides),
            "offset": argument.offset,
        }
        if isinstance(argument.values, Recipe):
            recipe = argument.values
            data["recipe"] = [list(recipe.domain), recipe.style, recipe.seed]
        else:
            data["values"] = [_encode_number(v) for v in argument.values.values]
        return {"tensor": data}
    if isinstance(argument, Weight):
        return {"weight": [_encode(argument.spec), argument.dtype, *([argument.name] if argument.name else [])]}
    if isinstance(argument, Result):
        return {"result": [argument.call, argument.output]}
    if isinstance(argument, Input):
        return {"input": argument.place}
    if isinstance(argument, Enumerated):
        return {argument.kind: argument.name}
    if isinstance(argument, tuple):
        return [_encode(element) for element in argument]
    if argument is None or isinstance(argument, str):
        return argument
    return _encode_number(argument)


def _decode(data: Any, where: str) -> Argument:
    if isinstance(data, list):
        return tuple(_decode(element, f"{where}[{i}]") for i, element in enumerate(data))
    if not isinstance(data, Mapping):
        if data is None or isinstance(data, bool | int | float | str):
            return data
        raise InvalidInvocation(f"{where}: {type(data).__name__} is not an argument")
    if len(data) == 1:
        kind, value = next(iter(data.items()))
        if kind == "float" and value in ("nan", "inf", "-inf"):
            return float(value)
        if kind == "complex" and isinstance(value, list) and len(value) == 2:
            real, imaginary = (_decode(part, where) for part in value)
            if isinstance(real, int | float) and isinstance(imaginary, int | float):
                return complex(real, imaginary)
        if kind in ENUMERATED_KINDS and isinstance(value, str):
            return Enumerated(kind, value)
        if kind == "tensor" and isinstance(value, Mapping):
            return _decode_tensor(value, where)
        if kind == "result" and isinstance(value, list) and [type(n) for n in value] == [int, int]:
            return Result(*value)
        if kind == "input" and type(value) is int:
            return Input(value)
        if kind == "weight" and isinstance(value, list) and len(value) in (2, 3):
            spec, words = _decode(value[0], where), value[1:]
            if isinstance(spec, TensorSpec) and all(isinstance(word, str) for word in words):
                return Weight(spec, *words)
    raise InvalidInvocation(f"{where}: {json.dumps(data)[:80]} is not an argument")


def _decode_tensor(data: Mapping[str, Any], where: str) -> TensorSpec:
    try:
        values: Recipe | Literal
        if "recipe" in data:
            domain, style, seed = data["recipe"]
            values = Recipe(tuple(domain), str(style), int(seed))
        else:
            values = Literal(tuple(_decode(v, where) for v in data["values"]))  # type: ignore[misc]
        shape, strides, dtype = tuple(data["shape"]), tuple(data["strides"]), data["dtype"]
        places = (*shape, *strides, data["offset"])
        if len(shape) != len(strides) or not all(type(n) is int and n >= 0 for n in places):
            raise ValueError("a size and a stride per dimension, and an offset, none negative")
        if not isinstance(dtype, str):
            raise ValueError("no dtype")
        return TensorSpec(shape, dtype, strides, data["offset"], values)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInvocation(f"{where}: not a tensor: {error!r}") from None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the row-major strides of `shape`, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
