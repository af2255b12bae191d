"""A line of a converter's source, and why it may cause a failure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A statement of a converter's source that may cause a failure.

    Attributes:
        function: That it is in.
        file: Relative to the folder of its package: ``onnxscript/function_libs/torch_lib/ops/core.py``.
        line: First line of the statement.
        text: The statement, of a compound one its head; in one line.
        reason: Why, in a sentence or more.
        score: From 0 to 1: how far the statement goes with the failure, and what speaks for it in addition.
    """

    function: str
    file: str
    line: int
    text: str
    reason: str
    score: float

    @property
    def place(self) -> str:
        """``aten_celu (onnxscript/function_libs/torch_lib/ops/nn.py:304)``."""
        return f"{self.function} ({self.file}:{self.line})"

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**asdict(self), "score": round(self.score, 3)}
