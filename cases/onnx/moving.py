"""Operators that move, select or count elements."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from harness.core.invocation import Weight
from harness.core.onnx_arrays import element_type
from harness.generate.draw import OMIT, Draw, index_into
from harness.generate.onnx_case import OnnxFamily, dtype_for
from harness.generate.operator_case import Arguments

ops = OnnxFamily("moving")


@ops.case("Identity", narrow=True, strings=True)
def identity(d: Draw) -> Arguments:
    return {"input": d.any_tensor()}


@ops.case("Shape", narrow=True, strings=True)
def shape_of(d: Draw) -> Arguments:
    shape = d.shape()
    bound = len(shape) + 1
    return {
        "data": d.tensor(shape),
        "start": d.maybe(lambda: d.integer(-bound, bound)),
        "end": d.maybe(lambda: d.integer(-bound, bound)),
    }


@ops.case("Size", narrow=True, strings=True)
def size_of(d: Draw) -> Arguments:
    return {"data": d.any_tensor()}


@ops.case("Reshape", narrow=True, strings=True)
def reshape(d: Draw) -> Arguments:
    shape = d.shape()
    target = list(_regrouped(d, shape))
    allows_zero = d.flag()
    assert d.schema is not None
    # A zero copies the size at its place, unless the attribute allows it as a size.
    if allows_zero != 1 or d.schema.attribute("allowzero") is None:
        target = [
            0 if i < len(shape) and shape[i] == size and d.choose(False, False, True) else size
            for i, size in enumerate(target)
        ]
    if target and 0 not in (*shape, *target) and d.boolean():
        target[d.integer(0, len(target) - 1)] = -1
    return {"data": d.tensor(shape), "shape": target, "allowzero": allows_zero}


def _regrouped(d: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return another shape of as many elements."""
    kind = d.choose("flat", "same", "split", "merged", "ones")
    if kind == "same" or (not shape and kind != "ones"):
        return shape
    if kind == "flat":
        return (prod(shape),)
    if kind == "ones":
        place = d.integer(0, len(shape))
        return (*shape[:place], 1, *shape[place:])
    if kind == "merged" and len(shape) > 1:
        return (shape[0] * shape[1], *shape[2:])
    first = shape[0]
    factor = next((f for f in (2, 3, 5) if first and first % f == 0), 1)
    return (factor, first // factor, *shape[1:])


@ops.case("Flatten", narrow=True, strings=True)
def flatten(d: Draw) -> Arguments:
    shape = d.shape()
    assert d.schema is not None
    low = -len(shape) if d.schema.version >= 11 else 0
    return {"input": d.tensor(shape), "axis": d.maybe(lambda: d.integer(low, len(shape)))}


@ops.case("Transpose", narrow=True, strings=True)
def transpose(d: Draw) -> Arguments:
    shape = d.shape()
    return {"data": d.tensor(shape), "perm": d.maybe(lambda: d.order(len(shape)))}


@ops.case("Squeeze", narrow=True, strings=True)
def squeeze(d: Draw) -> Arguments:
    shape = [1 if d.choose(False, True) else size for size in d.shape()]
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    return {
        "data": d.tensor(shape),
        "axes": d.maybe(lambda: [_signed(d, axis, len(shape)) for axis in ones if d.boolean()]),
    }


@ops.case("Unsqueeze", narrow=True, strings=True)
def unsqueeze(d: Draw) -> Arguments:
    shape = d.shape(max_rank=4)
    count = d.choose(1, 2, 0)
    rank = len(shape) + count
    return {"data": d.tensor(shape), "axes": [_signed(d, axis, rank) for axis in d.order(rank)[:count]]}


def _signed(d: Draw, axis: int, rank: int) -> int:
    """Return an axis, in half of the draws from the end where the version knows that."""
    assert d.schema is not None
    return axis - rank if d.schema.version >= 11 and d.boolean() else axis


@ops.case("Expand", strings=True)
def expand(d: Draw) -> Arguments:
    target = d.shape()
    shape = d.broadcastable(target)
    wanted = list(target)
    # Either side may have the larger size.
    for place in range(1, len(shape) + 1):
        if shape[-place] == wanted[-place] and d.choose(False, False, True):
            wanted[-place] = 1
    return {"input": d.tensor(shape), "shape": wanted}


@ops.case("Tile", since=6, strings=True)
def tile(d: Draw) -> Arguments:
    shape = d.shape(max_size=9)
    return {"input": d.tensor(shape), "repeats": [d.choose(1, 2, 3, 0) for _ in shape]}


ops.undrawn("Tile.1", "The first version takes one axis and one number of tiles, and no runtime here has it.")


@ops.case("Concat", narrow=True, strings=True)
def concat(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1)
    axis = d.dim(len(shape))
    assert d.schema is not None
    if d.schema.version < 11:
        axis %= len(shape)
    count = d.choose(2, 1, 3)
    parts = [tuple(d.size(0, 5) if i == axis % len(shape) else s for i, s in enumerate(shape)) for _ in range(count)]
    return {"inputs": [d.tensor(part) for part in parts], "axis": axis}


@ops.case("Split", since=2, strings=True)
def split(d: Draw) -> Arguments:
    assert d.schema is not None
    shape = list(d.shape(min_rank=1))
    axis = d.dim(len(shape))
    if d.schema.version < 11:
        axis %= len(shape)
    count = d.choose(2, 1, 3)
    sizes = [d.size(0, 4) for _ in range(count)]
    kind = d.choose("sizes", "equal", "ragged")
    if kind == "ragged" and d.schema.attribute("num_outputs") is not None:
        shape[axis] = d.choose(5, 7, 4)
        return {"input": d.tensor(shape), "axis": axis, "num_outputs": count, "outputs": count}
    if kind == "equal":
        shape[axis] = count * d.size(1, 4)
        arguments = {"input": d.tensor(shape), "axis": axis, "outputs": count}
        return {**arguments, "num_outputs": count} if d.schema.attribute("num_outputs") else arguments
    shape[axis] = sum(sizes)
    return {"input": d.tensor(shape), "axis": axis, "split": sizes, "outputs": count}


ops.undrawn("Split.1", "The first version has an input and an attribute of one name, and no runtime here has it.")


_ENDS = (2**31 - 1, 2**63 - 1, -(2**63))


@ops.case("Slice", strings=True)
def slice_(d: Draw) -> Arguments:
    assert d.schema is not None
    shape = d.shape(min_rank=1)
    is_old = d.schema.version < 10
    axes = [axis % len(shape) for axis in d.dims(len(shape), min_count=1)]
    steps = [1 if is_old else d.choose(1, 2, -1, -2, 3) for _ in axes]
    dtype = "int64" if is_old else dtype_for(d, "starts")
    ends = [_end(d, shape[axis], dtype) for axis in axes]
    starts = [d.integer(-shape[axis] - 1, shape[axis] + 1) for axis in axes]
    in_order = axes == list(range(len(axes)))
    signed = [axis - len(shape) if not is_old and d.boolean() else axis for axis in axes]
    return {
        "data": d.tensor(shape),
        "starts": _numbers(d, starts, dtype, is_old),
        "ends": _numbers(d, ends, dtype, is_old),
        "axes": OMIT
        if in_order and all(step == 1 for step in steps) and d.boolean()
        else _numbers(d, signed, dtype, is_old),
        "steps": OMIT
        if is_old or (all(step == 1 for step in steps) and in_order)
        else _numbers(d, steps, dtype, is_old),
    }


def _numbers(d: Draw, numbers: list[int], dtype: str, is_attribute: bool) -> Any:
    from harness.generate.onnx_case import tensor_of_numbers

    if is_attribute:
        return numbers
    spec = tensor_of_numbers(numbers, dtype)
    return Weight(spec) if d.choose(True, True, False) else spec


def _end(d: Draw, size: int, dtype: str) -> int:
    limit = 2**63 if dtype == "int64" else 2**31
    extreme = d.choose(*(end for end in _ENDS if -limit <= end < limit))
    near, inside = d.integer(-size - 1, size + 1), d.integer(0, size)
    return int((near, inside, extreme)[d.integer(0, 2)])


@ops.case("Pad", since=2, strings=False)
def pad(d: Draw) -> Arguments:
    assert d.schema is not None
    mode = d.choose(OMIT, "constant", "reflect", "edge", "wrap")
    if mode == "wrap" and d.schema.version < 19:
        mode = OMIT
    fills = mode in (OMIT, "constant")
    shape = d.shape(min_rank=1, max_rank=4, min_size=0 if fills else 2)
    axes = d.maybe(lambda: d.dims(len(shape), min_count=1)) if d.schema.version >= 18 else OMIT
    padded = list(range(len(shape))) if axes is OMIT else [axis % len(shape) for axis in axes]
    # Reflected and cut sizes must be inside the tensor.
    before = [_pad_size(d, shape[axis], fills) for axis in padded]
    after = [_pad_size(d, shape[axis], fills) for axis in padded]
    after = [max(b, -shape[axis] - a) if a < 0 else b for axis, a, b in zip(padded, before, after, strict=True)]
    arguments = {"data": d.tensor(shape), "pads": [*before, *after], "mode": mode, "axes": axes}
    if d.schema.version < 11:
        return {**arguments, "value": d.maybe(d.float) if fills else OMIT}
    return {**arguments, "constant_value": d.maybe(lambda: d.tensor(())) if fills else OMIT}


def _pad_size(d: Draw, size: int, fills: bool) -> int:
    most = 3 if fills else max(min(size - 1, 3), 0)
    sizes: list[int] = [*range(most + 1), *((-1,) if size > 2 else ())]
    return d.choose(*sizes)


ops.undrawn("Pad.1", "The first version has another name for its attribute, and no runtime here has it.")


@ops.case("Gather", strings=True)
def gather(d: Draw) -> Arguments:
    assert d.schema is not None
    shape = d.shape(min_rank=1, min_size=1, max_rank=4)
    axis = d.dim(len(shape))
    indices = d.tensor(
        d.shape(max_rank=3, max_size=5),
        dtype_for(d, "indices"),
        index_into(shape[axis], negative=d.schema.version >= 11),
    )
    return {
        "data": d.tensor(shape),
        "indices": indices,
        "axis": d.choose(axis, axis) if axis % len(shape) else d.choose(OMIT, axis),
    }


@ops.case("GatherElements", strings=True)
def gather_elements(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1, min_size=1, max_rank=4)
    axis = d.dim(len(shape))
    place = axis % len(shape)
    smaller = tuple(d.size(0, 4) if i == place else d.integer(1, min(size, 4)) for i, size in enumerate(shape))
    indices = d.tensor(smaller, dtype_for(d, "indices"), index_into(shape[place], negative=True))
    return {"data": d.tensor(shape), "indices": indices, "axis": OMIT if not place and d.boolean() else axis}


@ops.case("GatherND", strings=True)
def gather_nd(d: Draw) -> Arguments:
    assert d.schema is not None
    rank = d.choose(2, 1, 3)
    # Indices of one tuple share their range.
    shape = (d.size(1, 5),) * rank
    batch = d.choose(0, 0, 1) if rank > 1 and d.schema.version >= 12 else 0
    width = d.integer(1, rank - batch)
    indices = d.tensor(
        (*shape[:batch], *d.shape(max_rank=2, max_size=4), width), "int64", index_into(shape[0], negative=True)
    )
    return {"data": d.tensor(shape), "indices": indices, "batch_dims": batch if batch else d.choose(OMIT, 0)}


@ops.case("Scatter", strings=True)
def scatter(d: Draw) -> Arguments:
    return _scattered(d, "")


@ops.case("ScatterElements", strings=False)
def scatter_elements(d: Draw) -> Arguments:
    return _scattered(d, _reduction(d))


def _reduction(d: Draw) -> str:
    assert d.schema is not None
    known = {11: (), 13: (), 16: ("add", "mul")}.get(d.schema.version, ("add", "mul", "max", "min"))
    return d.choose("none", *known)


def _scattered(d: Draw, reduction: str) -> Arguments:
    shape = d.shape(min_rank=1, min_size=1, max_rank=3)
    axis = d.dim(len(shape))
    place = axis % len(shape)
    count = d.integer(0, min(shape[place], 4))
    smaller = tuple(count if i == place else d.integer(1, min(size, 4)) for i, size in enumerate(shape))
    # Equal indices are forbidden unless updates are reduced: along the axis each index comes once.
    negative = reduction not in ("", "none")
    domain = index_into(shape[place], negative=True) if negative else ("unique", shape[place], count)
    is_run = place == len(shape) - 1 or negative
    indices = d.tensor(
        smaller if is_run else tuple(1 if i != place else count for i in range(len(shape))),
        dtype_for(d, "indices"),
        domain,
    )
    return {
        "data": d.tensor(shape),
        "indices": indices,
        "updates": d.tensor(indices.shape),
        "axis": OMIT if not place and d.boolean() else axis,
        "reduction": OMIT if not reduction or (reduction == "none" and d.boolean()) else reduction,
    }


@ops.case("ScatterND", strings=False)
def scatter_nd(d: Draw) -> Arguments:
    reduction = _reduction(d)
    rank = d.choose(2, 1, 3)
    size = d.size(1, 6)
    shape = (size, *(d.size(1, 5) for _ in range(rank - 1)))
    if reduction == "none":
        # Tuples of one index that each come once.
        indices = d.tensor((d.integer(0, size), 1), "int64", ("unique", size, 8))
    else:
        shape = (size,) * rank
        indices = d.tensor((d.size(0, 5), d.integer(1, rank)), "int64", index_into(size, negative=True))
    width = indices.shape[-1]
    updates = d.tensor((indices.shape[0], *shape[width:]))
    return {
        "data": d.tensor(shape),
        "indices": indices,
        "updates": updates,
        "reduction": OMIT if reduction == "none" and d.boolean() else reduction,
    }


@ops.case("TensorScatter", narrow=True, strings=True)
def tensor_scatter(d: Draw) -> Arguments:
    batch, heads, width = d.size(1, 3), d.choose(2, 1, 3), d.choose(3, 1, 4)
    room, step = d.choose(4, 5, 8, 1), d.choose(1, 2, 3)
    step = min(step, room)
    has_heads = d.boolean()
    mode = d.choose(OMIT, "linear", "circular")
    last = room - 1 if mode == "circular" else room - step
    middle = (heads,) if has_heads else ()
    axis = 1 + len(middle)
    spelled = d.choose(axis - (axis + 2), axis)
    return {
        "past_cache": d.tensor((batch, *middle, room, width)),
        "update": d.tensor((batch, *middle, step, width)),
        "write_indices": d.maybe(lambda: d.tensor((batch,), "int64", ("range", 0, last))),
        "axis": OMIT if d.boolean() else spelled,
        "mode": mode,
    }


@ops.case("DepthToSpace", strings=True)
def depth_to_space(d: Draw) -> Arguments:
    block = d.choose(2, 1, 3)
    shape = (d.size(0, 3), block * block * d.size(1, 3), d.size(1, 4), d.size(1, 4))
    return {"input": d.tensor(shape), "blocksize": block, "mode": d.choose(OMIT, "DCR", "CRD")}


@ops.case("SpaceToDepth", strings=True)
def space_to_depth(d: Draw) -> Arguments:
    block = d.choose(2, 1, 3)
    shape = (d.size(0, 3), d.size(1, 3), block * d.size(1, 4), block * d.size(1, 4))
    return {"input": d.tensor(shape), "blocksize": block, "mode": d.choose(OMIT, "DCR", "CRD")}


@ops.case("ReverseSequence", strings=True)
def reverse_sequence(d: Draw) -> Arguments:
    batch_axis = d.choose(OMIT, 1, 0)
    times, batch = d.size(1, 5), d.size(1, 4)
    shape = (batch, times) if batch_axis == 0 else (times, batch)
    time_axis = 1 if batch_axis == 0 else d.choose(OMIT, 0)
    return {
        "input": d.tensor((*shape, *d.shape(max_rank=2, max_size=4))),
        "sequence_lens": d.tensor((batch,), "int64", ("range", 1, times)),
        "batch_axis": batch_axis,
        "time_axis": time_axis,
    }


@ops.case("Compress", strings=True)
def compress(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1)
    axis = d.maybe(lambda: d.dim(len(shape)))
    most = prod(shape) if axis is OMIT else shape[axis]
    return {"input": d.tensor(shape), "condition": d.tensor((d.integer(0, min(most, 8)),), "bool"), "axis": axis}


@ops.case("OneHot", about="values", strings=True)
def one_hot(d: Draw) -> Arguments:
    shape, depth = d.shape(max_rank=3, max_size=5), d.integer(1, 6)
    dtypes = ("int64", "int32", "float32", "int8")
    return {
        "indices": d.tensor(shape, d.choose(*dtypes), ("range", -depth, depth)),
        "depth": d.tensor(d.choose((), (1,)), d.choose("int64", "int32", "float32"), ("range", depth, depth)),
        "values": d.tensor((2,)),
        "axis": d.maybe(lambda: d.integer(-len(shape) - 1, len(shape))),
    }


@ops.case("EyeLike")
def eye_like(d: Draw) -> Arguments:
    assert d.schema is not None
    dtypes = [t for t in ("float32", "int64", "bool", "float64", "float16", "int32") if t in d.schema.outputs[0].dtypes]
    return {
        "input": d.tensor((d.size(), d.size())),
        "k": d.maybe(lambda: d.integer(-3, 3)),
        "dtype": d.maybe(lambda: element_type(d.choose(*dtypes))),
    }


@ops.case("Trilu", strings=False)
def triangle(d: Draw) -> Arguments:
    shape = d.shape(min_rank=2)
    return {"input": d.tensor(shape), "k": d.maybe(lambda: d.integer(-4, 4)), "upper": d.flag()}


@ops.case("CenterCropPad", strings=False)
def center_crop_pad(d: Draw) -> Arguments:
    shape = d.shape(min_rank=1, max_rank=4, min_size=1)
    axes = d.maybe(lambda: d.dims(len(shape), min_count=1))
    count = len(shape) if axes is OMIT else len(axes)
    return {"input_data": d.tensor(shape), "shape": [d.size(1, 9) for _ in range(count)], "axes": axes}


@ops.case("ConstantOfShape")
def constant_of_shape(d: Draw) -> Arguments:
    assert d.schema is not None
    allowed = d.schema.outputs[0].dtypes
    known = [
        t for t in ("float32", "int64", "bool", "float16", "bfloat16", "float64", "int32", "uint8") if t in allowed
    ]
    return {"input": list(d.shape()), "value": d.maybe(lambda: Weight(d.tensor((1,), d.choose(*known))))}


@ops.case("Constant")
def constant(d: Draw) -> Arguments:
    assert d.schema is not None
    allowed = d.schema.outputs[0].dtypes
    known = [
        t for t in ("float32", "int64", "bool", "float16", "bfloat16", "float64", "int32", "uint8") if t in allowed
    ]
    kinds = ["value", *(a.name for a in d.schema.attributes if a.name.startswith("value_"))]
    kind = d.choose(*kinds)
    values: dict[str, Callable[[], Any]] = {
        "value_float": d.float,
        "value_floats": lambda: [d.float(), d.float()],
        "value_int": d.int,
        "value_ints": lambda: [d.int(), d.int()],
        "value_string": lambda: d.choose("a", "", "ä"),
        "value_strings": lambda: [d.choose("a", "", "ä"), "b"],
        "value": lambda: Weight(d.tensor(d.shape(), d.choose(*known))),
    }
    return {kind: values[kind]()}


@ops.case("Range")
def arange(d: Draw) -> Arguments:
    if d.dtype.startswith(("float", "bfloat")):
        start, limit, delta = d.choose(
            (0.0, 5.0, 1.0), (0.5, 3.0, 0.5), (3.0, -2.0, -0.75), (0.0, 1.0, 0.25), (2.0, 1.0, 1.0)
        )
    else:
        start, limit, delta = d.choose((0, 5, 1), (1, 10, 3), (5, -3, -2), (0, 0, 1), (3, 1, 1), (-4, 4, 2))
    numbers = {"start": start, "limit": limit, "delta": delta}
    return {name: d.tensor((), domain=("range", value, value)) for name, value in numbers.items()}
