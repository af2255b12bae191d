"""Backends: ONNX Runtime with an execution provider other than the CPU's, on machines without any device.

``planted-ort:azure`` is in every package of ONNX Runtime, and takes no operator of ONNX: all falls back.
``planted-ort:none`` is in none, and does not start.
``planted-ort:openvino`` and ``planted-ort:webgpu`` are libraries of their own, which PyPI has:
onnxruntime-ep-openvino and onnxruntime-ep-webgpu. OpenVINO's takes most operators. WebGPU's needs Vulkan:
libvulkan1, and a driver, of which Chromium has one in software (``VK_ICD_FILENAMES`` names it).
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from harness.core.plugins import Unavailable, importable
from harness.run.backend import BackendEntry, register
from harness.run.backends.ort import OrtBackend

_NAME = "planted-ort:"
_MODULES = {"openvino": "onnxruntime_ep_openvino", "webgpu": "onnxruntime_ep_webgpu"}


def _probe(argument: str) -> Unavailable | None:
    if argument in ("azure", "none") or importable(_MODULES[argument]):
        return None
    package = _MODULES[argument].replace("_", "-")
    return Unavailable(reason=f"{package} is not installed", install=f"pip install {package}")


def _create(argument: str) -> OrtBackend:
    if argument == "azure":
        return OrtBackend(f"{_NAME}azure", "azure", "AzureExecutionProvider")
    if argument == "none":
        return OrtBackend(f"{_NAME}none", "none", "NoExecutionProvider")
    import onnxruntime

    os.environ["ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER"] = "1"
    library = importlib.import_module(_MODULES[argument])
    (name, *_) = library.get_ep_names()
    if name not in {device.ep_name for device in onnxruntime.get_ep_devices()}:
        onnxruntime.register_execution_provider_library(name, library.get_library_path())
    found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]

    def choose(options: Any) -> None:
        options.add_provider_for_devices(found[:1], {})

    return OrtBackend(f"{_NAME}{argument}", argument, name, choose=choose)


register(BackendEntry(name=_NAME, probe=_probe, create=_create, version=lambda argument: "1.0"))
