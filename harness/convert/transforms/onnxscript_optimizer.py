"""onnxscript's optimiser, which the dynamo exporter applies to what it writes: constants folded, rules rewritten."""

from __future__ import annotations

import onnx

from harness.convert.change import Change
from harness.convert.transform import TransformEntry, register
from harness.core.plugins import Unavailable, installed_version, missing_package


def _probe() -> Unavailable | None:
    return missing_package("onnxscript", "pip install onnxscript")


def optimise(model: onnx.ModelProto, limit: int | None = None, changes: list[Change] | None = None) -> onnx.ModelProto:
    """Return a model as the exporter's optimiser leaves it; see `TransformEntry.stop_after`."""
    import onnx_ir
    import onnxscript.optimizer
    import onnxscript.rewriter.onnx_fusions

    from harness.convert.exporter_passes import OptimiserLimit

    converted = onnx_ir.from_proto(model)
    names = [output.name for output in model.graph.output]
    with OptimiserLimit(limit, [] if changes is None else changes, names).limited():
        onnxscript.optimizer.optimize_ir(converted)
        onnxscript.rewriter.onnx_fusions.fuse(converted)
    return onnx_ir.to_proto(converted)


register(
    TransformEntry(
        name="onnxscript",
        probe=_probe,
        apply=optimise,
        version=lambda: installed_version("onnxscript"),
        stop_after=optimise,
    )
)
