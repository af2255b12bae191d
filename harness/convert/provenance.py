"""Find the lines of a converter's source that emitted the nodes of a graph.

Nodes are made while the conversion functions run, so the stack at that moment names the lines. To record them costs a
few percent of an export.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import onnx
import onnx_ir
import onnxscript
import torch

from harness.convert.conversion_sources import ConversionFunction, function_at
from harness.convert.converter import Converter, ExportRequest, HasProgram
from harness.convert.function_families import own_function
from harness.convert.torch_private import (
    CONVERSION_MODULES,
    DECOMPOSITION_MODULES,
    PASS_MODULES,
    TRANSLATING_MODULE,
    script_node_creation,
)
from harness.core.text import error_chain

#: Where a node's lines are kept on their way to the model: in metadata in onnx_ir, and in TorchScript their
#: number in an attribute whose name the checker of ONNX leaves alone.
_KEY = "__emission"
#: Metadata that the exporter writes for each node: the PyTorch node that it is a part of.
_OF_NODE = "pkg.torch.onnx.fx_node"

#: Whether a function of onnxscript's is run where it is called, rather than built beforehand.
_RUN = "traceable"


@dataclass(frozen=True, order=True)
class CodeLine:
    """A line of source that ran.

    Attributes:
        file: Absolute path.
        function: Qualified name of the function that it is in.
    """

    file: str
    line: int
    function: str

    @property
    def decomposes(self) -> bool:
        """Whether it is of PyTorch's decompositions, which also run to find the shapes of results."""
        return any(f"/{module.replace('.', '/')}" in self.file for module in DECOMPOSITION_MODULES)


@dataclass(frozen=True)
class EmittedGraph:
    """A model, and the lines that emitted its nodes.

    Attributes:
        lines: Per node of the graph, the lines of conversion functions on the stack when it was made, the
            innermost first; behind these the lines of the decomposition that made its PyTorch node. None for
            a node of unknown origin.
        of_node: Per node of the graph, the name of the PyTorch node that it is a part of; "" if unknown.
        program: The translated PyTorch graph; None if the converter does not tell.
    """

    model: onnx.ModelProto
    lines: tuple[tuple[CodeLine, ...], ...]
    of_node: tuple[str, ...]
    program: torch.export.ExportedProgram | None = None

    def functions(self, index: int) -> tuple[ConversionFunction, ...]:
        """Return the conversion functions that a node was emitted in, the innermost first.

        A function that is built from its source leaves no lines: there it is the one that is registered for the call.
        """
        known = [function_at(line.file, line.function) for line in self.lines[index]]
        functions = tuple(function for function in known if function is not None)
        target = self.target(self.of_node[index]) if not functions else ""
        registered = own_function("dynamo", target) if target else None
        return functions if registered is None else (registered,)

    def target(self, name: str) -> str:
        """Return the operator that a node of the PyTorch graph calls, as ``aten.add.Tensor``; "" if unknown."""
        nodes = self.program.graph.nodes if self.program is not None else ()
        return next((str(node.target) for node in nodes if node.name == name and node.op == "call_function"), "")


def _is_in(frame: FrameType, modules: tuple[str, ...]) -> bool:
    """Whether it is in a function of some modules that is not a wrapper."""
    module = frame.f_globals.get("__name__", "")
    return module.startswith(modules) and not frame.f_code.co_name.endswith("wrapper")


def _function(frame: FrameType) -> str:
    """Return the function that was written, rather than a comprehension within it."""
    name, mark, inner = frame.f_code.co_qualname.rpartition(".<locals>.")
    return name if mark and inner.startswith("<") else frame.f_code.co_qualname


def _conversion_lines(frame: FrameType | None) -> Iterator[CodeLine]:
    while frame is not None:
        if _is_in(frame, CONVERSION_MODULES + PASS_MODULES):
            yield CodeLine(frame.f_code.co_filename, frame.f_lineno, _function(frame))
        frame = frame.f_back


def emitted(converter: Converter, request: ExportRequest) -> EmittedGraph:
    """Export, and return the lines that emitted each node; raises the converter's exceptions."""
    script: list[tuple[CodeLine, ...]] = []
    with _recording(script):
        if isinstance(converter, HasProgram):
            exported = converter.program(request)
            model, program = exported.model_proto, exported.exported_program
        else:
            model, program = converter.convert(request), None
    made = {n.name: n.meta[_KEY] for n in program.graph.nodes if _KEY in n.meta} if program else {}
    names = [_torch_node(node) for node in model.graph.node]
    lines = [(*_taken(node, script), *made.get(name, ())) for node, name in zip(model.graph.node, names, strict=True)]
    return EmittedGraph(model, tuple(lines), tuple(names), program)


@contextlib.contextmanager
def _recording(script: list[tuple[CodeLine, ...]]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(_after(onnx_ir.Node, "__init__", lambda node, _: _mark_ir(node)))
        stack.enter_context(_after(torch.fx.Graph, "create_node", lambda _, node: _mark_fx(node)))
        creation = script_node_creation()
        if creation is not None:

            def mark(_: Any, node: Any) -> None:
                script.append(_present())
                node.i_(_KEY, len(script) - 1)

            stack.enter_context(_after(creation.owner, creation.attribute, mark))
        yield


@contextlib.contextmanager
def _after(owner: Any, name: str, then: Callable[[Any, Any], object]) -> Iterator[None]:
    """Call `then` with the first argument and the result of each call of a function."""
    original = vars(owner)[name]

    def wrapped(first: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(first, *args, **kwargs)
        then(first, made)
        return made

    setattr(owner, name, wrapped)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _present() -> tuple[CodeLine, ...]:
    return tuple(_conversion_lines(sys._getframe(1)))


def _mark_ir(node: onnx_ir.Node) -> None:
    # A copy has the attributes of the original, and has the same origin. The text holds all: a node may be kept
    # from one export to the next.
    if _KEY not in node.metadata_props:
        node.metadata_props[_KEY] = json.dumps([(one.file, one.line, one.function) for one in _present()])


def _mark_fx(node: torch.fx.Node) -> None:
    lines = _present()
    if lines:
        node.meta[_KEY] = lines


def _taken(node: onnx.NodeProto, script: Sequence[tuple[CodeLine, ...]]) -> tuple[CodeLine, ...]:
    """Remove and return the lines that a node carries."""
    found: tuple[CodeLine, ...] = ()
    for place, prop in reversed(list(enumerate(node.metadata_props))):
        if prop.key == _KEY:
            found = tuple(CodeLine(*line) for line in json.loads(prop.value))
            del node.metadata_props[place]
    for place, attribute in reversed(list(enumerate(node.attribute))):
        if attribute.name == _KEY:
            found = script[attribute.i]
            del node.attribute[place]
    return found


def _torch_node(node: onnx.NodeProto) -> str:
    name = next((p.value for p in node.metadata_props if p.key == _OF_NODE), "")
    return name.partition(" ")[0].removeprefix("%")


@contextlib.contextmanager
def executed_lines(notice: Callable[[CodeLine, str], None]) -> Iterator[None]:
    """Call `notice` with every line of conversion functions that runs in the block.

    It gets the line, and the name of the PyTorch node that is being translated; "" for none.
    """

    def trace_call(frame: FrameType, event: str, argument: object) -> Any:
        if not _is_in(frame, CONVERSION_MODULES):
            return None
        node = _translated_node(frame)

        def trace_line(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                line = CodeLine(frame.f_code.co_filename, frame.f_lineno, _function(frame))
                notice(line, node)
            return trace_line

        return trace_line

    before = sys.gettrace()
    sys.settrace(trace_call)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def traced_functions(chosen: Callable[[object], bool] = lambda function: True) -> Iterator[None]:
    """Run conversion functions that onnxscript otherwise builds from their source and never runs.

    Args:
        chosen: Whether a function is to be run.
    """

    def is_run(built: Any) -> bool:
        return chosen(built.function) or vars(built)[_RUN]

    def remember(built: Any, value: bool) -> None:
        vars(built)[_RUN] = value

    # The attributes of each function; a property of all of them comes before these.
    owner: Any = onnxscript.OnnxFunction
    before = vars(owner).get(_RUN)
    setattr(owner, _RUN, property(is_run, remember))
    try:
        yield
    finally:
        if before is None:
            delattr(owner, _RUN)
        else:
            setattr(owner, _RUN, before)


def _translated_node(frame: FrameType | None) -> str:
    """Return the PyTorch node for which a frame was entered."""
    while frame is not None:
        if frame.f_globals.get("__name__") == TRANSLATING_MODULE:
            node = frame.f_locals.get("node")
            if isinstance(node, torch.fx.Node):
                return node.name
        frame = frame.f_back
    return ""


def raising_lines(error: BaseException) -> tuple[CodeLine, ...]:
    """Return the lines of conversion functions that an exception, or its cause, came through: innermost first."""
    found: list[CodeLine] = []
    for cause in error_chain(error):
        trace = cause.__traceback__
        lines: list[CodeLine] = []
        while trace is not None:
            if _is_in(trace.tb_frame, CONVERSION_MODULES + PASS_MODULES):
                code = trace.tb_frame.f_code
                lines.append(CodeLine(code.co_filename, trace.tb_lineno, _function(trace.tb_frame)))
            trace = trace.tb_next
        found = lines[::-1] or found
    return tuple(found)
