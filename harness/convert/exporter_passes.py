"""The passes of the exporter's optimiser: which of them change a graph, and an export without some of them.

A pass goes by the name of its class, a rule of the rewriter by its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import onnx_ir
from onnxscript import rewriter


@contextmanager
def passes_left_out(names: Collection[str], changing: dict[str, None]) -> Iterator[None]:
    """Leave out passes while the context lasts, and add the names of the others that change something."""
    of_pass, of_rule = onnx_ir.passes.PassBase.__call__, rewriter.RewriteRule.try_rewrite

    def call(self: Any, model: Any) -> Any:
        name = type(self).__name__
        if name in names:
            return model if isinstance(model, onnx_ir.passes.PassResult) else _unchanged(model)
        result = of_pass(self, model)
        if result.modified and not isinstance(self, onnx_ir.passes.Sequential):
            changing[name] = None
        return result

    def try_rewrite(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.name in names:
            return None
        found = of_rule(self, *args, **kwargs)
        if found is not None and self.name:
            changing[self.name] = None
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


def _unchanged(model: Any) -> Any:
    return onnx_ir.passes.PassResult(model, modified=False)
