"""Describe the nodes of a case that ran on the CPU although the backend's device is another, for the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from harness.pipeline.batch_export import Accepted, Converted, only
from harness.pipeline.stages import StageFailure, load_stage
from harness.pipeline.submodel import all_nodes, owners, walk_nodes
from harness.pipeline.task import FOLDED, NOT_TOLD, fell_back
from harness.run.artefact import AnyModel, Artefact, PlacedNode
from harness.run.backend import Backend, BackendSession, HasPlacement, ShapeRange


def placement_of(session: BackendSession, model: AnyModel) -> str:
    """Describe the placement of a loaded model's nodes: "" if all ran on the backend's device."""
    if isinstance(model, Artefact):
        return _delegated([node for nodes in model.placed.values() for node in nodes])
    if not isinstance(session, HasPlacement):
        return ""
    nodes = session.placed()
    return NOT_TOLD if nodes is None else _said(nodes, model.graph.node)


def placements(
    backend: Backend,
    session: BackendSession,
    converted: Converted,
    shapes: Mapping[str, ShapeRange] | None,
) -> dict[int, str]:
    """Describe the placement of each group of a loaded batch: group index → words; empty if the backend has one device.

    The runtime's optimiser gives some nodes names of its own. Then every group is loaded alone, to tell which nodes
    are its.
    they are.
    """
    model, members = converted.graph, converted.members
    if isinstance(converted.model, Artefact):
        return _placed_by_converter(converted.model, members)
    if not isinstance(session, HasPlacement) or model is None:
        return {}
    nodes = session.placed()
    names = [node.name for node in all_nodes(model)]
    known = {*names} - {""}
    words: dict[int, str] = {}
    if nodes is None or len(members) == 1:
        words = dict.fromkeys((m.group.index for m in members), placement_of(session, model))
    elif len(known) < len(names) or not all(node.name in known for node in nodes):
        for member in members:
            part = only(model, [member])
            alone = load_stage(backend, part, shapes)
            if isinstance(alone, StageFailure):
                words[member.group.index] = NOT_TOLD
            else:
                words[member.group.index] = placement_of(alone, part)
    else:
        outer = {inner.name: node.name for node in model.graph.node for inner in walk_nodes([node])}
        reached = owners(model, dict.fromkeys(outer.values()))
        for member in members:
            outputs = set(member.structure.output_names)
            own = [node for node in model.graph.node if not outputs.isdisjoint(reached[node.name])]
            theirs = {node.name for node in own}
            words[member.group.index] = _said([n for n in nodes if outer.get(n.name) in theirs], own)
    return words


def _placed_by_converter(artefact: Artefact, members: Sequence[Accepted]) -> dict[int, str]:
    """Describe the placement of each group of an artefact that records its delegation."""
    found: dict[int, str] = {}
    for member in members:
        nodes = [node for name in member.structure.output_names for node in artefact.placed.get(name, ())]
        words = _delegated(nodes)
        if words:
            found[member.group.index] = words
    return found


def _delegated(nodes: Sequence[PlacedNode]) -> str:
    """Describe the nodes that are not on the device; "" if all are."""
    on_cpu = [node.operator for node in nodes if not node.on_device]
    return fell_back(on_cpu, wholly=len(on_cpu) == len(nodes)) if on_cpu else ""


def _said(nodes: Sequence[PlacedNode], emitted: Sequence[onnx.NodeProto]) -> str:
    """Describe the placement of a case: the runtime's nodes compared with those that a converter emitted for it."""
    if not nodes:
        return FOLDED if any(node.op_type != "Constant" for node in emitted) else ""
    return _delegated(nodes)
