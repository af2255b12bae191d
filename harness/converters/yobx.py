"""`yobx`: the exporter of yet-another-onnx-builder, which succeeds that of experimental-experiment.

A clone is installed, or put on ``PYTHONPATH``.
"""

from __future__ import annotations

from harness.converters.base import ConverterEntry, register
from harness.converters.graph_builder import Exporter, GraphBuilderConverter
from harness.rules.load import RuleBook

_EXPORTER = Exporter(
    name="yobx",
    package="yobx",
    interpreter="yobx.torch.interpreter",
    needs=("onnxruntime", "optree", "scipy"),
    distribution="yet-another-onnx-builder",
    install="pip install git+https://github.com/xadupre/yet-another-onnx-builder optree",
    model=".proto",
)


def _create(public_api: bool) -> GraphBuilderConverter:
    return GraphBuilderConverter(_EXPORTER, public_api)


def _create_with_rules(public_api: bool, book: RuleBook) -> GraphBuilderConverter:
    return GraphBuilderConverter(_EXPORTER, public_api, book)


register(
    ConverterEntry(
        name=_EXPORTER.name,
        probe=_EXPORTER.probe,
        create=_create,
        create_with_rules=_create_with_rules,
        version=_EXPORTER.version,
        summary="yobx.torch.interpreter.to_onnx",
        snippet=_EXPORTER.snippet,
        tracker="xadupre/yet-another-onnx-builder",
        conversions=_EXPORTER.conversions,
        skeleton=_EXPORTER.skeleton,
    )
)
