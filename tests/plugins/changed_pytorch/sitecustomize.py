"""PyTorch as a later version might be: its exporter's source is changed as it is imported.

Python imports this module at start in every process that has this folder on its path.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

_EXPORTER = "torch.onnx._internal.exporter"
_RENAMED_TABLE = [("create_onnx_friendly_decomposition_table", "make_decomposition_table")]
_RENAMED_ERROR = [("_errors.DispatchError", "_errors.NoConversionError")]
#: Change → module → (what its source says, what it says then).
CHANGES: dict[str, dict[str, list[tuple[str, str]]]] = {
    "missing name": {f"{_EXPORTER}._decomp": _RENAMED_TABLE, f"{_EXPORTER}._fx_passes": _RENAMED_TABLE},
    "other signature": {
        f"{_EXPORTER}._fx_passes": [
            (
                "exported_program: torch.export.ExportedProgram, registry: _registration.ONNXRegistry",
                "registry: _registration.ONNXRegistry, exported_program: torch.export.ExportedProgram",
            )
        ],
        f"{_EXPORTER}._core": [
            (
                "decompose_with_registry(\n            exported_program, registry\n",
                "decompose_with_registry(\n            registry, exported_program\n",
            )
        ],
    },
    "renamed error": {
        f"{_EXPORTER}._errors": [("class DispatchError", "class NoConversionError")],
        f"{_EXPORTER}._core": _RENAMED_ERROR,
    },
    "other graph": {
        f"{_EXPORTER}._fx_passes": [
            (
                "    return exported_program.run_decompositions(",
                "    relu, clamp = torch.ops.aten.relu.default, torch.ops.aten.clamp_min.default\n"
                "    decomp_table[relu] = lambda x: clamp(x, 0)\n"
                "    return exported_program.run_decompositions(",
            )
        ],
    },
}

#: What else each of them does: it reads its sources once in a process. Every case is exported with the plain
#: public call, which reads them for two thirds of its time.
ALL: dict[str, list[tuple[str, str]]] = {
    f"{_EXPORTER}._schemas": [
        (
            "def op_signature_from_function(",
            "import functools\n\n@functools.cache\ndef op_signature_from_function(",
        )
    ],
    "torch._export.utils": [
        (
            "def _collect_all_valid_cia_ops_for_namespace(",
            "@functools.cache\ndef _collect_all_valid_cia_ops_for_namespace(",
        )
    ],
    "onnxscript._internal.values": [
        ("    @property\n    def function_ir(", "    @functools.cached_property\n    def function_ir(")
    ],
}


def _edits(module: str) -> list[tuple[str, str]]:
    return CHANGES[os.environ["CHANGED_PYTORCH"]].get(module) or ALL.get(module) or []


class _ChangedSource(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname) or ""
        for before, after in _edits(fullname):
            if before not in source:
                raise SystemExit(f"{fullname} no longer says {before!r}: the planted change needs care")
            source = source.replace(before, after)
        return compile(source, self.path, "exec")


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not _edits(name):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _ChangedSource(name, spec.origin)
        return spec


if os.environ.get("CHANGED_PYTORCH"):
    sys.meta_path.insert(0, _Finder)
    # Where the process was forked, PyTorch is there, but not its exporter.
    if operators := sys.modules.get("torch._export.utils"):
        name = "_collect_all_valid_cia_ops_for_namespace"
        setattr(operators, name, functools.cache(getattr(operators, name)))
    if too_late := [name for name in CHANGES[os.environ["CHANGED_PYTORCH"]] if name in sys.modules]:
        raise SystemExit(f"imported before it could be changed: {too_late}")
