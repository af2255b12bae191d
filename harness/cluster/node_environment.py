"""The environment that all nodes must share: the project and the versions of everything that takes part.

`copy_project` collects the project for nodes that lack it; `environment_here` and `difference` compare versions without
importing any package.
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
    """Copy the installed project, as nodes need it, to the directory `target`."""
    plugin = importlib.util.find_spec(_PLUGIN)
    places = plugin.submodule_search_locations if plugin is not None else None
    homes = [Path(harness.__file__).parent, cases_directory(), *(Path(place) for place in places or ())]
    for home in homes:
        leave_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(home, target / home.name, ignore=leave_out, dirs_exist_ok=True)
    # The metadata of an installed package, through which pytest finds the plug-in.
    about = target / f"{_PLUGIN}-{harness.__version__}.dist-info"
    about.mkdir(exist_ok=True)
    name = _PLUGIN.replace("_", "-")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {harness.__version__}\n")
    (about / "entry_points.txt").write_text(f"[pytest11]\n{name} = {_PLUGIN}\n")
    return target


@dataclass(frozen=True, kw_only=True)
class Described:
    """The description of a run.

    Attributes:
        units: The names of the units.
        examples: Number of cases per unit.
        backends: The backends that take part.
        environment: The environment of the described node.
    """

    units: tuple[str, ...] = ()
    examples: int = 0
    backends: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


#: Keys of an environment in addition to names of packages.
PYTHON, HARNESS, CASES = "python", "harness source", "operator cases"
_NONE = "(none)"
_SOURCES = (".py", ".toml", ".txt")
#: Number of differences that are named.
_FEW = 3


def environment_here(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python and of `packages`, and digests of the harness and the operator cases."""
    environment = {
        PYTHON: installed_versions()[PYTHON],
        HARNESS: _digest(Path(harness.__file__).parent),
        CASES: _digest(cases_directory()),
    }
    for name in packages:
        if name not in environment:
            try:
                environment[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                environment[name] = _NONE
    return environment


def difference(here: Mapping[str, str], there: Mapping[str, str], has: str, others: str) -> str:
    """Return how an environment differs, in one line; "" if it does not.

    Args:
        here: The environment.
        there: The environment to compare with.
        has: The owner of `here`: ``node 10.0.0.7``.
        others: The owner of `there`.
    """
    names = [name for name in sorted({*here, *there}) if here.get(name, _NONE) != there.get(name, _NONE)]
    if not names:
        return ""
    examples = ", ".join(f"{n} {here.get(n, _NONE)}, not {there.get(n, _NONE)}" for n in names[:_FEW])
    remainder = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"{has} has {examples}{remainder} as {others}"


def _digest(directory: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(directory.rglob("*")):
        if file.suffix in _SOURCES and file.is_file():
            whole.update(f"{file.relative_to(directory).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return whole.hexdigest()[:12]
