"""What has to be the same on all nodes: the versions of everything that takes part, and the harness itself.

Looking costs nothing: no package is imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import harness
from harness.generate import cases_directory
from harness.record import installed_versions

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
