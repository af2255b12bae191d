"""`dynamo` with wrong rewrites among its own."""

from __future__ import annotations

import torch
from onnxscript import rewriter

from harness.convert.converter import ConverterEntry, register
from harness.convert.converters.dynamo import DynamoConverter
from planted_rewrites.rewrites import is_of_runtime, planted


class Rewriting(DynamoConverter):
    """Its optimiser has the planted rules."""

    name = "planted-rewrites"

    def __init__(self, public_api: bool) -> None:
        super().__init__(public_api)
        known = rewriter._DEFAULT_REWRITE_RULES
        mine = tuple(rule for rule in planted() if not is_of_runtime(rule) and rule not in known)
        # What the exporter's own rules leave of a graph may be nothing that a planted one looks for.
        rewriter._DEFAULT_REWRITE_RULES = (*mine, *known)


register(
    ConverterEntry(
        name=Rewriting.name, probe=lambda: None, create=Rewriting, version=lambda: f"planted {torch.__version__}"
    )
)
