"""Goldens of one operator, from today's PyTorch and converters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from harness.compare import SCALES, Judge, anything, normalise
from harness.convert import Converter, find_converter
from harness.core import Array, Invocation, describe_error, is_float
from harness.execute import (
    Accepted,
    BatchExport,
    Group,
    NotConverted,
    Reference,
    Settings,
    run_reference,
)
from harness.gate.golden.golden import Answers, Ending, Golden, GoldenKey
from harness.gate.golden.golden_selection import drawn, free_outputs, select, settled
from harness.gate.golden.model import standalone
from harness.gate.golden.verify import known_memory
from harness.generate import OperatorCase, judge_of, load_cases


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
        _golden(case, settled(judge_of(invocation), run_reference(invocation)), {})


def exported(invocation: Invocation, converter_name: str) -> bytes | Ending:
    """The serialised model of one golden alone, or how its export ended."""
    torch.set_num_threads(1)
    load_cases()
    judge = judge_of(invocation)
    with _memory(judge):
        models, endings = _export([settled(judge, run_reference(invocation))], converter_name)
    return models[0] if models else endings[0]


def _golden(case: OperatorCase, reference: Reference, models: Mapping[str, bytes]) -> Golden:
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
    return find_converter(name).create(False)


def _export(references: Sequence[Reference], name: str) -> tuple[dict[int, bytes], dict[int, Ending]]:
    """Index of the reference → its serialised model, and → how the others ended."""
    accepted = [Accepted.of(Group(i, r.invocation, ((0, r.invocation),)), {0: r}) for i, r in enumerate(references)]
    models: dict[int, bytes] = {}
    endings: dict[int, Ending] = {}
    for found in BatchExport(Settings(), _converter(name)).export(accepted):
        for member in found.members:
            index, structure = member.group.index, member.structure
            if isinstance(found, NotConverted):
                failure = found.failure
                said = describe_error(failure.error)
                endings[index] = Ending(failure.stage, failure.outcome, normalise(said), said)
            else:
                overload = references[index].invocation.overload
                part = standalone(found.model, structure.input_names, structure.output_names, overload)
                models[index] = part.SerializeToString(deterministic=True)
    return models, endings
