"""`experimental-experiment`: the custom exporter of the experimental-experiment project.

It is on no package index: a clone is installed, or put on ``PYTHONPATH``.
"""

from __future__ import annotations

from harness.converters.base import ConverterEntry, register
from harness.converters.graph_builder import Exporter, GraphBuilderConverter
from harness.rules.load import RuleBook

_EXPORTER = Exporter(
    name="experimental-experiment",
    package="experimental_experiment",
    interpreter="experimental_experiment.torch_interpreter",
    needs=("onnx_diagnostic", "optree", "scipy", "transformers"),
    distribution="experimental-experiment",
    install="pip install git+https://github.com/sdpython/experimental-experiment 'transformers<5' scipy",
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
        summary="experimental_experiment.torch_interpreter.to_onnx",
        snippet=_EXPORTER.snippet,
        tracker="sdpython/experimental-experiment",
        conversions=_EXPORTER.conversions,
        skeleton=_EXPORTER.skeleton,
    )
)
