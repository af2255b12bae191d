"""Programs that go on from a call whose result's shape an exporter or optimiser may lose."""

from __future__ import annotations

from typing import Any

from harness.core.invocation import Result
from harness.generate.programs import ProgramDraw, pattern


@pattern(
    "shape-lost", source="shape inference behind Pad, Tile, diagonals and pooling with ceil_mode in onnx and onnxscript"
)
def shape_lost(p: ProgramDraw) -> list[Result]:
    """Pad, repeat, cut or pool a tensor, then normalise, split, squeeze or flatten what comes of it."""
    batch, rows, columns = 1, p.choose(4, 3, 5), p.choose(4, 6)
    x = p.input((batch, rows, columns))
    shape: tuple[int, ...]
    match p.choose("pad", "repeat", "diagonal", "pool", "narrow"):
        case "pad":
            left, right = p.choose((0, 1), (1, 1), (0, -1))
            value = p.choose(0.0, 1.5)
            y = p.call("aten.constant_pad_nd.default", self=x, pad=[left, right], value=value)
            shape = (batch, rows, columns + left + right)
        case "repeat":
            y = p.call("aten.repeat.default", self=x, repeats=[1, 2, 1])
            shape = (batch, 2 * rows, columns)
        case "diagonal":
            y = p.call("aten.diagonal.default", self=x, offset=0, dim1=1, dim2=2)
            shape = (batch, min(rows, columns))
        case "pool":
            y = p.call("aten.avg_pool1d.default", self=x, kernel_size=[2], stride=[2], padding=[0], ceil_mode=True)
            shape = (batch, rows, -(-columns // 2))
        case _:
            y = p.call("aten.narrow.default", self=x, dim=1, start=1, length=rows - 1)
            shape = (batch, rows - 1, columns)
    return [_followed(p, y, shape)]


def _followed(p: ProgramDraw, y: Result, shape: tuple[int, ...]) -> Result:
    match p.choose("norm", "split", "squeeze", "flatten", "softmax", "mean"):
        case "norm":
            last = [shape[-1]]
            weights = p.weight(last), p.weight(last)
            return p.call(
                "aten.layer_norm.default", input=y, normalized_shape=last, weight=weights[0], bias=weights[1], eps=1e-5
            )
        case "split":
            p.call("aten.split.Tensor", self=y, split_size=2, dim=-1)
            return p.call("aten.neg.default", self=y)
        case "squeeze":
            return p.call("aten.squeeze.dim", self=y, dim=0)
        case "flatten":
            return p.call("aten.flatten.using_ints", self=y, start_dim=0, end_dim=-1)
        case "softmax":
            return p.call("aten.softmax.int", self=y, dim=-1)
    return p.call("aten.mean.dim", self=y, dim=[-1], keepdim=p.choose(True, False))


@pattern("tensor-bounds", source="clamp of tensors, and truth values as numbers, in torchlib")
def tensor_bounds(p: ProgramDraw) -> list[Result]:
    """Clamp between tensors, or multiply by a truth value; then add."""
    shape = (p.choose(2, 3), p.choose(4, 5))
    x = p.input(shape)
    match p.choose("clamp", "clamp", "bool-number", "bool-tensor"):
        case "clamp":
            bounds: dict[str, Any] = {
                "min": p.weight(p.choose(shape, (1,), ())),
                "max": p.operand(p.choose(shape, (shape[1],))),
            }
            for name in p.choose((), (), ("min",), ("max",)):
                bounds[name] = None
            y = p.call("aten.clamp.Tensor", self=x, **bounds)
        case "bool-number":
            y = p.call(
                "aten.mul.Scalar", self=p.call("aten.gt.Scalar", self=x, other=0.0), other=p.choose(2, 0.5, True)
            )
        case _:
            mask = p.call("aten.le.Scalar", self=x, other=0.5)
            y = p.call("aten.mul.Tensor", self=mask, other=x)
    return [p.call("aten.add.Tensor", self=y, other=p.operand(shape))]
