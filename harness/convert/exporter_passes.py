"""The passes of the exporter's optimiser: which of them change a graph, and an export without some of them.

A pass goes by the name of its class, a rule of the rewriter by its own, or by what it rewrites
operators. What rules do is not put down to the pass that tries them.

Rules come before passes: a rule that breaks a graph may need another pass before it, without which the graph
stays right, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import onnx_ir
from onnxscript import rewriter


@contextmanager
def passes_left_out(names: Collection[str], changing: dict[str, bool]) -> Iterator[None]:
    """Leave out passes while the context lasts, and add the names of the others that change something.

    `changing` has whether each is a rule.
    """
    of_pass, of_rule = onnx_ir.passes.PassBase.__call__, rewriter.RewriteRule.try_rewrite
    rewritten = 0

    def call(self: Any, model: Any) -> Any:
        name = type(self).__name__
        if name in names:
            return model if isinstance(model, onnx_ir.passes.PassResult) else _unchanged(model)
        before = rewritten
        result = of_pass(self, model)
        by_rules = rewritten > before
        if result.modified and not by_rules and not isinstance(self, onnx_ir.passes.Sequential):
            changing[name] = False
        return result

    def try_rewrite(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal rewritten
        name = _rule_name(self)
        if name in names:
            return None
        found = of_rule(self, *args, **kwargs)
        if found is not None:
            changing[name] = True
            rewritten += 1
        return found

    with (
        _replaced(onnx_ir.passes.PassBase, "__call__", call),
        _replaced(rewriter.RewriteRule, "try_rewrite", try_rewrite),
    ):
        yield


@contextmanager
def _replaced(owner: type, name: str, function: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _rule_name(rule: Any) -> str:
    """``CastCast``; without a name ``identity of Add``, by its replacement's function and its pattern."""
    if rule.name:
        return str(rule.name)
    replacement = getattr(rule._replacement_pattern, "_function", None)
    operators = "+".join(str(node.op) for node in rule._target_pattern)
    return f"{getattr(replacement, '__name__', 'replacement')} of {operators}"


def _unchanged(model: Any) -> Any:
    return onnx_ir.passes.PassResult(model, modified=False)
