"""The sizes that a model leaves open, as `dynamic_shapes` or an exported program declare them.

A size is open if the user declares it: with `torch.export.Dim`, a size derived from one (``4 * Dim("h")``),
`Dim.DYNAMIC`, `Dim.AUTO`, a name, or as a symbol of an exported program.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]
import torch

from harness.convert.converter import tensor_inputs
from harness.core.torch_operators import pytree
from harness.pipeline.model_task import Axis

#: The declaration for one tensor: dimension → the value for `torch.export.export`.
Declared: TypeAlias = Mapping[int, Any]
#: A number that an open size is derived by: size = factor * root + offset.
_Line: TypeAlias = tuple[int, int]
_PLAIN: _Line = (1, 0)


class ShapesMismatch(Exception):
    """`dynamic_shapes` do not fit the example inputs; the message is one line for a person."""


def declared_dims(shapes: Any, arguments: Mapping[str, Any]) -> tuple[Declared, ...]:
    """Return the declarations in `dynamic_shapes` for each tensor in `arguments`, in the order of their leaves.

    Args:
        shapes: The argument of `torch.export.export`: by parameter, in the order of the parameters, or a
            `torch.export.ShapesCollection`.
        arguments: Parameter → example argument.

    Raises:
        ShapesMismatch: they do not fit.
    """
    if isinstance(shapes, Mapping):
        unknown = set(shapes) - set(arguments)
        if unknown:
            raise ShapesMismatch(
                f"dynamic_shapes name {sorted(map(str, unknown))[0]!r}; parameters: {', '.join(arguments)}"
            )
        shapes = [shapes.get(name) for name in arguments]
    if not isinstance(shapes, list | tuple) or len(shapes) != len(arguments):
        raise ShapesMismatch(f"dynamic_shapes must have one entry for each of the {len(arguments)} inputs")
    return tuple(
        dims
        for (name, argument), given in zip(arguments.items(), shapes, strict=True)
        for dims in _dims_within(argument, given, name)
    )


def _dims_within(argument: Any, given: Any, name: str) -> list[Declared]:
    if isinstance(argument, torch.Tensor):
        if given is None:
            return [{}]
        dims = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
        outside = [dim for dim in dims if not 0 <= dim < argument.dim()]
        if outside:
            raise ShapesMismatch(f"dynamic_shapes: {name} has no dimension {outside[0]}")
        return [dims]
    children = _children(argument)
    if not children:
        return []
    parts = list(given.values()) if isinstance(given, Mapping) else given
    parts = [None] * len(children) if parts is None else parts
    if not isinstance(parts, list | tuple) or len(parts) != len(children):
        raise ShapesMismatch(f"dynamic_shapes must have one entry for each of the {len(children)} parts of {name}")
    return [dims for child, part in zip(children, parts, strict=True) for dims in _dims_within(child, part, name)]


def _children(value: Any) -> list[Any]:
    """Return the parts of a container that PyTorch flattens; none for a leaf."""
    kind = pytree._get_node_type(value)
    return list(pytree.SUPPORTED_NODES[kind].flatten_fn(value)[0]) if kind in pytree.SUPPORTED_NODES else []


def shapes_tree(value: Any, dims: Iterator[Declared]) -> Any:
    """Return the `dynamic_shapes` of one argument, taking each tensor's declaration from `dims`."""
    if isinstance(value, torch.Tensor):
        return dict(next(dims))
    if isinstance(value, Mapping):
        return {key: shapes_tree(part, dims) for key, part in value.items()}
    children = _children(value)
    if not children:
        return None
    parts = [shapes_tree(part, dims) for part in children]
    return tuple(parts) if isinstance(value, tuple) else parts


def axes_of_dims(names: Sequence[str], tensors: Sequence[torch.Tensor], declared: Sequence[Declared]) -> list[Axis]:
    """Return the declared axes: dimensions of one `Dim`, of one derived from it, or of one name are one axis."""
    found = _Axes()
    for name, tensor, dims in zip(names, tensors, declared, strict=True):
        for dim, size in dims.items():
            if _is_fixed(size):
                continue
            root, line = _root_of(size)
            label = root if isinstance(root, str) else getattr(root, "__name__", f"{name}:{dim}")
            limits = _bound(getattr(root, "min", None)), _bound(getattr(root, "max", None))
            found.add(label, name, dim, line, tensor.shape[dim], limits)
    return found.axes()


def _is_fixed(size: Any) -> bool:
    return size is None or isinstance(size, int) or size == torch.export.Dim.STATIC


def _root_of(size: Any) -> tuple[Any, _Line]:
    """Return a declared size's `Dim`, and the line that derives the size from it: PyTorch allows only lines."""
    line = getattr(size, "fn", None)
    if line is None:
        return size, _PLAIN
    offset = int(line(0))
    return size.root, (int(line(1)) - offset, offset)


def axes_of_program(
    program: torch.export.ExportedProgram, names: Sequence[str], tensors: Sequence[torch.Tensor]
) -> list[Axis]:
    """Return the axes that an exported program leaves open: its symbols, in their ranges."""
    found = _Axes()
    values = [value for _, value in tensor_inputs(program)]
    for name, tensor, value in zip(names, tensors, values, strict=True):
        for dim, size in enumerate(value.shape):
            if not isinstance(size, torch.SymInt):
                continue
            expression = size.node.expr
            symbols = [symbol for symbol in expression.free_symbols if symbol in program.range_constraints]
            if len(symbols) != 1 or not expression.is_polynomial(*symbols) or sympy.degree(expression, *symbols) != 1:
                continue
            offset = int(expression.subs(symbols[0], 0))
            line = int(expression.subs(symbols[0], 1)) - offset, offset
            limits = program.range_constraints[symbols[0]]
            found.add(str(symbols[0]), name, dim, line, tensor.shape[dim], (_bound(limits.lower), _bound(limits.upper)))
    return found.axes()


def _bound(limit: Any) -> int | None:
    """Return a limit of a symbol's range; None if there is none, for which PyTorch has an infinity of its own."""
    return int(limit) if isinstance(limit, int | sympy.Integer) else None


class _Axes:
    """Collects the places of each open size."""

    def __init__(self) -> None:
        self._places: defaultdict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
        self._lines: defaultdict[str, dict[tuple[str, int], _Line]] = defaultdict(dict)
        self._sizes: dict[str, tuple[int, ...]] = {}

    def add(
        self, label: str, name: str, dim: int, line: _Line, size: int, limits: tuple[int | None, int | None]
    ) -> None:
        factor, offset = line
        places = self._places[label]
        places[name] = (*places.get(name, ()), dim)
        if line != _PLAIN:
            self._lines[label][name, dim] = line
        low, high = limits
        self._sizes[label] = sizes_in(
            max(low or 1, 1), min(high or sys.maxsize, sys.maxsize), (size - offset) // factor
        )

    def axes(self) -> list[Axis]:
        return [Axis(name, where, self._sizes[name], self._lines[name]) for name, where in self._places.items()]


def sizes_in(low: int, high: int, size: int) -> tuple[int, ...]:
    """Return sizes to try for an axis whose exported size is `size`: the least, a neighbour, and about twice as
    large."""
    wanted = (low, size + 1, size - 1, min(2 * size + 1, high))
    return tuple(dict.fromkeys(n for n in wanted if low <= n <= high and n != size))[:3]
