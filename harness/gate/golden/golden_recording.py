"""Record goldens: draw, export, run on backends, write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import torch

import harness
from harness.compare import Outcome, Stage, normalise
from harness.convert import find_converter
from harness.core import IsolatedCalls, ProcessDied
from harness.gate.golden.golden import Ending, Golden, GoldenKey
from harness.gate.golden.golden_check import ending_of, version_of
from harness.gate.golden.golden_making import GoldensMade, ask, candidates, exported, make
from harness.gate.golden.golden_store import MANIFEST_FILE, Manifest, read_set, write_set
from harness.gate.golden.verify import GoldenDifference, disputed, undisputed
from harness.generate import load_cases
from harness.record import ResultsError

#: What decides on the bytes of a set, beside backends.
_DISTRIBUTIONS = ("torch", "numpy", "ml-dtypes", "onnx", "onnxscript", "onnx-ir", "hypothesis", "pyarrow")


@dataclass(frozen=True)
class Recorded:
    """What `record` did.

    Attributes:
        lost: Overload → why it has no goldens.
        disputed: Goldens that were not recorded, as PyTorch does not agree with itself about them.
    """

    manifest: Manifest
    lost: Mapping[str, str]
    disputed: tuple[GoldenDifference, ...]


def record(
    directory: Path,
    overloads: Sequence[str],
    *,
    backends: Sequence[str],
    converter_names: Sequence[str],
    complete: bool,
    seed: int = 0,
    count: int = 3,
    timeout: float = 120.0,
    progress: Callable[[Iterable[str]], Iterable[str]] = lambda names: names,
) -> Recorded:
    """Record the goldens of some operators.

    Args:
        backends: Whose outcomes to record.
        converter_names: Whose models to store.
        complete: Whether these are all: else other operators' goldens in `directory` are kept.
        count: Goldens per overload, at most.
        timeout: Seconds that an operator may take, and one model on one backend.
        progress: Wraps the operators as they are gone through.

    Raises:
        ResultsError: the directory cannot be written, or holds goldens that something else made.
    """
    with ExitStack() as stack:
        processes = {name: stack.enter_context(IsolatedCalls(timeout=timeout)) for name in backends}
        manifest = _manifest(processes, converter_names, seed, count)
        goldens: dict[str, tuple[Golden, ...]] = {}
        endings: dict[GoldenKey, Ending] = {}
        if not complete and (directory / MANIFEST_FILE).exists():
            goldens, endings = _kept(directory, manifest, set(overloads))
        made, lost = _make(progress(overloads), manifest, endings, timeout)
        found = disputed([golden for held in made.values() for golden in held], timeout=timeout)
        for name, held in list(made.items()):
            made[name] = undisputed(held, found)
            if not made[name]:
                lost[name] = "PyTorch disagrees with itself about every call that was chosen"
                del made[name]
        goldens |= made
        for backend, process in processes.items():
            for golden in (golden for held in made.values() for golden in held):
                for converter in golden.models:
                    ending = ending_of(golden, converter, backend, process)
                    endings[golden.case_id, converter, backend] = ending
    registry = load_cases()
    families = {name: registry[name].family for name in goldens}
    return Recorded(write_set(directory, goldens, endings, families, manifest), lost, tuple(found))


def _make(
    overloads: Iterable[str], manifest: Manifest, endings: dict[GoldenKey, Ending], timeout: float
) -> tuple[dict[str, tuple[Golden, ...]], dict[str, str]]:
    goldens: dict[str, tuple[Golden, ...]] = {}
    lost: dict[str, str] = {}
    with IsolatedCalls(timeout=timeout, fork=True) as process:
        for name in overloads:
            try:
                made = _surviving(name, manifest, process)
            except ProcessDied as death:
                lost[name] = str(death)
                continue
            if made.goldens:
                goldens[name] = made.goldens
                endings.update(made.unconverted)
            else:
                lost[name] = "PyTorch rejects every call that was drawn"
    return goldens, lost


def _surviving(name: str, manifest: Manifest, process: IsolatedCalls) -> GoldensMade:
    """The goldens of an operator: those that do not kill PyTorch, with the models of converters that live."""
    converter_names = tuple(manifest.converters)
    seed, count = manifest.seed, manifest.count
    deadly: set[str] = set()

    def living(chosen: Sequence[str]) -> GoldensMade:
        avoided = frozenset(deadly)
        return process.call(make, name, converter_names=chosen, seed=seed, count=count, without=avoided)

    with suppress(ProcessDied):
        return living(converter_names)
    for invocation in process.call(candidates, name, seed=seed):
        try:
            process.call(ask, invocation)
        except ProcessDied:
            deadly.add(invocation.case_id)
    alive: list[str] = []
    for converter in converter_names:
        # Twice: what reads memory that is not its own dies by chance.
        for _ in range(2):
            with suppress(ProcessDied):
                living((*alive, converter))
                alive.append(converter)
                break
    made = living(alive)
    goldens, unconverted = list(made.goldens), dict(made.unconverted)
    for converter in (name for name in converter_names if name not in alive):
        for i, golden in enumerate(goldens):
            result = _exported(golden, converter, process)
            if isinstance(result, Ending):
                unconverted[golden.case_id, converter, ""] = result
            else:
                goldens[i] = replace(golden, models={**golden.models, converter: result})
    return GoldensMade(tuple(goldens), unconverted)


def _exported(golden: Golden, converter: str, process: IsolatedCalls) -> bytes | Ending:
    """The model of one golden by a converter that does not survive some."""
    try:
        return process.call(exported, golden.invocation, converter)
    except ProcessDied as death:
        outcome = Outcome.TIMEOUT if death.hung else Outcome.CRASH
        return Ending(Stage.CONVERT, outcome, normalise(str(death)))


def _manifest(
    processes: Mapping[str, IsolatedCalls], converter_names: Sequence[str], seed: int, count: int
) -> Manifest:
    return Manifest(
        harness=harness.__version__,
        seed=seed,
        count=count,
        versions={name: metadata.version(name) for name in _DISTRIBUTIONS},
        cpu=torch.backends.cpu.get_cpu_capability(),
        converters={name: find_converter(name).version() for name in converter_names},
        backends={name: process.call(version_of, name) for name, process in processes.items()},
    )


def _kept(
    directory: Path, manifest: Manifest, replaced: set[str]
) -> tuple[dict[str, tuple[Golden, ...]], dict[GoldenKey, Ending]]:
    """What stays of a set in which some operators are recorded again."""
    before, goldens, endings = read_set(directory)
    ours, theirs = ({**vars(m), "files": None, "goldens": None} for m in (manifest, before))
    for name in ours:
        if ours[name] != theirs[name]:
            raise ResultsError(
                f"{directory} was recorded with {name} {_said(theirs[name])}, this is {_said(ours[name])}; "
                "record all operators, or into another directory"
            )
    known = load_cases()
    kept: dict[str, tuple[Golden, ...]] = {}
    for golden in goldens:
        if golden.overload not in replaced and golden.overload in known:
            kept[golden.overload] = (*kept.get(golden.overload, ()), golden)
    ids = {golden.case_id for held in kept.values() for golden in held}
    return kept, {key: ending for key, ending in endings.items() if key[0] in ids}


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return str(value)
