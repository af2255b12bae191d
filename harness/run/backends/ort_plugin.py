"""ONNX Runtime with a plug-in execution provider, which is a separate library.

1. A package (``onnxruntime-ep-webgpu``) contains the library, or the user gives its path.
2. ONNX Runtime registers the library and lists the devices that it offers on this machine.
3. A session uses the first of these devices. Nodes that the provider does not take run on the CPU; as for CUDA, this is
   recorded for each case.

ONNX Runtime gives a session that names no provider all registered ones. Our sessions name theirs, and
``onnx-api:onnxruntime.backend`` is configured to exclude plug-in providers.

``ort-webgpu`` is such a provider. On Linux it needs Vulkan; if the system has no driver, it uses SwiftShader, a
software implementation that Chromium includes together with the loader.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import os
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness.core.plugins import Unavailable, importable, installed, installed_version
from harness.core.snippet import RunSnippet, RunWanted
from harness.run.backend import BackendEntry, BackendFailure, register
from harness.run.backends.ort import OrtBackend, issue_form, session_run

_PREFIX, _WEBGPU = "ort-ep:", "ort-webgpu"
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")
#: The environment variable with providers that `onnxruntime.backend` excludes.
_LEFT_OUT = "ORT_ONNX_BACKEND_EXCLUDE_PROVIDERS"
#: Allows WebGPU to use a GPU that is emulated in software.
_SOFTWARE = "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER"
#: Vulkan's variables for files that name drivers, the newer one first.
_DRIVER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
_DRIVER_FOLDERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
_CHROMIUM = ("/usr/lib/chromium", "/usr/lib/chromium-browser", "/opt/google/chrome")
_LOADER, _SWIFTSHADER = "libvulkan.so.1", "vk_swiftshader_icd.json"


def _module(argument: str) -> str:
    """Return the package of a provider: ``onnxruntime_ep_webgpu`` for ``webgpu`` or its full name."""
    name = argument.replace("-", "_")
    return name if name.startswith("onnxruntime_ep_") else f"onnxruntime_ep_{name}"


def _is_file(argument: str) -> bool:
    return "/" in argument or os.sep in argument


def _package(argument: str) -> str:
    return _module(argument).replace("_", "-")


def _probe(argument: str) -> Unavailable | None:
    """Return why a provider cannot run here, as far as that is known without loading it."""
    if not importable("onnxruntime"):
        return Unavailable(reason="onnxruntime is not installed", install="pip install 'aten-onnx-conformance[cpu]'")
    if not argument:
        reason = f"name a plug-in provider: {_PREFIX}openvino, or {_PREFIX}/path/to/library.so"
        return Unavailable(reason=reason, install="pip install onnxruntime-ep-openvino")
    if _is_file(argument):
        missing = Unavailable(reason=f"{argument} is not there", install="name the provider's library")
        return None if Path(argument).is_file() else missing
    if not importable(_module(argument)):
        return Unavailable(reason=f"{_package(argument)} is not installed", install=f"pip install {_package(argument)}")
    return None


def _create(argument: str, name: str | None = None) -> OrtBackend:
    """Start the backend of a provider.

    Raises:
        BackendFailure: The library cannot be loaded, or offers no device here.
    """
    import onnxruntime

    path = argument if _is_file(argument) else importlib.import_module(_module(argument)).get_library_path()
    path = str(Path(path).resolve())
    try:
        devices = _register_library(path)
    except Exception as error:
        raise BackendFailure(f"ONNX Runtime {onnxruntime.__version__} does not load {path}: {error}") from error
    if not devices:
        raise BackendFailure(f"{Path(path).name} offers no device on this machine")
    provider = devices[0].ep_name

    def choose(options: Any) -> None:
        options.add_provider_for_devices(devices[:1], {})

    kind = devices[0].device.type.name.lower()
    backend = OrtBackend(name or f"{_PREFIX}{argument}", kind, provider, choose=choose)
    backend.version = _webgpu_version("") if name == _WEBGPU else _version(argument)
    return backend


@cache
def _register_library(path: str) -> list[Any]:
    """Register a library and return the devices that it offers here.

    This is done once per process: ONNX Runtime 1.32 rejects a second registration and crashes in the next session.
    """
    import onnxruntime

    onnxruntime.register_execution_provider_library(path, path)
    devices = [d for d in onnxruntime.get_ep_devices() if _resolved(d.ep_metadata) == path]
    left_out = {name for name in os.environ.get(_LEFT_OUT, "").split(",") if name}
    os.environ[_LEFT_OUT] = ",".join(sorted(left_out | {d.ep_name for d in devices}))
    return devices


def _resolved(metadata: Mapping[str, str]) -> str:
    return str(Path(metadata["library_path"]).resolve()) if "library_path" in metadata else ""


def _version(argument: str) -> str:
    runtime = f"ONNX Runtime {installed_version(*_RUNTIMES)}"
    return f"in {runtime}" if _is_file(argument) else f"{installed_version(_package(argument))} in {runtime}"


@cache
def _software_gpu() -> Path | None:
    """Return a browser's folder with SwiftShader and a Vulkan loader; None if it is missing or not needed."""
    if sys.platform != "linux":
        return None
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    folders = [Path(folder) for folder in _CHROMIUM] + ([Path(browser).resolve().parent] if browser else [])
    folder = next((f for f in folders if (f / _LOADER).exists() and (f / _SWIFTSHADER).exists()), None)
    named = {os.environ[name] for name in _DRIVER_VARIABLES if os.environ.get(name)}
    if folder is None or named:
        # A parent process may have selected it.
        return folder if folder is not None and named == {str(folder / _SWIFTSHADER)} else None
    has_driver = any(list(Path(folder).glob("*.json")) for folder in _DRIVER_FOLDERS)
    return None if has_driver and ctypes.util.find_library("vulkan") else folder


def _probe_webgpu(argument: str) -> Unavailable | None:
    problem = _probe("webgpu")
    has_loader = sys.platform != "linux" or ctypes.util.find_library("vulkan") or _software_gpu()
    if problem is not None or has_loader:
        return problem
    return Unavailable(reason="there is no Vulkan loader, libvulkan.so.1", install="apt install libvulkan1 chromium")


def _create_webgpu(argument: str) -> OrtBackend:
    """Start WebGPU on the GPU that Vulkan selects, or on SwiftShader."""
    os.environ.setdefault(_SOFTWARE, "1")
    folder = _software_gpu()
    if folder is not None:
        os.environ[_DRIVER_VARIABLES[1]] = str(folder / _SWIFTSHADER)
        # WebGPU requests the loader by name and gets the one that is already loaded.
        ctypes.CDLL(str(folder / _LOADER), mode=ctypes.RTLD_GLOBAL)
    return _create("webgpu", _WEBGPU)


def _adapter() -> str:
    """Return what is used as the GPU: SwiftShader, the drivers that the user names, or Vulkan's choice."""
    if _software_gpu():
        return "SwiftShader"
    return next((os.environ[name] for name in _DRIVER_VARIABLES if os.environ.get(name)), "the system's GPU")


def _webgpu_version(argument: str) -> str:
    return f"{_version('webgpu')}, on {_adapter()}"


def _snippet(wanted: RunWanted, argument: str) -> RunSnippet:
    module = _module(argument)
    return RunSnippet(
        load=(
            f'ort.register_execution_provider_library("plug-in", {module}.get_library_path())',
            f"devices = [d for d in ort.get_ep_devices() if d.ep_name in {module}.get_ep_names()]",
            "options = ort.SessionOptions()",
            "options.add_provider_for_devices(devices[:1], {})",
            "session = ort.InferenceSession(model.SerializeToString(), options)",
        ),
        run=session_run(wanted),
        imports=("import onnxruntime as ort", f"import {module}"),
        packages=installed(*_RUNTIMES, _package(argument)),
    )


register(
    BackendEntry(
        name=_PREFIX,
        probe=_probe,
        create=_create,
        version=_version,
        engine="onnxruntime",
        summary="ONNX Runtime, any plug-in provider",
        tracker="microsoft/onnxruntime",
        issue_form=issue_form("Other / Unknown"),
    )
)
register(
    BackendEntry(
        name=_WEBGPU,
        # https://www.w3.org/TR/WGSL/#floating-point-evaluation
        flushes="WGSL allows",
        probe=_probe_webgpu,
        create=_create_webgpu,
        version=_webgpu_version,
        engine="onnxruntime",
        summary="ONNX Runtime, WebGPU provider; in software where there is no GPU",
        adapter=_adapter,
        snippet=lambda wanted: _snippet(wanted, "webgpu"),
        tracker="microsoft/onnxruntime",
        issue_form=issue_form("WebGPU"),
        distributions=(*_RUNTIMES, "onnxruntime-ep-webgpu"),
        variables=("ONNXRUNTIME", "ORT", "VK"),
    )
)
