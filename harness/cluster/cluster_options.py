"""The options of a run on a cluster, in addition to those of `pytest harness`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.cluster.schedule import SMALLEST
from harness.core.plugins import UnknownName
from harness.generate.regressions.corpus_store import LOCAL
from harness.plan.options import UsageProblem
from harness.record import layout
from harness.run.backend import BACKENDS

#: Options of pytest and of the harness that do not work on several machines, with the reason.
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("-n", "--numprocesses", "--dist", "--tx"), "the cluster decides how much runs at once"),
    **dict.fromkeys(("--shard", "--shard-parts"), "a run on a cluster makes shards of its own"),
    **dict.fromkeys(("--model", "--models"), "run whole models on one machine"),
    **dict.fromkeys(("--lf", "--ff", "--last-failed", "--failed-first"), "nodes have no memory of the last run"),
    **dict.fromkeys(("--co", "--collect-only", "--coverage", "--generator-report"), "leave out --on"),
    "--update-baseline": "make the baseline of the finished run: conformance baseline",
}
#: Prefixes of environment variables that runtimes read; shards get the driver's values.
_VARIABLES = (
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "HARNESS_",
    "ATEN_",
    "TORCH_",
    "PYTORCH_",
    "ONNX",
    "ORT_",
    "OPENVINO_",
)


#: The default sources of a run on several machines: those that every node has.
_SOURCES = ("use:common", "generated")


def _is_this_machine(on: str) -> bool:
    return on == "ray" and not os.environ.get("RAY_ADDRESS")


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The options of `conformance run --on`.

    Attributes:
        on: ``ray``, or the address of a Ray cluster: ``ray://HOST:PORT``.
        dataset: The dataset that nodes write to and that keeps the run; None means the results directory.
        name: The name of the run; the same name resumes it.
        results_dir: The directory of the merged run.
        shard_seconds: Seconds of work in the smallest shard.
        arguments: The arguments of `pytest harness`.
        left_out: Cases of `pytest harness` that the run omits, for people; "" if there are none.
    """

    on: str
    dataset: str | None
    name: str
    results_dir: Path
    shard_seconds: float
    arguments: tuple[str, ...]
    left_out: str = ""

    @property
    def starts_cluster(self) -> bool:
        """Whether the cluster is started on this machine for this run."""
        return _is_this_machine(self.on)

    @property
    def resources(self) -> dict[str, float]:
        """The resources that a shard needs in addition to a CPU: the maximum over its backends."""
        parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
        parser.add_argument("--backend", action="append", default=[])
        needs: dict[str, float] = {}
        for name in parser.parse_known_args(list(self.arguments))[0].backend:
            # A backend may be known to the nodes only.
            with suppress(UnknownName):
                for need, amount in BACKENDS.find(name)[0].resources.items():
                    needs[need] = max(amount, needs.get(need, 0.0))
        return needs

    @property
    def place(self) -> str:
        """The directory or URL that nodes write to during the run."""
        return self.dataset or str(self.results_dir.absolute())


def parse(arguments: Sequence[str]) -> ClusterOptions:
    """Parse the command line.

    Raises:
        UsageProblem: An option does not work on a cluster.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    parser.add_argument("--on")
    parser.add_argument("--dataset")
    parser.add_argument("--run")
    parser.add_argument("--results-dir", type=Path)
    parser.add_argument("--shard-seconds", type=float, default=SMALLEST)
    try:
        given, rest = parser.parse_known_args(_without_separator(arguments))
    except argparse.ArgumentError as error:
        raise UsageProblem(str(error)) from None
    if given.on != "ray" and not given.on.startswith("ray://"):
        raise UsageProblem(f"--on {given.on}: give ray, or the address of a Ray cluster, ray://HOST:10001")
    if not given.shard_seconds > 0:
        raise UsageProblem(f"--shard-seconds {given.shard_seconds:g}: must be positive")
    for word in rest:
        option = word.partition("=")[0]
        # `-n2` is `-n 2`.
        option = "-n" if option.startswith("-n") and not option.startswith("--") else option
        if option in _REFUSED:
            raise UsageProblem(f"{option} does not go with --on: {_REFUSED[option]}")
    name = given.run or f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name.startswith("."):
        raise UsageProblem(f"--run {name}: a name has letters, digits, '-', '_' and '.'")
    if given.on != "ray" and not given.dataset:
        raise UsageProblem("--on ray://… needs --dataset, a URL or a directory that all nodes can write")
    # A corpus belongs to one machine, and shards must run alike everywhere.
    names_sources = {"--source", "--replay"} & {word.partition("=")[0] for word in rest}
    left_out = ""
    if not names_sources and not _is_this_machine(given.on):
        rest += [word for source in _SOURCES for word in ("--source", source)]
        left_out = f"the failures in {LOCAL}, which other nodes lack; --source corpus:FILE takes a file that all have"
    if "://" not in (given.dataset or "://"):
        given.dataset = str(Path(given.dataset).absolute())
    return ClusterOptions(
        on=given.on,
        dataset=given.dataset,
        name=name,
        results_dir=given.results_dir or layout.default_directory(name),
        shard_seconds=given.shard_seconds,
        arguments=(*rest, "--shrink", "0"),
        left_out=left_out if LOCAL.is_dir() else "",
    )


def variables() -> dict[str, str]:
    """Return the environment variables of this process that shards get."""
    return {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}


def _without_separator(arguments: Sequence[str]) -> list[str]:
    """Remove the ``--`` that ends the options of `conformance`."""
    return [word for word in arguments if word != "--"]
