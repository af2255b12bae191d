"""Read an ONNX file for a run: its weights must be there, and its nodes in order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from harness.core.invocation import MODEL
from harness.core.text import one_line
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import ModelSource, model_name
from harness.pipeline.submodel import outer_names, sort_nodes


@dataclass(frozen=True, eq=False)
class LoadedFile:
    """An ONNX file, read.

    Attributes:
        name: The name of the file.
        model: The graph, sorted.
        notes: What was changed so that the file can be judged, a line each.
    """

    name: str
    model: onnx.ModelProto
    notes: tuple[str, ...] = ()

    @property
    def overload(self) -> str:
        """Return the name for the record's column of operators."""
        return MODEL + self.name


def load_file(source: ModelSource) -> LoadedFile:
    """Read a file, and sort its nodes if they are not in order.

    Raises:
        ModelProblem: a file cannot be read or has no weights beside it, a node reads a value that nothing gives, the
            graph gives a value that is not a tensor.
    """
    model = _read(Path(source.word))
    for value in model.graph.output:
        if value.type.WhichOneof("value") not in (None, "tensor_type"):
            raise ModelProblem(f"output {value.name} of {source.word} is not a tensor")
    notes: tuple[str, ...] = ()
    early = _first_early_read(model.graph)
    if early is not None:
        model = _sorted(model, source.word)
        notes = (
            f"{source.word} is not topologically sorted, which ONNX asks for and ONNX Runtime forgives: "
            f"{early.reader} reads {early.value} before it is computed; it is judged as if it were sorted",
        )
    return LoadedFile(model_name(source.word), model, notes)


def _read(path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise ModelProblem(f"{path} cannot be read: {type(error).__name__}: {one_line(error)}") from None
    stored = [tensor for tensor in _weights(model.graph) if uses_external_data(tensor)]
    for tensor in stored:
        location = ExternalDataInfo(tensor).location
        if not (path.parent / location).is_file():
            raise ModelProblem(
                f"{path} keeps the weight {tensor.name} in {location}, which is missing: "
                f"put {location} into {path.parent.resolve()}"
            )
    if stored:
        try:
            onnx.load_external_data_for_model(model, str(path.parent))
        except Exception as error:
            raise ModelProblem(f"the weights of {path} cannot be read: {one_line(error)}") from None
    return model


def _weights(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """Return the initializers and constants of a graph and of the bodies in it."""
    weights = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                weights.append(attribute.t)
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") or attribute.graphs else ():
                weights.extend(_weights(body))
    return weights


@dataclass(frozen=True)
class _EarlyRead:
    """A node that reads a value before, or although nothing, gives it."""

    reader: str
    value: str


def _first_early_read(graph: onnx.GraphProto) -> _EarlyRead | None:
    """Return the first node that reads a value which a later node gives; None if the nodes are in order.

    Raises:
        ModelProblem: nothing gives a value that a node or an output reads.
    """
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    made = {name for node in graph.node for name in node.output}
    early = None
    for node in graph.node:
        for name in outer_names(node):
            if name in known:
                continue
            reader = f"{node.op_type}{f' ({node.name})' if node.name else ''}"
            if name not in made:
                raise ModelProblem(f"the file is not a valid ONNX model: {reader} reads {name!r}, which nothing gives")
            early = early or _EarlyRead(reader, name)
        known.update(node.output)
    for value in graph.output:
        if value.name not in known:
            raise ModelProblem(f"the file is not a valid ONNX model: nothing gives its output {value.name!r}")
    return early


def _sorted(model: onnx.ModelProto, word: str) -> onnx.ModelProto:
    """Return a model with its nodes in topological order."""
    try:
        return sort_nodes(model)
    except ValueError:
        raise ModelProblem(f"{word} is not a valid ONNX model: its nodes form a circle") from None
