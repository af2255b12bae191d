"""Lower and upper bounds, one after the other, which optimisers make one."""

from __future__ import annotations

from harness.core.invocation import Result
from harness.generate.programs import ProgramDraw, pattern

_FLOATS = (-1.5, -0.0, 0.0, 0.5, 2.0, 6.0, float("inf"), float("-inf"), float("nan"))
_INTEGERS = (-3, -1, 0, 1, 4)
#: Integers that the next narrower float does not hold.
_INEXACT = {"int64": 2**53 + 1, "int32": 2**24 + 1}


@pattern("clip-chain", source="onnxruntime relu_clip_fusion.cc; onnxscript rules fuse_relus_clips")
def clip_chain(p: ProgramDraw) -> list[Result]:
    """Relu and clamp in a row, whose ranges overlap, exclude each other or are upside down."""
    dtype = p.choose(p.dtype, p.dtype, p.dtype, "int64", "int32")
    numbers = (*_INTEGERS, _INEXACT[dtype]) if dtype in _INEXACT else _FLOATS
    y: object = p.input((2, 5), dtype=dtype)
    for kind in p.choose(("clamp", "clamp"), ("relu", "clamp"), ("clamp", "relu"), ("clamp", "relu", "clamp")):
        if kind == "relu":
            y = p.call("aten.relu.default", self=y)
            continue
        low, high = p.choose(*numbers), p.choose(*numbers)
        which = p.choose("both", "both", "low", "high")
        y = p.call(
            "aten.clamp.default",
            self=y,
            min=None if which == "high" else low,
            max=None if which == "low" else high,
        )
    return [y]  # type: ignore[list-item]


@pattern("min-max", source="onnxscript rules min_max_to_clip")
def min_max(p: ProgramDraw) -> list[Result]:
    """Minimum and maximum with weights of one number, of a row, of another rank."""
    shape = p.choose((2, 5), (5,), ())
    y: object = p.input(shape)
    names = p.choose(("maximum", "minimum"), ("minimum", "maximum"), ("minimum", "minimum"), ("maximum", "maximum"))
    plain = p.choose(True, True, False)
    for name in names:
        number = p.choose(-1.0, 0.0, 1.0, -1.0, 0.0, 1.0, float("nan"), float("inf"))
        size: tuple[int, ...] = () if plain else p.choose((1,), (1, 1), (1, 1, 1), shape)
        bound = p.number(number, size)
        left, right = p.choose((y, bound), (y, bound), (y, bound), (bound, y))
        y = p.call(f"aten.{name}.default", self=left, other=right)
    return [y]  # type: ignore[list-item]
