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
from harness.run.artefact import ONNX, OPENVINO_IR, Artefact
from harness.run.backend import BackendEntry, BackendFailure, InvalidModel, ShapeRange, UnsupportedModel, register

#: Without the hint float32 may be computed in bfloat16 on some CPUs.
_CONFIG = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}

#: What the CPU plugin computes in while it keeps the outer dtype: measured, see the tests.
_NARROWED = {"float64": "float32", "int64": "int32", "uint64": "int32", "uint32": "int32"}

#: OpenVINO's names of element types that NumPy lacks, and ours.
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
        names: Of the inputs, in the model's order.
    """

    runnable = True

    def __init__(self, compiled: Any, names: Sequence[str]) -> None:
        self._request = compiled.create_infer_request()
        # Inputs that no node reads are absent from the compiled model.
        self._inputs = {name: port for port in compiled.inputs for name in port.get_names()}
        if len(compiled.inputs) == len(names):
            # An input that is passed on as an output bears the output's name alone.
            for name, port in zip(names, compiled.inputs, strict=True):
                self._inputs.setdefault(name, port)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        import openvino

        # Tensors share memory with these arrays: both live until the run is over.
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
            message = _words(error)
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
        """The CPU plugin computes 64-bit and unsigned 32-bit values in 32 signed bits."""
        return _NARROWED.get(dtype)

    def load(self, model: onnx.ModelProto | Artefact, shapes: Mapping[str, ShapeRange] | None) -> OpenVinoSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        if isinstance(model, Artefact):
            return self._load_own(model)
        try:
            network = self._core.read_model(model.SerializeToString())
            compiled = self._core.compile_model(network, "CPU", _CONFIG)
            return OpenVinoSession(compiled, [value.name for value in model.graph.input])
        except RuntimeError as error:
            raise _translated(error, model) from error

    def _load_own(self, model: Artefact) -> OpenVinoSession:
        """A model in OpenVINO's own form."""
        try:
            compiled = self._core.compile_model(model.content, "CPU", _CONFIG)
            return OpenVinoSession(compiled, model.input_names)
        except RuntimeError as error:
            message = _words(error)
            raise (UnsupportedModel if _UNSUPPORTED.search(message) else BackendFailure)(message) from error


def _copied(tensor: Any) -> Array:
    """The tensor's content as an array of its own, `ml_dtypes` where NumPy lacks the type."""
    content: Array = np.array(tensor.data, order="C")
    raw = _RAW_TYPES.get(tensor.get_element_type().get_type_name())
    return content if raw is None else content.view(np.dtype(raw))


def _words(error: Exception) -> str:
    """OpenVINO's message without the lines that only say where in its sources it was raised."""
    lines = str(error).strip().splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.startswith("Exception from"))


def _translated(error: Exception, model: onnx.ModelProto) -> Exception:
    """The exception of our protocol for one of OpenVINO's while loading.

    Unsupported nodes come alone even where others are invalid: once they are dropped, the next
    attempt reports the rest.
    """
    message = _words(error)
    reasons = _without_rule(message, model) or _complaints(message, model)
    unsupported = {node: text for node, text in reasons.items() if _UNSUPPORTED.search(text)}
    if unsupported:
        return UnsupportedModel("; ".join(dict.fromkeys(unsupported.values())), tuple(unsupported), unsupported)
    summary = "; ".join(dict.fromkeys(reasons.values())) or message
    if _UNSUPPORTED.search(message):
        return UnsupportedModel(summary, tuple(reasons), reasons)
    if _INVALID.search(str(error)):
        return InvalidModel(summary, tuple(reasons), reasons)
    return BackendFailure(summary, tuple(reasons) or _messages.mentioned(message, model), reasons)


def _without_rule(message: str, model: onnx.ModelProto) -> dict[str, str]:
    """Node → what is said of it, for the operators that have no conversion rule."""
    match = _NO_RULE.search(message)
    reasons: dict[str, str] = {}
    for word in match["operators"].split(",") if match else ():
        domain, _, operator = re.sub(r"-\d+$", "", word.strip()).rpartition(".")
        for node in _messages.of_operator(model, operator, domain):
            reasons[node] = f"No conversion rule found for operation {word.strip()}"
    return reasons


def _complaints(message: str, model: onnx.ModelProto) -> dict[str, str]:
    """Node → what is said of it, for the nodes whose conversion failed."""
    reasons: dict[str, str] = {}
    for complaint in _COMPLAINT.finditer(message):
        text = complaint["text"].strip()
        for node in _messages.known((match["name"] for match in _NODE.finditer(text)), model):
            reasons[node] = text
    return reasons


def _probe(argument: str) -> Unavailable | None:
    if importable("openvino"):
        return None
    return Unavailable(reason="openvino is not installed", install="pip install '.[openvino]'")


def _own_snippet(wanted: RunWanted) -> RunSnippet:
    """For a model in OpenVINO's own form."""
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
