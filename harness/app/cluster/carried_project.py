"""The project as nodes get it that lack it: its code and its data, and what makes pytest find its plug-in."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import harness
from harness.generate import cases_directory

_PLUGIN = "aten_onnx_conformance"


def copy_project(target: Path) -> Path:
    """Copy what a node needs of the installed project into the directory `target`."""
    plugin = importlib.util.find_spec(_PLUGIN)
    found = plugin.submodule_search_locations if plugin is not None else None
    homes = [Path(harness.__file__).parent, cases_directory(), *(Path(place) for place in found or ())]
    for home in homes:
        leave_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(home, target / home.name, ignore=leave_out, dirs_exist_ok=True)
    # As an installed package has them.
    about = target / f"{_PLUGIN}-{harness.__version__}.dist-info"
    about.mkdir(exist_ok=True)
    name = _PLUGIN.replace("_", "-")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {harness.__version__}\n")
    (about / "entry_points.txt").write_text(f"[pytest11]\n{name} = {_PLUGIN}\n")
    return target
