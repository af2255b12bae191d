"""Calls of any operator behind casts, reshapes and views, with constants for inputs, and before another move.

Constant folding and the elimination of casts and reshapes look at single calls, whatever their operator is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from harness.core.invocation import Argument, Invocation, Recipe, Result, TensorSpec, Weight
from harness.generate.draw import OMIT
from harness.generate.programs import ProgramDraw, dtype_of, pattern

#: Domains whose numbers do not depend on their place in a tensor, nor on its dtype.
_FREE = ("any", "finite", "at_least", "nonzero", "range")
_WIDTHS = {
    "float32": ("float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2"),
    "float16": ("float32", "float64", "bfloat16"),
    "float64": ("float32", "float16"),
}


def _is_free(argument: Argument) -> bool:
    if not isinstance(argument, TensorSpec) or not isinstance(argument.values, Recipe):
        return False
    return argument.is_contiguous and not argument.offset and argument.values.domain[0] in _FREE


def _add(p: ProgramDraw, call: Invocation, **changed: Any) -> Result:
    """Add a call with some arguments changed."""
    return p.call(call.overload, **{**dict(call.arguments), **changed})


def _call_with_free_tensor(p: ProgramDraw, dtypes: Collection[str] = ()) -> tuple[Invocation, str, TensorSpec]:
    """Draw a call that has a tensor that may be made in another way; return it, the argument and the tensor."""
    while True:
        call = p.any_call()
        free = [(name, spec) for name, spec in call.arguments if isinstance(spec, TensorSpec) and _is_free(spec)]
        free = [(name, spec) for name, spec in free if not dtypes or spec.dtype in dtypes]
        if free:
            return (call, *p.choose(*free))


def _pass_on(p: ProgramDraw, y: Result) -> list[Result]:
    """Return a result, or a reshape, a cast or a copy of it."""
    kind = p.choose("nothing", "nothing", "reshape", "cast", "clone")
    if kind == "reshape":
        return [p.call("aten.reshape.default", self=y, shape=[-1])]
    if kind == "cast":
        return [p.call("aten.to.dtype", self=y, dtype=dtype_of(p.choose("float32", "float64")))]
    return [p.call("aten.clone.default", self=y)] if kind == "clone" else [y]


@pattern(
    "cast-before",
    source="onnxruntime cast_elimination.cc, insert_cast_transformer.cc; onnxscript rules cast_cast",
    share=2.5,
)
def cast_before(p: ProgramDraw) -> list[Result]:
    """A call of any operator on a tensor that has been through one or two other dtypes."""
    call, name, spec = _call_with_free_tensor(p, _WIDTHS)
    others = _WIDTHS[spec.dtype]
    first = p.choose(spec.dtype, spec.dtype, *others[:3])
    y: object = spec.reshaped(spec.shape, first)
    if first == spec.dtype or p.sometimes():
        y = p.call("aten.to.dtype", self=y, dtype=dtype_of(p.choose(*others)))
    y = p.call("aten.to.dtype", self=y, dtype=dtype_of(spec.dtype))
    return _pass_on(p, _add(p, call, **{name: y}))


@pattern(
    "move-before",
    source="onnxruntime reshape_fusion.cc, transpose_optimizer; onnxscript rules reshape, squeeze",
    share=2.5,
)
def move_before(p: ProgramDraw) -> list[Result]:
    """A call of any operator on a tensor that is a reshape, a view, a slice or a join of others."""
    call, name, spec = _call_with_free_tensor(p)
    shape, rank = spec.shape, len(spec.shape)
    kind = p.choose("reshape", "reshape", "unsqueeze", "permute", "slice", "cat", "expand")
    if kind == "reshape" or not rank or not spec.numel:
        flat = p.choose((spec.numel,), (1, spec.numel), (spec.numel, 1))
        y = p.call("aten.reshape.default", self=spec.reshaped(flat), shape=list(shape))
    elif kind == "unsqueeze":
        whole = spec.reshaped((1, *shape))
        y = p.call("aten.squeeze.dim", self=whole, dim=0)
    elif kind == "permute":
        turned = spec.reshaped(shape[::-1])
        y = p.call("aten.permute.default", self=turned, dims=[*range(rank)][::-1])
    elif kind == "slice":
        longer = spec.reshaped((shape[0] + 1, *shape[1:]))
        y = p.call("aten.slice.Tensor", self=longer, dim=0, start=p.choose(1, 0), end=OMIT)
        y = p.call("aten.slice.Tensor", self=y, dim=0, start=0, end=shape[0])
    elif kind == "cat":
        cut = p.integer(0, shape[0])
        parts = [spec.reshaped((n, *shape[1:])) for n in (cut, shape[0] - cut)]
        y = p.call("aten.cat.default", tensors=parts, dim=0)
    else:
        y = p.call("aten.expand.default", self=spec.reshaped((1, *shape[1:])), size=list(shape))
    return _pass_on(p, _add(p, call, **{name: y}))


@pattern("constant-inputs", source="onnxscript constant folding; onnxruntime constant_folding.cc", share=2.5)
def constant_inputs(p: ProgramDraw) -> list[Result]:
    """A call of any operator some of whose tensors are constants of the program, integers too."""
    call = p.any_call()
    tensors = {name: value for name, value in call.arguments if isinstance(value, TensorSpec)}
    held = {name: Weight(value) for name, value in tensors.items() if p.choose(True, False)}
    if len(tensors) < 2 or len(held) == len(tensors):
        # All of it may be folded; a program has an input.
        return [*_pass_on(p, _add(p, call, **held)), p.call("aten.neg.default", self=p.input((2,)))]
    return _pass_on(p, _add(p, call, **held))
