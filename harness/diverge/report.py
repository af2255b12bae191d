"""A divergence for people, as data, and as an entry of the corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from harness.corpus import CorpusEntry
from harness.diverge.diverge import Divergence


def lines(found: Divergence) -> Iterator[str]:
    """What was found, a sentence or two per line."""
    yield f"{found.model}, {found.converter} → {found.backend}" + (
        f", {found.change}" if found.change else ""
    )
    yield f"end result: {found.problem or 'right'}"
    if found.growth is not None:
        yield f"  {found.growth}"
    yield f"values compared: {found.checked} of {found.checkpoints}"
    for slice_ in found.not_run:
        yield f"  not compared, since it cannot be run by itself: {slice_}"
    yield verdict(found)
    if found.kind == "operator":
        yield f"  module      {found.module or '(the model itself)'}"
        yield f"  operator    {' ← '.join(found.operators)}"
        yield f"  graph node  {found.node}"
        yield f"  ONNX node   {found.onnx_node or '(folded away)'}"
        yield f"  {found.detail}"
    for alone in found.alone:
        case = f", case {alone.invocation.case_id}" if alone.invocation is not None else ""
        yield f"  alone: {alone.overload}{case}: {alone.outcome}" + (
            f": {alone.message.splitlines()[0]}" if alone.message else ""
        )


def verdict(found: Divergence) -> str:
    """Whose fault it is, in a sentence."""
    if found.kind == "none":
        return "Nothing diverges."
    if found.kind == "unknown":
        return f"Nothing that could be compared departs: {found.checked} of {found.checkpoints} values."
    if found.kind == "accumulated":
        return (
            "No operator departs from what PyTorch makes of its inputs: the error is accumulated, or due to "
            "how the whole graph is optimised."
        )
    if found.kind == "optimisation":
        return (
            f"No operator departs by itself, and without its graph optimisations {found.backend} is right: "
            "it optimises the whole graph wrongly."
        )
    where = f" in {found.module}" if found.module else ""
    wrong = [alone.overload for alone in found.alone if alone.outcome == "mismatch"]
    unknown = [alone.overload for alone in found.alone if alone.outcome == "error"]
    first = f"First divergence: {found.operators[0]}{where}"
    if found.onnx_node:
        first += f" (ONNX node {found.onnx_node})"
    if wrong:
        return f"{first}. {' and '.join(wrong)} is wrong by itself, on the inputs that it has there."
    if unknown:
        return f"{first}. {' and '.join(unknown)} cannot be run by itself."
    if len(found.operators) > 1:
        return f"{first}. Its {len(found.operators)} operators are right by themselves: fusing them is wrong."
    return f"{first}. It is right by itself: what goes wrong is how it is exported among others."


def to_data(found: Divergence) -> dict[str, Any]:
    """As JSON."""
    data = asdict(found)
    data["verdict"] = verdict(found)
    for alone, entry in zip(found.alone, data["alone"], strict=True):
        invocation = alone.invocation
        entry["case_id"] = invocation.case_id if invocation is not None else ""
        entry["invocation"] = invocation.json if invocation is not None else ""
    return data


def entries(found: Divergence) -> list[CorpusEntry]:
    """The operators of a departure, to be run by themselves from now on."""
    where = f" ({found.module})" if found.module else ""
    note = f"first divergence of {found.model}{where}, {found.converter} → {found.backend}"
    return [
        CorpusEntry(invocation=alone.invocation, origin="captured", note=note)
        for alone in found.alone
        if alone.invocation is not None
    ]
