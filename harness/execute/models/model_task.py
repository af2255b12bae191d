"""What travels between the process that supervises and the one that works, for whole models: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from harness.core import Invocation
from harness.execute.task import Settings

#: A case's index, and a backend's name: what a verdict is on.
ModelCaseKey = tuple[int, str]


@dataclass(frozen=True)
class ModelCase:
    """One run of a model.

    Attributes:
        invocation: The inputs, as arguments of ``model.NAME``.
        change: In what they differ from the exported example, for people; "" for the example itself.
        resized: Whether they do in sizes.
    """

    invocation: Invocation
    change: str = ""
    resized: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelTask:
    """A model to put through one converter and some backends.

    Attributes:
        word: As the user named it.
        converter: Name.
        backends: Names.
        settings: `dynamic` says which kind of export.
        done: What earlier attempts have given a verdict on already.
    """

    handler: ClassVar[str] = "harness.execute.models.model_runner:carry_out"

    word: str
    converter: str
    backends: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    done: frozenset[ModelCaseKey] = frozenset()


@dataclass(frozen=True)
class ModelCases:
    """The runs that a model gets, said before the first."""

    cases: tuple[ModelCase, ...]


@dataclass(frozen=True)
class Growth:
    """How errors grew on the way to one result.

    Attributes:
        case: Index.
        backend: Name.
        error: The backend's largest error against float64, relative to the largest element of its output.
        own: PyTorch's largest error.
        explained: The largest that rounding every operator's result once explains.
    """

    case: int
    backend: str
    error: float
    own: float
    explained: float

    def __str__(self) -> str:
        """For people."""
        beside = f", PyTorch's own {self.own:.1e}" if self.own else ""
        times = f" ({self.error / self.own:.1f} times)" if self.own else ""
        return (
            f"Error against float64 {self.error:.1e} of the largest element{beside}{times}; one rounding per "
            f"operator explains {self.explained:.1e}."
        )


@dataclass(frozen=True, kw_only=True)
class Traced:
    """That a failure is of tracing: the export is right for the inputs that it was made with.

    Attributes:
        case: Index of the failing case.
        backend: Name; "" for all, where there is no export.
        what: ``control flow`` or ``sizes``.
        evidence: What shows it.
    """

    case: int
    backend: str
    what: str
    evidence: str


@dataclass(frozen=True)
class NoModel:
    """That the model cannot be had, in words for a person."""

    message: str
