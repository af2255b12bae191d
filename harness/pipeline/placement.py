"""Find out which nodes of a case ran on the CPU although the backend's device is another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from harness.core.placement import OnCpu, Placement
from harness.pipeline.batch_export import Converted, Member, only
from harness.pipeline.stages import StageFailure, load_stage
from harness.pipeline.submodel import all_nodes, owners, walk_nodes
from harness.run.artefact import AnyModel, Artefact, PlacedNode
from harness.run.backend import Backend, BackendSession, HasPlacement, ShapeRange


def placement_of(session: BackendSession, model: AnyModel) -> Placement | None:
    """Return the placement of a loaded model's nodes; None if all ran on the backend's device."""
    if isinstance(model, Artefact):
        return _delegated([node for nodes in model.placed.values() for node in nodes])
    if not isinstance(session, HasPlacement):
        return None
    nodes = session.placed()
    return Placement(OnCpu.UNKNOWN) if nodes is None else _placement(nodes, model.graph.node)


def placements(
    backend: Backend,
    session: BackendSession,
    converted: Converted,
    shapes: Mapping[str, ShapeRange] | None,
) -> dict[int, Placement | None]:
    """Return the placement of each group of a loaded batch by its index; empty if the backend has one device.

    The runtime's optimiser gives some nodes names of its own. Then every group is loaded alone, to tell which nodes
    are its.
    """
    model, members = converted.graph, converted.members
    if isinstance(converted.model, Artefact):
        return _placed_by_converter(converted.model, members)
    if not isinstance(session, HasPlacement) or model is None:
        return {}
    nodes = session.placed()
    names = [node.name for node in all_nodes(model)]
    known = {*names} - {""}
    found: dict[int, Placement | None] = {}
    if nodes is None or len(members) == 1:
        found = dict.fromkeys((m.group.index for m in members), placement_of(session, model))
    elif len(known) < len(names) or not all(node.name in known for node in nodes):
        for member in members:
            part = only(model, [member])
            alone = load_stage(backend, part, shapes)
            if isinstance(alone, StageFailure):
                found[member.group.index] = Placement(OnCpu.UNKNOWN)
            else:
                found[member.group.index] = placement_of(alone, part)
    else:
        outer = {inner.name: node.name for node in model.graph.node for inner in walk_nodes([node])}
        reached = owners(model, dict.fromkeys(outer.values()))
        for member in members:
            outputs = set(member.structure.output_names)
            own = [node for node in model.graph.node if not outputs.isdisjoint(reached[node.name])]
            theirs = {node.name for node in own}
            found[member.group.index] = _placement([n for n in nodes if outer.get(n.name) in theirs], own)
    return found


def _placed_by_converter(artefact: Artefact, members: Sequence[Member]) -> dict[int, Placement | None]:
    """Return the placement of each group of an artefact that records its delegation."""
    placed = {
        m.group.index: [n for name in m.structure.output_names for n in artefact.placed.get(name, ())] for m in members
    }
    return {index: _delegated(nodes) for index, nodes in placed.items()}


def _delegated(nodes: Sequence[PlacedNode]) -> Placement | None:
    """Return the placement of nodes; None if all are on the device."""
    on_cpu = [node.operator for node in nodes if not node.on_device]
    return Placement.fallback(on_cpu, wholly=len(on_cpu) == len(nodes)) if on_cpu else None


def _placement(nodes: Sequence[PlacedNode], emitted: Sequence[onnx.NodeProto]) -> Placement | None:
    """Return the placement of a case: the runtime's nodes compared with those that a converter emitted for it."""
    if not nodes:
        return Placement(OnCpu.FOLDED) if any(node.op_type != "Constant" for node in emitted) else None
    return _delegated(nodes)
