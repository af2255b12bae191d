"""What a node must have for a run: the project, and the same versions.

The project as nodes get it that lack it: its code and its data, and what makes pytest find its plug-in.

What a run consists of, as the node that was asked says it.

What has to be the same on all nodes: the versions of everything that takes part, and the harness itself.

Looking costs nothing: no package is imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import harness
from harness.generate.cases_home import cases_directory
from harness.record.run_info import installed_versions

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


@dataclass(frozen=True, kw_only=True)
class Described:
    """What a run consists of.

    Attributes:
        units: Their names.
        examples: Cases of each unit.
        backends: That take part.
        environment: Of the node that was asked.
    """

    units: tuple[str, ...] = ()
    examples: int = 0
    backends: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


#: Beside the names of packages.
PYTHON, HARNESS, CASES = "python", "harness source", "operator cases"
_NONE = "(none)"
_SOURCES = (".py", ".toml", ".txt")
#: So many differences are named.
_FEW = 3


def environment_here(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of `packages` here, and digests of the harness and the operator cases."""
    found = {
        PYTHON: installed_versions()[PYTHON],
        HARNESS: _digest(Path(harness.__file__).parent),
        CASES: _digest(cases_directory()),
    }
    for name in packages:
        if name not in found:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                found[name] = _NONE
    return found


def difference(here: Mapping[str, str], there: Mapping[str, str], has: str, others: str) -> str:
    """How an environment differs, in one line; "" where it does not.

    Args:
        has: Whose `here` is: ``node 10.0.0.7``.
        others: Whose `there` is.
    """
    names = [name for name in sorted({*here, *there}) if here.get(name, _NONE) != there.get(name, _NONE)]
    if not names:
        return ""
    some = ", ".join(f"{n} {here.get(n, _NONE)}, not {there.get(n, _NONE)}" for n in names[:_FEW])
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"{has} has {some}{more} as {others}"


def _digest(directory: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(directory.rglob("*")):
        if file.suffix in _SOURCES and file.is_file():
            whole.update(f"{file.relative_to(directory).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return whole.hexdigest()[:12]
