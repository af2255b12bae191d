"""`dynamo` with wrong rewrites among its own."""

from __future__ import annotations

import torch
from onnxscript import rewriter

from harness.convert.converter import ConverterEntry, register
from harness.convert.converters.dynamo import DynamoConverter
from planted_rewrites.rewrites import IN_RUNTIME, planted


class Rewriting(DynamoConverter):
    """Its optimiser has the planted rules."""

    name = "planted-rewrites"

    def __init__(self, public_api: bool) -> None:
        super().__init__(public_api)
        known = rewriter._DEFAULT_REWRITE_RULES
        mine = tuple(rule for rule in planted() if rule.name not in IN_RUNTIME and rule not in known)
        # Theirs first: what they make of the graph is what the others see.
        rewriter._DEFAULT_REWRITE_RULES = (*known, *mine)


register(
    ConverterEntry(
        name=Rewriting.name, probe=lambda: None, create=Rewriting, version=lambda: f"planted {torch.__version__}"
    )
)
