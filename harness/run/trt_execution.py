"""Running a TensorRT engine on PyTorch's CUDA tensors; imported where a backend starts, as PyTorch is."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from harness.core.dtypes import Array
from harness.core.torch_arrays import to_numpy, to_torch
from harness.run import cuda as _cuda
from harness.run.backend import BackendFailure, DeviceLost, UnsupportedModel

#: TensorRT's element types as PyTorch names them; those that a module lacks are never met.
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
    """A logger for the module `trt` that keeps what is wrong in its list `errors` and prints nothing."""

    class ErrorLog(trt.ILogger):  # type: ignore[misc]
        """Keeps messages of severity ERROR and worse."""

        def __init__(self) -> None:
            # TensorRT's classes crash where super() took another path to the base class.
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            """Called by TensorRT from any of its threads."""
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                self.errors.append(message)

    return ErrorLog()


def unknown_gpu(trt: Any) -> str | None:
    """Why this GPU is none that the module `trt` builds for; None if it is, or if the module lists none."""
    known = getattr(trt, "ComputeCapability", None)
    major, minor = torch.cuda.get_device_capability()
    if known is None or hasattr(known, f"SM{major}{minor}"):
        return None
    return f"this GPU has compute capability {major}.{minor}, which the runtime does not know"


def make_allocator(trt: Any, on_host: frozenset[str], errors: list[str]) -> Any:
    """An output allocator for the module `trt`: the sizes of outputs may depend on data.

    Why memory cannot be had is added to `errors`: TensorRT learns no more than that there is none.
    """

    class OutputAllocator(trt.IOutputAllocator):  # type: ignore[misc]
        """Holds a byte tensor and the last shape for each output.

        Attributes:
            buffers: Output name → bytes, at least as many as the output has.
            shapes: Output name → dimensions of the last run.
        """

        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.buffers: dict[str, torch.Tensor] = {}
            self.shapes: dict[str, tuple[int, ...]] = {}

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
            """The address of at least `size` bytes; PyTorch aligns more strictly than is asked."""
            if name not in self.buffers or self.buffers[name].numel() < size:
                device = "cpu" if name in on_host else "cuda"
                try:
                    # One byte at least: TensorRT takes a null address for a failed allocation.
                    self.buffers[name] = torch.empty(max(size, 1), dtype=torch.uint8, device=device)
                except RuntimeError as error:
                    errors.append(f"no memory for the output {name!r}: {error}")
                    return 0
            return self.buffers[name].data_ptr()

        def reallocate_output_async(self, name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            """The same; the callers' stream is the one that PyTorch allocates on."""
            return self.reallocate_output(name, memory, size, alignment)

        def notify_shape(self, name: str, shape: Sequence[int]) -> None:
            """Called once the dimensions are known."""
            self.shapes[name] = tuple(shape)

    return OutputAllocator()


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
            logger: What `make_logger` gave, used by `runtime`.
            runtime: A `Runtime` of the module.
            plan: The serialised engine.
            inputs: Graph input → the engine's name of it.
            outputs: Graph outputs in order; a name may occur twice.

        Raises:
            BackendFailure: the engine cannot be loaded.
            DeviceLost: the GPU has failed for good.
        """
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
        # Inputs that no layer reads may be absent from the engine.
        self._inputs = {graph: engine for graph, engine in inputs.items() if engine in self._dtypes}
        self._on_host = frozenset(
            name for name in names if self._engine.get_tensor_location(name) == trt.TensorLocation.HOST
        )
        self._allocator = make_allocator(trt, self._on_host, logger.errors)
        for name in dict.fromkeys(self._outputs):
            if not self._context.set_output_allocator(name, self._allocator):
                raise self._failure(f"output {name!r} takes no allocator")

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        self._logger.errors.clear()
        self._allocator.shapes.clear()
        with _device_errors(), torch.cuda.stream(self._stream):
            # The engine reads these while it runs: they must live until the stream is done.
            bound = [self._bind(name, feeds[graph]) for graph, name in self._inputs.items()]
            if not self._context.execute_async_v3(self._stream.cuda_stream):
                raise self._failure("the engine did not run")
            self._stream.synchronize()
            del bound
            return [self._fetched(name) for name in self._outputs]

    def _bind(self, name: str, array: Array) -> torch.Tensor:
        """Give one input its shape and its address; returns what must be kept alive."""
        tensor = to_torch(array).to(self._dtypes[name]).contiguous()
        if name not in self._on_host:
            tensor = tensor.to("cuda")
        if not self._context.set_input_shape(name, tuple(array.shape)):
            raise self._failure(f"input {name!r} cannot have the shape {tuple(array.shape)}")
        if tensor.numel() == 0:
            # PyTorch gives empty tensors the null address, which TensorRT refuses.
            tensor = tensor.new_empty(1)
        if not self._context.set_tensor_address(name, tensor.data_ptr()):
            raise self._failure(f"input {name!r} takes no address")
        return tensor

    def _fetched(self, name: str) -> Array:
        """A copy in host memory of one output of the run that has just ended."""
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
        return copied(buffer, dtype, shape)

    def _failure(self, what: str) -> BackendFailure | DeviceLost:
        """The error that TensorRT's log explains; the GPU is asked whether it still works."""
        message = "; ".join([what, *dict.fromkeys(self._logger.errors)])
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            return DeviceLost(f"{message}; {error}")
        return DeviceLost(message) if _cuda.is_sticky(message) else BackendFailure(message)


@contextlib.contextmanager
def _device_errors() -> Iterator[None]:
    """Raises what PyTorch says of the device as the errors of backends."""
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


def copied(buffer: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Array:
    """What the first bytes of a buffer hold, wherever it is; the next run may write to the buffer."""
    size = math.prod(shape) * dtype.itemsize
    return to_numpy(buffer[:size].to("cpu", copy=True).view(dtype).reshape(shape))
