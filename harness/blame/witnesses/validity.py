"""The ONNX checker and strict shape inference."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness


@witness("the ONNX checker", place=110)
def check_validity(trial: Trial) -> Iterator[Testimony]:
    """Whether the model of the one case is valid, with constants propagated into shapes."""
    try:
        onnx.checker.check_model(trial.model, full_check=True)
        onnx.shape_inference.infer_shapes(trial.model, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        said = " ".join(str(error).split())[:200]
        yield Testimony(Role.MODEL, Finding.INVALID, f"ONNX's strict shape inference rejects it: {said}.")
    else:
        words = "The ONNX checker and strict shape inference accept the model."
        yield Testimony(Role.MODEL, Finding.VALID, words)
