"""Packages that a file of another place hides, found out without importing any of them: it might fail."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from harness.support.health import Problem

#: Packages that decide a verdict, as they are imported.
_MODULES = (
    *("torch", "numpy", "onnx", "onnxscript", "onnx_ir", "onnxruntime", "openvino", "tensorrt"),
    *("harness", "cases"),
)


def find_hidden() -> Iterator[Problem]:
    """Yield packages that a file of another place hides: in the working directory, or earlier on Python's path."""
    owners = metadata.packages_distributions()
    for module in _MODULES:
        names = owners.get(module, ())
        if not names:
            continue
        place = _installed_place(names[0], module)
        imported = _found_place(module)
        files = Path.cwd() / f"{module}.py", Path.cwd() / module / "__init__.py"
        here = next((file for file in files if file.is_file()), None)
        # `python -m` puts the working directory first.
        for other in dict.fromkeys(p for p in (imported, here) if p is not None):
            if place is not None and other.resolve() != place.resolve():
                yield Problem("hidden-package", module, (str(other), str(place)))


def _found_place(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _installed_place(name: str, module: str) -> Path | None:
    """Return the file of a module of a distribution; None for an editable one, which is anywhere."""
    distribution = metadata.distribution(name)
    if json.loads(distribution.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        return None
    places = (Path(str(distribution.locate_file(f"{module}{end}"))) for end in ("/__init__.py", ".py"))
    return next((place for place in places if place.is_file()), None)
