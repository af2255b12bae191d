"""ONNX Runtime on the CPU and on CUDA."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness.core.dtypes import Array
from harness.core.plugins import Unavailable, importable, installed, installed_version
from harness.core.snippet import RunSnippet, RunWanted
from harness.run import cuda as _cuda, node_names as _messages
from harness.run.artefact import NodeKernel, PlacedNode
from harness.run.backend import (
    BackendEntry,
    BackendFailure,
    DeviceLost,
    InvalidModel,
    ShapeRange,
    UnsupportedModel,
    graph_inputs,
    negation,
    register,
    try_negating,
)
from harness.run.ort_passes import (
    NOT_ON_CPU,
    ORT_PASSES,
    ORT_RULES,
    RULE_LEVELS,
    RULE_TRANSFORMER,
    changing_transformers,
)
from harness.run.wide_exchange import exchange_bytes, is_packed, narrow_output, widen_feeds

#: Element types that ONNX Runtime does not exchange as NumPy arrays: they are passed as raw bytes in OrtValues.
_RAW_TYPES = frozenset(
    getattr(TensorProto, name)
    for name in ("BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
)

#: Patterns of messages that name a node.
_NODE_NAMES = re.compile(
    r"Name:'(?P<a>.*?)' Status Message"
    r"|node with name '(?P<b>.*?)'"
    r"|In Node, \(\"(?P<c>.*?)\", "
    r"|\bNode ?\((?P<d>.*?)\) (?:Op \(|with schema)"
    r"|\b(?:in|of) node \((?P<e>.*?)\)(?:[ .]|$)"
)
_UNREGISTERED = re.compile(r"Fatal error: (?P<domain>[^:]*):(?P<operator>\w+)\(.*?\) is not a registered function")

#: Messages about models that are valid but newer or richer than the runtime.
_UNSUPPORTED = re.compile(
    r"NOT_IMPLEMENTED|is not a registered function/op|No Op registered for|Unsupported model IR version"
    r"|under development and support for this is limited|is not currently registered or supported"
    r"|operator does not support \w+ yet|data type is not supported with|but the device does not support it"
    # No provider has a kernel, if several are asked.
    r"|Provider type for \w+ node .*is not set"
)
_INVALID = re.compile(
    r"INVALID_GRAPH|INVALID_ARGUMENT|INVALID_PROTOBUF|This is an invalid model|ShapeInferenceError"
    r"|TypeInferenceError|Type Error:"
)

#: Packages of which at most one is installed.
_DISTRIBUTIONS = ("onnxruntime", "onnxruntime-gpu")
_VARIABLES = ("ONNXRUNTIME", "ORT")
_CUDA_PROVIDER = "CUDAExecutionProvider"
_CPU_PROVIDER = "CPUExecutionProvider"
#: TF32 would look like a wrong float32 result, and an exhaustive search for a convolution algorithm would cost more
#: than everything else that is done with a one-operator model.
_CUDA_OPTIONS = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
_INSTALL_CPU = "pip install 'aten-onnx-conformance[cpu]'"
_INSTALL_CUDA = "pip uninstall onnxruntime && pip install 'aten-onnx-conformance[cuda]'"


#: The end of the name of a profile's event for a node.
_KERNEL_EVENT = "_kernel_time"


def _kernel_of_event(event: Mapping[str, Any]) -> NodeKernel:
    """Return what an event of a profile says about a node: its provider, and the types of its inputs and outputs."""
    said = event["args"]
    forms = [*said.get("input_type_shape", ()), *said.get("output_type_shape", ())]
    dtypes = dict.fromkeys(dtype for form in forms for dtype in form)
    name = event["name"].removesuffix(_KERNEL_EVENT)
    return NodeKernel(name, said.get("op_name", ""), said.get("provider", ""), tuple(dtypes))


class OrtSession:
    """A model loaded by ONNX Runtime for its CPU provider."""

    runnable = True

    def __init__(self, session: Any, model: onnx.ModelProto) -> None:
        self._session = session
        self._model = model
        self._inputs = {value.name: value.type.tensor_type.elem_type for value in graph_inputs(model)}
        self._outputs = [(value.name, value.type.tensor_type.elem_type) for value in model.graph.output]
        types = [*self._inputs.values(), *(element for _, element in self._outputs)]
        self._plain = _RAW_TYPES.isdisjoint(types)
        self._has_packed = any(map(is_packed, types))

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        try:
            if self._has_packed:
                found = self._run_arrays(widen_feeds(feeds))
                return [narrow_output(a, kind) for a, (_, kind) in zip(found, self._outputs, strict=True)]
            return self._run_arrays(feeds)
        except Exception as error:
            raise translated(error, self._model, loading=False) from error

    def end_profiling(self) -> str:
        """Return the file with the profile of a session that has one."""
        return str(self._session.end_profiling())

    def _run_arrays(self, feeds: Mapping[str, Array]) -> list[Array]:
        if not self._plain:
            return self._run_values(feeds)
        outputs: list[Array] = self._session.run(None, dict(feeds))
        return outputs

    def _run_values(self, feeds: Mapping[str, Array]) -> list[Array]:
        import onnxruntime

        # An OrtValue does not own the array that it wraps, so `raw` must live until the run is over.
        raw = {name: _to_bits(array) for name, array in feeds.items()}
        values = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, self._inputs[name])
            for name, array in raw.items()
        }
        results = self._session.run_with_ort_values([name for name, _ in self._outputs], values)
        return [_to_array(v) if v.element_type() in _RAW_TYPES else v.numpy() for v in results]


class SplitSession(OrtSession):
    """A model loaded for another provider, which may leave some of its nodes to the CPU provider.

    `check_device` raises `DeviceLost` if the device no longer works.
    """

    def __init__(self, session: Any, model: onnx.ModelProto, check_device: Callable[[Exception], None]) -> None:
        super().__init__(session, model)
        self._check_device = check_device

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        try:
            return super().run(feeds)
        except BackendFailure as error:
            # A library such as cuDNN may report a failed device in its own way.
            self._check_device(error)
            raise

    def placed(self) -> Sequence[PlacedNode] | None:
        """See :meth:`harness.run.backend.HasPlacement.placed`; ONNX Runtime reports it since 1.24."""
        if (tell := getattr(self._session, "get_provider_graph_assignment_info", None)) is None:
            return None
        return [
            PlacedNode(node.name, node.op_type, part.ep_name != _CPU_PROVIDER)
            for part in tell()
            for node in part.get_nodes()
        ]


class OrtBackend:
    """ONNX Runtime with one execution provider.

    Args:
        name: The backend's name.
        device: The backend's device.
        provider: ONNX Runtime's name of the execution provider; nodes that it does not take run on the CPU.
        options: Options of the provider.
        choose: Selects the provider in a session's options instead of by name: plug-in providers are selected by their
            devices.
    """

    def __init__(
        self,
        name: str,
        device: str,
        provider: str = _CPU_PROVIDER,
        options: Mapping[str, str] = MappingProxyType({}),
        choose: Callable[[Any], None] | None = None,
    ) -> None:
        import onnxruntime

        self.name = name
        self.device = device
        self.version: str = onnxruntime.__version__
        self._provider = provider
        self._providers = [(provider, dict(options))] if choose is None else None
        self._choose = choose
        self._left_out: tuple[str, ...] = ()
        onnxruntime.set_default_logger_severity(4)
        self._options = self._session_options()
        if provider == _CUDA_PROVIDER and hasattr(onnxruntime, "preload_dlls"):
            # Loads CUDA's libraries from pip packages.
            onnxruntime.preload_dlls()
        if provider != _CPU_PROVIDER:
            try_negating(self._open(negation()))

    def plain(self) -> OrtBackend:
        """See `harness.run.backend.HasPlain`."""
        import onnxruntime

        other = copy.copy(self)
        other._options = self._session_options()
        other._options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return other

    def passes(self) -> Sequence[str]:
        """See `harness.run.backend.HasGraphPasses`."""
        return ORT_PASSES

    def without(self, passes: Sequence[str]) -> OrtBackend:
        """See `harness.run.backend.HasGraphPasses`."""
        other = copy.copy(self)
        other._left_out = tuple(passes)
        return other

    def applied_passes(self, model: onnx.ModelProto) -> Sequence[str]:
        """See `harness.run.backend.HasPassLog`; read from the log of a session that is made for it.

        A rule counts if it changes the model as the only one, since the log does not tell them apart.
        """
        content = model.SerializeToString()
        applied: list[str] = []
        for name in self._changing(content, ()):
            if RULE_TRANSFORMER not in name:
                applied.append(name)
            elif name in RULE_LEVELS:
                applied += self._changing_rules(content, RULE_LEVELS[name])
        return tuple(dict.fromkeys(applied))

    def node_kernels(
        self, model: onnx.ModelProto, feeds: Mapping[str, Array], shapes: Mapping[str, ShapeRange] | None
    ) -> Sequence[NodeKernel]:
        """See `harness.run.backend.HasKernelReport`; read from the profile of a run."""
        other = copy.copy(self)
        with tempfile.TemporaryDirectory() as folder:
            other._options = self._session_options()
            other._options.graph_optimization_level = self._options.graph_optimization_level
            other._options.enable_profiling = True
            other._options.profile_file_prefix = str(Path(folder, "profile"))
            opened = other._open(model)
            opened.run(feeds)
            events = json.loads(Path(opened.end_profiling()).read_text(encoding="utf-8"))
        return [_kernel_of_event(event) for event in events if event.get("name", "").endswith(_KERNEL_EVENT)]

    def _changing_rules(self, model: bytes, rules: Sequence[str]) -> list[str]:
        """Return the rules among some that change a model while all others are left out."""
        left_out = [rule for rule in ORT_RULES if rule not in rules]
        if not rules or not any(RULE_TRANSFORMER in name for name in self._changing(model, left_out)):
            return []
        if len(rules) == 1:
            return list(rules)
        middle = len(rules) // 2
        return [*self._changing_rules(model, rules[:middle]), *self._changing_rules(model, rules[middle:])]

    def _changing(self, model: bytes, left_out: Sequence[str]) -> Sequence[str]:
        import onnxruntime

        options = self._session_options()
        options.log_severity_level = 1
        left_out = [*self._left_out, *left_out]
        with tempfile.TemporaryFile() as log:
            # A node that a rule would remove may have no kernel. By then the log is complete.
            with _native_stderr(log.fileno()), contextlib.suppress(Exception):
                onnxruntime.InferenceSession(
                    model, options, providers=self._providers, disabled_optimizers=left_out or None
                )
            log.seek(0)
            return changing_transformers(log.read().decode(errors="replace"))

    def narrows(self, dtype: str) -> str | None:
        """Return None, since ONNX Runtime keeps every dtype."""
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> OrtSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        try:
            return self._open(model)
        except BackendFailure as error:
            self._check_device(error)
            raise

    def _check_device(self, error: Exception) -> None:
        """Raise `DeviceLost` if a small model cannot be loaded and run after `error`.

        That happens after a persistent fault, or if the device has no memory left; neither is the failing model's
        fault.
        """
        if self._provider == _CPU_PROVIDER:
            return
        try:
            try_negating(self._open(negation()))
        except Exception as lost:
            raise DeviceLost(f"{error}; then {lost}") from error

    def _open(self, model: onnx.ModelProto) -> OrtSession:
        import onnxruntime

        # A random node without a seed uses this one, so that a case's verdict is the same in every process. It is not 0
        # because the generator replaces 0 by 1, which would make the first two nodes of a graph draw the same numbers.
        onnxruntime.set_seed(1)
        try:
            session = onnxruntime.InferenceSession(
                exchange_bytes(model).SerializeToString(),
                self._options,
                providers=self._providers,
                # Otherwise what the provider fails at is silently repeated on the CPU.
                enable_fallback=False,
                disabled_optimizers=self._left_out or None,
            )
        except Exception as error:
            raise translated(error, model, loading=True) from error
        if self._provider == _CPU_PROVIDER:
            return OrtSession(session, model)
        self._check_provider(session)
        return SplitSession(session, model, self._check_device)

    def _session_options(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if self._provider != _CPU_PROVIDER:
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if self._choose is not None:
            self._choose(options)
        return options

    def _check_provider(self, session: Any) -> None:
        if self._provider in session.get_providers():
            return
        libraries = "; check its CUDA and cuDNN libraries (pip install 'onnxruntime-gpu[cuda,cudnn]')"
        remedy = libraries if self.device == "cuda" else ""
        raise RuntimeError(
            f"{self.name}: ONNX Runtime {self.version} could not load its {self._provider}, "
            f"and fell back to the CPU{remedy}"
        )


@contextlib.contextmanager
def _native_stderr(descriptor: int) -> Iterator[None]:
    """Let native code in the block write to another file than stderr."""
    stderr = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _to_bits(array: Array) -> Array:
    """Return the array as ONNX Runtime accepts it: an `ml_dtypes` array is viewed as unsigned integers."""
    if array.dtype.isbuiltin == 1:
        return array
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def _to_array(value: Any) -> Array:
    """Copy an OrtValue in host memory bit for bit to an `ml_dtypes` array."""
    if value.device_name() != "cpu":
        raise RuntimeError(f"an output was left on device {value.device_name()!r}")
    dtype = helper.tensor_dtype_to_np_dtype(value.element_type())
    size = value.tensor_size_in_bytes()
    content = bytearray(ctypes.string_at(value.data_ptr(), size) if size else b"")
    return np.frombuffer(content, dtype=dtype).reshape(value.shape())


def translated(error: Exception, model: onnx.ModelProto, *, loading: bool) -> Exception:
    """Return the exception of our interface for one of ONNX Runtime's."""
    message = _cuda.strip_host_name(error)
    if _cuda.is_sticky(message):
        return DeviceLost(message)
    nodes = _named_nodes(message, model)
    if _UNSUPPORTED.search(message):
        return UnsupportedModel(message, nodes)
    if loading and _INVALID.search(message):
        return InvalidModel(message, nodes)
    return BackendFailure(message, nodes)


def _named_nodes(message: str, model: onnx.ModelProto) -> Sequence[str]:
    if unregistered := _UNREGISTERED.search(message):
        return _messages.nodes_of_type(model, unregistered["operator"], unregistered["domain"])
    return _messages.known((match[match.lastgroup or 0] for match in _NODE_NAMES.finditer(message)), model)


def _probe_cpu(argument: str) -> Unavailable | None:
    if importable("onnxruntime"):
        return None
    return Unavailable(reason="onnxruntime is not installed", install=_INSTALL_CPU)


def _probe_cuda(argument: str) -> Unavailable | None:
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return Unavailable(
            reason="onnxruntime-gpu is not installed", install="pip install 'aten-onnx-conformance[cuda]'"
        )
    # The file proves it without an import, even if both packages were installed over each other.
    if not list((Path(spec.origin).parent / "capi").glob("*onnxruntime_providers_cuda.*")):
        return Unavailable(reason="the installed onnxruntime has no CUDA provider", install=_INSTALL_CUDA)
    return _cuda.probe_gpu()


def _version(argument: str) -> str:
    return installed_version(*_DISTRIBUTIONS)


def session_run(wanted: RunWanted) -> tuple[str, ...]:
    """Return the lines of a script that run a session."""
    if wanted.arrays:
        return ("outputs = session.run(None, {i.name: inputs[i.name] for i in model.graph.input})",)
    if wanted.raw:
        # NumPy has no bfloat16, so tensors are passed by DLPack.
        return (
            "feeds = {",
            "    i.name: ort.OrtValue.from_dlpack(inputs[i.name].contiguous()) for i in model.graph.input",
            "}",
            "outputs = [torch.from_dlpack(o) for o in session.run_with_ort_values(None, feeds)]",
        )
    return (
        "feeds = {i.name: inputs[i.name].contiguous().numpy() for i in model.graph.input}",
        "outputs = [torch.as_tensor(o) for o in session.run(None, feeds)]",
    )


def _snippet(wanted: RunWanted, cuda: bool) -> RunSnippet:
    providers = f"[({_CUDA_PROVIDER!r}, {_CUDA_OPTIONS})]" if cuda else f'["{_CPU_PROVIDER}"]'
    return RunSnippet(
        load=(
            *(("ort.preload_dlls()",) if cuda else ()),
            f"session = ort.InferenceSession(model.SerializeToString(), providers={providers})",
        ),
        run=session_run(wanted),
        imports=("import onnxruntime as ort",),
        packages=installed(*_DISTRIBUTIONS),
    )


def issue_form(provider: str) -> dict[str, str]:
    """Return the form of ONNX Runtime's tracker."""
    return {
        "Describe the issue": "{summary}\n\nExpected: {expected}\n\nActual:\n\n{actual}\n\n{diagnosis}",
        "To reproduce": "{code}\n\n{model}",
        "Urgency": "None.",
        "Platform": "{platform}",
        "OS Version": "{system}",
        "ONNX Runtime Installation": "Released Package",
        "ONNX Runtime Version or Commit ID": "{backend_version}",
        "ONNX Runtime API": "Python",
        "Architecture": "{architecture}",
        "Execution Provider": provider,
        "Versions": "{packages}",
    }


register(
    BackendEntry(
        name="ort-cpu",
        probe=_probe_cpu,
        create=lambda argument: OrtBackend("ort-cpu", "cpu"),
        version=_version,
        engine="onnxruntime",
        default=True,
        summary="ONNX Runtime, CPU provider, one thread",
        snippet=lambda wanted: _snippet(wanted, cuda=False),
        tracker="microsoft/onnxruntime",
        issue_form=issue_form("Default CPU"),
        distributions=_DISTRIBUTIONS,
        on_cpu=True,
        variables=_VARIABLES,
        passes=ORT_PASSES,
        passes_out_of_reach=NOT_ON_CPU,
        witness=2,
    )
)
register(
    BackendEntry(
        name="ort-cuda",
        probe=_probe_cuda,
        create=lambda argument: OrtBackend("ort-cuda", "cuda", _CUDA_PROVIDER, _CUDA_OPTIONS),
        version=_version,
        engine="onnxruntime",
        summary="ONNX Runtime, CUDA provider, without TF32",
        snippet=lambda wanted: _snippet(wanted, cuda=True),
        tracker="microsoft/onnxruntime",
        issue_form=issue_form("CUDA"),
        distributions=_DISTRIBUTIONS,
        variables=_VARIABLES,
        resources={"GPU": 1},
    )
)
