"""The release of a package that changed a verdict, found by a binary search over releases.

uv installs each release into a directory of its own, which is kept. The case is rerun in a process that has this
directory first on its path. Verdicts may be missing: a release without a wheel is passed over.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uv
from packaging.version import InvalidVersion, Version

import harness
from harness.compare.signatures import informative_line, normalise
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.route import GRAPH, Route

#: Package that may be bisected → distribution, and whether it is installed with its requirements. The others use
#: those of the installed release, which older and newer ones mostly share; PyTorch has libraries of its own.
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
    """pip cannot list the releases of a package; the message is one line."""


@dataclass(frozen=True)
class Installed:
    """A release that can be put before the installed one on Python's path; `problem` says why not."""

    directory: Path
    problem: str = ""


def releases_of(package: str, first: str | None = None, last: str | None = None) -> list[str]:
    """Return the releases that pip finds for this Python, oldest first, without pre-releases.

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
        message = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        raise NoReleases(f"`pip index versions {distribution}` names no release: {message[-1]}")
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
        raise NoReleases(f"{given!r} is not a version; write one as 1.20.0")
    return version


def install_release(package: str, release: str, place: Path) -> Installed:
    """Install a release below `place`, unless it is there already.

    Later calls find an installed release again; a release that could not be installed is tried again.
    """
    distribution, whole = PACKAGES[package]
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    directory = place / f"{distribution}-{release}-{python}"
    if directory.is_dir():
        return Installed(directory)
    unfinished = directory.with_name(f"{directory.name}.{os.getpid()}")
    options = ["--quiet", "--only-binary", ":all:", "--python", sys.executable, *([] if whole else ["--no-deps"])]
    command = [uv.find_uv_bin(), "pip", "install", *options, "--target", str(unfinished), f"{distribution}=={release}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(unfinished, ignore_errors=True)
        return Installed(directory, _reason(distribution, release, done.stderr))
    unfinished.rename(directory)
    return Installed(directory)


def _reason(distribution: str, release: str, message: str) -> str:
    # uv wraps its sentences at the width of a terminal.
    text = " ".join(message.split())
    if "has no wheels with a matching" in text or "there is no version of" in text:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"{distribution} {release} has no wheel for Python {python} on this machine"
    return f"{distribution} {release} cannot be installed: {text[:200] or 'uv failed'}"


def release_environment(directories: Sequence[Path]) -> dict[str, str]:
    """Return the variables of a process that finds releases in these folders before the installed ones."""
    places = [*map(str, directories), str(Path(harness.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


#: Seconds: the command imports PyTorch and the exporters, and may export a few times for blame.
_PATIENCE = 600
_UNFIT = ("ModuleNotFoundError: ", "ImportError: ")


@dataclass(frozen=True)
class Rerun:
    """The command that is called for each release.

    Attributes:
        words: ``replay`` or, for a model or an ONNX file, ``check``; the case, and the options.
        cwd: Working directory.
    """

    words: Sequence[str]
    cwd: Path

    def verdicts(self, package: str, release: str, directory: Path) -> Verdicts:
        """Return the case's verdicts with the release in `directory` instead of the installed one."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "harness.app.cli", *self.words, "--json"],
                env=release_environment([directory]),
                capture_output=True,
                text=True,
                cwd=self.cwd,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Verdicts("", f"it took longer than {_PATIENCE} s with {package} {release}")
        try:
            found = list(_printed_verdicts(json.loads(done.stdout)))
        except (ValueError, KeyError):
            message = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            return Verdicts("", f"it cannot be run with {package} {release}: {message[:200]}")
        return verdicts_of(found, package, release)


def _printed_verdicts(printed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Parse the verdicts in the JSON that `conformance replay` or `conformance check` prints."""
    if "cases" in printed:
        yield from (case["verdict"] for case in printed["cases"])
        return
    for way in printed["ways"]:
        for run in way["runs"]:
            yield {
                "converter": way["converter"],
                "backend": way["backend"],
                "stage": run["stage"],
                "outcome": run["outcome"],
                "signature": normalise(run["message"]) if run["outcome"] == "error" else "",
                "message": run["message"],
            }


def control_words(word: str, ways: Collection[tuple[str, str]], directory: Path) -> list[str]:
    """Return the words of a control case that passes with every working release: Relu, in the form of the case.

    Args:
        word: The case: an ``.onnx`` file, whose IR version and opsets the control has, or anything else.
        ways: Converters and backends to run it with.
        directory: Directory to write it to.
    """
    import onnx

    given = Path(word)
    if given.suffix == ".onnx":
        model = onnx.load(given, load_external_data=False)
        value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
        graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "control", value[:1], value[1:])
        control = onnx.helper.make_model(graph, ir_version=model.ir_version, opset_imports=model.opset_import)
        command, file = "check", directory / "control.onnx"
        onnx.save(control, file)
    else:
        spec = TensorSpec((2,), "float32", (1,), 0, Literal((1.0, -1.0)))
        command, file = "replay", directory / "control.json"
        is_graph = any(Route.parse(way[0]).converter == GRAPH for way in ways if way[0])
        relu = (
            Invocation("ai.onnx.Relu.14", (("X", spec),))
            if is_graph
            else Invocation("aten.relu.default", (("self", spec),))
        )
        file.write_text(relu.json, encoding="utf-8")
    converters, backends = (sorted({way[i] for way in ways if way[i]}) for i in (0, 1))
    return [command, str(file), *(f"--converter={c}" for c in converters), *(f"--backend={b}" for b in backends)]


def confirmed_verdicts(rerun: Rerun, word: str, package: str, release: str, installed: Path) -> Verdicts:
    """Return a case's verdicts with a release; no verdict if not even the control passes with it.

    Args:
        rerun: The command that runs the case.
        word: The case.
        package: The package whose release is tried.
        release: The version.
        installed: The directory of the release.
    """
    answer = rerun.verdicts(package, release, installed)
    if answer.missing or answer.passes:
        return answer
    with tempfile.TemporaryDirectory() as directory:
        control = Rerun(control_words(word, answer.ways, Path(directory)), rerun.cwd)
        known = control.verdicts(package, release, installed)
    if known.passes:
        return answer
    return Verdicts("", f"{package} {release} does not run even Relu here: {known.shown or known.missing}")


def verdicts_of(found: Sequence[dict[str, Any]], package: str, release: str) -> Verdicts:
    """Summarise a command's verdicts with a release; no verdict if the release does not fit the other packages.

    Args:
        found: Verdicts as the command prints them.
        package: The package whose release was tried.
        release: The version.
    """
    if not found:
        return Verdicts("", f"no converter and backend of it is available with {package} {release}")
    # An exporter that lacks a module of another package proves nothing about the case.
    unfit = [one["signature"] for one in found if one["signature"].startswith(_UNFIT)]
    if unfit:
        return Verdicts("", f"{package} {release} does not go with the other packages: {unfit[0][:200]}")
    return Verdicts(
        "; ".join(sorted({_ended(verdict, verdict["signature"]) for verdict in found})),
        shown="; ".join(sorted({_ended(verdict, informative_line(verdict["message"])) for verdict in found})),
        passes=all(verdict["outcome"] == "pass" for verdict in found),
        ways=tuple({(verdict["converter"], verdict["backend"]): None for verdict in found}),
    )


def _ended(verdict: dict[str, Any], why: str) -> str:
    """Return ``dynamo → ort-cpu: mismatch at compare: values``."""
    how = verdict["outcome"]
    if how != "pass":
        how = f"{how} at {verdict['stage']}: {why}"
    where = " → ".join(filter(None, (verdict["converter"], verdict["backend"])))
    return f"{where}: {how}"


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on a case with one release.

    Attributes:
        outcome: The outcome and its stage, per converter and backend, without details that vary from run to run; "" if
            there is no verdict.
        missing: The reason for the lack of a verdict, as one line; "" if there is a verdict.
        shown: The outcomes for a person.
        passes: Whether all of them are passes.
        ways: Converter and backend of each.
    """

    outcome: str
    missing: str = ""
    shown: str = ""
    passes: bool = False
    ways: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Change:
    """The result of a search.

    Attributes:
        tried: Release → verdicts, oldest first.
        before: The last release with the verdicts of the oldest one that has any; "" if none differs.
        after: The first release known to have other ones; "" if none differs.
        between: Releases between the two that have no verdicts, so that the change may be in each of them.
    """

    tried: dict[str, Verdicts]
    before: str = ""
    after: str = ""
    between: tuple[str, ...] = ()


def search_releases(releases: Sequence[str], ask: Callable[[str], Verdicts]) -> Change:
    """Find where verdicts change, which they are taken to do once.

    Releases without a verdict are passed over, as `git bisect skip` does.

    Args:
        releases: Oldest first.
        ask: Returns the verdicts of one release; called once for each, and for few.
    """
    tried: dict[str, Verdicts] = {}

    def verdicts(place: int) -> Verdicts:
        release = releases[place]
        if release not in tried:
            tried[release] = ask(release)
        return tried[release]

    def found(change: tuple[int, int] | None = None) -> Change:
        in_order = {release: tried[release] for release in releases if release in tried}
        if change is None:
            return Change(tried=in_order)
        low, high = change
        between = tuple(r for r in releases[low + 1 : high] if r in tried)
        return Change(tried=in_order, before=releases[low], after=releases[high], between=between)

    places = range(len(releases))
    low = next((place for place in places if not verdicts(place).missing), None)
    high = next((place for place in reversed(places) if not verdicts(place).missing), None)
    if low is None or high is None or verdicts(low).outcome == verdicts(high).outcome:
        return found()
    while True:
        # The middle first, then the nearest to it.
        ends = low + high
        inner = sorted(range(low + 1, high), key=lambda place, ends=ends: abs(2 * place - ends))  # type: ignore[misc]
        middle = next((place for place in inner if not verdicts(place).missing), None)
        if middle is None:
            return found((low, high))
        if verdicts(middle).outcome == verdicts(low).outcome:
            low = middle
        else:
            high = middle
