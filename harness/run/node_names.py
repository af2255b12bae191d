"""Find the ONNX nodes that a runtime's message refers to."""

from __future__ import annotations

import re
from collections.abc import Iterable

import onnx


def known(names: Iterable[str], model: onnx.ModelProto) -> tuple[str, ...]:
    """Return those of `names` that name nodes in `model`, each once, in order.

    Runtimes also report nodes that their optimiser created; these are dropped.
    """
    wanted = dict.fromkeys(name for name in names if name)
    present = {node.name for node in model.graph.node}
    return tuple(name for name in wanted if name in present)


def nodes_of_type(model: onnx.ModelProto, operator: str, domain: str = "") -> tuple[str, ...]:
    """Return the names of the nodes that call `operator` of `domain`; "" and "ai.onnx" are equal."""
    domain = "" if domain == "ai.onnx" else domain
    return tuple(
        node.name
        for node in model.graph.node
        if node.name and node.op_type == operator and ("" if node.domain == "ai.onnx" else node.domain) == domain
    )


def consumers(model: onnx.ModelProto, tensors: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the nodes that read one of `tensors`."""
    wanted = set(tensors)
    return tuple(node.name for node in model.graph.node if node.name and not wanted.isdisjoint(node.input))


def mentioned(message: str, model: onnx.ModelProto) -> tuple[str, ...]:
    """Return the names of nodes that occur in `message` as whole words.

    Short names are skipped, since a node called "n" would match any sentence.
    """
    names = dict.fromkeys(node.name for node in model.graph.node if len(node.name) >= 4)
    return tuple(name for name in names if re.search(rf"(?<![\w./]){re.escape(name)}(?![\w./]*\w)", message))
