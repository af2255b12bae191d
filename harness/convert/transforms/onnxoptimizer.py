"""onnxoptimizer: all of its passes that fuse and eliminate."""

from __future__ import annotations

import onnx

from harness.convert.change import Change
from harness.convert.transform import TransformEntry, register
from harness.core.plugins import Unavailable, installed_version, missing_package


def _probe() -> Unavailable | None:
    return missing_package("onnxoptimizer", "pip install 'aten-onnx-conformance[transforms]'")


def _optimise(model: onnx.ModelProto, limit: int | None = None, changes: list[Change] | None = None) -> onnx.ModelProto:
    import onnxoptimizer

    passes = onnxoptimizer.get_fuse_and_elimination_passes()[:limit]
    if changes is not None:
        changes += map(Change, passes)
    optimised: onnx.ModelProto = onnxoptimizer.optimize(model, passes)
    return optimised


register(
    TransformEntry(
        name="onnxoptimizer",
        probe=_probe,
        apply=_optimise,
        version=lambda: installed_version("onnxoptimizer"),
        stop_after=_optimise,
    )
)
