"""Detect an NVIDIA GPU, and faults after which it cannot be used."""

from __future__ import annotations

import ctypes
import os
import re
import sys

from harness.core.plugins import Unavailable

#: CUDA errors after which every later call in the process fails, as the driver and runtimes print them.
_STICKY = re.compile(
    r"illegal memory access|misaligned address|illegal instruction|invalid address space|invalid pc"
    r"|unspecified launch failure|device-side assert|launch timed out|uncorrectable (?:ECC|NVLink)"
    r"|hardware stack error|context is destroyed|device (?:is )?lost|DEVICE_RESET|fallen off the bus"
    r"|CUDA(?: failure| error)?:? (?:214|220|700|702|709|710|714|715|716|717|718|719)\b",
    re.IGNORECASE,
)

#: The host name that ONNX Runtime adds to CUDA's messages.
_HOST = re.compile(r" ; hostname=[^\s;]*")


def is_sticky(message: str) -> bool:
    """Whether `message` reports a CUDA fault that outlives the call that caused it."""
    return _STICKY.search(message) is not None


def strip_host_name(error: Exception) -> str:
    """Remove the machine's name from an error's message, so that equal failures have equal messages, and return it."""
    message = _HOST.sub("", str(error)).strip()
    error.args = (message,)
    return message


def missing_gpu() -> str | None:
    """Return why no NVIDIA GPU can be used here; None if one can.

    It uses the driver's management library, since `cuInit` would break CUDA for processes that are forked later.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every GPU"
    windows = sys.platform == "win32"
    try:
        ctypes.CDLL("nvcuda.dll" if windows else "libcuda.so.1")
    except OSError:
        return "no NVIDIA driver is installed"
    try:
        management = ctypes.CDLL("nvml.dll" if windows else "libnvidia-ml.so.1")
    except OSError:
        # Containers and embedded boards may have the driver without its management library.
        return None
    if management.nvmlInit_v2() != 0:
        return "the NVIDIA driver does not answer"
    count = ctypes.c_uint(0)
    failed = management.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0
    management.nvmlShutdown()
    return "no NVIDIA GPU was found" if failed or count.value == 0 else None


def probe_gpu() -> Unavailable | None:
    """Return the result of `missing_gpu` for a probe."""
    remedy = "a machine with an NVIDIA GPU and its driver"
    return Unavailable(reason=reason, install=remedy) if (reason := missing_gpu()) else None


def missing_torch_cuda() -> str | None:
    """Return why PyTorch cannot have tensors on a GPU here; None if it can."""
    import torch

    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is built without CUDA"
    return None
