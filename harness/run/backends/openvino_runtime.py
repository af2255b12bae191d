"""OpenVINO on the CPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from harness.core.dtypes import Array
from harness.core.plugins import Unavailable, importable, installed_version
from harness.core.snippet import RunSnippet, RunWanted
from harness.run import node_names as _messages
from harness.run.artefact import ONNX, OPENVINO_IR, Artefact, NodeKernel
from harness.run.backend import BackendEntry, BackendFailure, InvalidModel, ShapeRange, UnsupportedModel, register

#: Without the hint, some CPUs compute float32 in bfloat16.
_CONFIG = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}

#: Dtypes that the CPU plug-in computes in another one, keeping the dtype of inputs and outputs; measured, see the
#: tests.
_NARROWED = {"float64": "float32", "int64": "int32", "uint64": "int32", "uint32": "int32"}

#: OpenVINO's names of element types that NumPy lacks → `ml_dtypes` names.
_RAW_TYPES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}

_NO_RULE = re.compile(r"No conversion rule found for operations?: (?P<operators>[^\n]+)")
_COMPLAINT = re.compile(r"^-- \S+ with a message:\n(?P<text>.*?)(?=^-- |^Summary:|\Z)", re.MULTILINE | re.DOTALL)
_NODE = re.compile(r"<Node\([^)]*\): (?P<name>.*?)>'")
_UNSUPPORTED = re.compile(
    r"unsupported|n[o']t support|not implemented|not \w+ supported|No conversion rule", re.IGNORECASE
)
_INVALID = re.compile(r"OpConversionFailure|not found in graph cache|onnx/frontend")


class OpenVinoSession:
    """A model compiled by OpenVINO.

    Args:
        compiled: The compiled model.
        names: The names of the inputs, in the model's order.
    """

    runnable = True

    def __init__(self, compiled: Any, names: Sequence[str]) -> None:
        self._request = compiled.create_infer_request()
        # The compiled model lacks inputs that no node reads.
        self._inputs = {name: port for port in compiled.inputs for name in port.get_names()}
        if len(compiled.inputs) == len(names):
            # An input that is also an output has only the output's name.
            for name, port in zip(names, compiled.inputs, strict=True):
                self._inputs.setdefault(name, port)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        import openvino

        # Tensors share memory with these arrays, so both must live until the run is over.
        tensors = []
        for name, array in feeds.items():
            port = self._inputs.get(name)
            if port is None:
                continue
            if array.dtype.isbuiltin == 1:
                tensor = openvino.Tensor(array, shared_memory=True)
            else:
                bits = array.view(np.dtype(f"u{array.dtype.itemsize}"))
                tensor = openvino.Tensor(bits, list(array.shape), port.get_element_type())
            tensors.append(tensor)
            self._request.set_tensor(port, tensor)
        try:
            self._request.infer()
        except RuntimeError as error:
            message = _message(error)
            raise (UnsupportedModel if _UNSUPPORTED.search(message) else BackendFailure)(message) from error
        return [_copied(tensor) for tensor in self._request.output_tensors]


class OpenVinoBackend:
    """OpenVINO's CPU plugin in float32, one thread."""

    name = "openvino"
    device = "cpu"

    def __init__(self) -> None:
        import openvino

        self._core = openvino.Core()
        self.version = str(openvino.__version__).partition("-")[0]

    def narrows(self, dtype: str) -> str | None:
        """Return the dtype in which the CPU plug-in computes 64-bit and unsigned 32-bit values: 32 bits, signed."""
        return _NARROWED.get(dtype)

    def load(self, model: onnx.ModelProto | Artefact, shapes: Mapping[str, ShapeRange] | None) -> OpenVinoSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        if isinstance(model, Artefact):
            return self._load_native(model)
        try:
            network = self._core.read_model(model.SerializeToString())
            compiled = self._core.compile_model(network, "CPU", _CONFIG)
            return OpenVinoSession(compiled, [value.name for value in model.graph.input])
        except RuntimeError as error:
            raise _translated(error, model) from error

    def node_kernels(
        self, model: onnx.ModelProto | Artefact, feeds: Mapping[str, Array], shapes: Mapping[str, ShapeRange] | None
    ) -> Sequence[NodeKernel]:
        """See `harness.run.backend.HasKernelReport`; read from the runtime model, which needs no run."""
        try:
            if isinstance(model, Artefact):
                compiled = self._core.compile_model(model.content, "CPU", _CONFIG)
            else:
                network = self._core.read_model(model.SerializeToString())
                compiled = self._core.compile_model(network, "CPU", _CONFIG)
        except RuntimeError as error:
            message = _message(error)
            raise (UnsupportedModel if _UNSUPPORTED.search(message) else BackendFailure)(message) from error
        infos = [operation.get_rt_info() for operation in compiled.get_runtime_model().get_ordered_ops()]
        return [_kernel_of_info(info) for info in infos if _said(info, "layerType") not in _NO_KERNELS]

    def _load_native(self, model: Artefact) -> OpenVinoSession:
        """Load a model in OpenVINO's own format."""
        try:
            compiled = self._core.compile_model(model.content, "CPU", _CONFIG)
            return OpenVinoSession(compiled, model.input_names)
        except RuntimeError as error:
            message = _message(error)
            raise (UnsupportedModel if _UNSUPPORTED.search(message) else BackendFailure)(message) from error


#: Types of layers that hold or exchange values.
_NO_KERNELS = frozenset({"Input", "Output", "Const"})


def _said(info: Any, name: str) -> str:
    return str(info[name].astype(str)) if name in info else ""


def _kernel_of_info(info: Any) -> NodeKernel:
    names, dtype = _said(info, "originalLayersNames"), _said(info, "runtimePrecision")
    return NodeKernel(names, _said(info, "layerType"), "CPU", (dtype,), _said(info, "primitiveType"))


def _copied(tensor: Any) -> Array:
    """Return the tensor's content in a new array, with an `ml_dtypes` dtype if NumPy lacks the type."""
    content: Array = np.array(tensor.data, order="C")
    raw = _RAW_TYPES.get(tensor.get_element_type().get_type_name())
    return content if raw is None else content.view(np.dtype(raw))


def _message(error: Exception) -> str:
    """Return OpenVINO's message without the lines about locations in its sources."""
    lines = str(error).strip().splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.startswith("Exception from"))


def _translated(error: Exception, model: onnx.ModelProto) -> Exception:
    """Return the exception of our interface for an error of loading.

    Unsupported nodes are reported alone even if others are invalid: once they are dropped, the next attempt reports the
    rest.
    """
    message = _message(error)
    reasons = _unconverted_nodes(message, model) or _failed_nodes(message, model)
    unsupported = {node: text for node, text in reasons.items() if _UNSUPPORTED.search(text)}
    if unsupported:
        return UnsupportedModel("; ".join(dict.fromkeys(unsupported.values())), tuple(unsupported), unsupported)
    summary = "; ".join(dict.fromkeys(reasons.values())) or message
    if _UNSUPPORTED.search(message):
        return UnsupportedModel(summary, tuple(reasons), reasons)
    if _INVALID.search(str(error)):
        return InvalidModel(summary, tuple(reasons), reasons)
    return BackendFailure(summary, tuple(reasons) or _messages.mentioned(message, model), reasons)


def _unconverted_nodes(message: str, model: onnx.ModelProto) -> dict[str, str]:
    """Return the nodes whose operators have no conversion rule, with messages."""
    match = _NO_RULE.search(message)
    reasons: dict[str, str] = {}
    for word in match["operators"].split(",") if match else ():
        domain, _, operator = re.sub(r"-\d+$", "", word.strip()).rpartition(".")
        for node in _messages.nodes_of_type(model, operator, domain):
            reasons[node] = f"No conversion rule found for operation {word.strip()}"
    return reasons


def _failed_nodes(message: str, model: onnx.ModelProto) -> dict[str, str]:
    """Return the nodes whose conversion failed, with messages."""
    reasons: dict[str, str] = {}
    for complaint in _COMPLAINT.finditer(message):
        text = complaint["text"].strip()
        for node in _messages.known((match["name"] for match in _NODE.finditer(text)), model):
            reasons[node] = text
    return reasons


def _probe(argument: str) -> Unavailable | None:
    if importable("openvino"):
        return None
    return Unavailable(reason="openvino is not installed", install="pip install 'aten-onnx-conformance[openvino]'")


def _own_snippet(wanted: RunWanted) -> RunSnippet:
    """Return the code for a model in OpenVINO's own format."""
    tensor = "openvino.Tensor(x.numpy())"
    outputs = "torch.tensor(t.data)"
    if wanted.raw:
        bits = "openvino.Tensor(x.view(torch.int16).numpy(), list(x.shape), port.element_type)"
        tensor = f"{bits} if x.dtype == torch.bfloat16 else {tensor}"
        outputs = (
            "torch.tensor(t.data.view('i2')).view(torch.bfloat16)"
            " if t.element_type == openvino.Type.bf16 else torch.tensor(t.data)"
        )
    return RunSnippet(
        load=('compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})',),
        run=(
            "request = compiled.create_infer_request()",
            "for port, x in zip(compiled.inputs, inputs.values()):",
            "    x = x.contiguous()",
            f"    request.set_tensor(port, {tensor})",
            "request.infer()",
            f"outputs = [{outputs} for t in request.output_tensors]",
        ),
        imports=("import openvino",),
        packages=("openvino",),
    )


def _snippet(wanted: RunWanted) -> RunSnippet:
    if wanted.kind == OPENVINO_IR:
        return _own_snippet(wanted)
    run: tuple[str, ...] = (
        "feeds = {i.get_any_name(): inputs[i.get_any_name()].contiguous().numpy() for i in compiled.inputs}",
        "request = compiled.create_infer_request()",
        "request.infer(feeds)",
        "outputs = [torch.tensor(t.data) for t in request.output_tensors]",
    )
    if wanted.arrays:
        run = (
            "feeds = {i.get_any_name(): inputs[i.get_any_name()] for i in compiled.inputs}",
            *run[1:-1],
            "outputs = [t.data.copy() for t in request.output_tensors]",
        )
    elif wanted.raw:
        run = (
            "request = compiled.create_infer_request()",
            "for port in compiled.inputs:",
            "    x = inputs[port.get_any_name()].contiguous()",
            "    bits = x.view(torch.int16) if x.dtype == torch.bfloat16 else x",
            "    request.set_tensor(port, openvino.Tensor(bits.numpy(), list(x.shape), port.element_type))",
            "request.infer()",
            "outputs = [",
            "    torch.tensor(t.data.view('i2')).view(torch.bfloat16)",
            "    if t.element_type == openvino.Type.bf16 else torch.tensor(t.data)",
            "    for t in request.output_tensors",
            "]",
        )
    return RunSnippet(
        load=(
            "core = openvino.Core()",
            "network = core.read_model(model.SerializeToString())",
            'compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})',
        ),
        run=run,
        imports=("import openvino",),
        packages=("openvino",),
    )


register(
    BackendEntry(
        name="openvino",
        probe=_probe,
        create=lambda argument: OpenVinoBackend(),
        version=lambda argument: installed_version("openvino"),
        summary="OpenVINO, CPU plugin in float32, one thread",
        snippet=_snippet,
        tracker="openvinotoolkit/openvino",
        issue_form={
            "OpenVINO Version": "{backend_version}",
            "Operating System": "{system}",
            "Device used for inference": "CPU",
            "Framework": "ONNX",
            "Issue description": "{summary}\n\nExpected: {expected}\n\n{diagnosis}",
            "Step-by-step reproduction": "{code}\n\n{model}",
            "Relevant log output": "{actual}",
            "Versions": "{packages}",
        },
        distributions=("openvino",),
        on_cpu=True,
        variables=("OPENVINO", "OV"),
        witness=3,
        last_witness=True,
        takes=(ONNX, OPENVINO_IR),
    )
)
