"""A divergence for people, as data, and as an entry of the corpus."""

from __future__ import annotations

from collections.abc import Iterator

from harness.analyse.divergence.first_divergence import Divergence
from harness.generate import CorpusEntry


def divergence_lines(found: Divergence) -> Iterator[str]:
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
    yield found.verdict
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


def divergence_entries(found: Divergence) -> list[CorpusEntry]:
    """The operators of a departure, to be run by themselves from now on."""
    where = f" ({found.module})" if found.module else ""
    note = f"first divergence of {found.model}{where}, {found.converter} → {found.backend}"
    return [
        CorpusEntry(invocation=alone.invocation, origin="captured", note=note)
        for alone in found.alone
        if alone.invocation is not None
    ]
