"""The protocol of witnesses, and the list of them.

A witness is a function in a file of `harness.blame.witnesses`, marked with `witness`. It looks at a failing
case in the worker process, where it may raise, crash or hang: that goes on record, and the others are asked
anyway. It checks by itself whether it can take a case, and testifies nothing if it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TypeAlias

from harness.blame.failure_context import FailureContext
from harness.compare.diagnosis import Testimony
from harness.pipeline.task import Settings
from harness.run.artefact import ONNX
from harness.run.backend import BACKENDS


class Turn(Enum):
    """The time at which a witness is asked.

    `FIRST`: always. `GRAPH`: unless the runtime is to blame, since it looks at the making of the graph. `OPEN`: if
    the blame is still unknown.
    """

    FIRST = 1
    GRAPH = 2
    OPEN = 3


#: Yields a witness's testimonies; none if it has none. Its exceptions are recorded.
Testify: TypeAlias = "Callable[[FailureContext], Iterable[Testimony]]"


@dataclass(frozen=True)
class Witness:
    """A source of evidence about a failure.

    Attributes:
        name: Unique; for a person, if the witness could not be asked.
        place: Among the witnesses of its turn; the lowest is asked first.
        of_one_call: Whether it has nothing to say of a program of several calls.
        of_any_artefact: Whether it has something to say if the converter makes no ONNX model.
        of_pytorch: Whether it asks PyTorch or a converter, which know nothing of an ONNX file.
    """

    name: str
    turn: Turn
    place: int
    testify: Testify
    of_one_call: bool = False
    of_any_artefact: bool = False
    of_pytorch: bool = False


Factory: TypeAlias = Callable[[Settings], Iterable[Witness]]
#: Filled at import by `add_witnesses`.
FACTORIES: list[Factory] = []


def add_witnesses(factory: Factory) -> Factory:
    """Add the witnesses that a run with some settings has; for those that depend on the settings."""
    FACTORIES.append(factory)
    return factory


def witness(
    name: str,
    *,
    place: int = 1000,
    turn: Turn = Turn.FIRST,
    of_one_call: bool = False,
    of_any_artefact: bool = False,
    of_pytorch: bool = False,
) -> Callable[[Testify], Witness]:
    """Make a witness of a function. See `Witness` for the arguments."""

    def add(testify: Testify) -> Witness:
        one = Witness(name, turn, place, testify, of_one_call, of_any_artefact, of_pytorch)
        add_witnesses(lambda settings: [one])
        return one

    return add


@cache
def backends_to_ask(named: tuple[str, ...] | None = None, *, last: bool = False) -> tuple[str, ...]:
    """Return the installed backends that are asked about another backend's failure, in the order of asking.

    Args:
        named: Names; None for the backends that take ONNX models and whose entries allow it.
        last: The entries that are asked only if the failure cannot be decided without them.
    """
    if named is None:
        known = [e for e in BACKENDS.entries() if ONNX in e.takes]
        willing = [e for e in known if e.witness is not None and e.last_witness is last]
        named = tuple(e.name for e in sorted(willing, key=lambda e: e.witness or 0))
    found = [(name, *BACKENDS.find(name)) for name in named]
    return tuple(name for name, entry, argument in found if entry.probe(argument) is None)
