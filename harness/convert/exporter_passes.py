"""Notes the changes that the exporter's optimiser makes, and stops it after a number of them.

The notes tell which rules a program reaches; stopping tells the change that breaks a graph.

A change is one application of a rewrite rule, or one run of another pass that modifies the graph. A pass goes by the
name of its class, a rule by its own name, or by its replacement's function and the operators of its pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir
from onnxscript import rewriter

from harness.convert.change import Change
from harness.convert.rewrite_rules import rule_name


class OptimiserLimit:
    """The changes that an optimiser may still make, as the limit of LLVM's ``-opt-bisect-limit``.

    Args:
        limit: The number of changes that it may make; None for any number.
        changes: Receives each change, in order. If the optimiser raises, the last one is the pass that raised.
        output_names: The names that the export gives the graph outputs, in order; they have others until then.
    """

    def __init__(self, limit: int | None, changes: list[Change], output_names: Sequence[str]) -> None:
        self._names = output_names
        self._limit = limit
        self._changes = changes
        self._raised: Exception | None = None
        self._pass, self._rule = onnx_ir.passes.PassBase.__call__, rewriter.RewriteRule.try_rewrite

    @contextmanager
    def active(self) -> Iterator[None]:
        """Limit the optimiser of every export in this block; the exporter's other changes to a graph stay."""
        import torch

        optimise = torch.onnx.ONNXProgram.optimize

        def limited(program: Any) -> None:
            with self.limited():
                optimise(program)

        with _replaced(torch.onnx.ONNXProgram, "optimize", limited):
            yield

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit every pass and rule in this block."""
        with (
            _replaced(onnx_ir.passes.PassBase, "__call__", self._limited_pass()),
            _replaced(rewriter.RewriteRule, "try_rewrite", self._limited_rule()),
        ):
            yield

    @property
    def _is_reached(self) -> bool:
        return self._limit is not None and len(self._changes) >= self._limit

    def _limited_pass(self) -> Any:
        def call(graph_pass: Any, model: Any) -> Any:
            if self._is_reached:
                return model if isinstance(model, onnx_ir.passes.PassResult) else _unchanged(model)
            name, before = type(graph_pass).__name__, len(self._changes)
            try:
                result = self._pass(graph_pass, model)
            except Exception as error:
                self._note_raising(name, error)
                raise
            # The changes of its parts are counted already.
            is_own = len(self._changes) == before and not isinstance(graph_pass, onnx_ir.passes.Sequential)
            if result.modified and is_own:
                self._changes.append(Change(name))
            return result

        return call

    def _limited_rule(self) -> Any:
        def try_rewrite(rule: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
            if self._is_reached:
                return None
            try:
                replacement = self._rule(rule, model, graph, node, **options)
            except Exception as error:
                self._note_raising(rule_name(rule), error)
                raise
            if replacement is not None:
                self._changes.append(Change(rule_name(rule), self._outputs_behind(model, node)))
            return replacement

        return try_rewrite

    def _outputs_behind(self, model: Any, node: Any) -> frozenset[str]:
        """Return the names of the outputs that depend on a node, also through the node that holds its subgraph."""
        names = {id(value): name for value, name in zip(model.graph.outputs, self._names, strict=False)}
        behind: set[str] = set()
        seen, left = {node}, [node]
        while left:
            current = left.pop()
            behind.update(names[id(value)] for value in current.outputs if id(value) in names)
            readers = {user for value in current.outputs for user, _ in value.uses()}
            holder = getattr(current.graph, "parent_node", None)
            new = {*readers, *([] if holder is None else [holder])} - seen
            seen |= new
            left += new
        return frozenset(behind)

    def _note_raising(self, name: str, error: Exception) -> None:
        """Add the innermost pass that raises an exception; it passes through the others on its way."""
        if error is not self._raised and error.__cause__ is not self._raised:
            self._changes.append(Change(name))
        self._raised = error


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
