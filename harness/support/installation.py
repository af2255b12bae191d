"""What is installed here: versions, plug-ins and whether they can run, and combinations that are known to be wrong.

Nothing is imported for it but the files that register plug-ins.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import psutil
from packaging.requirements import InvalidRequirement, Requirement

from harness.convert.converter import CONVERTERS
from harness.convert.transform import TRANSFORMS
from harness.core.plugins import Unavailable
from harness.record.run_info import installed_versions
from harness.run.backend import BACKENDS, runtime_distributions
from harness.support.health import Installation, PlugIn, Problem

#: The distribution of the harness.
HARNESS = "aten-onnx-conformance"
#: Bytes that a worker may use before it is ended; less memory in all ends processes that do nothing wrong.
LEAST_MEMORY = 4 * 2**30
#: Distributions that unpack into one package: the one that was installed last wins, and its metadata may not be read.
_ONE_PACKAGE = {
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino", "onnxruntime-qnn",
                    "onnxruntime-rocm", "onnxruntime-training", "ort-nightly", "ort-nightly-gpu"),
    "openvino": ("openvino", "openvino-nightly"),
    "torch": ("torch", "torch-nightly"),
    "onnx": ("onnx", "onnx-weekly"),
    "onnxscript": ("onnxscript", "onnxscript-preview"),
    "onnxsim": ("onnxsim", "onnxsim-prebuilt"),
}  # fmt: skip


def find_installation() -> Installation:
    """Return what is installed here, and what is wrong with it."""
    plugins = tuple(_plugins())
    problems = [*_doubled(), *_unmet(), *_resources()]
    if not any(plugin.kind == "backend" and not plugin.reason for plugin in plugins):
        problems.append(Problem("no-backend", "backend"))
    versions = installed_versions((*runtime_distributions(), HARNESS))
    return Installation(versions, plugins, tuple(problems))


def _plugins() -> Iterator[PlugIn]:
    for converter in CONVERTERS.entries():
        yield _plugin("converter", converter.name, converter.probe(), converter.version)
    for transform in TRANSFORMS.entries():
        yield _plugin("transform", transform.name, transform.probe(), transform.version)
    for backend in BACKENDS.entries():
        # A name that ends in a colon wants an argument, without which nobody knows whether it runs.
        if not backend.name.endswith(":"):
            yield _plugin("backend", backend.name, backend.probe(""), lambda entry=backend: entry.version(""))


def _plugin(kind: str, name: str, problem: Unavailable | None, version: object) -> PlugIn:
    if problem is not None:
        return PlugIn(kind, name, "", problem.reason, problem.install)
    assert callable(version)
    return PlugIn(kind, name, str(version()))


def _doubled() -> Iterator[Problem]:
    """Yield packages that several installed distributions unpack into."""
    for package, names in _ONE_PACKAGE.items():
        versions = {name: _version(name) for name in names}
        present = [f"{name} {version}" for name, version in versions.items() if version]
        if len(present) > 1:
            yield Problem("two-distributions", package, tuple(present))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _unmet() -> Iterator[Problem]:
    """Yield requirements of the packages that take part which the installed versions do not meet."""
    runtimes = {*runtime_distributions(), *(name for names in _ONE_PACKAGE.values() for name in names)}
    for name in sorted({HARNESS, "torch", "onnx", "onnxscript", "onnx-ir", *runtimes}):
        try:
            required: Sequence[str] = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            continue
        for text in required:
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            version = _version(requirement.name)
            if not version or not requirement.specifier.contains(version, prereleases=True):
                wanted = f"{requirement.name}{requirement.specifier}"
                yield Problem("unmet-requirement", f"{name} {_version(name)}", (wanted, version))


def _resources() -> Iterator[Problem]:
    memory = psutil.virtual_memory().available
    if memory < LEAST_MEMORY:
        yield Problem("little-memory", "memory", (str(memory), str(LEAST_MEMORY)))
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        if not os.access(folder, os.W_OK):
            yield Problem("not-writable", str(folder))
