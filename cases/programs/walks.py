"""Walks: operators that models call often, one on the result of another, so that any two of them follow each other.

Most rules of optimisers look at two or three nodes. A pattern for each is what the other files of this folder hold; a
walk reaches the rules that nobody has thought of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from harness.core.dtypes import is_float
from harness.core.invocation import Result, TensorSpec, Weight
from harness.core.program import results_in
from harness.generate.any_call import Value, shapes_of
from harness.generate.draw import ANY
from harness.generate.programs import ProgramDraw, dtype_of, pattern

#: Square shapes do not tell a wrong order of dimensions by their sizes, the others do.
_SHAPES = ((2, 3), (3, 3), (2, 3, 4), (1, 4), (2, 2, 2), (2, 1, 3), (1, 2, 3, 4))
#: Most elements and dimensions of a value that another step takes.
_LARGEST, _MOST_DIMENSIONS = 512, 5
_NUMBERS = (2.0, 0.5, -1.0, 3.0, 1.0, 0.0, -2.0, 0.1)
#: Functions of one operand that take any number; those of the second row give positive numbers.
_FUNCTIONS = ("neg", "relu", "tanh", "erf", "silu", "gelu", "sin", "cos", "floor", "round", "ceil", "clone", "sign")
_POSITIVE = ("sigmoid", "exp", "square", "abs", "softplus")
_REDUCTIONS = (
    *("sum.dim_IntList", "sum.dim_IntList", "mean.dim", "mean.dim"),
    *("amax.default", "amin.default", "logsumexp.default", "argmax.default"),
)
#: Functions of positive numbers.
_ROOTS_AND_LOGS = ("log", "sqrt", "rsqrt", "reciprocal")
_EVERYDAY = ("range", -2.0, 2.0)


class Walk:
    """A program that grows by steps, each on the result of the one before, or sometimes on another value.

    Args:
        p: Draws the program.
    """

    def __init__(self, p: ProgramDraw) -> None:
        self.p = p
        self._values: dict[Result, Value] = {}
        #: Results all of whose elements are positive, unless they round to zero.
        self.positive: set[Result] = set()
        self.last = self.start()

    def start(self) -> Value:
        """Add an input, and return a copy of it."""
        is_positive = self.p.sometimes()
        # Rules that forget NaN are wrong for numbers that are not everyday ones.
        domain = ("range", 0.1, 3.0) if is_positive else self.p.choose(_EVERYDAY, _EVERYDAY, ANY)
        started = self.call("aten.clone.default", self=self.p.input(self.p.choose(*_SHAPES), domain=domain))
        if is_positive:
            self.positive.add(started.result)
        return started

    def call(self, name: str, /, **arguments: Any) -> Value:
        """Add a call, and return its first result."""
        given = {n: v.result if isinstance(v, Value) else v for n, v in arguments.items()}
        result = self.p.call(name, **given)
        self._values |= {value.result: value for value in shapes_of(self.p.calls)}
        self.last = self._values[result]
        return self.last

    def equals(self, like: Value) -> list[Value]:
        """Return the values of the same shape and dtype, the value itself among them."""
        return [v for v in self._values.values() if (v.shape, v.dtype) == (like.shape, like.dtype)]

    def other(self, like: Value) -> Value | TensorSpec | Result | Weight:
        """Return another operand: an earlier value of the same shape, the value itself, an input or a weight."""
        kind = self.p.choose("earlier", "earlier", "earlier", "input", "weight")
        if kind == "earlier":
            return self.p.choose(*self.equals(like))
        shape = self.p.choose(like.shape, like.shape, like.shape[-1:], (*(1 for _ in like.shape[1:]), 1))
        if kind == "weight":
            return self.p.weight(shape, like.dtype)
        return self.p.input(shape, like.dtype, domain=_EVERYDAY if is_float(like.dtype) else ANY)

    def next_value(self) -> Value:
        """Return the value that the next step takes: mostly the last."""
        if self.p.below(8) == 0:
            return self.start()
        return self.p.choose(*self._values.values()) if self.p.below(6) == 0 else self.last

    def returns(self) -> list[Result]:
        """Return the results that no call takes."""
        taken = {result for call in self.p.calls for result in results_in(call)}
        return [result for result in self._values if result not in taken and result.output == 0]


#: A step of a walk; it adds nothing where it does not fit the value.
Step = Callable[[Walk, Value], None]


def _holds_floats(value: Value) -> bool:
    return is_float(value.dtype)


def _dim(walk: Walk, value: Value) -> int:
    return walk.p.integer(-len(value.shape), len(value.shape) - 1)


def function(walk: Walk, x: Value) -> None:
    """Apply a function of one operand."""
    if not _holds_floats(x):
        return
    names = (*_FUNCTIONS, *_POSITIVE, *(_ROOTS_AND_LOGS * 3 if x.result in walk.positive else ()))
    name = walk.p.choose(*names)
    y = walk.call(f"aten.{name}.default", self=x)
    if name in _POSITIVE or name in ("sqrt", "rsqrt", "reciprocal"):
        walk.positive.add(y.result)


def number(walk: Walk, x: Value) -> None:
    """Combine a value with a number."""
    p, n = walk.p, walk.p.choose(*_NUMBERS)
    if not _holds_floats(x):
        return
    kind = p.choose("add", "sub", "mul", "mul", "div", "pow", "clamp", "rsub")
    if kind == "pow":
        root = 0.5 if x.result in walk.positive else 4
        walk.call("aten.pow.Tensor_Scalar", self=x, exponent=p.choose(2, 3, 2.0, root))
    elif kind == "clamp":
        low, high = p.choose((-1.0, 1.0), (0.0, 6.0), (None, 0.5), (-0.5, None))
        walk.call("aten.clamp.default", self=x, min=low, max=high)
    else:
        walk.call(f"aten.{kind}.Scalar", self=x, other=1.5 if kind == "div" and not n else n)


def constant(walk: Walk, x: Value) -> None:
    """Combine a value with a constant that broadcasts."""
    p, rank = walk.p, len(x.shape)
    if not _holds_floats(x):
        return
    shapes = [(), x.shape[-1:], (1,), x.shape, (x.shape[-2], 1) if rank > 1 else (), (1,) * rank]
    held = p.weight(p.choose(*shapes), x.dtype, p.choose(("finite",), ("range", -2.0, -0.5), ("range", 0.5, 2.0)))
    name = p.choose("add", "sub", "mul", "mul", "div", "maximum", "minimum")
    overload = f"aten.{name}.default" if name in ("maximum", "minimum") else f"aten.{name}.Tensor"
    left, right = (held, x) if p.below(4) == 0 and name != "div" else (x, held)
    walk.call(overload, self=left, other=right)


def operand(walk: Walk, x: Value) -> None:
    """Combine a value with another one, or with itself."""
    other = walk.other(x)
    name = walk.p.choose("add", "sub", "mul", "mul", "maximum", "minimum")
    if x.dtype == "bool":
        name = "mul"
    left, right = walk.p.choose((x, other), (other, x))
    overload = f"aten.{name}.default" if name in ("maximum", "minimum") else f"aten.{name}.Tensor"
    walk.call(overload, self=left, other=right)


def move(walk: Walk, x: Value) -> None:
    """Permute, reshape or extend a value."""
    p, rank = walk.p, len(x.shape)
    if not rank:
        walk.call("aten.unsqueeze.default", self=x, dim=p.choose(0, -1))
        return
    ones = [dim for dim, size in enumerate(x.shape) if size == 1]
    kind = p.choose("transpose", "permute", "reshape", "reshape", "unsqueeze", "squeeze", "flatten", "expand", "repeat")
    if kind == "transpose":
        walk.call("aten.transpose.int", self=x, dim0=_dim(walk, x), dim1=_dim(walk, x))
    elif kind == "permute":
        order = sorted(range(rank), key=lambda _: p.below(1000))
        walk.call("aten.permute.default", self=x, dims=order)
    elif kind == "reshape":
        shapes = [[-1], [*x.shape[::-1]], [x.shape[0], -1], [-1, x.shape[-1]], [1, *x.shape]]
        walk.call("aten.reshape.default", self=x, shape=[*x.shape] if 0 in x.shape else p.choose(*shapes))
    elif kind == "unsqueeze":
        walk.call("aten.unsqueeze.default", self=x, dim=p.integer(-rank - 1, rank))
    elif kind == "squeeze":
        # One of another size stays; the exporter rejects that, which would hide what the other steps do.
        dims = [_dim(walk, x), *ones * 4]
        walk.call("aten.squeeze.dim", self=x, dim=p.choose(*dims))
    elif kind == "flatten":
        walk.call("aten.flatten.using_ints", self=x, start_dim=p.choose(0, min(1, rank - 1)))
    elif kind == "expand":
        walk.call("aten.expand.default", self=x, size=[p.choose(2, 1), *x.shape])
    else:
        walk.call("aten.repeat.default", self=x, repeats=[p.choose(1, 2) for _ in x.shape])


def part(walk: Walk, x: Value) -> None:
    """Cut a part out of a value, or pad it."""
    p = walk.p
    if not x.shape:
        return
    dim = _dim(walk, x)
    size = x.shape[dim]
    kind = p.choose("slice", "slice", "select", "gather", "pad", "flip", "roll", "chunk")
    if kind == "slice":
        start, step = p.choose((0, 1), (1, 1), (0, 2), (-1, 1))
        walk.call("aten.slice.Tensor", self=x, dim=dim, start=start, end=p.choose(2**63 - 1, size, -1), step=step)
    elif kind == "select" and size:
        walk.call("aten.select.int", self=x, dim=dim, index=p.integer(-size, size - 1))
    elif kind == "gather" and size:
        indices = [p.below(size) for _ in range(p.choose(1, 2, 3))]
        walk.call("aten.index_select.default", self=x, dim=dim, index=p.given(indices, (len(indices),), "int64"))
    elif kind == "pad" and _holds_floats(x):
        pad = p.choose([1, 0], [0, 1], [1, -1])
        walk.call("aten.constant_pad_nd.default", self=x, pad=pad, value=p.choose(0.0, 1.5))
    elif kind in ("flip", "roll"):
        given = {"dims": [dim]} if kind == "flip" else {"shifts": [p.choose(1, -1)], "dims": [dim]}
        walk.call(f"aten.{kind}.default", self=x, **given)
    elif kind == "chunk" and size > 1:
        first = walk.call("aten.split.Tensor", self=x, split_size=-(-size // 2), dim=dim)
        if size % 2 == 0 and _holds_floats(x):
            second = Result(first.result.call, 1)
            walk.call("aten.mul.Tensor", self=first, other=p.call("aten.sigmoid.default", self=second))


def join(walk: Walk, x: Value) -> None:
    """Join a value and another one, or parts of one."""
    p = walk.p
    if not x.shape:
        return
    dim = _dim(walk, x)
    kind, name = p.choose("whole", "whole", "whole", "halves", "rows"), p.choose("cat", "cat", "stack")
    parts = [x, p.choose(x, *walk.equals(x))]
    if kind == "halves":
        parts = [walk.call("aten.slice.Tensor", self=x, dim=dim, start=a, end=b) for a, b in ((0, 1), (1, 2**63 - 1))]
        name = "cat"
    elif kind == "rows" and x.shape[dim]:
        parts = [walk.call("aten.select.int", self=x, dim=dim, index=row) for row in p.choose((0, -1), (-1, 0), (0, 0))]
        name, dim = "stack" if len(x.shape) == 1 else p.choose("stack", "cat"), 0
    if p.sometimes() and _holds_floats(x):
        parts[0] = walk.call("aten.neg.default", self=parts[0])
    parts = p.choose(parts, parts[::-1])
    walk.call(f"aten.{name}.default", tensors=[value.result for value in parts], dim=dim)


def reduction(walk: Walk, x: Value) -> None:
    """Reduce a value along a dimension."""
    p = walk.p
    if not x.shape:
        return
    is_any = _holds_floats(x) and 0 not in x.shape
    name, dim = p.choose(*_REDUCTIONS) if is_any else "sum.dim_IntList", _dim(walk, x)
    walk.call(f"aten.{name}", self=x, dim=dim if name == "argmax.default" else [dim], keepdim=p.choose(True, False))


def norm(walk: Walk, x: Value) -> None:
    """Normalise a value along a dimension."""
    p = walk.p
    if not x.shape or not _holds_floats(x):
        return
    kind = p.choose("softmax", "softmax", "log_softmax", "layer_norm", "cumsum")
    if kind == "layer_norm":
        row = x.shape[-1:]
        weight, bias = (None, None) if p.sometimes() else (p.weight(row, x.dtype), p.weight(row, x.dtype))
        walk.call("aten.layer_norm.default", input=x, normalized_shape=[*row], weight=weight, bias=bias)
    elif kind == "cumsum":
        walk.call("aten.cumsum.default", self=x, dim=_dim(walk, x))
    else:
        y = walk.call(f"aten.{kind}.int", self=x, dim=_dim(walk, x))
        if kind == "softmax":
            walk.positive.add(y.result)


def product(walk: Walk, x: Value) -> None:
    """Multiply a matrix by one."""
    p = walk.p
    if len(x.shape) < 2 or not _holds_floats(x):
        return
    inner = x.shape[-1]
    kind = p.choose("matmul", "matmul", "linear", "transposed", "first")
    if kind == "linear":
        bias = p.weight((3,), x.dtype) if p.sometimes() else None
        walk.call("aten.linear.default", input=x, weight=p.weight((3, inner), x.dtype), bias=bias)
    elif kind == "transposed":
        turned = walk.call("aten.transpose.int", self=x, dim0=-2, dim1=-1)
        walk.call("aten.matmul.default", self=x, other=turned)
    elif kind == "first":
        walk.call("aten.matmul.default", self=p.weight((2, x.shape[-2]), x.dtype), other=x)
    else:
        walk.call("aten.matmul.default", self=x, other=p.weight((inner, p.choose(inner, 2)), x.dtype))


def comparison(walk: Walk, x: Value) -> None:
    """Compare a value with a number or with another value."""
    p = walk.p
    name = p.choose("gt", "lt", "ge", "le", "eq", "ne")
    if x.dtype == "bool":
        walk.call(p.choose("aten.logical_not.default", "aten.bitwise_not.default"), self=x)
    elif p.choose(True, False):
        walk.call(f"aten.{name}.Scalar", self=x, other=p.choose(0, 1) if x.dtype == "int64" else p.choose(0.0, 0.5))
    else:
        walk.call(f"aten.{name}.Tensor", self=x, other=walk.other(x))


def logic(walk: Walk, x: Value) -> None:
    """Combine masks; make one first if the value is none."""
    if x.dtype != "bool":
        comparison(walk, x)
        return
    p = walk.p
    name = p.choose("not", "not", "and", "or", "xor", "any")
    if name == "not":
        walk.call("aten.logical_not.default", self=x)
    elif name == "any" and x.shape:
        walk.call(p.choose("aten.any.dim", "aten.all.dim"), self=x, dim=_dim(walk, x), keepdim=p.choose(True, False))
    else:
        overload = f"aten.logical_{name}.default" if name != "any" else "aten.logical_and.default"
        walk.call(overload, self=x, other=walk.other(x))


def choice(walk: Walk, x: Value) -> None:
    """Choose by a mask, or multiply by it."""
    p = walk.p
    if x.dtype == "bool":
        mask, chosen, dtype = x, walk.call("aten.clone.default", self=p.input(x.shape, domain=_EVERYDAY)), p.dtype
    else:
        mask, chosen, dtype = walk.call("aten.gt.Scalar", self=x, other=0), x, x.dtype
    kind = p.choose("where", "where", "fill", "times")
    if kind == "where":
        other = p.choose(p.number(0.0, (), dtype), p.number(-1e4, (), dtype), p.weight(x.shape, dtype), chosen)
        left, right = p.choose((chosen, other), (other, chosen))
        walk.call("aten.where.self", condition=mask, self=left, other=right)
    elif kind == "fill":
        value = p.choose(0.0, -1e4, 1.0) if is_float(dtype) else p.choose(0, 1)
        walk.call("aten.masked_fill.Scalar", self=chosen, mask=mask, value=value)
    else:
        walk.call("aten.mul.Tensor", self=chosen, other=walk.call("aten.to.dtype", self=mask, dtype=dtype_of(dtype)))


def cast(walk: Walk, x: Value) -> None:
    """Cast a value, perhaps after rounding."""
    p = walk.p
    if _holds_floats(x) and p.sometimes():
        x = walk.call(f"aten.{p.choose('round', 'floor', 'ceil')}.default", self=x)
    names = ("float32", "int64", "bool", "int32", "float16", "float64")
    walk.call("aten.to.dtype", self=x, dtype=dtype_of(p.choose(*names)))


def integers(walk: Walk, x: Value) -> None:
    """Compute with integers; make them first if the value is of another kind."""
    p = walk.p
    if x.dtype != "int64":
        walk.call("aten.to.dtype", self=x, dtype=dtype_of("int64"))
        return
    n = p.choose(2, 3, -2)
    kind = p.choose("add", "mul", "floor_divide", "remainder", "div_trunc", "sub", "clamp", "neg", "abs", "back")
    if kind in ("neg", "abs"):
        walk.call(f"aten.{kind}.default", self=x)
    elif kind == "clamp":
        walk.call("aten.clamp.default", self=x, min=p.choose(0, None), max=2)
    elif kind == "floor_divide":
        walk.call("aten.floor_divide.Scalar", self=x, other=n)
    elif kind == "div_trunc":
        walk.call("aten.div.Scalar_mode", self=x, other=n, rounding_mode=p.choose("trunc", "floor"))
    elif kind == "back":
        walk.call("aten.to.dtype", self=x, dtype=dtype_of(p.dtype))
    else:
        walk.call(f"aten.{kind}.Scalar", self=x, other=n)


def _take(p: ProgramDraw, steps: Sequence[Step]) -> list[Result]:
    """Take five to eight steps; often the same one twice, as rules look for."""
    walk = Walk(p)
    step = p.choose(*steps)
    for _ in range(p.integer(5, 8)):
        value = walk.next_value()
        if prod(value.shape) > _LARGEST or len(value.shape) > _MOST_DIMENSIONS:
            value = walk.start()
        step(walk, value)
        step = step if p.below(4) == 0 else p.choose(*steps)
    return walk.returns()


@pattern("walk-arithmetic", source="rules of two nodes in any optimiser")
def walk_arithmetic(p: ProgramDraw) -> list[Result]:
    """Functions, sums, products and reductions."""
    return _take(p, (function, function, number, number, constant, constant, operand, reduction, norm, product, cast))


@pattern("walk-moves", source="rules of two nodes in any optimiser")
def walk_moves(p: ProgramDraw) -> list[Result]:
    """Moves, parts and joins, with operators between that have a dimension."""
    return _take(p, (move, move, move, part, part, join, join, reduction, norm, product, constant, function))


@pattern("walk-masks", source="rules of two nodes in any optimiser")
def walk_masks(p: ProgramDraw) -> list[Result]:
    """Comparisons, masks, choices, casts and integers."""
    masks = (comparison, logic, logic, choice, choice)
    return _take(p, (*masks, cast, cast, integers, integers, reduction, function, move))
