"""Goldens of one operator, from today's PyTorch and converters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import torch

from harness.compare import SCALES, Judge, Outcome, anything, normalise
from harness.convert import Converter, find_converter
from harness.core import Array, Invocation, is_float
from harness.execute import Executor, Group, Reference, Result, Settings, Task, run_reference
from harness.gate.golden.golden import Answers, Golden
from harness.gate.golden.golden_selection import drawn, free_outputs, select, settled
from harness.gate.golden.model import standalone
from harness.gate.golden.outcome import Ending, GoldenKey
from harness.generate import OperatorCase, load_cases
from harness.run import ShapeRange

_CAPTURE = "capture"


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
        overload: One that an operator case covers.
        converter_names: Of whose models to store.
        seed: Of the draws.
        count: How many goldens at most.
        without: Case ids of draws that are passed over.
    """
    torch.set_num_threads(1)
    case = load_cases()[overload]
    references = select(case, seed=seed, count=count, without=without)
    models: list[dict[str, bytes]] = [{} for _ in references]
    unconverted: dict[GoldenKey, Ending] = {}
    for name in converter_names:
        with _memory(case.judge):
            serialised, endings = _export(references, name)
        for i, model in serialised.items():
            models[i][name] = model
        for i, ending in endings.items():
            unconverted[references[i].invocation.case_id, name, ""] = ending
    goldens = tuple(_golden(case, r, m) for r, m in zip(references, models, strict=True))
    return GoldensMade(goldens, unconverted)


def candidates(overload: str, *, seed: int) -> list[Invocation]:
    """Among what `make` chooses."""
    return list(drawn(load_cases()[overload], seed))


def ask(invocation: Invocation) -> None:
    """Ask PyTorch all that is asked about a candidate, for whether it survives that."""
    torch.set_num_threads(1)
    case = load_cases()[invocation.overload]
    with suppress(Exception):
        _golden(case, settled(case.judge, run_reference(invocation)), {})


def exported(invocation: Invocation, converter_name: str) -> bytes | Ending:
    """The serialised model of one golden alone, or how its export ended."""
    torch.set_num_threads(1)
    judge = load_cases()[invocation.overload].judge
    with _memory(judge):
        models, endings = _export([settled(judge, run_reference(invocation))], converter_name)
    return models[0] if models else endings[0]


def _golden(case: OperatorCase, reference: Reference, models: Mapping[str, bytes]) -> Golden:
    judge = case.judge
    free = free_outputs(judge, reference.arguments)
    # Outputs that are judged by their distance from the truth.
    near = [
        is_float(str(a.dtype)) and i not in judge.rules and i not in free and not judge.exact
        for i, a in enumerate(reference.expected)
    ]
    sensitive = [
        n and str(a.dtype) not in judge.tolerances for n, a in zip(near, reference.expected, strict=True)
    ]
    sensitivity = reference.sensitivity if any(sensitive) else None
    summed = judge.accumulates and judge.terms is None
    scaled = summed and _shrinks(reference.arguments)
    marked = _chosen(reference.marked, near) if summed else None
    return Golden(
        invocation=reference.invocation,
        inputs=reference.feeds,
        expected=reference.expected,
        truth=_chosen(reference.truth, near) if any(near) else None,
        magnitude=_chosen(reference.magnitude, near) if summed else None,
        unscaled=_chosen(reference.unscaled, near) if scaled else None,
        marked=None if marked is None else tuple(None if a is None else _finite(a) for a in marked),
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


def _finite(array: Array) -> Array:
    return np.where(np.isfinite(array), 1.0, np.nan)


def _shrinks(arguments: Mapping[str, Any]) -> bool:
    return any(
        abs(value) < 1
        for name, value in arguments.items()
        if name in SCALES and isinstance(value, int | float)
    )


# Models


class _Built:
    runnable = False

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        raise NotImplementedError


class _Capture:
    """A backend that keeps the models that it is asked to load."""

    name, device, version = _CAPTURE, "cpu", ""

    def __init__(self) -> None:
        self.models: list[onnx.ModelProto] = []

    def narrows(self, dtype: str) -> str | None:
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> _Built:
        self.models.append(model)
        return _Built()


def _memory(judge: Judge) -> AbstractContextManager[None]:
    return _known_memory() if anything in judge.rules.values() else nullcontext()


@contextmanager
def _known_memory() -> Iterator[None]:
    """Uninitialised memory has known values, lest an exporter make constants of what happens to be there."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@cache
def _converter(name: str) -> Converter:
    return find_converter(name).create(False)


def _export(references: Sequence[Reference], name: str) -> tuple[dict[int, bytes], dict[int, Ending]]:
    """Index of the reference → its serialised model, and → how the others ended."""
    results: list[Result] = []

    def receive(message: object) -> None:
        if isinstance(message, list):
            results.extend(message)

    groups = tuple(Group(i, r.invocation, ((0, r.invocation),)) for i, r in enumerate(references))
    capture = _Capture()
    task = Task(groups, name, (_CAPTURE,), Settings())
    Executor(task, _converter(name), {_CAPTURE: capture}, receive).execute()
    models: dict[int, bytes] = {}
    endings: dict[int, Ending] = {}
    for result in results:
        index = result.case[0]
        if result.outcome is Outcome.BUILT:
            models[index] = _part(capture.models, index, references[index])
        else:
            endings[index] = Ending(result.stage, result.outcome, normalise(result.message), result.message)
    return models, endings


def _part(models: Sequence[onnx.ModelProto], index: int, reference: Reference) -> bytes:
    inputs = [f"c{index}_i{j}" for j in range(len(reference.feeds))]
    outputs = [f"c{index}_o{j}" for j in range(len(reference.expected))]
    for model in models:
        if {o.name for o in model.graph.output}.issuperset(outputs):
            part = standalone(model, inputs, outputs, reference.invocation.overload)
            serialised: bytes = part.SerializeToString(deterministic=True)
            return serialised
    raise LookupError(f"{reference.invocation}: no model has its outputs")
