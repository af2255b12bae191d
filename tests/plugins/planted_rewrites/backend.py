"""ONNX Runtime with wrong rewrites among its graph optimisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnxscript import rewriter

from harness.core.plugins import installed_version
from harness.run.backend import BackendEntry, ShapeRange, register
from harness.run.backends.ort import OrtBackend, OrtSession
from planted_rewrites.rewrites import is_of_runtime, planted


class Rewriting(OrtBackend):
    """Changes a graph by the planted rules before it is optimised further."""

    def __init__(self) -> None:
        self._is_plain = False
        super().__init__("planted-rewrites", "cpu")

    def plain(self) -> Rewriting:
        """See `harness.run.backend.HasPlain`."""
        other = super().plain()
        assert isinstance(other, Rewriting)
        other._is_plain = True
        return other

    def passes(self) -> Sequence[str]:
        """See `harness.run.backend.HasGraphPasses`."""
        return (*(rule.name or "" for rule in self._rules()), *super().passes())

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> OrtSession:
        """See `harness.run.backend.Backend.load`."""
        rules = [rule for rule in self._rules() if rule.name not in self._left_out]
        if rules and not self._is_plain:
            model = rewriter.rewrite(model, rules)
        return super().load(model, shapes)

    def _rules(self) -> list[rewriter.RewriteRule]:
        return [rule for rule in planted() if is_of_runtime(rule)]


register(
    BackendEntry(
        name="planted-rewrites",
        probe=lambda argument: None,
        create=lambda argument: Rewriting(),
        version=lambda argument: installed_version("onnxruntime"),
        engine="onnxruntime",
    )
)
