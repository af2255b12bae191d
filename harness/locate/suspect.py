"""A line of a converter's source that may cause a failure, with the reason."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A statement of a converter's source that may cause a failure.

    Attributes:
        function: The function that contains it.
        file: Path relative to the folder of its package: ``onnxscript/function_libs/torch_lib/ops/core.py``.
        line: The first line of the statement.
        text: The statement, or the head of a compound one, on one line.
        reason: One or more sentences.
        score: From 0 to 1, combining how strongly the statement correlates with the failure and other observations.
    """

    function: str
    file: str
    line: int
    text: str
    reason: str
    score: float

    @property
    def place(self) -> str:
        """The function and line: ``aten_celu (onnxscript/function_libs/torch_lib/ops/nn.py:304)``."""
        return f"{self.function} ({self.file}:{self.line})"

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {**asdict(self), "score": round(self.score, 3)}
