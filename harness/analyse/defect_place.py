"""A place in somebody's code, and what is known of a failed row that tells it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.analyse.blame_facts import BlameFacts
from harness.analyse.call_facts import CallFacts
from harness.analyse.message_facts import ELEMENT
from harness.analyse.operator_family import family_name
from harness.compare import Stage


@dataclass(frozen=True, order=True)
class Place:
    """Where a defect is: whose it is, and what of theirs.

    Attributes:
        owner: ``ort-cpu``, ``torchlib``, ``TorchScript``, ``PyTorch``, ``ONNX``; ``rule`` for a user's; a
            converter's name where its library is not known, with the backend where nobody is blamed.
        name: An operator, a function, a pass.
        file: Of a function, relative to the folder of its package; "" where there is none.
        choice: Which of a function's algorithms: ``rounding_mode=floor``; "" where it has one.
    """

    owner: str
    name: str
    file: str = ""
    choice: str = ""

    def __str__(self) -> str:
        """``torchlib: aten_clamp in onnxscript/function_libs/torch_lib/ops/core.py``."""
        choice = f" ({self.choice})" if self.choice else ""
        return f"{self.owner}: {self.name}{choice}" + (f" in {self.file}" if self.file else "")


@dataclass(frozen=True, kw_only=True)
class FailedRow:
    """What tells the place of a failed row.

    Attributes:
        words: Of its signature.
        facts: Of its evidence.
        called: Of its arguments.
        said: What its message names; see `harness.analyse.message_facts`.
        by_operator: Whether the words are the same for many defects, so that only the operator tells.
    """

    overload: str
    converter: str
    backend: str
    stage: Stage
    words: str
    facts: BlameFacts
    called: CallFacts
    said: tuple[str, ...]
    by_operator: bool

    @property
    def element(self) -> str:
        """The kind of the wrong element that its message shows; "" for none that tells something."""
        return self.said[1] if self.said[:1] == (ELEMENT,) else ""

    @property
    def packet(self) -> str:
        """``aten.add``."""
        return self.overload.rpartition(".")[0]

    @property
    def family(self) -> str:
        """The operator under the name that its aliases and dimensions share."""
        return family_name(self.packet)
