"""TensorRT and TensorRT-RTX, which share an API: entries, and building engines.

Differences between TensorRT 8.6, 10, 11 and RTX are detected by the module's attributes, never by its version.
`trt_execution` runs engines.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from harness.core.plugins import Unavailable, importable, installed, installed_version
from harness.core.snippet import RunSnippet, RunWanted
from harness.run import cuda as _cuda, node_names as _messages
from harness.run.artefact import NodeKernel
from harness.run.backend import (
    Backend,
    BackendEntry,
    BackendFailure,
    BackendSession,
    DeviceLost,
    InvalidModel,
    ShapeRange,
    UnsupportedModel,
    graph_inputs,
    negation,
    register,
    try_negating,
)

#: The builder's optimisation level, 0 (fastest build) to 5. Level 0 builds a one-operator engine in about 10 ms.
LEVEL_VARIABLE = "HARNESS_TRT_OPTIMIZATION_LEVEL"

_MODULES = {"trt": ("tensorrt",), "trt-rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings")}
_PACKAGES = {
    "trt": ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
    "trt-rtx": ("tensorrt-rtx", "tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu12-bindings"),
}
#: Packages whose versions a run records.
_RUNTIMES = {"trt": ("tensorrt",), "trt-rtx": ("tensorrt-rtx-cu13-libs",)}
_INSTALL = {"trt": "pip install 'aten-onnx-conformance[trt]'", "trt-rtx": "pip install '.[trt-rtx]'"}

#: Some right models that exceed TensorRT's capabilities get the code INVALID_NODE; their messages match this.
_LIMIT = re.compile(
    r"Plugin not found|MAX_DIMS|Parameter check failed|unsupported|n[o']t support|exceeds the maximum"
    r"|Could not find any implementation|not implemented",
    re.IGNORECASE,
)


class BuiltEngine:
    """An engine that cannot run here.

    Attributes:
        plan_bytes: Size of the serialised engine in bytes.
    """

    runnable = False

    def __init__(self, plan_bytes: int, reason: str) -> None:
        self.plan_bytes = plan_bytes
        self._reason = reason

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Fail, since the engine cannot run here.

        Raises:
            BackendFailure: Always, with what is missing.
        """
        raise BackendFailure(f"the engine was built and cannot run here: {self._reason}")


@contextlib.contextmanager
def _paused_collection() -> Iterator[None]:
    """Keep Python's garbage collector from running by itself.

    TensorRT calls the logger while it holds a lock that freeing a builder takes, too. A collection that begins in the
    logger and frees an earlier builder would wait for that lock forever (seen with TensorRT-RTX 1.7).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class TrtBackend:
    """One of the two TensorRT modules.

    Attributes:
        build_only: Why engines are only built on this machine; None if they also run.
    """

    device = "cuda"

    def __init__(self, name: str, module: str, build_only: str | None, level: int = 0) -> None:
        """Start the builder.

        Args:
            name: The backend's name.
            module: The Python module of the runtime.
            build_only: Why nothing can run here; None with a GPU and a PyTorch that supports CUDA.
            level: TensorRT's builder optimisation level, 0 to 5.
        """
        self.name = name
        self.build_only = build_only
        from harness.run import trt_execution

        self._trt = importlib.import_module(module)
        self._level = level
        self.version: str = self._trt.__version__
        self._logger = trt_execution.make_logger(self._trt)
        # Errors reach the logger as long as no IErrorRecorder is set. One written in Python would end the process when
        # a network is freed (seen with TensorRT-RTX 1.7).
        with _paused_collection():
            self._builder = self._trt.Builder(self._logger)
        self._runtime: Any = None
        self._accepted: dict[int, bool] = {}
        if hasattr(self._trt, "init_libnvinfer_plugins"):
            self._trt.init_libnvinfer_plugins(self._logger, "")
        if build_only is None:
            with _paused_collection():
                self._runtime = self._trt.Runtime(self._logger)

    def narrows(self, dtype: str) -> str | None:
        """Return float32 for float64, and int32 for int64 if TensorRT has no int64: so the parser reads them."""
        if dtype == "int64" and not hasattr(self._trt.DataType, "INT64"):
            return "int32"
        return "float32" if dtype == "float64" else None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        """See :meth:`harness.run.backend.Backend.load`."""
        return self._load(model, shapes, is_detailed=False)

    def node_kernels(
        self, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], shapes: Mapping[str, ShapeRange] | None
    ) -> Sequence[NodeKernel]:
        """See `harness.run.backend.HasKernelReport`; read from the engine inspector, which needs a GPU and no run."""
        session = self._load(model, shapes, is_detailed=True)
        if not session.runnable:
            raise BackendFailure(f"the engine was built and cannot be inspected here: {self.build_only}")
        return session.inspect()  # type: ignore[attr-defined, no-any-return]

    def _load(
        self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None, *, is_detailed: bool
    ) -> BackendSession:
        self._logger.errors.clear()
        # The parser and the builder use the network without owning it, so it must outlive both.
        network = self._builder.create_network(self._network_flags())
        parser = self._trt.OnnxParser(network, self._logger)
        if not parser.parse(model.SerializeToString()):
            raise self._parse_error(parser, model)
        # Matched by position, since an input that is also an output gets another name in the network.
        inputs = {value.name: network.get_input(i) for i, value in enumerate(graph_inputs(model))}
        config = self._make_config(inputs, shapes or {}, model)
        if is_detailed:
            # Otherwise the inspector tells the names of the layers alone.
            config.profiling_verbosity = self._trt.ProfilingVerbosity.DETAILED
        plan = self._builder.build_serialized_network(network, config)
        if plan is None:
            raise self._build_error(model)
        if self.build_only is not None:
            return BuiltEngine(plan.nbytes, self.build_only)
        from harness.run import trt_execution

        return trt_execution.TrtSession(
            self._trt,
            self._logger,
            self._runtime,
            plan,
            inputs={name: tensor.name for name, tensor in inputs.items()},
            outputs=[value.name for value in model.graph.output],
        )

    def try_running(self) -> None:
        """Run a model of one node to find out whether the runtime supports this GPU.

        Raises:
            Exception: It does not.
        """
        (output,) = try_negating(self.load(negation(), None))
        if output.tolist() != [-1.0]:
            raise BackendFailure(f"{self.name} computes -1.0 as {output.tolist()}")

    def _network_flags(self) -> int:
        flags = self._trt.NetworkDefinitionCreationFlag
        kind = flags.STRONGLY_TYPED if hasattr(flags, "STRONGLY_TYPED") else flags.EXPLICIT_BATCH
        return 1 << int(kind)

    def _make_config(self, inputs: Mapping[str, Any], shapes: Mapping[str, ShapeRange], model: onnx.ModelProto) -> Any:
        """Return the builder's configuration, with an optimisation profile if an input is dynamic."""
        config = self._builder.create_builder_config()
        if hasattr(config, "builder_optimization_level"):
            config.builder_optimization_level = self._level
        flags = self._trt.BuilderFlag
        # TF32 would look like a wrong float32 result, and x - x = 0 like a lost NaN.
        if hasattr(flags, "TF32"):
            config.clear_flag(flags.TF32)
        if hasattr(flags, "STRICT_NANS"):
            config.set_flag(flags.STRICT_NANS)
        integers = (self._trt.DataType.INT32, getattr(self._trt.DataType, "INT64", None))
        dynamic = {}
        for name, tensor in inputs.items():
            if tensor.dtype in integers and len(tensor.shape) <= 1 and tensor.is_shape_tensor:
                raise UnsupportedModel(
                    "a graph input determines shapes: TensorRT wants the range of its values when building",
                    _messages.consumers(model, [name]),
                )
            if -1 in tuple(tensor.shape):
                dynamic[name] = tensor
        if dynamic:
            self._add_profile(config, dynamic, shapes)
        return config

    def _add_profile(self, config: Any, dynamic: Mapping[str, Any], shapes: Mapping[str, ShapeRange]) -> None:
        profile = self._builder.create_optimization_profile()
        for name, tensor in dynamic.items():
            if name not in shapes:
                raise ValueError(f"{self.name}: the dynamic graph input {name!r} has no range of shapes")
            given = shapes[name]
            profile.set_shape(tensor.name, given.min, given.opt, given.max)
        if config.add_optimization_profile(profile) < 0:
            raise BackendFailure(f"the optimisation profile was rejected: {self._logged()}")

    def _parse_error(self, parser: Any, model: onnx.ModelProto) -> Exception:
        """Return the exception for the parser's errors, node by node.

        Unsupported nodes are reported alone even if others are invalid: once they are dropped, the next attempt reports
        the rest.
        """
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        unsupported: dict[str, str] = {}
        invalid: dict[str, str] = {}
        messages: dict[bool, list[str]] = {True: [], False: []}
        for error in errors:
            message = self._describe(error)
            limit = error.code().name.startswith("UNSUPPORTED") or _LIMIT.search(message) is not None
            messages[limit].append(message)
            for name in self._guilty(error, model):
                (unsupported if limit else invalid)[name] = message
        relevant = messages[True] or messages[False]
        everything = "; ".join(dict.fromkeys(relevant)) if relevant else self._logged()
        if _cuda.is_sticky(everything):
            return DeviceLost(everything)
        if messages[True]:
            return UnsupportedModel(everything, tuple(unsupported), unsupported)
        if any(error.code().name.startswith("INVALID") for error in errors):
            return InvalidModel(everything, tuple(invalid), invalid)
        return BackendFailure(everything, tuple(invalid), invalid)

    def _describe(self, error: Any) -> str:
        lines = error.desc().strip().splitlines()
        if self.build_only is not None:
            # While it reports, the parser calls the driver and adds that there is none.
            lines = [line for line in lines if "catchCudaError" not in line] or lines
        operator = error.node_operator() if hasattr(error, "node_operator") else ""
        return ": ".join(part for part in (error.code().name, operator, "\n".join(lines)) if part)

    def _guilty(self, error: Any, model: onnx.ModelProto) -> tuple[str, ...]:
        """Return the names of the nodes that a parser error is about."""
        nodes = model.graph.node
        index = error.node()
        in_function = hasattr(error, "local_function_stack") and error.local_function_stack()
        if 0 <= index < len(nodes) and not in_function:
            return (nodes[index].name,) if nodes[index].name else ()
        if index >= 0:
            return _messages.known([error.node_name()], model) if hasattr(error, "node_name") else ()
        # An error without a node is about inputs or initialisers that TensorRT cannot represent.
        return _messages.consumers(model, self._unacceptable(model))

    def _unacceptable(self, model: onnx.ModelProto) -> Iterable[str]:
        """Yield inputs and initialisers whose element type or rank TensorRT lacks."""
        most = getattr(self._trt.Dims, "MAX_DIMS", 8)
        for value in model.graph.input:
            kind = value.type.tensor_type
            if len(kind.shape.dim) > most or not self._accepts(kind.elem_type):
                yield value.name
        for tensor in model.graph.initializer:
            if len(tensor.dims) > most or not self._accepts(tensor.data_type):
                yield tensor.name

    def _accepts(self, element: int) -> bool:
        """Whether the parser accepts inputs of an ONNX element type; each type is tried once."""
        if element not in self._accepted:
            value = helper.make_tensor_value_info("x", element, [1])
            graph = helper.make_graph([], "probe", [value], [value])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
            network = self._builder.create_network(self._network_flags())
            parser = self._trt.OnnxParser(network, self._logger)
            self._accepted[element] = bool(parser.parse(model.SerializeToString()))
        return self._accepted[element]

    def _build_error(self, model: onnx.ModelProto) -> Exception:
        message = self._logged()
        if _cuda.is_sticky(message):
            return DeviceLost(message)
        kind = UnsupportedModel if _LIMIT.search(message) else BackendFailure
        return kind(message, _messages.mentioned(message, model))

    def _logged(self) -> str:
        return "; ".join(dict.fromkeys(self._logger.errors)) or "TensorRT gave no reason"


def _module(name: str) -> str | None:
    return next((module for module in _MODULES[name] if importable(module)), None)


def _probe(name: str) -> Unavailable | None:
    module = _module(name)
    if module is None:
        return Unavailable(reason=f"{_MODULES[name][0]} is not installed", install=_INSTALL[name])
    if name == "trt" and (unavailable := _cuda.probe_gpu()):
        return unavailable
    if name == "trt" and (problem := _cuda.missing_torch_cuda()):
        return Unavailable(reason=problem, install="pip install torch, from an index with CUDA builds")
    try:
        importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        return Unavailable(reason=f"{module} cannot be imported ({error})", install=_INSTALL[name])
    return None


def _level() -> int:
    """Return the optimisation level from the environment, 0 by default.

    Raises:
        ValueError: It is not a number from 0 to 5.
    """
    wish = os.environ.get(LEVEL_VARIABLE, "0")
    if wish not in {"0", "1", "2", "3", "4", "5"}:
        raise ValueError(f"{LEVEL_VARIABLE} is {wish!r}, and must be a number from 0 to 5")
    return int(wish)


def _create(name: str) -> Backend:
    module = _module(name)
    if module is None:
        raise RuntimeError(f"{name}: {_MODULES[name][0]} is not installed ({_INSTALL[name]})")
    backend = TrtBackend(name, module, _cuda.missing_gpu() or _cuda.missing_torch_cuda(), _level())
    if backend.build_only is not None:
        return backend
    from harness.run import trt_execution

    # TensorRT-RTX supports consumer GPUs only; for others it still builds engines.
    backend.build_only = trt_execution.unknown_gpu(importlib.import_module(module))
    try:
        if backend.build_only is None:
            backend.try_running()
    except DeviceLost:
        raise
    except Exception as error:
        why = f"this GPU does not run its engines ({error})"
        if name == "trt":
            # Every case would fail for the same reason, which is not the backend's fault.
            raise RuntimeError(f"{name}: {why}") from error
        backend.build_only = why
    return backend


def _snippet(name: str, wanted: RunWanted) -> RunSnippet:
    """Return code that parses and builds; running an engine would need more code than a reader would follow."""
    module = _module(name) or _MODULES[name][0]
    profile = [
        f"profile.set_shape({graph_input!r}, {low}, {high}, {high})"
        for graph_input, (low, high) in (wanted.ranges or {}).items()
    ]
    if profile:
        profile = [
            "profile = builder.create_optimization_profile()",
            *profile,
            "config.add_optimization_profile(profile)",
        ]
    return RunSnippet(
        load=(
            "logger = trt.Logger(trt.Logger.ERROR)",
            "builder = trt.Builder(logger)",
            "flags = trt.NetworkDefinitionCreationFlag",
            "kind = flags.STRONGLY_TYPED if hasattr(flags, 'STRONGLY_TYPED') else flags.EXPLICIT_BATCH",
            "network = builder.create_network(1 << int(kind))",
            "parser = trt.OnnxParser(network, logger)",
            "if not parser.parse(model.SerializeToString()):",
            "    raise RuntimeError('; '.join(str(parser.get_error(i)) for i in range(parser.num_errors)))",
            "config = builder.create_builder_config()",
            *profile,
            "if builder.build_serialized_network(network, config) is None:",
            "    raise RuntimeError('the engine cannot be built, see above')",
        ),
        imports=(f"import {module} as trt",),
        packages=installed(*_PACKAGES[name]),
    )


def _register(name: str, summary: str) -> None:
    register(
        BackendEntry(
            name=name,
            probe=lambda argument: _probe(name),
            create=lambda argument: _create(name),
            version=lambda argument: installed_version(*_PACKAGES[name]),
            summary=summary,
            snippet=lambda wanted: _snippet(name, wanted),
            tracker="NVIDIA/TensorRT" if name == "trt" else "NVIDIA/TensorRT-RTX",
            issue_form={
                "Description": "{summary}\n\nExpected: {expected}\n\nActual:\n\n{actual}",
                "Environment": "{packages}",
                "Relevant Files": "{model}",
                "Steps To Reproduce": "{code}\n\n{diagnosis}",
            },
            distributions=_RUNTIMES[name],
            variables=("TRT",),
            # TensorRT for RTX builds engines without a GPU.
            resources={"GPU": 1} if name == "trt" else {},
        )
    )


_register("trt", "TensorRT 8.6 or later, without TF32")
_register("trt-rtx", "TensorRT for RTX; builds engines without a GPU too")
