"""Conversions that are wrong in the ways that conversions are wrong: one slip each."""

from __future__ import annotations

from operator import attrgetter

import torch
import torch.ao.quantization.fx._decomposed

from planted import (  # noqa: F401 - they plant
    slips_arranging,
    slips_combining,
    slips_pointwise,
    slips_quantized,
    slips_selecting,
    slips_torchscript,
    slips_transforming,
    slips_windows,
)
from planted.defect import ALL_DEFECTS, Conversion, Defect

DEFECTS: tuple[Defect, ...] = tuple(ALL_DEFECTS)


def translations(slipped: bool) -> dict[Conversion, Conversion]:
    """Return the conversions for `torch.onnx.export(custom_translation_table=…)`."""
    return {attrgetter(d.overload)(torch.ops): d.conversion(slipped) for d in DEFECTS if d.converter == "planted-wrong"}


def symbolics(slipped: bool) -> dict[str, Conversion]:
    """Return the conversions for `torch.onnx.register_custom_op_symbolic`, by ``aten::celu``."""
    return {
        f"aten::{d.overload.split('.')[1]}": d.conversion(slipped)
        for d in DEFECTS
        if d.converter == "planted-wrong-torchscript"
    }
