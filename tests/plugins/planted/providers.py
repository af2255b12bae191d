"""Backends: ONNX Runtime with an execution provider other than the CPU's, on machines without any device.

``planted-ort:azure`` is in every package of ONNX Runtime, and takes no operator of ONNX: all falls back.
``planted-ort:none`` is in none, and does not start.
"""

from __future__ import annotations

from harness.run.backend import BackendEntry, register
from harness.run.backends.ort import OrtBackend

_NAME = "planted-ort:"
_PROVIDERS = {"azure": "AzureExecutionProvider", "none": "NoExecutionProvider"}


def _create(argument: str) -> OrtBackend:
    return OrtBackend(f"{_NAME}{argument}", argument, _PROVIDERS[argument])


register(BackendEntry(name=_NAME, probe=lambda argument: None, create=_create, version=lambda argument: "1.0"))
