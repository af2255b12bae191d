"""Releases of a package as pip finds and installs them, each in a directory of its own that is kept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

#: What may be bisected → distribution, and whether it is installed with what it needs. The others' needs are
#: those of the installed release, which older and newer ones mostly share; PyTorch's libraries are its own.
PACKAGES = {
    "onnxruntime": ("onnxruntime", False),
    "onnxscript": ("onnxscript", False),
    "onnx": ("onnx", False),
    "openvino": ("openvino", False),
    "torch": ("torch", True),
}
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
_LISTED = re.compile(r"^Available versions: (.*)$", re.MULTILINE)


class NoReleases(Exception):
    """pip cannot say which releases there are; the message is one line."""


@dataclass(frozen=True)
class Installed:
    """A release that can be put before the installed one on Python's path; `problem` says why not."""

    directory: Path
    problem: str = ""


def releases_of(package: str, first: str | None = None, last: str | None = None) -> list[str]:
    """The releases that pip finds for this Python, oldest first, without pre-releases.

    Args:
        package: One of `PACKAGES`.
        first: The oldest to take; None for the oldest that there is.
        last: The newest to take; None for the newest.

    Raises:
        NoReleases: pip is missing, the index cannot be reached, or no release is in the range.
    """
    distribution, _ = PACKAGES[package]
    done = subprocess.run([*_PIP, "index", "versions", distribution], capture_output=True, text=True, check=False)
    listed = _LISTED.search(done.stdout)
    if listed is None:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        raise NoReleases(f"`pip index versions {distribution}` names no release: {said[-1]}")
    found = sorted({version for word in listed[1].split(",") if (version := _version(word)) is not None})
    low, high = _bound(first, found[0]), _bound(last, found[-1])
    chosen = [str(v) for v in found if low <= v <= high and not v.is_prerelease]
    if not chosen:
        raise NoReleases(f"{distribution} has no release from {low} to {high}; it has {found[0]} to {found[-1]}")
    return chosen


def _version(word: str) -> Version | None:
    try:
        return Version(word.strip())
    except InvalidVersion:
        return None


def _bound(given: str | None, default: Version) -> Version:
    if given is None:
        return default
    version = _version(given)
    if version is None:
        raise NoReleases(f"{given!r} is no version; write one as 1.20.0")
    return version


def install_release(package: str, release: str, place: Path) -> Installed:
    """Install a release below `place`, unless it is there already.

    What is installed is found again by later calls; what cannot be installed is tried again.
    """
    distribution, whole = PACKAGES[package]
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    directory = place / f"{distribution}-{release}-{python}"
    if directory.is_dir():
        return Installed(directory)
    unfinished = directory.with_name(f"{directory.name}.{os.getpid()}")
    options = [] if whole else ["--no-deps"]
    done = subprocess.run(
        [
            *(*_PIP, "install", "--quiet", "--only-binary", ":all:", *options),
            *("--target", str(unfinished), f"{distribution}=={release}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        shutil.rmtree(unfinished, ignore_errors=True)
        return Installed(directory, _reason(distribution, release, done.stderr))
    unfinished.rename(directory)
    return Installed(directory)


def _reason(distribution: str, release: str, said: str) -> str:
    if "No matching distribution" in said:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"{distribution} {release} has no wheel for Python {python} on this machine"
    lines = [line for line in said.strip().splitlines() if line.startswith("ERROR")] or ["pip failed"]
    return f"{distribution} {release} cannot be installed: {lines[-1].removeprefix('ERROR: ')}"
