"""A divergence as a value, for people, as data, and as entries of the corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from harness.analyse.divergence.alone import Alone
from harness.execute import Growth
from harness.generate import CorpusEntry


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """What was found.

    Attributes:
        change: In what the run's inputs differ from the example; "" for the example.
        kind: ``none`` where the result is right; ``operator`` where a value departs; ``accumulated`` where
            none does; ``optimisation`` where none does and the backend is right without its optimisations;
            ``unknown`` where none does of those that could be compared.
        problem: What is wrong with the end result; "" where it is right.
        module: Of the departure: the module of `operator`, by its path.
        operator: Which operator departs: of several the first that is wrong by itself, else the last.
        operators: The operators that the value is the result of, the last first.
        node: Of the PyTorch graph.
        detail: How the value differs.
        alone: The operators by themselves.
        checked: Values compared, of the `checkpoints` that could be.
        not_run: Slices that could not be exported or run by themselves, in words.
        growth: How errors grew over the whole; None where that cannot be said.
    """

    model: str
    converter: str
    backend: str
    change: str
    kind: str
    problem: str
    module: str = ""
    operator: str = ""
    operators: tuple[str, ...] = ()
    node: str = ""
    onnx_node: str = ""
    detail: str = ""
    alone: tuple[Alone, ...] = ()
    checked: int = 0
    checkpoints: int = 0
    not_run: tuple[str, ...] = ()
    growth: Growth | None = None

    @property
    def verdict(self) -> str:
        """Whose fault it is, in a sentence."""
        if self.kind == "none":
            return "Nothing diverges."
        if self.kind == "unknown":
            return f"Nothing that could be compared departs: {self.checked} of {self.checkpoints} values."
        if self.kind == "accumulated":
            return (
                "No operator departs from what PyTorch makes of its inputs: the error is accumulated, or due "
                "to how the whole graph is optimised."
            )
        if self.kind == "optimisation":
            return (
                f"No operator departs by itself, and without its graph optimisations {self.backend} is "
                "right: it optimises the whole graph wrongly."
            )
        where = f" in {self.module}" if self.module else ""
        wrong = [alone.overload for alone in self.alone if alone.outcome == "mismatch"]
        unknown = [alone.overload for alone in self.alone if alone.outcome == "error"]
        first = f"First divergence: {self.operator}{where}"
        if self.onnx_node:
            part_of = "" if self.operator == self.operators[0] else "part of "
            first += f" ({part_of}ONNX node {self.onnx_node})"
        if wrong:
            return f"{first}. {' and '.join(wrong)} is wrong by itself, on the inputs that it has there."
        if unknown:
            return f"{first}. {' and '.join(unknown)} cannot be run by itself."
        if len(self.operators) > 1:
            return f"{first}. Its {len(self.operators)} operators are right by themselves: fusing them is wrong."
        return f"{first}. It is right by itself: what goes wrong is how it is exported among others."

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        data = {**asdict(self), "verdict": self.verdict}
        for alone, entry in zip(self.alone, data["alone"], strict=True):
            invocation = alone.invocation
            entry["case_id"] = invocation.case_id if invocation is not None else ""
            entry["invocation"] = invocation.json if invocation is not None else ""
        return data


def divergence_lines(found: Divergence) -> Iterator[str]:
    """What was found, a sentence or two per line."""
    yield f"{found.model}, {found.converter} → {found.backend}" + (f", {found.change}" if found.change else "")
    yield f"end result: {found.problem or 'right'}"
    if found.growth is not None:
        yield f"  {found.growth}"
    yield f"values compared: {found.checked} of {found.checkpoints}"
    for slice_ in found.not_run:
        yield f"  not compared, since it cannot be run by itself: {slice_}"
    yield found.verdict
    if found.kind == "operator":
        yield f"  module      {found.module or '(the model itself)'}"
        part_of = f", part of {' ← '.join(found.operators)}" if len(found.operators) > 1 else ""
        yield f"  operator    {found.operator}{part_of}"
        yield f"  graph node  {found.node}"
        yield f"  ONNX node   {found.onnx_node or '(folded away)'}"
        yield f"  {found.detail}"
    for alone in found.alone:
        case = f", case {alone.invocation.case_id}" if alone.invocation is not None else ""
        yield f"  alone: {alone.overload}{case}: {alone.outcome}" + (
            f": {alone.message.splitlines()[0]}" if alone.message else ""
        )


def divergence_entries(found: Divergence) -> list[CorpusEntry]:
    """The operators of a departure, to be run by themselves from now on."""
    where = f" ({found.module})" if found.module else ""
    note = f"first divergence of {found.model}{where}, {found.converter} → {found.backend}"
    return [
        CorpusEntry(invocation=alone.invocation, origin="captured", note=note)
        for alone in found.alone
        if alone.invocation is not None
    ]
