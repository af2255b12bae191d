"""Names of the rewrite rules of the exporter's optimiser, which is onnxscript's; importing it takes no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def rule_name(rule: Any) -> str:
    """Return ``CastCast``; for a rule without a name ``identity of Add``, by its replacement's function and its
    pattern."""
    if rule.name:
        return str(rule.name)
    replacement = getattr(rule._replacement_pattern, "_function", None)
    operators = "+".join(str(node.op) for node in rule._target_pattern)
    return f"{getattr(replacement, '__name__', 'replacement')} of {operators}"


def rule_names() -> Sequence[str]:
    """Return the names of the rules that every export applies."""
    from onnxscript import rewriter

    return sorted({rule_name(rule) for rule in rewriter._DEFAULT_REWRITE_RULES})
