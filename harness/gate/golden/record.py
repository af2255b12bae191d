"""Recording goldens: which invocations, from which exports, into which set.

Which invocations of an operator become goldens: few, small, and unlike each other.

Goldens of one operator, from today's PyTorch and converters.

Record goldens: draw, export, run on backends, write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

import harness
from harness.compare.judge import CLOSE, Judge, anything
from harness.compare.nearness import SCALES
from harness.compare.signatures import normalise
from harness.compare.tolerances import MIN_EXPONENT
from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import Converter, find_converter, onnx_converter
from harness.core.documents import describe_error
from harness.core.dtypes import INT_RANGE, Array, is_float
from harness.core.invocation import Argument, Enumerated, Input, Invocation, Result, TensorSpec, Weight
from harness.core.isolation import IsolatedCalls, ProcessDied
from harness.core.program import Program, is_program
from harness.core.tensors import draws_at_random
from harness.execute.batch_export import Accepted, BatchExport, NotConverted
from harness.execute.double_check import DoubleCheck
from harness.execute.reference import Reference, run_reference
from harness.execute.task import Group, Settings
from harness.execute.torch_call import CallRejected
from harness.gate.golden.golden_check import ending_of, version_of
from harness.gate.golden.onnx_layout import standalone
from harness.gate.golden.store import MANIFEST_FILE, Answers, Ending, Golden, GoldenKey, Manifest, read_set, write_set
from harness.gate.golden.verify import GoldenDifference, disputed, known_memory, undisputed
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.generate.operator_case import OperatorCase, judge_of
from harness.generate.programs import DTYPES, Pattern, draw_program, load_patterns, other_values
from harness.record.layout import ResultsError

#: Structures and value draws among which goldens are chosen.
_STRUCTURES, _VALUES = 32, 3
#: Elements of inputs and outputs together beyond which a candidate is taken only for want of others.
_SMALL = 160

#: What it is worth that goldens show something for the first time, by kind. What exporters and runtimes get
#: wrong is found with other dtypes, special numbers and flags more often than with other sizes.
_WORTH: Mapping[str, float] = {
    "dtype": 3.0,
    "special": 2.0,
    "flag": 2.0,
    "answer": 1.5,
    "shape": 1.5,
    "given": 1.0,
    "layout": 0.5,
}
#: What an element costs, by the logarithm of their number; the first few are free, lest most be empty.
_COST, _FREE = 0.6, 16


@dataclass(frozen=True)
class _Drawn:
    """What goldens of an operator, or of a pattern of programs, are drawn from.

    Attributes:
        dtype: The everyday one.
        judge: Of its answers.
        family: That it is filed under.
        invocations: By a seed, those that goldens are chosen among.
    """

    dtype: str
    judge: Judge
    family: str
    invocations: Callable[[int], Iterator[Invocation]]


def _drawn_from(overload: str) -> _Drawn:
    pattern = load_patterns().get(overload)
    if pattern is not None:
        return _Drawn(DTYPES[0], CLOSE, "programs", partial(_programs, pattern))
    case = load_cases()[overload]
    return _Drawn(case.dtypes[0], case.judge, case.family, partial(drawn, case))


@dataclass(frozen=True)
class _Candidate:
    reference: Reference
    size: int
    features: frozenset[tuple[str, str]]
    plainness: int

    @property
    def order(self) -> tuple[int, str]:
        """Smallest first; the same everywhere."""
        return self.size, self.reference.invocation.json


def select(overload: str, *, seed: int, count: int, without: frozenset[str] = frozenset()) -> list[Reference]:
    """At most `count` cases of one operator, or of one pattern of programs, the plainest first.

    They are chosen among draws: first a small one with finite, ordinary numbers, then
    by what each shows that those before it do not, minus its size.

    Args:
        without: Case ids of draws that are passed over.
    """
    candidates = list(_candidates(_drawn_from(overload), seed, without))
    small = [c for c in candidates if c.size <= _SMALL]
    pool = sorted(small or candidates, key=lambda c: c.order)
    if not small:
        pool = pool[:1]
    chosen: list[_Candidate] = []
    seen: set[tuple[str, str]] = set()
    while pool and len(chosen) < count:
        if not chosen:
            # The first of the plainest, which is the smallest of them.
            best = max(pool, key=lambda c: c.plainness)
        else:
            best = max(pool, key=lambda c: _score(c, seen))
            if not best.features - seen:
                break
        chosen.append(best)
        seen |= best.features
        # More values of one structure show little that another structure does not.
        pool = [c for c in pool if c.reference.invocation.structure_id != best.reference.invocation.structure_id]
    return [c.reference for c in chosen]


def settled(judge: Judge, reference: Reference) -> Reference:
    """The same with zeros for the outputs that may hold anything, which are other numbers in every run."""
    free = free_outputs(judge, reference.arguments)
    expected = (np.zeros_like(a) if i in free else a for i, a in enumerate(reference.expected))
    return replace(reference, expected=tuple(expected)) if free else reference


def free_outputs(judge: Judge, arguments: Mapping[str, Any]) -> frozenset[int]:
    """Outputs of which nothing is asked but a shape, or not even that."""
    unasked = judge.unused_outputs(arguments) if judge.unused_outputs else frozenset()
    return unasked.union(i for i, rule in judge.rules.items() if rule is anything)


def _score(candidate: _Candidate, seen: set[tuple[str, str]]) -> float:
    worth = sum(_WORTH[kind] for kind, _ in candidate.features - seen)
    return worth - _COST * math.log2(max(candidate.size, _FREE))


def drawn(case: OperatorCase, seed: int) -> Iterator[Invocation]:
    """The calls that goldens are chosen among: those of dtypes that some converter takes."""
    dtypes = [dtype for dtype in case.dtypes if dtype not in case.gaps]
    for held in draw_cases(case, seed=seed, structures=_STRUCTURES, values=_VALUES, dtypes=dtypes):
        yield from held.invocations


def _programs(pattern: Pattern, seed: int) -> Iterator[Invocation]:
    """Programs that have one answer, whatever roundings decide."""
    for index in range(_STRUCTURES):
        program = draw_program(pattern, seed, index)
        for invocation in (program, *(other_values(program, n) for n in range(1, _VALUES))):
            if not any(map(draws_at_random, Program.of(invocation).calls)):
                yield invocation


def _candidates(source: _Drawn, seed: int, without: frozenset[str]) -> Iterator[_Candidate]:
    for invocation in source.invocations(seed):
        if invocation.case_id in without:
            continue
        try:
            reference = settled(judge_of(invocation), run_reference(invocation))
        except CallRejected:
            # PyTorch rejects it: there is nothing to store.
            continue
        if is_program(invocation) and _has_open_elements(reference):
            continue
        arrays = (*reference.feeds, *reference.expected)
        features = frozenset(_features(reference))
        plainness = sum(
            (
                2 * (invocation.dtype == source.dtype),
                2 * (all(a.size for a in arrays) and max((a.size for a in arrays), default=0) > 2),
                2 * (not any(kind == "special" for kind, _ in features)),
                all(_is_finite(a) for a in reference.expected),
            )
        )
        yield _Candidate(reference, sum(a.size for a in arrays), features, plainness)


def _has_open_elements(reference: Reference) -> bool:
    """Whether roundings decide an element that is compared exactly: a golden has no word for that."""
    judge = reference.judge
    marked = judge.undefined(reference.arguments, reference.expected) if judge.undefined else ()
    return any(mask is not None and mask.any() for mask in marked)


def _features(reference: Reference) -> Iterator[tuple[str, str]]:
    for spec in reference.invocation.tensors():
        yield "dtype", spec.dtype
        yield "shape", "empty" if not spec.numel else str(min(len(spec.shape), 4))
        if not spec.is_contiguous:
            yield "layout", "strided"
    invocation = reference.invocation
    for call in Program.of(invocation).calls if is_program(invocation) else (invocation,):
        for name, argument in call.arguments:
            yield from _of_argument(name, argument)
    for array in reference.feeds:
        for word in _special(array):
            yield "special", word
    for array in reference.expected:
        yield "dtype", str(array.dtype)
        for word in _special(array):
            yield "answer", word


def _of_argument(name: str, argument: Argument) -> Iterator[tuple[str, str]]:
    if isinstance(argument, TensorSpec | Weight | Result | Input):
        yield "given", name
    elif isinstance(argument, bool | str | Enumerated) or argument is None:
        yield "flag", f"{name}={argument}"
    elif isinstance(argument, tuple):
        yield "given", f"{name}[{min(len(argument), 3)}]"
    else:
        value = abs(argument)
        size = "nan" if value != value else "0" if not value else "1" if value == 1 else "n"
        sign = "-" if isinstance(argument, int | float) and argument < 0 else ""
        yield "given", f"{name}={sign}{type(argument).__name__}{size}"


def _special(array: Array) -> Iterator[str]:
    dtype = str(array.dtype)
    if dtype in INT_RANGE:
        if array.size and (array.min() == INT_RANGE[dtype][0] or array.max() == INT_RANGE[dtype][1]):
            yield "edge of integers"
        return
    if dtype not in MIN_EXPONENT:
        return
    wide = array.astype(np.float64)
    magnitude = np.abs(wide)
    if np.isnan(wide).any():
        yield "nan"
    if np.isinf(wide).any():
        yield "inf"
    if ((wide == 0) & np.signbit(wide)).any():
        yield "-0"
    if ((magnitude > 0) & (magnitude < 2.0 ** MIN_EXPONENT[dtype])).any():
        yield "subnormal"
    if (np.isfinite(magnitude) & (magnitude > 2.0 ** min(-MIN_EXPONENT[dtype], 1000))).any():
        yield "large"


def _is_finite(array: Array) -> bool:
    return array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.complex128)).all())


@dataclass(frozen=True)
class GoldensMade:
    """The goldens of one operator.

    Attributes:
        goldens: The plainest first.
        unconverted: Where a converter gave no valid model, how it ended.
    """

    goldens: tuple[Golden, ...]
    unconverted: Mapping[GoldenKey, Ending]


def make(
    overload: str,
    *,
    converter_names: Sequence[str],
    seed: int,
    count: int,
    without: frozenset[str] = frozenset(),
) -> GoldensMade:
    """Draw, run and export the goldens of one operator.

    Args:
        overload: One that an operator case covers, or a pattern's name in the record.
        converter_names: Of whose models to store.
        without: Case ids of draws that are passed over.
    """
    torch.set_num_threads(1)
    source = _drawn_from(overload)
    references = select(overload, seed=seed, count=count, without=without)
    models: list[dict[str, bytes]] = [{} for _ in references]
    unconverted: dict[GoldenKey, Ending] = {}
    for name in converter_names:
        with _memory(source.judge):
            serialised, endings = _export(references, name)
        for i, model in serialised.items():
            models[i][name] = model
        for i, ending in endings.items():
            unconverted[references[i].invocation.case_id, name, ""] = ending
    goldens = tuple(_golden(r, m) for r, m in zip(references, models, strict=True))
    return GoldensMade(goldens, unconverted)


def candidates(overload: str, *, seed: int) -> list[Invocation]:
    """Among what `make` chooses."""
    return list(_drawn_from(overload).invocations(seed))


def ask(invocation: Invocation) -> None:
    """Ask PyTorch all that is asked about a candidate, for whether it survives that."""
    torch.set_num_threads(1)
    load_cases()
    with suppress(Exception):
        _golden(settled(judge_of(invocation), run_reference(invocation)), {})


def exported(invocation: Invocation, converter_name: str) -> bytes | Ending:
    """The serialised model of one golden alone, or how its export ended."""
    torch.set_num_threads(1)
    load_cases()
    judge = judge_of(invocation)
    with _memory(judge):
        models, endings = _export([settled(judge, run_reference(invocation))], converter_name)
    return models[0] if models else endings[0]


def _golden(reference: Reference, models: Mapping[str, bytes]) -> Golden:
    judge = judge_of(reference.invocation)
    free = free_outputs(judge, reference.arguments)
    # Outputs that are judged by their distance from the truth.
    near = [
        is_float(str(a.dtype)) and i not in judge.rules and i not in free and not judge.exact
        for i, a in enumerate(reference.expected)
    ]
    sensitive = [n and str(a.dtype) not in judge.tolerances for n, a in zip(near, reference.expected, strict=True)]
    sensitivity = reference.sensitivity if any(sensitive) else None
    summed = judge.accumulates and judge.terms is None
    scaled = summed and _shrinks(reference.arguments)
    marked = _chosen(reference.marked, near) if summed else None
    finite = [None if a is None else np.where(np.isfinite(a), 1.0, np.nan) for a in marked or ()]
    return Golden(
        invocation=reference.invocation,
        inputs=reference.feeds,
        expected=reference.expected,
        truth=_chosen(reference.truth, near) if any(near) else None,
        magnitude=_chosen(reference.magnitude, near) if summed else None,
        unscaled=_chosen(reference.unscaled, near) if scaled else None,
        marked=tuple(finite) if marked else None,
        condition=_chosen(
            [None if s is None else s.condition for s in sensitivity] if sensitivity else None, sensitive
        ),
        own_error=_chosen(
            [None if s is None else s.own_error for s in sensitivity] if sensitivity else None, sensitive
        ),
        flushed=_flushed(reference, free) if any(near) or judge.exact else None,
        models=models,
    )


def _chosen(answers: Sequence[Array | None] | None, wanted: Sequence[bool]) -> Answers:
    if answers is None or len(answers) != len(wanted):
        return None
    kept = tuple(a if w else None for a, w in zip(answers, wanted, strict=True))
    return kept if any(a is not None for a in kept) else None


def _flushed(reference: Reference, free: frozenset[int]) -> tuple[Array, ...] | None:
    if reference.flushed is None:
        return None
    return tuple(np.zeros_like(a) if i in free else a for i, a in enumerate(reference.flushed))


def _shrinks(arguments: Mapping[str, Any]) -> bool:
    return any(abs(value) < 1 for name, value in arguments.items() if name in SCALES and isinstance(value, int | float))


def _memory(judge: Judge) -> AbstractContextManager[None]:
    # Lest an exporter make constants of what happens to be in uninitialised memory.
    return known_memory() if anything in judge.rules.values() else nullcontext()


@cache
def _converter(name: str) -> Converter:
    return onnx_converter(name)


def _export(references: Sequence[Reference], name: str) -> tuple[dict[int, bytes], dict[int, Ending]]:
    """Index of the reference → its serialised model, and → how the others ended."""
    accepted = [Accepted.of(Group(i, r.invocation, ((0, r.invocation),)), {0: r}) for i, r in enumerate(references)]
    models: dict[int, bytes] = {}
    endings: dict[int, Ending] = {}
    for found in DoubleCheck(BatchExport(Settings(), _converter(name))).export(accepted):
        for member in found.members:
            index, structure = member.group.index, member.structure
            if isinstance(found, NotConverted):
                failure = found.failure
                message = describe_error(failure.error)
                endings[index] = Ending(failure.stage, failure.outcome, normalise(message), message)
            else:
                overload = references[index].invocation.overload
                assert found.graph is not None
                part = standalone(found.graph, structure.input_names, structure.output_names, overload)
                models[index] = part.SerializeToString(deterministic=True)
    return models, endings


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
    families = {name: _drawn_from(name).family for name in goldens}
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
    known = {*load_cases(), *load_patterns()}
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
