"""Images: resizing, sampling and boxes."""

from __future__ import annotations

from harness.generate.draw import OMIT, Draw, between
from harness.generate.onnx_case import OnnxFamily, dtype_for
from harness.generate.operator_case import Arguments

ops = OnnxFamily("images")
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
_SCALES = (2.0, 1.0, 0.5, 1.5, 3.0, 0.75, 0.3333333, 2.6)


@ops.case("Upsample")
def upsample(d: Draw) -> Arguments:
    shape = (d.size(1, 2), d.size(1, 2), d.size(1, 4), d.size(1, 4))
    assert d.schema is not None
    scales = [1.0, 1.0, d.choose(2.0, 1.0, 3.0), d.choose(2.0, 1.0, 3.0)]
    if d.schema.version < 7:
        return {"X": d.tensor(shape), "height_scale": scales[2], "width_scale": scales[3], "mode": "nearest"}
    return {"X": d.tensor(shape), "scales": scales, "mode": d.choose("nearest", "linear")}


@ops.case("Resize")
def resize(d: Draw) -> Arguments:
    assert d.schema is not None
    version = d.schema.version
    mode = d.choose("nearest", "linear", *(("cubic",) if version >= 11 else ()))
    rank = d.choose(2, 1, 3) if mode != "cubic" else 2
    shape = (d.size(1, 2), d.size(1, 2), *(d.choose(4, 3, 5, 2, 1, 7, 14) for _ in range(rank)))
    scales = [1.0, 1.0, *(d.choose(*_SCALES) for _ in range(rank))]
    sizes = [*shape[:2], *(max(int(size * scale), 1) for size, scale in zip(shape[2:], scales[2:], strict=True))]
    arguments: dict[str, object] = {"X": d.tensor(shape), "mode": mode}
    if version < 11:
        return {**arguments, "scales": scales}
    by_size = d.choose(False, False, True)
    coordinates = d.choose(OMIT, *_COORDINATES[:4], *_COORDINATES[4:])
    axes = d.choose(OMIT, "last", "all") if version >= 18 else OMIT
    chosen = list(range(2, len(shape))) if axes == "last" else list(range(len(shape)))
    if coordinates == "tf_crop_and_resize":
        # Batches and channels are seldom cropped.
        parts = ((0.0, 1.0), (0.0, 1.0), (0.25, 0.75), (0.0, 0.75))
        regions = [d.choose(*(parts if axis > 1 else (*parts[:2], *parts))) for axis in chosen]
        arguments |= {"roi": [*(start for start, _ in regions), *(end for _, end in regions)]}
        arguments |= {"extrapolation_value": d.choose(OMIT, -1.5)}
    elif version == 11:
        # An empty region stands for none.
        arguments |= {"roi": d.tensor((0,), "float32")}
    if by_size:
        arguments |= {"sizes": [sizes[axis] for axis in chosen]}
        if version == 11:
            arguments |= {"scales": d.tensor((0,), "float32")}
    else:
        arguments |= {"scales": [scales[axis] for axis in chosen]}
    if axes is not OMIT:
        signed = [axis - len(shape) if d.boolean() else axis for axis in chosen]
        arguments |= {"axes": signed}
    if mode == "nearest":
        arguments |= {"nearest_mode": d.choose(OMIT, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")}
    if mode == "cubic":
        arguments |= {"cubic_coeff_a": d.choose(OMIT, -0.75, -0.5), "exclude_outside": d.flag()}
    policy = d.choose(OMIT, "stretch", "not_larger", "not_smaller") if by_size and version >= 18 else OMIT
    anti = d.flag() if mode != "nearest" else OMIT
    return {
        **arguments,
        "coordinate_transformation_mode": coordinates,
        "keep_aspect_ratio_policy": policy,
        "antialias": anti,
    }


@ops.case("GridSample")
def grid_sample(d: Draw) -> Arguments:
    assert d.schema is not None
    version = d.schema.version
    is_volume = version >= 20 and d.choose(False, False, True)
    count = 3 if is_volume else 2
    batch, points = d.size(1, 2), [d.choose(3, 2, 4, 1) for _ in range(count)]
    is_float = d.dtype in ("float32", "float64", "float16", "bfloat16")
    dtype = d.dtype if is_float and d.boolean() else dtype_for(d, "grid")
    modes = ("bilinear", "nearest", "bicubic") if version < 20 else ("linear", "nearest", "cubic")
    return {
        "X": d.tensor((batch, d.size(1, 2), *(d.choose(4, 3, 5, 1) for _ in range(count)))),
        "grid": d.tensor((batch, *points, count), dtype, between(-1.5, 1.5)),
        "mode": d.choose(OMIT, *modes[:2]) if is_volume else d.choose(OMIT, *modes),
        "padding_mode": d.choose(OMIT, "zeros", "border", "reflection"),
        "align_corners": d.flag(),
    }


@ops.case("AffineGrid")
def affine_grid(d: Draw) -> Arguments:
    batch, is_volume = d.size(1, 3), d.choose(False, False, True)
    count = 3 if is_volume else 2
    return {
        "theta": d.tensor((batch, count, count + 1)),
        "size": [batch, d.size(1, 3), *(d.choose(3, 2, 4, 1) for _ in range(count))],
        "align_corners": d.flag(),
    }


@ops.case("NonMaxSuppression")
def non_max_suppression(d: Draw) -> Arguments:
    batch, classes, boxes = d.size(1, 2), d.size(1, 2), d.choose(4, 1, 6)
    is_centred = d.flag()
    return {
        "boxes": d.tensor((batch, boxes, 4), domain=("distinct",) if is_centred != 1 else between(0.25, 2.0)),
        "scores": d.tensor((batch, classes, boxes), domain=("distinct",)),
        "max_output_boxes_per_class": d.maybe(lambda: d.choose(2, 1, 0, 10)),
        "iou_threshold": d.maybe(lambda: d.choose(0.5, 0.0, 1.0, 0.25)),
        "score_threshold": d.maybe(lambda: d.choose(0.0, 0.5, -0.5)),
        "center_point_box": is_centred,
    }


ops.undrawn("ImageDecoder", "It decodes files of images, whose right pixels no text here defines.")
