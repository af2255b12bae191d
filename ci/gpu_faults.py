"""Provoke a GPU in worker processes for `ci/gpu_check`: a fault that sticks, wrong indices, many sessions.

Workers find this file as a plug-in: ``gpu-fault:NAME`` is the backend NAME, on which a case with `GUILTY` in
its input causes a fault.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper

from harness.core.dtypes import Array
from harness.run.backend import BACKENDS, Backend, BackendEntry, BackendSession, DeviceLost, ShapeRange, register
from harness.run.cuda import missing_gpu

NAME = "gpu-fault:"
GUILTY = 13.5
#: Sessions by which a runtime has loaded what it keeps: TensorRT for RTX takes 98 MiB of the host by then.
_WARM = 20
#: A kernel that stops as a failed assertion does: every later call to the device fails in this process.
_KERNEL = """.version {version}
.target {target}
.address_size 64
.visible .entry fault() {{ trap; ret; }}
"""
_TARGETS = (("7.0", "sm_75"), ("6.0", "sm_50"))


class FaultyBackend:
    """Another backend, on which a case with the guilty value takes the device with it."""

    def __init__(self, argument: str) -> None:
        entry, rest = BACKENDS.find(argument)
        self._inner = entry.create(rest)
        self.name, self.device, self.version = NAME + argument, self._inner.device, self._inner.version

    def narrows(self, dtype: str) -> str | None:
        """Narrow as the inner backend does."""
        return self._inner.narrows(dtype)

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        """Load in the inner backend."""
        return _FaultySession(self._inner.load(model, shapes))


class _FaultySession:
    def __init__(self, inner: BackendSession) -> None:
        self._inner = inner
        self.runnable = inner.runnable

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        if any((np.asarray(feed, np.float64) == GUILTY).any() for feed in feeds.values()):
            if missing_gpu() is not None:
                raise DeviceLost("no GPU is here: this is what the backend raises when one is lost")
            launch_fault()
        return self._inner.run(feeds)


register(BackendEntry(name=NAME, probe=lambda argument: None, create=FaultyBackend, version=lambda argument: ""))


def launch_fault() -> int:
    """Stop a kernel on the first GPU, in the context that runtimes share; the driver's error code.

    Raises:
        RuntimeError: the driver takes the kernel in none of its forms.
    """
    driver = _enter_context()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    for version, target in _TARGETS:
        text = _KERNEL.format(version=version, target=target).encode()
        if driver.cuModuleLoadData(ctypes.byref(module), text) == 0:
            break
    else:
        raise RuntimeError("the driver does not take the kernel that causes the fault")
    driver.cuModuleGetFunction(ctypes.byref(function), module, b"fault")
    driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    code: int = driver.cuCtxSynchronize()
    return code


def start(name: str) -> tuple[str, str]:
    """Start a backend and negate a number: its version, and why it cannot run here or ""."""
    backend = started(name)
    session = backend.load(negation(4), None)
    if not session.runnable:
        return backend.version, getattr(backend, "build_only", None) or "it cannot run here"
    (output,) = session.run({"x": np.ones(4, np.float32)})
    if output.tolist() != [-1.0] * 4:
        raise RuntimeError(f"{name} negates 1 as {output.tolist()}")
    return backend.version, ""


def started(name: str) -> Backend:
    """The backend called `name`."""
    entry, argument = BACKENDS.find(name)
    return entry.create(argument)


def sessions(name: str, count: int) -> tuple[int, int]:
    """Return the memory that `count` sessions leave behind, without the first 20: on the device, on the host.

    Both in bytes; on the device, what other processes take in the meantime counts. Every session has tensors of
    4 MiB and is dropped before the next.
    """
    backend = started(name)
    before = (0, 0)
    for number in range(count):
        if number == _WARM:
            before = _used()
        size = 2**20 + number % 7
        session = backend.load(negation(size), None)
        if session.runnable:
            session.run({"x": np.ones(size, np.float32)})
        del session
    after = _used()
    return after[0] - before[0], after[1] - before[1]


def wrong_indices(name: str, operator: str) -> str:
    """Return the backend's reaction to indices that are out of range: an answer, or an error in its own words."""
    data = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    index = helper.make_tensor_value_info("i", TensorProto.INT64, [1, 1] if operator == "GatherND" else [1])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    model = _model(helper.make_node(operator, ["x", "i"], ["y"], name="wrong"), [data, index], [output])
    shape = (1, 1) if operator == "GatherND" else (1,)
    feeds: dict[str, Array] = {"x": np.arange(3, dtype=np.float32), "i": np.full(shape, 10**6, np.int64)}
    try:
        return f"the answer {started(name).load(model, None).run(feeds)[0].tolist()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def negation(size: int) -> onnx.ModelProto:
    """A model that negates a vector."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in "xy")
    return _model(helper.make_node("Neg", ["x"], ["y"], name="neg"), [x], [y])


def _model(node: onnx.NodeProto, inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph([node], "check", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _used() -> tuple[int, int]:
    """Bytes in use on the first GPU by all processes, and by this process on the host."""
    gc.collect()
    host: int = psutil.Process().memory_info().rss
    if missing_gpu() is not None:
        return 0, host
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    code = _enter_context().cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    if code != 0:
        raise RuntimeError(f"the driver does not tell how much memory is free: CUDA error {code}")
    return total.value - free.value, host


def _enter_context() -> ctypes.CDLL:
    """Return the driver, with the context of the first GPU that runtimes share as this thread's."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    driver.cuInit(0)
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    driver.cuCtxSetCurrent(context)
    return driver
