"""Run TensorRT engines on PyTorch's CUDA tensors; imports PyTorch, so it is imported when a backend starts."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from harness.core.dtypes import Array
from harness.core.torch_arrays import to_numpy, to_torch
from harness.run import cuda as _cuda
from harness.run.artefact import NodeKernel
from harness.run.backend import BackendFailure, DeviceLost, UnsupportedModel

#: TensorRT's element types → PyTorch's names; a module may lack some.
_TORCH_NAMES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "FP8": "float8_e4m3fn",
}


def make_logger(trt: Any) -> Any:
    """Return a logger of the module `trt` that collects errors in its list `errors` and prints nothing."""

    class ErrorLog(trt.ILogger):  # type: ignore[misc]
        """Collects messages of severity ERROR and worse."""

        def __init__(self) -> None:
            # TensorRT's classes crash if super() takes another path to the base class.
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            """Called by TensorRT from any of its threads."""
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                self.errors.append(message)

    return ErrorLog()


def unknown_gpu(trt: Any) -> str | None:
    """Return why the module `trt` does not build for this GPU; None if it does, or does not say."""
    known = getattr(trt, "ComputeCapability", None)
    major, minor = torch.cuda.get_device_capability()
    if known is None or hasattr(known, f"SM{major}{minor}"):
        return None
    return f"this GPU has compute capability {major}.{minor}, which the runtime does not know"


def make_allocator(trt: Any, on_host: frozenset[str], errors: list[str]) -> Any:
    """Return an output allocator of the module `trt`; the sizes of outputs may depend on data.

    Reasons for failed allocations are added to `errors`, since TensorRT gets only a null address.
    """

    class OutputAllocator(trt.IOutputAllocator):  # type: ignore[misc]
        """Keeps a byte tensor and the last shape for each output.

        Attributes:
            buffers: Output → at least as many bytes as it needs.
            shapes: Output → shape in the last run.
        """

        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.buffers: dict[str, torch.Tensor] = {}
            self.shapes: dict[str, tuple[int, ...]] = {}

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
            """Return the address of at least `size` bytes; PyTorch's alignment is stricter than required."""
            if name not in self.buffers or self.buffers[name].numel() < size:
                device = "cpu" if name in on_host else "cuda"
                try:
                    # At least one byte, since TensorRT takes a null address for a failed allocation.
                    self.buffers[name] = torch.empty(max(size, 1), dtype=torch.uint8, device=device)
                except RuntimeError as error:
                    errors.append(f"no memory for the output {name!r}: {error}")
                    return 0
            return self.buffers[name].data_ptr()

        def reallocate_output_async(self, name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            """Return the same, since the caller's stream is the one that PyTorch allocates on."""
            return self.reallocate_output(name, memory, size, alignment)

        def notify_shape(self, name: str, shape: Sequence[int]) -> None:
            """Called once the dimensions are known."""
            self.shapes[name] = tuple(shape)

    return OutputAllocator()


def kernels_of_layers(layers: Sequence[Mapping[str, Any] | str]) -> list[NodeKernel]:
    """Return what an engine inspector says about layers: the type, the formats of what they read and write, and the
    tactic; of a layer without details the name alone."""
    kernels = []
    for layer in layers:
        if isinstance(layer, str):
            kernels.append(NodeKernel(layer, "", "cuda", ()))
            continue
        formats = [
            tensor.get("Format/Datatype", "") for tensor in (*layer.get("Inputs", ()), *layer.get("Outputs", ()))
        ]
        dtypes = dict.fromkeys(_dtype_in_format(text) for text in formats)
        tactic = str(layer.get("TacticName") or layer.get("TacticValue") or "")
        kernels.append(NodeKernel(layer.get("Name", ""), layer.get("LayerType", ""), "cuda", tuple(dtypes), tactic))
    return kernels


#: Words of a format (`Row major linear FP16 format`) → dtype.
_DTYPES_IN_FORMATS = {
    "FP32": "float32",
    "FP16": "float16",
    "BF16": "bfloat16",
    "FP8": "float8",
    "FP4": "float4",
    "Int8": "int8",
    "Int4": "int4",
    "Int32": "int32",
    "Int64": "int64",
    "Bool": "bool",
}


def _dtype_in_format(text: str) -> str:
    return next((dtype for word, dtype in _DTYPES_IN_FORMATS.items() if word.lower() in text.lower()), text)


class TrtSession:
    """A deserialised engine with an execution context."""

    runnable = True

    def __init__(
        self,
        trt: Any,
        logger: Any,
        runtime: Any,
        plan: Any,
        inputs: Mapping[str, str],
        outputs: Sequence[str],
    ) -> None:
        """Deserialise an engine.

        Args:
            trt: The module.
            logger: The logger from `make_logger` that `runtime` uses.
            runtime: A `Runtime` of the module.
            plan: The serialised engine.
            inputs: Graph input → its name in the engine.
            outputs: Graph outputs in order; a name may occur twice.

        Raises:
            BackendFailure: The engine cannot be loaded.
            DeviceLost: The GPU has failed permanently.
        """
        self._trt = trt
        self._logger = logger
        self._outputs = tuple(outputs)
        with _device_errors():
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._runtime = runtime
        self._engine = runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise self._failure("the engine cannot be deserialised")
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise self._failure("no execution context can be made")
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        self._dtypes = {name: _torch_dtype(self._engine.get_tensor_dtype(name)) for name in names}
        # The engine may lack inputs that no layer reads.
        self._inputs = {graph: engine for graph, engine in inputs.items() if engine in self._dtypes}
        self._on_host = frozenset(
            name for name in names if self._engine.get_tensor_location(name) == trt.TensorLocation.HOST
        )
        self._allocator = make_allocator(trt, self._on_host, logger.errors)
        for name in dict.fromkeys(self._outputs):
            if not self._context.set_output_allocator(name, self._allocator):
                raise self._failure(f"output {name!r} takes no allocator")

    def inspect(self) -> list[NodeKernel]:
        """Return what the engine says about its layers."""
        inspector = self._engine.create_engine_inspector()
        said = inspector.get_engine_information(self._trt.LayerInformationFormat.JSON)
        return kernels_of_layers(json.loads(said).get("Layers", ()))

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        self._logger.errors.clear()
        self._allocator.shapes.clear()
        with _device_errors(), torch.cuda.stream(self._stream):
            # The engine reads these while it runs, so they must live until the stream is done.
            bound = [self._bind(name, feeds[graph]) for graph, name in self._inputs.items()]
            if not self._context.execute_async_v3(self._stream.cuda_stream):
                raise self._failure("the engine did not run")
            self._stream.synchronize()
            del bound
            return [self._fetch(name) for name in self._outputs]

    def _bind(self, name: str, array: Array) -> torch.Tensor:
        """Set an input's shape and address; returns the tensor, which must be kept alive."""
        tensor = to_torch(array).to(self._dtypes[name]).contiguous()
        if name not in self._on_host:
            tensor = tensor.to("cuda")
        if not self._context.set_input_shape(name, tuple(array.shape)):
            raise self._failure(f"input {name!r} cannot have the shape {tuple(array.shape)}")
        if tensor.numel() == 0:
            # PyTorch gives empty tensors a null address, which TensorRT rejects.
            tensor = tensor.new_empty(1)
        if not self._context.set_tensor_address(name, tensor.data_ptr()):
            raise self._failure(f"input {name!r} takes no address")
        return tensor

    def _fetch(self, name: str) -> Array:
        """Copy an output of the last run to host memory."""
        dtype = self._dtypes[name]
        shape = self._allocator.shapes.get(name)
        if shape is None:
            shape = tuple(self._context.get_tensor_shape(name))
        if min(shape, default=0) < 0:
            raise self._failure(f"output {name!r} was left without a shape")
        if 0 in shape:
            return to_numpy(torch.empty(shape, dtype=dtype))
        buffer = self._allocator.buffers.get(name)
        if buffer is None:
            raise self._failure(f"output {name!r} was left without memory")
        return copy_from_buffer(buffer, dtype, shape)

    def _failure(self, what: str) -> BackendFailure | DeviceLost:
        """Return the error with TensorRT's log, after checking whether the GPU still works."""
        message = "; ".join([what, *dict.fromkeys(self._logger.errors)])
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            return DeviceLost(f"{message}; {error}")
        return DeviceLost(message) if _cuda.is_sticky(message) else BackendFailure(message)


@contextlib.contextmanager
def _device_errors() -> Iterator[None]:
    """Translate PyTorch's errors about the device to errors of backends."""
    try:
        yield
    except RuntimeError as error:
        message = str(error)
        raise (DeviceLost if _cuda.is_sticky(message) else BackendFailure)(message) from error


def _torch_dtype(kind: Any) -> torch.dtype:
    name = _TORCH_NAMES.get(kind.name)
    if name is None:
        raise UnsupportedModel(f"graph inputs and outputs of TensorRT's type {kind.name} cannot be exchanged")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def copy_from_buffer(buffer: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Array:
    """Copy the first bytes of a buffer to an array, since the next run may overwrite the buffer."""
    size = math.prod(shape) * dtype.itemsize
    return to_numpy(buffer[:size].to("cpu", copy=True).view(dtype).reshape(shape))
