"""Whether an NVIDIA GPU is here, and whether it has failed for good."""

from __future__ import annotations

import ctypes
import os
import re
import sys

from harness.core.plugins import Unavailable

#: CUDA errors after which every later call in the process fails too, as the driver and the
#: runtimes print them.
_STICKY = re.compile(
    r"illegal memory access|misaligned address|illegal instruction|invalid address space|invalid pc"
    r"|unspecified launch failure|device-side assert|launch timed out|uncorrectable (?:ECC|NVLink)"
    r"|hardware stack error|context is destroyed|device (?:is )?lost|DEVICE_RESET|fallen off the bus"
    r"|CUDA(?: failure| error)?:? (?:214|220|700|702|709|710|714|715|716|717|718|719)\b",
    re.IGNORECASE,
)

#: As ONNX Runtime adds it to what CUDA says.
_HOST = re.compile(r" ; hostname=[^\s;]*")


def is_sticky(message: str) -> bool:
    """Whether `message` tells of a CUDA fault that outlives the call that caused it."""
    return _STICKY.search(message) is not None


def words_of(error: Exception) -> str:
    """What an error says, from now on without the machine's name: the same failure has the same words."""
    said = _HOST.sub("", str(error)).strip()
    error.args = (said,)
    return said


def missing_gpu() -> str | None:
    """Why no NVIDIA GPU can be used here; None where one can.

    Asks the driver's management library: `cuInit` would spoil CUDA for children that are forked
    later.
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
        # Containers and embedded boards may carry the driver without its management library.
        return None
    if management.nvmlInit_v2() != 0:
        return "the NVIDIA driver does not answer"
    count = ctypes.c_uint(0)
    failed = management.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0
    management.nvmlShutdown()
    return "no NVIDIA GPU was found" if failed or count.value == 0 else None


def without_gpu() -> Unavailable | None:
    """As `missing_gpu`, for a probe."""
    remedy = "a machine with an NVIDIA GPU and its driver"
    return Unavailable(reason=reason, install=remedy) if (reason := missing_gpu()) else None


def missing_torch_cuda() -> str | None:
    """Why PyTorch cannot hold tensors on a GPU here; None where it can."""
    import torch

    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is built without CUDA"
    return None
