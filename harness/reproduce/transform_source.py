"""The transforms of a route as lines of a script."""

from __future__ import annotations

import importlib

from harness.convert.transform import TransformEntry, find_transforms
from harness.core.dtypes import PRECISION
from harness.core.route import Route
from harness.core.snippet import ExportSnippet


def transform_source(route: Route) -> ExportSnippet:
    """Return code that applies the transforms of a route to ``model``, one after another.

    A transform is imported from its module where it is a function of that. Any other one is looked up by its name in
    the harness.
    """
    transforms = find_transforms(route.transforms)
    imports, code = list[str](), list[str]()
    if any(transform.takes_samples for transform in transforms):
        code.append("samples = [{name: x.contiguous().numpy() for name, x in inputs.items()}]")
    changes_dtypes = any(transform.precision in PRECISION for transform in transforms)
    if changes_dtypes:
        imports += ["import onnx", "from harness.convert.interface import keep_interface"]
        code.append("exported = onnx.ModelProto.FromString(model.SerializeToString())")
    for transform in transforms:
        module, name = transform.apply.__module__, getattr(transform.apply, "__qualname__", "")
        if _is_importable(transform, module, name):
            imports.append(f"from {module} import {name}")
            code.append(f"model = {name}(model)")
        else:
            imports.append("from harness.convert.transform import find_transforms")
            samples = "samples" if transform.takes_samples else "()"
            code.append(f'model = find_transforms(["{transform.name}"])[0].transform(model, {samples})')
    if changes_dtypes:
        # Whoever feeds the model has the call's own tensors.
        code.append("model = keep_interface(exported, model)")
    return ExportSnippet(imports=tuple(dict.fromkeys(imports)), code=tuple(code))


def _is_importable(transform: TransformEntry, module: str, name: str) -> bool:
    return name.isidentifier() and getattr(importlib.import_module(module), name, None) is transform.apply
