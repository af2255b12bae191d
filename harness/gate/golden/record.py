"""Record goldens: a few small, dissimilar calls of every operator, with PyTorch's outputs and converters' models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

import harness
from harness.compare.judge import Judge, anything
from harness.compare.nearness import SCALES, KnownSensitivity
from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import find_converter
from harness.core.case_group import CaseGroup
from harness.core.dtypes import Array, is_float
from harness.core.invocation import Invocation
from harness.core.isolation import IsolatedCalls, ProcessDied
from harness.core.program import Program, is_program
from harness.core.route import Route
from harness.core.tensors import draws_at_random
from harness.core.text import describe_error
from harness.coverage.value_points import classes
from harness.gate.golden.check import ending_of, run_in_pytorch, version_of
from harness.gate.golden.store import (
    MANIFEST_FILE,
    PASSED,
    Answers,
    Golden,
    GoldenKey,
    Manifest,
    read_set,
    write_set,
)
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.generate.operator_case import judge_of
from harness.generate.pairs.table import structure_conditions
from harness.generate.program_draws import draw_program, other_values
from harness.generate.programs import DTYPES, load_patterns
from harness.pipeline.batch_export import BatchExport, Member, NotConverted
from harness.pipeline.case import CaseOracle
from harness.pipeline.case_run import CaseRun
from harness.pipeline.double_check import DoubleCheck
from harness.pipeline.program import CallStructure
from harness.pipeline.reference import run_reference
from harness.pipeline.start import start_converter
from harness.pipeline.torch_call import CallRejected
from harness.record.layout import ResultsError

#: Structures and value draws from which goldens are chosen.
_STRUCTURES, _VALUES = 32, 3
#: Calls with more input elements are used only if there are no smaller ones.
_SMALL = 80
#: Distributions that determine the bytes of a set, in addition to backends.
_DISTRIBUTIONS = ("torch", "numpy", "ml-dtypes", "onnx", "onnxscript", "onnx-ir", "hypothesis", "pyarrow")
#: Selects PyTorch's kernels for a CPU without vector instructions.
_PLAIN_CPU = {"ATEN_CPU_CAPABILITY": "default"}


@dataclass(frozen=True)
class Recorded:
    """The result of `record`.

    Attributes:
        manifest: The manifest of the set.
        lost: Overload → why it has no goldens.
        disputed: Calls that were not recorded because PyTorch contradicts itself.
    """

    manifest: Manifest
    lost: Mapping[str, str]
    disputed: tuple[Invocation, ...]


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
        directory: The directory of the set.
        overloads: Operators with an operator case, or recorded names of patterns.
        backends: Backends whose endings are recorded.
        converter_names: Converters whose models are stored.
        complete: Whether `overloads` are all operators; otherwise the goldens of others in `directory` are kept.
        seed: The seed of the draws.
        count: Largest number of goldens per overload.
        timeout: Seconds that one call, one export or one model on one backend may take.
        progress: Wraps the iteration over operators.

    Raises:
        ResultsError: The directory cannot be written, or its goldens were made with other versions or options.
    """
    goldens: dict[str, tuple[Golden, ...]] = {}
    endings: dict[GoldenKey, CaseRun] = {}
    lost: dict[str, str] = {}
    disputed: list[Invocation] = []
    with ExitStack() as stack:
        on_backends = {name: stack.enter_context(IsolatedCalls(timeout=timeout)) for name in backends}
        manifest = _manifest(on_backends, converter_names, seed, count)
        if not complete and (directory / MANIFEST_FILE).exists():
            goldens, endings = _kept(directory, manifest, set(overloads))
        maker = _Maker(
            stack.enter_context(IsolatedCalls(timeout=timeout, fork=True)),
            # PyTorch reads the variable when it is imported, so this process must not be forked.
            stack.enter_context(IsolatedCalls(timeout=timeout, environment=_PLAIN_CPU)),
            tuple(converter_names),
            endings,
            disputed,
        )
        for name in progress(overloads):
            made = maker.goldens(name, seed, count)
            if not made:
                lost[name] = "PyTorch rejects every call that was drawn, or contradicts itself"
                continue
            goldens[name] = made
            for backend, process in on_backends.items():
                for golden in made:
                    for converter in golden.models:
                        ending = ending_of(golden, converter, backend, process)
                        endings[golden.case_id, converter, backend] = ending
    cases = load_cases()
    families = {name: cases[name].family if name in cases else "programs" for name in goldens}
    return Recorded(write_set(directory, goldens, endings, families, manifest), lost, tuple(disputed))


@dataclass(frozen=True)
class _Maker:
    """Makes goldens in processes that a call may crash.

    Attributes:
        process: Runs PyTorch and the converters.
        plain: Runs PyTorch without vector instructions.
        converters: Converters whose models are stored.
        endings: Receives the endings of exports without a model.
        disputed: Receives calls on which PyTorch contradicts itself.
    """

    process: IsolatedCalls
    plain: IsolatedCalls
    converters: tuple[str, ...]
    endings: dict[GoldenKey, CaseRun]
    disputed: list[Invocation]

    def goldens(self, overload: str, seed: int, count: int) -> tuple[Golden, ...]:
        """Return at most `count` goldens: the plainest call, then those that add the most conditions.

        Calls without any model come last, and the search ends after `count` of them.
        """
        pool = sorted(_candidates(overload, seed), key=lambda c: (c.size > _SMALL, c.size, c.invocation.json))
        pool = [c for c in pool if c.size <= _SMALL] or pool[:1]
        chosen: list[Golden] = []
        without_model: list[Golden] = []
        seen: set[str] = set()
        while pool and len(chosen) < count and len(without_model) < count:
            best = max(pool, key=lambda c: len(c.conditions - seen) if seen else c.is_plain)
            pool.remove(best)
            if not best.conditions - seen:
                break
            if (golden := self._golden(best.invocation)) is not None:
                golden = self._add_models(golden)
                (chosen if golden.models else without_model).append(golden)
                seen |= best.conditions
                # Further values of a structure show less than other structures.
                structure = best.invocation.structure_id
                pool = [c for c in pool if c.invocation.structure_id != structure]
        return (*chosen, *without_model)[:count]

    def _golden(self, invocation: Invocation) -> Golden | None:
        """Return a golden; None if PyTorch rejects the call, crashes, or contradicts itself."""
        try:
            golden: Golden | None = self.process.call(make_golden, invocation)
        except ProcessDied:
            return None
        if golden is None:
            return None
        for process, memory in ((self.process, True), (self.plain, False)):
            try:
                ending: CaseRun = process.call(_ask_pytorch_again, golden, memory)
            except ProcessDied:
                return None
            if ending.ending != PASSED.ending:
                self.disputed.append(invocation)
                return None
        return golden

    def _add_models(self, golden: Golden) -> Golden:
        models: dict[str, bytes] = {}
        for name in self.converters:
            try:
                result: bytes | CaseRun = self.process.call(export, golden.invocation, name)
            except ProcessDied as death:
                outcome = Outcome.TIMEOUT if death.hung else Outcome.CRASH
                result = CaseRun(stage=Stage.CONVERT, outcome=outcome, message=str(death))
            if isinstance(result, CaseRun):
                self.endings[golden.case_id, name, ""] = result
            else:
                models[name] = result
        return replace(golden, models=models)


# Choose calls.


@dataclass(frozen=True)
class _Candidate:
    invocation: Invocation
    conditions: frozenset[str]
    size: int
    is_plain: bool


def _candidates(overload: str, seed: int) -> Iterator[_Candidate]:
    case = load_cases().get(overload)
    everyday = DTYPES[0] if case is None else case.dtypes[0]
    for invocation in _drawn(overload, seed):
        specs = list(invocation.tensors())
        special = {f"{i} {word}" for i, spec in enumerate(specs) for word in classes(spec) if word in _SPECIAL}
        calls = Program.of(invocation).calls if is_program(invocation) else (invocation,)
        conditions = {c.name for call in calls for c in structure_conditions(call)}
        yield _Candidate(
            invocation,
            frozenset(conditions | special),
            sum(spec.numel for spec in specs),
            invocation.dtype == everyday and not special and all(spec.numel > 1 for spec in specs),
        )


#: Classes of `harness.coverage.value_points` that everyday numbers do not belong to.
_SPECIAL = frozenset({"NaN", "+inf", "-inf", "-0", "subnormal", "largest", "smallest"})


def _drawn(overload: str, seed: int) -> Iterator[Invocation]:
    case = load_cases().get(overload)
    if case is not None:
        dtypes = [dtype for dtype in case.dtypes if dtype not in case.gaps]
        for held in draw_cases(case, seed=seed, structures=_STRUCTURES, values=_VALUES, dtypes=dtypes):
            yield from held.invocations
        return
    for index in range(_STRUCTURES):
        program = draw_program(load_patterns()[overload], seed, index)
        for invocation in (program, *(other_values(program, n) for n in range(1, _VALUES))):
            if not any(map(draws_at_random, Program.of(invocation).calls)):
                yield invocation


# Make a golden of a call.


def make_golden(invocation: Invocation) -> Golden | None:
    """Run a call in PyTorch and keep what its judge needs; None if PyTorch rejects it."""
    torch.set_num_threads(1)
    load_cases()
    judge = judge_of(invocation)
    try:
        reference = run_reference(invocation)
    except CallRejected:
        return None
    if is_program(invocation) and _has_open_elements(reference):
        return None
    free = _free_outputs(judge, reference.arguments)
    reference = replace(
        reference, expected=tuple(np.zeros_like(a) if i in free else a for i, a in enumerate(reference.expected))
    )
    # Outputs that are judged by their distance from the truth.
    near = [
        is_float(str(a.dtype)) and i not in judge.rules and i not in free and not judge.exact
        for i, a in enumerate(reference.expected)
    ]
    sensitive = [n and str(a.dtype) not in judge.tolerances for n, a in zip(near, reference.expected, strict=True)]
    sensitivity = reference.sensitivity if any(sensitive) else None
    measured = None if sensitivity is None else [None if s is None else KnownSensitivity.of(s) for s in sensitivity]
    summed = judge.accumulates and judge.terms is None
    marked = _chosen(reference.marked, near) if summed else None
    finite = [None if a is None else np.where(np.isfinite(a), 1.0, np.nan) for a in marked or ()]
    conditions, errors = (
        None if measured is None else [None if s is None else getattr(s, name) for s in measured]
        for name in ("condition", "own_error")
    )
    flushed = reference.flushed if any(near) or judge.exact else None
    return Golden(
        invocation=invocation,
        feeds=reference.feeds,
        expected=reference.expected,
        truth=_chosen(reference.truth, near) if any(near) else None,
        magnitude=_chosen(reference.magnitude, near) if summed else None,
        unscaled=_chosen(reference.unscaled, near) if summed and _shrinks(reference.arguments) else None,
        marked=tuple(finite) if marked else None,
        condition=_chosen(conditions, sensitive),
        own_error=_chosen(errors, sensitive),
        flushed=flushed and tuple(np.zeros_like(a) if i in free else a for i, a in enumerate(flushed)),
    )


def _free_outputs(judge: Judge, arguments: Mapping[str, Any]) -> frozenset[int]:
    """Return the outputs of which only the shape is compared, or not even that."""
    unasked = judge.unused_outputs(arguments) if judge.unused_outputs else frozenset()
    return unasked.union(i for i, rule in judge.rules.items() if rule is anything)


def _has_open_elements(reference: CaseOracle) -> bool:
    """Whether rounding decides an element that is compared exactly, which a golden cannot express."""
    judge = reference.judge
    marked = judge.undefined(reference.arguments, reference.expected) if judge.undefined else ()
    return any(mask is not None and mask.any() for mask in marked)


def _chosen(answers: Sequence[Array | None] | None, wanted: Sequence[bool]) -> Answers:
    if answers is None or len(answers) != len(wanted):
        return None
    kept = tuple(a if w else None for a, w in zip(answers, wanted, strict=True))
    return kept if any(a is not None for a in kept) else None


def _shrinks(arguments: Mapping[str, Any]) -> bool:
    return any(abs(value) < 1 for name, value in arguments.items() if name in SCALES and isinstance(value, int | float))


@contextmanager
def known_memory() -> Iterator[None]:
    """Fill memory that is allocated within the context with NaN or the largest integer."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _ask_pytorch_again(golden: Golden, with_other_memory: bool) -> CaseRun:
    with known_memory() if with_other_memory else nullcontext():
        return run_in_pytorch(golden)


# Export models.


def export(invocation: Invocation, converter: str) -> bytes | CaseRun:
    """Return the serialised model of one call, or how its export ended."""
    torch.set_num_threads(1)
    judge = load_cases() and judge_of(invocation)
    group = CaseGroup.of(invocation)
    accepted = Member.of(CallStructure.of(group), group)
    route = Route.parse(converter)
    # An exporter might otherwise turn uninitialised memory into constants.
    with known_memory() if judge and anything in judge.rules.values() else nullcontext():
        (exported,) = DoubleCheck(BatchExport(route, start_converter(route))).export([accepted])
    if isinstance(exported, NotConverted):
        failure = exported.failure
        return CaseRun(stage=failure.stage, outcome=failure.outcome, message=describe_error(failure.error))
    assert exported.graph is not None
    structure = accepted.structure
    model = ir.serde.deserialize_model(exported.graph)
    names = {name: f"input_{j}" for j, name in enumerate(structure.input_names)}
    for value in model.graph.inputs:
        value.name = names[str(value.name)]
    for place, value in enumerate(model.graph.outputs):
        value.name = f"output_{place}"
    model.graph.name = invocation.overload
    # Remove metadata, in which exporters store paths of this machine.
    for part in (model.graph, *(function.graph for function in model.functions.values())):
        part.metadata_props.clear()
        for node in part.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
            for out in node.outputs:
                out.metadata_props.clear()
    serialised: bytes = ir.serde.serialize_model(model).SerializeToString(deterministic=True)
    return serialised


# Assemble the set.


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
) -> tuple[dict[str, tuple[Golden, ...]], dict[GoldenKey, CaseRun]]:
    """Return the goldens of an existing set that remain when some operators are recorded again."""
    before, goldens, endings = read_set(directory)
    ours, theirs = ({**vars(m), "files": None, "goldens": None} for m in (manifest, before))
    for name in ours:
        if ours[name] != theirs[name]:
            raise ResultsError(
                f"{directory} was recorded with {name} {_show(theirs[name])}, this is {_show(ours[name])}; "
                "record all operators, or into another directory"
            )
    known = {*load_cases(), *load_patterns()} - replaced
    kept: dict[str, tuple[Golden, ...]] = {}
    for golden in goldens:
        if golden.overload in known:
            kept[golden.overload] = (*kept.get(golden.overload, ()), golden)
    ids = {golden.case_id for held in kept.values() for golden in held}
    return kept, {key: ending for key, ending in endings.items() if key[0] in ids}


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return str(value)
