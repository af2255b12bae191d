"""From a runtime's words to the ONNX nodes that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterable

import onnx


def known(names: Iterable[str], model: onnx.ModelProto) -> tuple[str, ...]:
    """Those of `names` that are names of nodes in `model`, once each, in order.

    Runtimes also name nodes that their optimiser made up; these are left out.
    """
    wanted = dict.fromkeys(name for name in names if name)
    present = {node.name for node in model.graph.node}
    return tuple(name for name in wanted if name in present)


def of_operator(model: onnx.ModelProto, operator: str, domain: str = "") -> tuple[str, ...]:
    """Names of the nodes that call `operator` of `domain` ("" and "ai.onnx" are the same)."""
    domain = "" if domain == "ai.onnx" else domain
    return tuple(
        node.name
        for node in model.graph.node
        if node.name and node.op_type == operator and ("" if node.domain == "ai.onnx" else node.domain) == domain
    )


def consumers(model: onnx.ModelProto, tensors: Iterable[str]) -> tuple[str, ...]:
    """Names of the nodes that read one of `tensors` directly."""
    wanted = set(tensors)
    return tuple(node.name for node in model.graph.node if node.name and not wanted.isdisjoint(node.input))


def mentioned(message: str, model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of nodes that stand in `message` as whole words.

    Short names are left out: a node called "n" would be found in any sentence.
    """
    names = dict.fromkeys(node.name for node in model.graph.node if len(node.name) >= 4)
    return tuple(name for name in names if re.search(rf"(?<![\w./]){re.escape(name)}(?![\w./]*\w)", message))
