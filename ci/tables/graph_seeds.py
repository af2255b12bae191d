#!/usr/bin/env python3
"""Write the seeds of graphs that come from elsewhere, into `cases/onnx/graphs/`.

    python ci/tables/graph_seeds.py                  # bodies.onnxtxt and models.onnxtxt
    python ci/tables/graph_seeds.py --programs RUN   # programs.onnxtxt, of a run of programs

The first has the function bodies by which ONNX defines operators, the second parts of the exports of `cases/models/`:
of windows with the same operators and edges one, those with the rarest pairs of neighbouring operators first. All run
in ONNX Runtime without its optimisations. The third has, for each pass that changed a program of the run, the smallest
of these programs: as the exporter's optimiser gets them for its own rules, and as a runtime gets them for its passes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import onnx
import torch
from onnx.inliner import inline_local_functions

from harness.compare.verdict import split_passes
from harness.convert.converter import HasExporterPasses
from harness.core.case_group import CaseGroup
from harness.core.invocation import GRAPH, Invocation
from harness.core.onnx_arrays import build_array
from harness.core.route import Route
from harness.generate.case_library import load_onnx_cases
from harness.generate.cases_home import cases_directory
from harness.generate.draws import draw_invocations
from harness.generate.graph_seeds import NotWritable, graph_invocation, load_seeds
from harness.generate.graph_windows import BadModel, cut_windows
from harness.pipeline.drawn_graph import build_graph
from harness.pipeline.graph_oracle import plain_form
from harness.pipeline.loaded_models import RANDOM_OPERATORS
from harness.pipeline.model_loading import load_model, load_models
from harness.pipeline.nodes.bodies import has_body, inline_bodies
from harness.pipeline.program import CallStructure, export_alone
from harness.pipeline.run_graph import run_graph
from harness.pipeline.start import start_backend, start_converter
from harness.pipeline.submodel import graph_kind
from harness.record import store

#: Draws of an operator, and bodies of it that are kept, one of each kind.
_DRAWS, _KEPT = 24, 2
#: Nodes of a body, and numbers of a seed's constants, at most.
_NODES, _NUMBERS = 40, 256
#: Programs of each pass.
_PER_PASS = 2
#: Windows of all models together.
_WINDOWS = 120


def main() -> None:
    """Write two files, or the third."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", metavar="RUN", type=Path)
    run = parser.parse_args().programs
    directory = cases_directory() / "onnx" / "graphs"
    known = {graph_kind(model) for name, model in load_seeds().items() if run or "/" not in name}
    sources = [("programs", _programs(run))] if run else [("bodies", _bodies()), ("models", _windows())]
    for name, models in sources:
        kept = list(_fresh(models, known))
        text = "\n".join(onnx.printer.to_text(model) for model in kept)
        (directory / f"{name}.onnxtxt").write_text(text + "\n", encoding="utf-8")
        print(f"{name}: {len(kept)} graphs")


def _fresh(models: Iterable[onnx.ModelProto], known: set[str]) -> Iterator[onnx.ModelProto]:
    """Yield the models of kinds that are not yet known, if they can be written and read again, and run."""
    runtime = plain_form(start_backend("ort-cpu"))
    for model in models:
        _drop_unread_inputs(model.graph)
        kind = graph_kind(model)
        if kind in known or not _is_small(model):
            continue
        try:
            again = onnx.parser.parse_model(onnx.printer.to_text(model))
            onnx.checker.check_model(again, full_check=True)
            seed = graph_invocation(again, GRAPH + "seed")
        except (NotWritable, onnx.parser.ParseError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue
        graph = build_graph(seed)
        feeds = dict(zip((value.name for value in graph.graph.input), map(build_array, seed.tensors()), strict=True))
        is_random = not RANDOM_OPERATORS.isdisjoint(node.op_type for node in again.graph.node)
        if is_random or run_graph(runtime, graph, feeds).failure is not None:
            continue
        known.add(kind)
        yield again


def _drop_unread_inputs(graph: onnx.GraphProto) -> None:
    read = {name for node in graph.node for name in node.input}
    kept = [value for value in graph.input if value.name in read]
    del graph.input[:]
    graph.input.extend(kept)


def _is_small(model: onnx.ModelProto) -> bool:
    return bool(sum(prod(tensor.dims) for tensor in model.graph.initializer) <= _NUMBERS)


def _bodies() -> Iterator[onnx.ModelProto]:
    """Yield the bodies of operators, for drawn inputs."""
    for case in load_onnx_cases().values():
        if case.schema is None or case.schema.domain:
            continue
        kinds: set[str] = set()
        for invocation in draw_invocations(case, seed=0, count=_DRAWS):
            model = build_graph(invocation)
            opset = model.opset_import[0].version
            is_small = all(spec.numel and spec.numel <= _NUMBERS for spec in invocation.tensors())
            if not is_small or len(model.graph.node) != 1 or not has_body(model.graph.node[0], opset):
                continue
            try:
                body = inline_bodies(model)
            except Exception as error:
                print(f"{case.overload}: {error}")
                continue
            if body is None or len(body.graph.node) > _NODES or any(_has_graph(node) for node in body.graph.node):
                continue
            kind = graph_kind(body)
            if kind not in kinds and len(kinds) < _KEPT:
                kinds.add(kind)
                yield body


def _programs(run: Path) -> Iterator[onnx.ModelProto]:
    """Yield exports of the smallest programs that each pass changed."""
    rows = store.read(run, ["invocation", "exporter_passes", "backend_passes", "elements"]).to_pylist()
    route = Route(converter="dynamo")
    converter = start_converter(route)
    assert isinstance(converter, HasExporterPasses)
    for column, exporter in (("exporter_passes", converter.stopped_after(0, [])), ("backend_passes", converter)):
        smallest: dict[str, list[str]] = {}
        for row in sorted(rows, key=lambda row: (row["elements"] or 0, len(row["invocation"]))):
            for name in split_passes(row[column] or ""):
                smallest.setdefault(name, []).append(row["invocation"])
        for text in dict.fromkeys(text for texts in smallest.values() for text in texts[:_PER_PASS]):
            structure = CallStructure.of(CaseGroup.of(Invocation.from_json(text)))
            try:
                model = inline_local_functions(export_alone(exporter, structure, route))
            except Exception as error:
                print(f"{type(error).__name__}: {str(error).splitlines()[0][:100]}")
                continue
            if len(model.graph.node) <= _NODES and not any(_has_graph(node) for node in model.graph.node):
                yield model


def _has_graph(node: onnx.NodeProto) -> bool:
    return any(attribute.HasField("g") for attribute in node.attribute)


def _windows() -> list[onnx.ModelProto]:
    """Return windows of the exported models, those with the rarest pairs of operators first."""
    found: list[onnx.ModelProto] = []
    for name in load_models():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name.replace('.', '-')}.onnx"
            try:
                program = load_model(name)
                torch.onnx.export(program.program, program.inputs, path, dynamo=True, external_data=False)
                found += filter(_is_small, cut_windows(path).values())
            except (BadModel, torch.onnx.errors.OnnxExporterError, torch.onnx.OnnxExporterError) as problem:
                print(f"{name}: {str(problem).splitlines()[0]}")
    pairs = Counter(pair for model in found for pair in _pairs(model))
    ranked = sorted(found, key=lambda model: sum(1 / pairs[pair] for pair in _pairs(model)), reverse=True)
    return ranked[:_WINDOWS]


def _pairs(model: onnx.ModelProto) -> set[tuple[str, str]]:
    """Return the operators of nodes that read from each other."""
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    return {(makers[name], node.op_type) for node in model.graph.node for name in node.input if name in makers}


if __name__ == "__main__":
    main()
