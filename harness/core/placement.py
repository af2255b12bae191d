"""The placement of a case's nodes on the CPU or on the backend's device, as data for the record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class OnCpu(StrEnum):
    """The extent to which a case ran on the CPU.

    Attributes:
        PARTLY: Some of its nodes.
        WHOLLY: All of its nodes.
        FOLDED: The runtime computed it while it loaded the model, since nothing in it depends on an input.
        UNKNOWN: The runtime does not tell.
    """

    PARTLY = "partly-on-cpu"
    WHOLLY = "wholly-on-cpu"
    FOLDED = "folded"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Placement:
    """The part of a case that ran on the CPU although the backend's device is another.

    Attributes:
        on_cpu: The extent.
        operators: The ONNX operators of the nodes on the CPU, sorted.
    """

    on_cpu: OnCpu
    operators: tuple[str, ...] = ()

    @classmethod
    def fallback(cls, operators: Iterable[str], *, wholly: bool) -> Self:
        """Return the placement of a case whose nodes of some operators, or all of its nodes, ran on the CPU."""
        return cls(OnCpu.WHOLLY if wholly else OnCpu.PARTLY, tuple(sorted(set(operators))))

    @property
    def text(self) -> str:
        """The text for the record's column: ``partly-on-cpu Add NonZero``."""
        return " ".join((self.on_cpu, *self.operators))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the placement in a column; None for "". A run of an earlier version has a sentence there."""
        if not text:
            return None
        if text.startswith(_EARLIER):
            wholly = text.endswith(_EARLIER_WHOLLY)
            return cls.fallback(text.removeprefix(_EARLIER).removesuffix(_EARLIER_WHOLLY).split(", "), wholly=wholly)
        word, *operators = text.split()
        if word in {*OnCpu}:
            return cls(OnCpu(word), tuple(operators))
        return cls(OnCpu.FOLDED if text.startswith("computed") else OnCpu.UNKNOWN)


#: How the sentence of earlier versions began and ended.
_EARLIER, _EARLIER_WHOLLY = "fell back to CPU: ", " (nothing ran on the device)"
