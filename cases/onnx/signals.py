"""Signals: transforms and windows."""

from __future__ import annotations

from harness.core.onnx_arrays import element_type
from harness.generate.draw import OMIT, Draw
from harness.generate.onnx_case import OnnxFamily
from harness.generate.operator_case import Arguments

ops = OnnxFamily("signals")


@ops.case("DFT")
def transform(d: Draw) -> Arguments:
    assert d.schema is not None
    is_inverse, is_onesided = d.flag(), d.flag()
    if is_inverse == 1 and is_onesided == 1:
        is_onesided = OMIT
    sizes = tuple(d.choose(4, 1, 3, 5, 8) for _ in range(d.choose(1, 2)))
    parts = 1 if is_onesided == 1 else d.choose(1, 2)
    axis = d.choose(OMIT, *range(1, len(sizes) + 1), -2)
    length = d.maybe(lambda: d.choose(4, 2, 6))
    shape = (d.size(1, 3), *sizes, parts)
    # The signal's dimension is 1 at first, and the one before the last since version 20.
    return {
        "input": d.tensor(shape),
        "dft_length": length,
        "axis": axis,
        "inverse": is_inverse,
        "onesided": is_onesided,
    }


@ops.case("STFT")
def short_time(d: Draw) -> Arguments:
    length, frame = d.choose(16, 9, 20), d.choose(4, 8, 5)
    parts, is_onesided = d.choose(1, 1, 2), d.flag()
    has_window = d.boolean()
    return {
        "signal": d.tensor((d.size(1, 2), length, parts)),
        "frame_step": d.choose(2, 1, 4),
        "window": d.tensor((frame,)) if has_window else OMIT,
        "frame_length": frame if not has_window or d.boolean() else OMIT,
        "onesided": 0 if parts == 2 else is_onesided,
    }


@ops.case("HannWindow", "HammingWindow", "BlackmanWindow")
def window(d: Draw) -> Arguments:
    return {
        "size": d.choose(8, 2, 3, 5, 16, 33),
        "periodic": d.flag(),
        "output_datatype": d.maybe(lambda: element_type(d.choose("float32", "float64", "float16"))),
    }


@ops.case("MelWeightMatrix")
def mel_weights(d: Draw) -> Arguments:
    return {
        "num_mel_bins": d.choose(8, 4, 2),
        "dft_length": d.choose(64, 128, 256),
        "sample_rate": d.choose(8192, 16000),
        "lower_edge_hertz": d.choose(0.0, 20.0),
        "upper_edge_hertz": d.choose(4096.0, 3000.0),
        "output_datatype": d.maybe(lambda: element_type(d.choose("float32", "float64"))),
    }
