"""Convolutions and pooling, and the matrix products."""

from __future__ import annotations

from typing import Any

from harness.generate.draw import OMIT, Draw, index_into
from harness.generate.onnx_case import OnnxFamily
from harness.generate.operator_case import Arguments

ops = OnnxFamily("windows")


def _window(d: Draw, rank: int, sizes: tuple[int, ...], *, pool: bool) -> dict[str, Any]:
    """Draw kernel, strides, dilations and pads of a window that fits into its input."""
    assert d.schema is not None
    kernel = [min(d.choose(1, 2, 3), size) for size in sizes]
    has_dilations = d.schema.attribute("dilations") is not None
    dilations = [
        d.choose(1, 1, 2) if has_dilations and 2 * (k - 1) < size else 1 for k, size in zip(kernel, sizes, strict=True)
    ]
    auto = d.choose(OMIT, OMIT, "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    if auto not in (OMIT, "NOTSET") and any(dilation > 1 for dilation in dilations):
        # What SAME pads with dilations is left open before the newest versions.
        auto = OMIT
    most = [k - 1 for k in kernel]
    pads = [d.choose(0, 1) if m else 0 for m in (*most, *most)]
    return {
        "kernel_shape": kernel,
        "strides": d.maybe(lambda: [d.choose(1, 2, 3) for _ in range(rank)]),
        "dilations": d.choose(OMIT, dilations) if all(dilation == 1 for dilation in dilations) else dilations,
        "pads": pads if auto in (OMIT, "NOTSET") and any(pads) else OMIT,
        "auto_pad": auto,
        **({"ceil_mode": d.flag()} if pool else {}),
    }


def _sizes(d: Draw) -> tuple[int, ...]:
    return tuple(d.choose(4, 5, 3, 7, 2, 1) for _ in range(d.choose(2, 1, 3)))


@ops.case("AveragePool")
def average_pool(d: Draw) -> Arguments:
    sizes = _sizes(d)
    shape = (d.size(1, 3), d.size(1, 3), *sizes)
    return {"X": d.tensor(shape), **_window(d, len(sizes), sizes, pool=True), "count_include_pad": d.flag()}


@ops.case("MaxPool")
def max_pool(d: Draw) -> Arguments:
    sizes = _sizes(d)
    shape = (d.size(1, 3), d.size(1, 3), *sizes)
    return {"X": d.tensor(shape), **_window(d, len(sizes), sizes, pool=True), "storage_order": d.flag()}


@ops.case("LpPool", since=2)
def lp_pool(d: Draw) -> Arguments:
    sizes = _sizes(d)
    shape = (d.size(1, 3), d.size(1, 3), *sizes)
    return {"X": d.tensor(shape), **_window(d, len(sizes), sizes, pool=True), "p": d.choose(OMIT, 1, 2, 3)}


ops.undrawn("LpPool.1", "The first version has a float for its order, and no runtime here has it.")


@ops.case("GlobalAveragePool", "GlobalMaxPool")
def global_pool(d: Draw) -> Arguments:
    return {"X": d.tensor((d.size(0, 3), d.size(1, 4), *_sizes(d)))}


@ops.case("GlobalLpPool", since=2)
def global_lp_pool(d: Draw) -> Arguments:
    return {"X": d.tensor((d.size(0, 3), d.size(1, 4), *_sizes(d))), "p": d.choose(OMIT, 1, 2, 3)}


@ops.case("MaxUnpool")
def max_unpool(d: Draw) -> Arguments:
    channels, side = d.size(1, 3), d.choose(2, 1, 3)
    count = side * side
    whole = channels * 4 * count
    return {
        "X": d.tensor((1, channels, side, side)),
        "I": d.tensor((1, channels, side, side), "int64", ("unique", whole, channels * count)),
        "output_shape": d.choose(OMIT, [1, channels, 2 * side, 2 * side]),
        "kernel_shape": [2, 2],
        "strides": [2, 2],
    }


@ops.case("Conv")
def convolution(d: Draw) -> Arguments:
    sizes = _sizes(d)
    window = _window(d, len(sizes), sizes, pool=False)
    group = d.choose(1, 1, 2, 3)
    inputs, outputs = group * d.choose(1, 2), group * d.choose(1, 2, 3)
    kernel = window["kernel_shape"]
    return {
        "X": d.tensor((d.size(1, 3), inputs, *sizes)),
        "W": d.tensor((outputs, inputs // group, *kernel)),
        "B": d.maybe(lambda: d.tensor((outputs,))),
        **window,
        "kernel_shape": d.choose(OMIT, kernel),
        "group": group if group > 1 else d.choose(OMIT, 1),
    }


@ops.case("ConvTranspose")
def transposed_convolution(d: Draw) -> Arguments:
    sizes = _sizes(d)
    window = _window(d, len(sizes), tuple(max(size, 3) for size in sizes), pool=False)
    group = d.choose(1, 1, 2)
    inputs, outputs = group * d.choose(1, 2), d.choose(1, 2, 3)
    kernel = window["kernel_shape"]
    strides = window["strides"]
    extra = OMIT if strides is OMIT else d.maybe(lambda: [d.integer(0, stride - 1) for stride in strides])
    return {
        "X": d.tensor((d.size(1, 3), inputs, *sizes)),
        "W": d.tensor((inputs, outputs, *kernel)),
        "B": d.maybe(lambda: d.tensor((outputs * group,))),
        **window,
        "kernel_shape": d.choose(OMIT, kernel),
        "output_padding": extra,
        "group": group if group > 1 else d.choose(OMIT, 1),
    }


@ops.case("DeformConv")
def deformable_convolution(d: Draw) -> Arguments:
    height, width = d.choose(4, 3, 5), d.choose(4, 3, 5)
    group, offsets = d.choose(1, 1, 2), d.choose(1, 1, 2)
    channels, outputs = 2 * group, group * d.choose(1, 2)
    kernel = [d.choose(2, 1, 3), d.choose(2, 1, 3)]
    pads = [d.choose(0, 1)] * 4
    strides = [d.choose(1, 2), d.choose(1, 2)]
    out = [(size + 2 * pads[0] - k) // s + 1 for size, k, s in zip((height, width), kernel, strides, strict=True)]
    points = kernel[0] * kernel[1] * offsets
    return {
        "X": d.tensor((1, channels, height, width)),
        "W": d.tensor((outputs, channels // group, *kernel)),
        "offset": d.tensor((1, 2 * points, *out), domain=("range", -2.0, 2.0)),
        "B": d.maybe(lambda: d.tensor((outputs,))),
        "mask": d.maybe(lambda: d.tensor((1, points, *out))),
        "pads": pads,
        "strides": strides,
        "group": group,
        "offset_group": offsets,
    }


@ops.case("Col2Im")
def column_to_image(d: Draw) -> Arguments:
    image = [d.choose(4, 3, 5), d.choose(4, 5, 2)]
    block = [min(d.choose(2, 1, 3), size) for size in image]
    strides = [d.choose(1, 2) for _ in image]
    pads = [d.choose(0, 1) for _ in range(4)]
    counts = [
        (size + pads[i] + pads[i + 2] - b) // s + 1
        for i, (size, b, s) in enumerate(zip(image, block, strides, strict=True))
    ]
    shape = (d.size(1, 2), d.choose(1, 2) * block[0] * block[1], counts[0] * counts[1])
    return {"input": d.tensor(shape), "image_shape": image, "block_shape": block, "strides": strides, "pads": pads}


@ops.case("MatMul")
def matrix_product(d: Draw) -> Arguments:
    rows, inner, columns = d.size(0, 9), d.size(0, 9), d.size(0, 9)
    common = d.shape(max_rank=2, max_size=4)
    left, right = d.choose((common, common), (common, d.broadcastable(common)), (d.broadcastable(common), common))
    kind = d.choose("matrices", "matrices", "vector left", "vector right", "vectors")
    first = (inner,) if kind in ("vector left", "vectors") else (*left, rows, inner)
    second = (inner,) if kind in ("vector right", "vectors") else (*right, inner, columns)
    return {"A": d.tensor(first), "B": d.tensor(second)}


@ops.case("Gemm")
def general_product(d: Draw) -> Arguments:
    assert d.schema is not None
    rows, inner, columns = d.size(1, 9), d.size(1, 9), d.size(1, 9)
    flip_a, flip_b = d.flag(), d.flag()
    whole = (rows, columns)
    bias = d.choose(whole, (columns,), (1, columns), (rows, 1), (), (1, 1))
    is_old = d.schema.version < 7
    optional = d.schema.version >= 11
    given = not optional or d.boolean()
    return {
        "A": d.tensor((inner, rows) if flip_a == 1 else (rows, inner)),
        "B": d.tensor((columns, inner) if flip_b == 1 else (inner, columns)),
        "C": d.tensor(whole if is_old else bias) if given else OMIT,
        "alpha": d.choose(OMIT, 0.5, 2.0, -1.0, 0.0, 1.0),
        "beta": d.choose(OMIT, 0.5, 2.0, -1.0, 0.0, 1.0),
        "transA": flip_a,
        "transB": flip_b,
    }


_EQUATIONS = (
    *("ij,jk->ik", "ij->ji", "i,j->ij", "ij->", "ii->i", "ii->", "bij,bjk->bik", "...ij,...jk->...ik", "ij,jk"),
    *(
        "ij,ij->i",
        "ijk->kj",
        "bhqd,bhkd->bhqk",
        "i,i->",
        "ij,kj->ik",
        " i j , j k -> i k ",
        "...i->...",
        "ab,ac,ad->bcd",
    ),
)


@ops.case("Einsum")
def einsum(d: Draw) -> Arguments:
    equation = d.choose(*_EQUATIONS)
    sizes: dict[str, int] = {}
    rest = d.shape(max_rank=1, max_size=3)
    terms = []
    for term in equation.replace(" ", "").partition("->")[0].split(","):
        letters = term.replace("...", "")
        shape = tuple(sizes.setdefault(letter, d.size(1, 4)) for letter in letters)
        terms.append(d.tensor((*rest, *shape) if "..." in term else shape))
    return {"Inputs": terms, "equation": equation}


@ops.case("MatMulInteger")
def integer_product(d: Draw) -> Arguments:
    rows, inner, columns = d.size(1, 5), d.size(1, 9), d.size(1, 5)
    other = d.choose("uint8", "int8")
    return {
        "A": d.tensor((rows, inner)),
        "B": d.tensor((inner, columns), other),
        "a_zero_point": d.maybe(lambda: d.tensor(d.choose((), (1,), (rows,)))),
        "b_zero_point": d.maybe(lambda: d.tensor(d.choose((), (1,), (columns,)), other)),
    }


@ops.case("ConvInteger")
def integer_convolution(d: Draw) -> Arguments:
    sizes = tuple(d.choose(4, 5, 3) for _ in range(2))
    window = _window(d, 2, sizes, pool=False)
    other, outputs = d.choose("uint8", "int8"), d.choose(1, 2)
    return {
        "x": d.tensor((1, 2, *sizes)),
        "w": d.tensor((outputs, 2, *window["kernel_shape"]), other),
        "x_zero_point": d.maybe(lambda: d.tensor(())),
        "w_zero_point": d.maybe(lambda: d.tensor(d.choose((), (outputs,)), other)),
        **window,
    }


@ops.case("MaxRoiPool")
def max_roi_pool(d: Draw) -> Arguments:
    side = d.choose(6, 4, 8)
    return {
        "X": d.tensor((1, d.size(1, 3), side, side)),
        "rois": d.tensor((d.size(1, 3), 5), domain=("range", 0.0, 0.0)),
        "pooled_shape": [d.choose(1, 2), d.choose(1, 2)],
        "spatial_scale": d.choose(OMIT, 1.0, 0.5),
    }


@ops.case("RoiAlign")
def roi_align(d: Draw) -> Arguments:
    batch, side = d.size(1, 2), d.choose(6, 4, 8)
    count = d.size(0, 3)
    return {
        "X": d.tensor((batch, d.size(1, 3), side, side)),
        "rois": d.tensor((count, 4), domain=("range", 0.0, float(side))),
        "batch_indices": d.tensor((count,), "int64", index_into(batch)),
        "output_height": d.choose(OMIT, 2, 3),
        "output_width": d.choose(OMIT, 2, 3),
        "sampling_ratio": d.choose(OMIT, 0, 1, 2),
        "spatial_scale": d.choose(OMIT, 1.0, 0.5),
        "mode": d.choose(OMIT, "avg", "max"),
        "coordinate_transformation_mode": d.choose(OMIT, "half_pixel", "output_half_pixel"),
    }


ops.undrawn("GlobalLpPool.1", "The first version has a float for its order, and no runtime here has it.")
