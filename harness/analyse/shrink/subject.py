"""What is shrunk: an invocation, and with it the one whose shapes are exported where that is another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from harness.analyse.shrink.plainness import Cost, cost
from harness.core import Invocation
from harness.generate import Replayed


@dataclass(frozen=True)
class ShrinkSubject:
    """A case as it is evaluated.

    Attributes:
        invocation: What is run.
        exported: What is exported, for a dynamic export run at other sizes; None for a static one.
    """

    invocation: Invocation
    exported: Invocation | None = None

    @property
    def replayed(self) -> Replayed:
        """For a unit of work."""
        return Replayed(self.invocation, self.exported)

    @cached_property
    def key(self) -> tuple[str, str]:
        """Its identity, as a verdict has it."""
        return self.invocation.json, "" if self.exported is None else self.exported.json

    @cached_property
    def cost(self) -> tuple[Cost, Cost]:
        """Smaller is plainer; what is exported counts after what is run."""
        return cost(self.invocation), () if self.exported is None else cost(self.exported)

    def changed(self, change: Callable[[Invocation], Invocation | None]) -> ShrinkSubject | None:
        """Both invocations changed in the same way; None where one cannot be."""
        invocation = change(self.invocation)
        if invocation is None or self.exported is None:
            return None if invocation is None else ShrinkSubject(invocation)
        exported = change(self.exported)
        return None if exported is None else ShrinkSubject(invocation, exported)

    def with_values(self, change: Callable[[Invocation], Invocation | None]) -> ShrinkSubject | None:
        """The invocation that is run changed; values take no part in an export."""
        invocation = change(self.invocation)
        return None if invocation is None else ShrinkSubject(invocation, self.exported)
