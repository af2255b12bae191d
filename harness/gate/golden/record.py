"""Recording goldens: few small calls of every operator, unlike each other, with PyTorch's outputs and models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

import harness
from harness.compare.judge import Judge, anything
from harness.compare.nearness import SCALES
from harness.compare.signatures import normalise
from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import Converter, find_converter, onnx_converter
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
    Ending,
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
from harness.generate.programs import DTYPES, draw_program, load_patterns, other_values
from harness.pipeline.batch_export import Accepted, BatchExport, NotConverted
from harness.pipeline.double_check import DoubleCheck
from harness.pipeline.reference import Reference, run_reference
from harness.pipeline.task import Group
from harness.pipeline.torch_call import CallRejected
from harness.record.layout import ResultsError

#: Structures and value draws among which goldens are chosen.
_STRUCTURES, _VALUES = 32, 3
#: Elements of the inputs together beyond which a call is taken only for want of others.
_SMALL = 80
#: What decides on the bytes of a set, besides backends.
_DISTRIBUTIONS = ("torch", "numpy", "ml-dtypes", "onnx", "onnxscript", "onnx-ir", "hypothesis", "pyarrow")
#: PyTorch's kernels for a CPU without vector instructions.
_PLAIN_CPU = {"ATEN_CPU_CAPABILITY": "default"}


@dataclass(frozen=True)
class Recorded:
    """What `record` did.

    Attributes:
        lost: Overload → why it has no goldens.
        disputed: Calls that were not recorded, as PyTorch does not agree with itself about them.
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
        overloads: Those that operator cases cover, or patterns' names in the record.
        backends: Whose outcomes to record.
        converter_names: Whose models to store.
        complete: Whether these are all: else other operators' goldens in `directory` are kept.
        count: Goldens per overload, at most.
        timeout: Seconds that one call, one export or one model on one backend may take.
        progress: Wraps the operators as they are gone through.

    Raises:
        ResultsError: the directory cannot be written, or holds goldens that something else made.
    """
    goldens: dict[str, tuple[Golden, ...]] = {}
    endings: dict[GoldenKey, Ending] = {}
    lost: dict[str, str] = {}
    disputed: list[Invocation] = []
    with ExitStack() as stack:
        on_backends = {name: stack.enter_context(IsolatedCalls(timeout=timeout)) for name in backends}
        manifest = _manifest(on_backends, converter_names, seed, count)
        if not complete and (directory / MANIFEST_FILE).exists():
            goldens, endings = _kept(directory, manifest, set(overloads))
        maker = _Maker(
            stack.enter_context(IsolatedCalls(timeout=timeout, fork=True)),
            # PyTorch looks at the variable as it is imported, which the fork server has done.
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
    """Makes goldens in processes that may die of a call.

    Attributes:
        process: Runs PyTorch and the converters.
        plain: Runs PyTorch without vector instructions.
        converters: Whose models to store.
        endings: Takes how exports ended that gave no model.
        disputed: Takes the calls that PyTorch contradicts itself about.
    """

    process: IsolatedCalls
    plain: IsolatedCalls
    converters: tuple[str, ...]
    endings: dict[GoldenKey, Ending]
    disputed: list[Invocation]

    def goldens(self, overload: str, seed: int, count: int) -> tuple[Golden, ...]:
        """Return at most `count` goldens: the plainest call, then those that add most conditions.

        Calls that no converter has a model of come last, and are given up after `count` of them.
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
                golden = self._with_models(golden)
                (chosen if golden.models else without_model).append(golden)
                seen |= best.conditions
                # More values of one structure show little that another structure does not.
                structure = best.invocation.structure_id
                pool = [c for c in pool if c.invocation.structure_id != structure]
        return (*chosen, *without_model)[:count]

    def _golden(self, invocation: Invocation) -> Golden | None:
        """None where PyTorch rejects the call, dies of it, or contradicts itself."""
        try:
            golden: Golden | None = self.process.call(make_golden, invocation)
        except ProcessDied:
            return None
        if golden is None:
            return None
        for process, memory in ((self.process, True), (self.plain, False)):
            try:
                ending: Ending = process.call(_ask_pytorch_again, golden, memory)
            except ProcessDied:
                return None
            if ending.words != PASSED.words:
                self.disputed.append(invocation)
                return None
        return golden

    def _with_models(self, golden: Golden) -> Golden:
        models: dict[str, bytes] = {}
        for name in self.converters:
            try:
                result: bytes | Ending = self.process.call(export, golden.invocation, name)
            except ProcessDied as death:
                outcome = Outcome.TIMEOUT if death.hung else Outcome.CRASH
                result = Ending(Stage.CONVERT, outcome, normalise(str(death)))
            if isinstance(result, Ending):
                self.endings[golden.case_id, name, ""] = result
            else:
                models[name] = result
        return replace(golden, models=models)


# Choosing calls


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


#: Classes of numbers, of those that `--generator-report` looks for, that everyday numbers are not of.
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


# What is stored of a call


def make_golden(invocation: Invocation) -> Golden | None:
    """Run a call in PyTorch and keep what its judge asks for; None where PyTorch rejects it."""
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
    summed = judge.accumulates and judge.terms is None
    marked = _chosen(reference.marked, near) if summed else None
    finite = [None if a is None else np.where(np.isfinite(a), 1.0, np.nan) for a in marked or ()]
    conditions, errors = (
        None if sensitivity is None else [None if s is None else getattr(s, name) for s in sensitivity]
        for name in ("condition", "own_error")
    )
    flushed = reference.flushed if any(near) or judge.exact else None
    return Golden(
        invocation=invocation,
        inputs=reference.feeds,
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
    """Outputs of which nothing is asked but a shape, or not even that."""
    unasked = judge.unused_outputs(arguments) if judge.unused_outputs else frozenset()
    return unasked.union(i for i, rule in judge.rules.items() if rule is anything)


def _has_open_elements(reference: Reference) -> bool:
    """Whether roundings decide an element that is compared exactly: a golden has no word for that."""
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
    """What is allocated within is filled with NaN or the largest integer."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _ask_pytorch_again(golden: Golden, with_other_memory: bool) -> Ending:
    with known_memory() if with_other_memory else nullcontext():
        return run_in_pytorch(golden)


# Models


@cache
def _converter(name: str) -> Converter:
    return onnx_converter(name)


def export(invocation: Invocation, converter: str) -> bytes | Ending:
    """The serialised model of one call, or how its export ended."""
    torch.set_num_threads(1)
    judge = load_cases() and judge_of(invocation)
    reference = run_reference(invocation)
    accepted = Accepted.of(Group(0, invocation, ((0, invocation),)), {0: reference})
    # Lest an exporter make constants of what happens to be in uninitialised memory.
    with known_memory() if judge and anything in judge.rules.values() else nullcontext():
        (found,) = DoubleCheck(BatchExport(Route(converter=converter), _converter(converter))).export([accepted])
    if isinstance(found, NotConverted):
        message = describe_error(found.failure.error)
        return Ending(found.failure.stage, found.failure.outcome, normalise(message), message)
    assert found.graph is not None
    structure = accepted.structure
    model = ir.serde.deserialize_model(found.graph)
    names = {name: f"input_{j}" for j, name in enumerate(structure.input_names)}
    for value in model.graph.inputs:
        value.name = names[str(value.name)]
    for place, value in enumerate(model.graph.outputs):
        value.name = f"output_{place}"
    model.graph.name = invocation.overload
    # Exporters note the lines of this machine's files.
    for part in (model.graph, *(function.graph for function in model.functions.values())):
        part.metadata_props.clear()
        for node in part.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
            for out in node.outputs:
                out.metadata_props.clear()
    serialised: bytes = ir.serde.serialize_model(model).SerializeToString(deterministic=True)
    return serialised


# The set


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
    known = {*load_cases(), *load_patterns()} - replaced
    kept: dict[str, tuple[Golden, ...]] = {}
    for golden in goldens:
        if golden.overload in known:
            kept[golden.overload] = (*kept.get(golden.overload, ()), golden)
    ids = {golden.case_id for held in kept.values() for golden in held}
    return kept, {key: ending for key, ending in endings.items() if key[0] in ids}


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return str(value)
