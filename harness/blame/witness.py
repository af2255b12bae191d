"""What a witness is, and the list of them.

A witness is one file in `harness.blame.witnesses` that calls `register` at import. It looks at a failing case
in the worker process, where it may raise, crash or hang: then it is on record as not having survived, and the
others are asked all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from harness.blame.testimony import Testimony
from harness.blame.trial import Trial
from harness.execute import Settings


class Turn(Enum):
    """When a witness is asked.

    `FIRST`: always. `GRAPH`: it costs an export, so where the graph seems to be to blame, for a few
    structures or where nothing confirms PyTorch, and where the blame is open. `OPEN`: where it still is.
    """

    FIRST = 1
    GRAPH = 2
    OPEN = 3


class Witness(Protocol):
    """Somebody who can say something about a failure."""

    @property
    def name(self) -> str:
        """Unique; for a person, where the witness did not survive."""

    @property
    def turn(self) -> Turn:
        """When it is asked."""

    def testify(self, trial: Trial) -> Iterable[Testimony]:
        """What it finds; nothing where it has nothing to say.

        Raises:
            Exception: anything; it counts as having nothing to say.
        """


#: Filled at import by `register`, in the order in which witnesses are heard.
FACTORIES: list[Callable[[Settings], Iterable[Witness]]] = []


def register(factory: Callable[[Settings], Iterable[Witness]]) -> None:
    """Add witnesses.

    Args:
        factory: The witnesses of a run with these settings.
    """
    FACTORIES.append(factory)
